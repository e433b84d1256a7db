"""Phases of a training: first the head of a model on its frozen base, then layers of the base, too."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Literal

from pydantic import Field

from etlrun.stages.base import TRAINING, Expected, Positive, PositiveNumber, Stage

Unfrozen = Literal["last_block", "all"] | Annotated[int, Field(ge=1)]
"""Layers of a base that are trained: its last block, all of them, or the last ones, by number."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Phase(Stage):
    """Epochs in which the same layers are trained, by an optimizer that begins with them.

    Attributes:
        epochs: Passes over the training examples.
        unfreeze: Layers of the base that are trained, too, from here on: `last_block`, a number of last layers, or
            `all`; null for those of the phase before, which in the first phase are none. Batch normalizations stay
            frozen.
        learning_rate: Learning rate of the optimizer; null for `trainer.learning_rate`.
    """

    path = "trainer.phases"

    epochs: Annotated[Positive, TRAINING]
    unfreeze: Annotated[
        Unfrozen | None, Expected("last_block, a positive number of layers, all, or null"), TRAINING
    ] = None
    learning_rate: Annotated[PositiveNumber | None, TRAINING] = None

    def __repr__(self) -> str:
        """Return the phase as in a config."""
        values = ((field.name, getattr(self, field.name)) for field in fields(Phase))
        return f"{{{', '.join(f'{name}: {value}' for name, value in values if value is not None)}}}"


@dataclass(frozen=True, kw_only=True, repr=False)
class PlannedPhase(Phase):
    """A phase with all its values.

    Attributes:
        number: Number of the phase, from 1.
        done: Epochs before it.
    """

    number: int
    done: int

    @property
    def path(self) -> str:  # type: ignore[override] # each has its own
        """Key of the phase in a config, whose lists begin with 0."""
        return f"{Phase.path}[{self.number - 1}]"

    @property
    def end(self) -> int:
        """Epochs up to its end."""
        return self.done + self.epochs
