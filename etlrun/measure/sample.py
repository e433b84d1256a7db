"""Examples that a training has read, kept for what is computed from them when it has ended."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Taken = tuple[dict[str, Array], dict[str, Array], Array]


class Sample:
    """First examples of a pass as a model is given them: references to their batches, which nothing copies meanwhile.

    Attributes:
        most: Number of examples that are kept at most.
        is_part: Whether they are a part of a pass, which the next batch does not belong to.
    """

    def __init__(self, inputs: Sequence[str], targets: Sequence[str], batches: int, most: int) -> None:
        """Begin without one; at most so many batches and examples are kept, with these inputs and targets of them."""
        self._inputs, self._targets, self._batches, self.most = inputs, targets, batches, most
        self._parts, self._examples, self.is_part = list[list[dict[str, Any]]](), 0, False

    def add(self, inputs: Any, targets: Any, *weights: Any) -> None:
        """Add a batch, unless there are enough."""
        if self.is_part:
            self._parts, self._examples, self.is_part = [], 0, False
        if len(self._parts) < self._batches and self._examples < self.most:
            wanted = _named(targets, self._targets)
            self._parts.append([_named(inputs, self._inputs), wanted, *({"": of} for of in weights)])
            self._examples += int(wanted[self._targets[0]].shape[0])

    def taken(self) -> Taken | None:
        """Return inputs and targets by name (examples, …) and weights (examples,), and forget them; None without."""
        parts, self._parts = self._parts, []
        if not parts:
            return None
        inputs, targets, *weights = (
            {name: np.concatenate([np.asarray(each[name]) for each in of])[: self.most] for name in of[0]}
            for of in zip(*parts, strict=True)
        )
        equal = np.ones(len(targets[self._targets[0]]))
        return inputs, targets, weights[0][""].reshape(-1).astype(np.float64) if weights else equal


def _named(values: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: values[name] if isinstance(values, Mapping) else values for name in names}
