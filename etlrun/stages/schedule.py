"""Schedules of the learning rate."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Annotated, Literal

from etlrun.stages.base import TRAINING, Factor, Fraction, Natural, OptionalPositive, Positive, Share, Stage
from etlrun.stages.flow import Faults


@dataclass(frozen=True, kw_only=True)
class Schedule(Stage):
    """Changes the learning rate with the training steps, from 0: each step of a run is one.

    Attributes:
        name: Keras's `CosineDecay`, `ExponentialDecay` or `PiecewiseConstantDecay`, or a constant rate.
        warmup_steps: First steps, in which the rate rises linearly from 0 to `learning_rate`.
        decay_steps: Steps after the warm-up until the cosine ends, or in which the rate is multiplied by `decay_rate`;
            null for all steps of the run.
        alpha: Rate at the end of the cosine, relative to `learning_rate`.
        decay_rate: Factor of the exponential decay.
        boundaries: Last step of each rate, in increasing order.
        factors: Rates after the boundaries, relative to `learning_rate`.
    """

    path = "trainer.schedule"

    name: Annotated[Literal["constant", "cosine", "exponential", "piecewise"], TRAINING] = "constant"
    warmup_steps: Annotated[Natural, TRAINING] = 0
    decay_steps: Annotated[OptionalPositive, TRAINING] = None
    alpha: Annotated[Fraction, TRAINING] = 0.0
    decay_rate: Annotated[Share | None, TRAINING] = None
    boundaries: Annotated[tuple[Positive, ...], TRAINING] = ()
    factors: Annotated[tuple[Factor, ...], TRAINING] = ()

    @property
    def needs_run(self) -> bool:
        """Whether it depends on the number of steps of the whole run."""
        return self.name in ("cosine", "exponential") and self.decay_steps is None

    def rules(self) -> Faults:
        used = {
            "constant": (),
            "cosine": ("decay_steps", "alpha"),
            "exponential": ("decay_steps", "decay_rate"),
            "piecewise": ("boundaries", "factors"),
        }[self.name]
        for field in fields(self)[2:]:
            value = getattr(self, field.name)
            if field.name not in used and value != field.default:
                nothing = "null" if field.default is None else shown(field.default)
                remedy = f"set {self.key(field.name)}={nothing}"
                yield field.name, shown(value), f"{nothing} with {self.key('name')}={self.name}", remedy
        if self.name == "exponential" and self.decay_rate is None:
            yield "decay_rate", "null", "the factor of the decay", f"set {self.key('decay_rate')}=0.1, or another one"
        if self.name == "piecewise":
            yield from self._pieces()

    def _pieces(self) -> Faults:
        steps = (self.warmup_steps, *self.boundaries)
        if not self.boundaries or any(one >= other for one, other in pairwise(steps)):
            expected = f"steps after the {self.warmup_steps} of the warm-up, in increasing order"
            yield "boundaries", shown(self.boundaries), expected, f"list the steps in {self.key('boundaries')}"
        if len(self.factors) != len(self.boundaries):
            expected = f"{len(self.boundaries)} factors, one after each boundary"
            yield "factors", shown(self.factors), expected, f"list the factors in {self.key('factors')}"


def shown(value: object) -> str:
    """Return a value of a config, of which a list is a tuple here, for a message."""
    return str(list(value)) if isinstance(value, tuple) else str(value)
