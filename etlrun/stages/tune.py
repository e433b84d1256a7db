"""The `tune` group: what `etlrun tune` may change, and how much time it has. It is not part of a run's config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from etlrun.stages.base import Expected, PositiveNumber, Seed, Stage
from etlrun.stages.flow import Faults
from etlrun.stages.paths import OptionalPath

Allowed = Literal["speed", "order", "data"]


@dataclass(frozen=True, kw_only=True)
class Tune(Stage):
    """What a search may change, and how much time it has.

    Attributes:
        budget_s: Seconds of measuring. The confirmation of what was found is part of them.
        allow: Kinds of parameters that may change: `speed` alone leaves data, order and results as they are; `order`
            adds the cycle length; `data` adds the decoder and the codec of caches, which change pixels.
        seed: Seed of the order of the measurements.
        resume: Folder of an interrupted search to resume; null for a new one.
    """

    path = "tune"

    budget_s: PositiveNumber
    allow: Annotated[
        Annotated[tuple[Allowed, ...], Field(min_length=1)], Expected("a list of speed, order, data, with speed")
    ]
    seed: Seed
    resume: OptionalPath

    def faults(self) -> Faults:
        if "speed" not in self.allow or len(set(self.allow)) < len(self.allow):
            found, expected = str(list(self.allow)), "speed, and each further kind once"
            yield "allow", found, expected, "set tune.allow=[speed], [speed,order] or [speed,order,data]"
