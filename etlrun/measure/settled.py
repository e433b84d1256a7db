"""Values that AUTOTUNE settled on, as config values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from etlrun.plan.plan import PlannedStage
from etlrun.record.findings import StageCost

_TUNED = {
    "extract.interleave": ("num_parallel_calls", "parallelism", "extract.num_parallel_calls"),
    "transform.map": ("num_parallel_calls", "parallelism", "transform.num_parallel_calls"),
    "transform.after_cache": ("num_parallel_calls", "parallelism", "transform.num_parallel_calls"),
    "load.prefetch": ("buffer_size", "buffer_size", "load.prefetch"),
}
"""Tunable stages: the parameter of the stage, its field in `StageCost`, and its config key."""


def _settled(stages: Sequence[PlannedStage], rows: Sequence[StageCost]) -> Iterator[tuple[PlannedStage, str, str, int]]:
    costs = {row.stage: row for row in rows}
    for planned in stages:
        path = planned.stage.path
        if path in _TUNED and path in costs:
            parameter, attribute, key = _TUNED[path]
            value = getattr(costs[path], attribute)
            if getattr(planned.stage, parameter) == "autotune" and value:
                yield planned, parameter, key, value


def settled_values(stages: Sequence[PlannedStage], rows: Sequence[StageCost]) -> dict[str, int]:
    """Return the values that AUTOTUNE chose where the plan says `autotune`, by dotted config key."""
    return {key: value for _, _, key, value in _settled(stages, rows)}


def with_settled(stages: Sequence[PlannedStage], rows: Sequence[StageCost]) -> list[PlannedStage]:
    """Return `stages` with the values that AUTOTUNE chose, so that another pass starts from them."""
    found = {id(planned): {parameter: value} for planned, parameter, _, value in _settled(stages, rows)}
    return [
        dataclasses.replace(planned, stage=dataclasses.replace(planned.stage, **found.get(id(planned), {})))  # type: ignore[type-var]
        for planned in stages
    ]
