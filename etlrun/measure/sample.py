"""Examples that a training has read, kept for what is computed from them when it has ended."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.stages.flow import Flow

Array = npt.NDArray[Any]
Taken = tuple[dict[str, Array], dict[str, Array], Array]


class Sample:
    """First examples of a pass as a model is given them: references to their batches, which nothing copies meanwhile.

    Attributes:
        most: Number of examples that are kept at most.
        is_part: Whether they are a part of a pass, which the next batch does not belong to.
    """

    def __init__(self, flow: Flow, inputs: Sequence[str], batches: int, most: int) -> None:
        """Begin without one; at most so many batches and examples of `flow` are kept, with these inputs of them."""
        self._flow, self._inputs, self._batches, self.most = flow, inputs, batches, most
        self._parts, self._examples, self.is_part = list[tuple[Any, ...]](), 0, False

    def add(self, inputs: Any, targets: Any, *weights: Any) -> None:
        """Add a batch, unless there are enough."""
        if self.is_part:
            self._parts, self._examples, self.is_part = [], 0, False
        if len(self._parts) < self._batches and self._examples < self.most:
            by_name = inputs if isinstance(inputs, Mapping) else dict.fromkeys(self._inputs, inputs)
            wanted = targets if isinstance(targets, Mapping) else {self._flow.target: targets}
            self._parts.append(({name: by_name[name] for name in self._inputs}, wanted, *weights))
            self._examples += int(wanted[self._flow.target].shape[0])

    def taken(self) -> Taken | None:
        """Return inputs and targets by name (examples, …) and weights (examples,), and forget them; None without."""
        parts, self._parts = self._parts, []
        if not parts:
            return None
        each = [*zip(*parts, strict=True)]
        inputs, targets = (
            {name: self._joined([of[name] for of in part]) for name in names}
            for part, names in zip(each, (self._inputs, self._flow.targets), strict=False)
        )
        count = len(targets[self._flow.target])
        weights = self._joined(each[2]).reshape(-1).astype(np.float64) if each[2:] else np.ones(count)
        return inputs, targets, weights

    def _joined(self, parts: Sequence[Any]) -> Array:
        return np.concatenate([np.asarray(part) for part in parts])[: self.most]
