"""Plan of a run: its stages in order, without TensorFlow. `etlrun.planning.planner` makes it from a `RunSpec`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

from etlrun.planning.spec import RunSpec
from etlrun.planning.training import monitor_of
from etlrun.stages.base import SPEED, Stage, parameters
from etlrun.stages.cache import Cache
from etlrun.stages.flow import Flow
from etlrun.stages.load import FullShuffle
from etlrun.stages.model import Backbone
from etlrun.stages.step import Step
from etlrun.stages.trainer import Trainer

StageT = TypeVar("StageT", bound=Stage)
CODE_OF = "code of "
"""Beginning of the paths of code in `decisive`."""
STAGES = "stages"
"""End of the paths of the orders of stages in `decisive`."""
_PREFIXES = ("train/", "eval/", "model/")


@dataclass(frozen=True, kw_only=True)
class PlannedStage:
    """A stage of a planned pipeline.

    Attributes:
        stage: The stage with all its values.
        gives: Its output.
        steps: For `transform.map`, its steps with their outputs.
    """

    stage: Stage
    gives: Flow
    steps: tuple[PlannedStep, ...] = ()

    @property
    def is_random(self) -> bool:
        """Whether its result differs from pass to pass."""
        return self.stage.random or any(step.is_random for step in self.steps)


@dataclass(frozen=True, kw_only=True)
class PlannedStep(PlannedStage):
    """A step of a planned pipeline."""

    stage: Step


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run before it starts.

    Attributes:
        spec: The requested run.
        train: Stages of the training pipeline, in order.
        evaluation: Stages of the validation pipeline; empty without validation.
        by_model: Scaling steps at the end of both pipelines that the model applies, because its one input is uint8.
        plain: Stages of training, of validation and of the model in the same run without a cache, and without all else
            that changes only its speed.
        remarks: Notes for the reader, one sentence each.
        code: Package, version and code of what installed packages add to the run, by name.
        unfrozen: Plan without a cache of the phases that train layers of the base, if the cache holds its features;
            else None.
    """

    spec: RunSpec
    train: tuple[PlannedStage, ...]
    evaluation: tuple[PlannedStage, ...]
    by_model: tuple[PlannedStep, ...]
    plain: tuple[Sequence[PlannedStage], Sequence[PlannedStage], Sequence[PlannedStage]]
    remarks: tuple[str, ...]
    unfrozen: Plan | None = None
    code: Mapping[str, str] = field(default_factory=dict)

    @property
    def pipelines(self) -> dict[str, tuple[PlannedStage, ...]]:
        """Stages of both pipelines by name."""
        return {"train": self.train, "validation": self.evaluation}

    @property
    def deciding(self) -> Iterator[tuple[str, Stage]]:
        """Stages whose parameters determine the results, each with the prefix of its values in `decisive`."""
        yield from (("", stage) for stage in (self.spec.dataset, *sections(self.spec)))
        for prefix, stages in zip(_PREFIXES, self.plain, strict=True):
            yield from ((prefix, inner.stage) for outer in stages for inner in (outer, *outer.steps))

    @cached_property
    def decisive(self) -> Mapping[str, Any]:
        """All values that determine the results, by dotted path; without those that only change the speed."""
        return decisive_values(self.spec, *self.plain) | {f"{CODE_OF}{name}": of for name, of in self.code.items()}

    @property
    def fingerprint(self) -> str:
        """First 16 hex digits of a SHA-256 over all values that determine the results of a run.

        Two runs with the same fingerprint, on the same data and machine, give the same results (unless a note says
        otherwise).
        """
        text = json.dumps(self.decisive, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def given_to_model(stages: Sequence[PlannedStage]) -> Flow:
    """Return the input of the whole model: the output of a pipeline, or of its part before the model's base."""
    own = [place for place, planned in enumerate(stages) if planned.stage.path == Backbone.path]
    return stages[own[0] - 1 if own else -1].gives


def reads_features(plan: Plan) -> bool:
    """Return whether only the head of the model is trained, on cached features of its base; at first, if in phases."""
    return plan.spec.cache.keeps_features


def sections(spec: RunSpec) -> Iterator[Stage]:
    """Yield the parts of a run that are not pipelines, in the order in which they are shown."""
    yield spec.model
    yield spec.trainer
    if spec.fit is not None:
        yield from parts_of(spec.fit)
    yield spec.profile
    yield spec.logger
    yield spec.measure


def parts_of(trainer: Trainer) -> tuple[Stage, ...]:
    """Return the parts of a trainer, in the order in which they are shown."""
    phases = trainer.planned_phases if trainer.phases is not None else ()
    return trainer.early_stopping, trainer.schedule, *phases


def at_cache(stages: Sequence[PlannedStage]) -> tuple[Sequence[PlannedStage], Cache | None, Sequence[PlannedStage]]:
    """Return the stages before the cache, the cache, and the stages after it; without a cache, all stages are after."""
    for place, planned in enumerate(stages):
        if planned.stage.keeps:
            return stages[:place], cast("Cache", planned.stage), stages[place + 1 :]
    return (), None, stages


def by_number(stages: Sequence[PlannedStage]) -> Sequence[PlannedStage]:
    """Return the stages of a pipeline with a full shuffle as they read examples without a cache; else none."""
    shuffle = stage_of(stages, FullShuffle)
    if shuffle is None:
        return []
    others = [planned for planned in stages if planned.stage is not shuffle and not planned.stage.keeps]
    return [others[0], PlannedStage(stage=shuffle, gives=others[0].gives), *others[1:]]


def place_of_point(point: str, steps: Sequence[Step]) -> int | None:
    """Return the number of `steps` before the point of that name; None if no step leads to it."""
    return next((place for place, step in enumerate(steps, 1) if point in step.points), None)


def name_of_point(steps: Sequence[Step]) -> str:
    """Return the value of `cache.at` for the point after `steps`."""
    return steps[-1].points[0] if steps else "source"


def stage_of(stages: Iterable[PlannedStage], kind: type[StageT]) -> StageT | None:
    """Return the only stage of that type; None if there is none."""
    return next((planned.stage for planned in stages if isinstance(planned.stage, kind)), None)


def decisive_values(
    spec: RunSpec, train: Iterable[PlannedStage], evaluation: Iterable[PlannedStage], by_model: Iterable[PlannedStage]
) -> dict[str, Any]:
    """Return all values that determine the results of a run, by dotted path; without those of speed."""
    values: dict[str, Any] = {}
    for stage in (spec.dataset, *sections(spec)):
        values |= data_values(stage, "")
    for prefix, stages in zip(_PREFIXES, (train, evaluation, by_model), strict=True):
        values |= values_of(stages, prefix)
    if spec.load.class_weights != "none":
        values[spec.load.key("class_weights")] = spec.load.class_weights
    if spec.fit is not None and spec.fit.jit_compile is None:
        values[f"{spec.fit.path}.jit_compile"] = False  # what it is, but for JAX, which has no other default
    if monitor_of(spec) is None:
        values.pop(f"{Trainer.path}.keep", None)  # the last epoch either way
    if keeps_file_order(spec):
        values[f"train/{spec.extract.path}.shuffle_files"] = "in the first pass, whose order the cache keeps"
    return values


def values_of(stages: Iterable[PlannedStage], prefix: str = "", shards: int | None = None) -> dict[str, Any]:
    """Return the values that determine the output of `stages`: their order, as `stages`, and their parameters.

    With a number of `shards`, values that are equivalent for that number are equal.
    """
    flat = [inner.stage for outer in stages for inner in (outer, *outer.steps)]
    values: dict[str, Any] = {f"{prefix}{STAGES}": [stage.path for stage in flat if stage.changes_data]}
    for stage in flat:
        values |= data_values(stage if shards is None else stage.canonical(shards), prefix)
    return values


def keeps_file_order(spec: RunSpec) -> bool:
    """Return whether a cache fixes the shard order of the first pass for all later ones."""
    return spec.extract.random and spec.cache.keeps


def data_values(stage: Stage, prefix: str) -> dict[str, Any]:
    """Return the parameters of `stage` that change more than the speed, by dotted path; optional ones only if set."""
    others = stage.chooses_stages if isinstance(stage, Step) else ()
    return {
        f"{prefix}{stage.path}.{parameter.name}": parameter.value
        for parameter in parameters(stage)
        if parameter.kind != SPEED and not parameter.is_default and parameter.name not in others
    }
