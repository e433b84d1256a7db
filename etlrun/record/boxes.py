"""Stages of a run as boxes in the order of its pipeline, each with its cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from etlrun.record import record as records
from etlrun.record.config import PLAN
from etlrun.record.findings import StageCost
from etlrun.record.summary import Summary

_TAIL_BYTES = 65_536
"""Part at the end of `events.jsonl` that is searched, so that long runs are not read anew after each epoch."""


@dataclass(frozen=True, kw_only=True)
class Box:
    """A stage.

    Attributes:
        name: Name of the stage in the plan.
        steps: Names of its steps.
        cost_ms: Milliseconds per example, summed over all threads; None if it was not measured.
        share: Fraction of the costs of all stages, from 0 to 1; None if it was not measured.
        threads: Number of threads; None for a stage without threads of its own.
        mark: Why it stands out; empty if it does not.
    """

    name: str
    steps: tuple[str, ...] = ()
    cost_ms: float | None = None
    share: float | None = None
    threads: int | None = None
    mark: str = ""


def boxes(folder: Path, summary: Summary) -> tuple[str, list[Box]]:
    """Return the name of the pipeline that the measurements are about, and its stages.

    Until a run has a verdict, the costs are those of the last epoch of its training pipeline.
    """
    verdict = summary.verdict
    pipeline = (verdict and verdict.pipeline) or "train"
    costs: Sequence[StageCost] = summary.stages or _last_costs(folder, pipeline)
    by_name, steps = {row.stage: row for row in costs}, _planned(folder, pipeline)
    total = sum(row.cost_ms for row in costs)
    marks: dict[str, str] = {}
    if costs and total > 0:
        slowest = max(costs, key=lambda row: row.cost_ms / (row.parallelism or 1))
        marks[slowest.stage] = "slowest"
    if verdict is not None and verdict.kind == "input" and verdict.stage:
        marks = {verdict.stage: "limits the run"}
    return pipeline, [
        Box(
            name=name,
            steps=steps.get(name, ()),
            cost_ms=row.cost_ms if row else None,
            share=row.cost_ms / total if row and total > 0 else None,
            threads=row.parallelism if row else None,
            mark=marks.get(name, ""),
        )
        for name in dict.fromkeys([*steps, *by_name])
        for row in [by_name.get(name)]
    ]


def _planned(folder: Path, pipeline: str) -> dict[str, tuple[str, ...]]:
    """Return the stages of a pipeline in order, each with its steps; empty if `plan.json` can't be read."""
    try:
        stages = json.loads((folder / PLAN).read_bytes())[pipeline]
        return {str(stage["stage"]): tuple(str(step["stage"]) for step in stage.get("steps", ())) for stage in stages}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def _last_costs(folder: Path, pipeline: str) -> list[StageCost]:
    """Return the costs of the last epoch that was long enough to be sampled; empty if there is none."""
    costs: list[StageCost] = []
    for event in records.events(folder, _TAIL_BYTES):
        if event.get("event") == "stages" and event.get("pipeline") == pipeline:
            try:
                costs = TypeAdapter(list[StageCost]).validate_python(event.get("stages"))
            except ValidationError:
                costs = []
    return costs
