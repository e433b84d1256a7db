"""What will happen, and in which order: a `Plan`, free of TensorFlow. `etlrun.plan.planner` makes it of a `RunSpec`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from etlrun.plan.spec import RunSpec
from etlrun.stages.base import SPEED, Stage, parameters
from etlrun.stages.cache import Cache
from etlrun.stages.flow import Flow
from etlrun.stages.model import Backbone
from etlrun.stages.step import Step

StageT = TypeVar("StageT", bound=Stage)


@dataclass(frozen=True, kw_only=True)
class PlannedStage:
    """A stage in its place.

    Attributes:
        stage: With all its values.
        gives: What flows out of it.
        steps: For `transform.map`, its steps with what each gives.
    """

    stage: Stage
    gives: Flow
    steps: tuple[PlannedStep, ...] = ()

    @property
    def is_random(self) -> bool:
        """Whether it does something else in each pass."""
        return self.stage.random or any(step.is_random for step in self.steps)


@dataclass(frozen=True, kw_only=True)
class PlannedStep(PlannedStage):
    """A step in its place."""

    stage: Step


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run before it starts.

    Attributes:
        spec: What was asked for.
        train: The stages that training examples go through, in order.
        evaluation: Those of validation examples; empty where there is no validation.
        by_model: The scaling steps at the end of both that the model does, since the one input before them is uint8.
        decisive: Everything that decides the run's numbers, by dotted path; speed, and so the cache, left out.
        remarks: What a reader should know, one sentence each.
    """

    spec: RunSpec
    train: tuple[PlannedStage, ...]
    evaluation: tuple[PlannedStage, ...]
    by_model: tuple[PlannedStep, ...]
    decisive: Mapping[str, Any]
    remarks: tuple[str, ...]

    @property
    def pipelines(self) -> dict[str, tuple[PlannedStage, ...]]:
        """The stages by the name of their pipeline."""
        return {"train": self.train, "validation": self.evaluation}

    @property
    def fingerprint(self) -> str:
        """16 hex digits of a SHA-256 over all that decides the numbers of a run, speed left out.

        Two runs of one fingerprint, on the same data and the same machine, come to the same numbers
        (unless a remark says otherwise).
        """
        text = json.dumps(self.decisive, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def given_to_model(stages: Sequence[PlannedStage]) -> Flow:
    """Return the input of the whole model: the end of a pipeline, or of its part before the model's own base."""
    own = [place for place, planned in enumerate(stages) if planned.stage.path == Backbone.path]
    return stages[own[0] - 1 if own else -1].gives


def reads_features(plan: Plan) -> bool:
    """Whether the head of the model is trained alone, on what a cache keeps of its base."""
    return plan.spec.cache.at == "features" and plan.spec.cache.keeps


def sections(spec: RunSpec) -> Iterator[Stage]:
    """The parts of a run that are no pipeline, in the order in which they are shown."""
    yield spec.model
    yield spec.trainer
    if spec.fit is not None:
        yield spec.fit.early_stopping
    yield spec.profile
    yield spec.measure


def at_cache(stages: Sequence[PlannedStage]) -> tuple[Sequence[PlannedStage], Cache | None, Sequence[PlannedStage]]:
    """The stages before the cache, the cache, and those after it; where there is none, all stages are after it."""
    for place, planned in enumerate(stages):
        if planned.stage.keeps:
            return stages[:place], cast("Cache", planned.stage), stages[place + 1 :]
    return (), None, stages


def place_of_point(point: str, steps: Sequence[Step]) -> int | None:
    """Return how many of `steps` come before a point of that name; None where none of them leads there."""
    return next((place for place, step in enumerate(steps, 1) if point in step.points), None)


def name_of_point(steps: Sequence[Step]) -> str:
    """Return how `cache.at` calls the point after `steps`."""
    return steps[-1].points[0] if steps else "source"


def stage_of(stages: Iterable[PlannedStage], kind: type[StageT]) -> StageT | None:
    """Return the stage of that type, of which a pipeline has one at most; None where it has none."""
    return next((planned.stage for planned in stages if isinstance(planned.stage, kind)), None)


def decisive_values(
    spec: RunSpec, train: Iterable[PlannedStage], evaluation: Iterable[PlannedStage], by_model: Iterable[PlannedStage]
) -> dict[str, Any]:
    """Everything that decides the numbers of a run of these stages, by dotted path, speed left out."""
    values: dict[str, Any] = {}
    for stage in (spec.dataset, *sections(spec)):
        values |= data_values(stage, "")
    for prefix, stages in (("train/", train), ("eval/", evaluation), ("model/", by_model)):
        flat = [inner for outer in stages for inner in (outer, *outer.steps)]
        values[f"{prefix}stages"] = [planned.stage.path for planned in flat if planned.stage.changes_data]
        for planned in flat:
            values |= data_values(planned.stage, prefix)
    if keeps_file_order(spec):
        values[f"train/{spec.extract.path}.shuffle_files"] = "in the first pass, whose order the cache keeps"
    return values


def keeps_file_order(spec: RunSpec) -> bool:
    """Whether a cache keeps the order in which the first pass has read the shards, so that it changes the order."""
    return spec.extract.random and spec.cache.keeps


def data_values(stage: Stage, prefix: str) -> dict[str, Any]:
    """The parameters of `stage` that change more than the speed, by dotted path; of later ones those that are set."""
    return {
        f"{prefix}{stage.path}.{parameter.name}": parameter.value
        for parameter in parameters(stage)
        if parameter.kind != SPEED and not parameter.is_default
    }
