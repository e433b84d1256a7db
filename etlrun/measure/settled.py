"""Values that AUTOTUNE settled on, as config values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from etlrun.plan.plan import PlannedStage
from etlrun.record.findings import StageCost
from etlrun.stages.base import AUTOTUNE, Tuned


def _settled(stages: Sequence[PlannedStage], rows: Sequence[StageCost]) -> Iterator[tuple[PlannedStage, Tuned, int]]:
    """Yield each stage whose config says `autotune`, with the parameter that AUTOTUNE has set, and its value."""
    costs = {row.stage: row for row in rows}
    for planned in stages:
        tuned = planned.stage.tuned
        if tuned is not None and planned.stage.path in costs:
            value = getattr(costs[planned.stage.path], tuned.setting)
            if getattr(planned.stage, tuned.field) == AUTOTUNE and value:
                yield planned, tuned, value


def settled_values(stages: Sequence[PlannedStage], rows: Sequence[StageCost]) -> dict[str, int]:
    """Return the values that AUTOTUNE chose where the plan says `autotune`, by dotted config key."""
    return {tuned.key: value for _, tuned, value in _settled(stages, rows)}


def with_settled(stages: Sequence[PlannedStage], rows: Sequence[StageCost]) -> list[PlannedStage]:
    """Return `stages` with the values that AUTOTUNE chose, so that another pass starts from them."""
    found = {id(planned): {tuned.field: value} for planned, tuned, value in _settled(stages, rows)}
    return [
        dataclasses.replace(planned, stage=dataclasses.replace(planned.stage, **found.get(id(planned), {})))  # type: ignore[type-var]
        for planned in stages
    ]
