"""Optional measurements and profiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import Field

from etlrun.stages.base import SPEED, Expected, Flag, Fraction, Stage
from etlrun.stages.flow import Faults
from etlrun.system.errors import did_you_mean

ADVICE = {
    "serial_map": "the steps run serially while other cores are idle",
    "no_prefetch": "no batch is prepared while the model processes another",
    "cache_early": "steps after the cache are repeated in each epoch, though their output could be cached",
    "cache_unread": "a cache that is never read",
    "cache_above_memory": "a memory cache that does not fit into memory",
    "parallelism_above_cores": "more parallel calls than cores",
}
"""Performance checks of `etlrun check`, by the names with which a config silences them."""


@dataclass(frozen=True, kw_only=True)
class Measure(Stage):
    """The `measure` group.

    Attributes:
        au_min: Minimum accelerator utilization (AU) of a passing run, from 0 to 1; below it the exit status is 3.
            null for no limit. MLPerf Storage requires 0.9 for ResNet-50.
        digest: Whether to compute a digest of the examples of each epoch, independent of their order.
        silence: Checks of `etlrun check` to silence, each with the reason; it changes nothing else.
    """

    path = "measure"

    au_min: Annotated[Fraction | None, SPEED]
    digest: Annotated[Flag, SPEED]
    silence: Annotated[dict[str, str], Expected("a mapping from names of checks to reasons")] = field(
        default_factory=dict, compare=False
    )

    def faults(self) -> Faults:
        for name, reason in self.silence.items():
            if name not in ADVICE:
                yield f"silence.{name}", "an unknown check", f"one of {', '.join(ADVICE)}", did_you_mean(name, ADVICE)
            elif not reason.strip():
                yield f"silence.{name}", "no reason", "the reason for silencing the check", "state it in a few words"


Window = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=1)]]


@dataclass(frozen=True, kw_only=True)
class NoProfile(Stage):
    """No profile is recorded."""

    path = "profile.none"
    block = "profile"
    windows: ClassVar[tuple[Window, ...]] = ()


@dataclass(frozen=True, kw_only=True)
class Trace(Stage):
    """Records a TensorBoard profile of some windows of the training into the run's folder.

    Attributes:
        windows: [first, end) of each window, in training steps counted from 0 over all epochs; ordered and disjoint.
    """

    path = "profile.trace"
    block = "profile"

    windows: Annotated[
        Annotated[tuple[Window, ...], Field(min_length=1)],
        Expected("a list of windows [first step, end), for example [[10, 20]]"),
        SPEED,
    ]

    def faults(self) -> Faults:
        end = 0
        for first, next_end in self.windows:
            if first >= next_end or first < end:
                yield (
                    "windows",
                    str([list(window) for window in self.windows]),
                    "windows [first step, end) of at least one step, ordered and disjoint",
                    "write them as [[10, 20], [100, 110]]",
                )
                return
            end = next_end
