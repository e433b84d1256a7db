"""Parts of a run that are measured."""

from __future__ import annotations

from dataclasses import dataclass

from etlrun.graph.build import Pipeline
from etlrun.measure.watched import Watch
from etlrun.plan.plan import Plan
from etlrun.record.record import Record


@dataclass(frozen=True, kw_only=True)
class Work:
    """The parts of a run.

    Attributes:
        plan: Plan of the run.
        record: Record of the run.
        pipelines: Pipelines by name: `train` and, if there is validation, `validation`.
        watches: Measurements of each pipeline.
    """

    plan: Plan
    record: Record
    pipelines: dict[str, Pipeline]
    watches: dict[str, Watch]

    @property
    def train(self) -> Pipeline:
        """The training pipeline."""
        return self.pipelines["train"]

    @property
    def validation(self) -> Pipeline | None:
        """The validation pipeline; None without validation."""
        return self.pipelines.get("validation")
