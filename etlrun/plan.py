"""What will happen, and in which order: a `RunSpec` becomes a `Plan`, free of TensorFlow."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from etlrun.errors import ConfigError, Fault
from etlrun.spec import RunSpec, show
from etlrun.stages.base import SPEED, Stage, parameters
from etlrun.stages.cache import NoCache
from etlrun.stages.extract import Tfds
from etlrun.stages.flow import Flow, UnfitError
from etlrun.stages.load import Batch, Prefetch, Shuffle
from etlrun.stages.measure import Trace
from etlrun.stages.model import Emulated, require_one_size
from etlrun.stages.skip import SkipCorrupt
from etlrun.stages.trainer import Trainer
from etlrun.stages.transform import Map, Parse

_SPEED_ONLY = ("cache.", "load.prefetch", "transform.parse", "transform.decode")
"""Stages whose presence changes no number: TFDS parses and decodes to the same bytes."""


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
    steps: tuple[PlannedStage, ...] = ()

    @property
    def is_random(self) -> bool:
        """Whether it does something else in each pass."""
        return self.stage.random or any(step.is_random for step in self.steps)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run before it starts.

    Attributes:
        spec: What was asked for.
        train: The stages that training examples go through, in order.
        evaluation: Those of validation examples; empty where there is no validation.
        remarks: What a reader should know, one sentence each.
    """

    spec: RunSpec
    train: tuple[PlannedStage, ...]
    evaluation: tuple[PlannedStage, ...]
    remarks: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """16 hex digits of a SHA-256 over all that decides the numbers of a run, speed left out.

        Two runs of one fingerprint, on the same data and the same machine, come to the same numbers
        (unless a remark says that the order is not deterministic).
        """
        text = json.dumps(decisive_values(self), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def plan(spec: RunSpec) -> Plan:
    """The plan of `spec`; `ConfigError` with every pair of stages that don't fit."""
    planner = _Planner(spec)
    train = planner.pipeline(spec.transform, evaluation=False)
    evaluation = planner.pipeline(spec.eval_transform, evaluation=True) if _validates(spec) else ()
    planner.rules(train, evaluation)
    if planner.faults:
        raise ConfigError(planner.faults)
    return Plan(spec=spec, train=train, evaluation=evaluation, remarks=tuple(_remarks(spec)))


def _validates(spec: RunSpec) -> bool:
    return spec.dataset.eval_split is not None


class _Planner:
    """Collects faults while it goes on."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.faults: list[Fault] = []

    def add(self, where: str, found: object, expected: str, remedy: str) -> None:
        fault = Fault(where=where, found=str(found), expected=expected, remedy=remedy)
        if fault not in self.faults:
            self.faults.append(fault)

    def pipeline(self, steps: Map, *, evaluation: bool) -> tuple[PlannedStage, ...]:
        stages, flow = [], Flow()
        for stage in self.stages(steps, evaluation=evaluation):
            planned = self.place(stage, flow)
            stages.append(planned)
            flow = planned.gives
        return tuple(stages)

    def stages(self, steps: Map, *, evaluation: bool) -> Iterator[Stage]:
        """The stages in order; random ones and the remainder rule are for training alone."""
        spec, load = self.spec, self.spec.load
        yield spec.extract
        parse = () if isinstance(spec.extract, Tfds) else (Parse(),)
        yield Map(
            num_parallel_calls=steps.num_parallel_calls,
            deterministic=steps.deterministic,
            steps=(*parse, *steps.steps),
        )
        if spec.dataset.on_corrupt == "skip":
            yield SkipCorrupt()
        if not isinstance(spec.cache, NoCache):
            yield spec.cache
        if load.shuffle_buffer and not evaluation:
            yield Shuffle(buffer_size=load.shuffle_buffer, seed=spec.trainer.seed)
        yield Batch(batch_size=load.batch_size, drop_remainder=load.drop_remainder and not evaluation)
        if load.prefetch:
            yield Prefetch(buffer_size=load.prefetch)

    def place(self, stage: Stage, flow: Flow) -> PlannedStage:
        if not isinstance(stage, Map):
            return PlannedStage(stage=stage, gives=self.through(stage, flow))
        steps = []
        for step in stage.steps:
            flow = self.through(step, flow)
            steps.append(PlannedStage(stage=step, gives=flow))
        return PlannedStage(stage=stage, gives=flow, steps=tuple(steps))

    def through(self, stage: Stage, flow: Flow) -> Flow:
        try:
            return stage.flow(flow)
        except UnfitError as unfit:
            self.add(stage.path, f"{flow} before it", unfit.expected, unfit.remedy)
            return flow

    def rules(self, train: tuple[PlannedStage, ...], evaluation: tuple[PlannedStage, ...]) -> None:
        """What no stage can know by itself."""
        spec, given = self.spec, train[-1].gives
        if not self.faults and isinstance(spec.trainer, Trainer):
            self.through(spec.model, given)
        if not self.faults and evaluation and evaluation[-1].gives != given:
            self.add(
                "transform.eval_steps",
                str(evaluation[-1].gives),
                f"what the training steps give, {given}",
                "make both lists end alike",
            )
        for step in spec.eval_transform.steps:
            if step.random:
                self.add(
                    "transform.eval_steps",
                    step.path,
                    "no random step, so that every epoch is validated alike",
                    "leave the step out",
                )
        if not isinstance(spec.cache, NoCache):
            self.no_random_step_before_cache()
        if isinstance(spec.trainer, Trainer):
            self.fit_rules(spec.trainer)
        else:
            self.drain_rules(given)

    def fit_rules(self, trainer: Trainer) -> None:
        spec = self.spec
        if trainer.early_stopping.patience is not None:
            if not _validates(spec):
                self.needs_validation(trainer.early_stopping.monitor)
            if isinstance(spec.model, Emulated):
                self.add(
                    "trainer.early_stopping.patience",
                    trainer.early_stopping.patience,
                    "null, since model.emulated learns nothing",
                    "set trainer.early_stopping.patience=null",
                )
        if spec.dataset.on_corrupt == "skip" and trainer.steps_per_epoch is not None:
            self.add(
                "trainer.steps_per_epoch",
                trainer.steps_per_epoch,
                "null where dataset.on_corrupt=skip, since a pass then has an unknown length",
                "set trainer.steps_per_epoch=null, or mend the data and set dataset.on_corrupt=raise",
            )
        if isinstance(spec.profile, Trace) and trainer.steps_per_epoch is not None:
            self.faults += windows_past(spec.profile, trainer.steps_per_epoch * trainer.epochs)

    def drain_rules(self, given: Flow) -> None:
        try:
            require_one_size(given)
        except UnfitError as unfit:
            self.add("load.batch", f"{given} before it", unfit.expected, unfit.remedy)
        if isinstance(self.spec.profile, Trace):
            self.add("profile.name", "trace", "none, since trainer.drain has no steps to profile", "set profile=none")
        if self.spec.measure.au_min is not None:
            self.add(
                "measure.au_min",
                self.spec.measure.au_min,
                "null, since trainer.drain uses no accelerator",
                "set measure.au_min=null",
            )

    def no_random_step_before_cache(self) -> None:
        for step in self.spec.transform.steps:
            if step.random:
                self.add(
                    "transform.steps",
                    f"{step.path} before {self.spec.cache.path}",
                    "no random step before a cache, which would repeat the first pass for ever",
                    "set cache=none, or leave the step out",
                )

    def needs_validation(self, monitor: str) -> None:
        if monitor.startswith("val_"):
            self.add(
                "trainer.early_stopping.monitor",
                show(monitor),
                "loss or accuracy, since dataset.eval_split is null",
                f"set trainer.early_stopping.monitor={monitor.removeprefix('val_')} or an eval_split",
            )


def windows_past(profile: Trace, steps: int) -> Iterator[Fault]:
    """The fault of windows that reach past a run of `steps` training steps."""
    if profile.windows[-1][1] > steps:
        yield Fault(
            where="profile.windows",
            found=show([list(window) for window in profile.windows]),
            expected=f"windows within the {steps} steps of the run",
            remedy=f"end the last one at {steps} or before, or train for longer",
        )


def sections(spec: RunSpec) -> Iterator[Stage]:
    """The parts of a run that are no pipeline, in the order in which they are shown."""
    yield spec.model
    yield spec.trainer
    if isinstance(spec.trainer, Trainer):
        yield spec.trainer.early_stopping
    yield spec.profile
    yield spec.measure


def _remarks(spec: RunSpec) -> Iterator[str]:
    loose = []
    if getattr(spec.extract, "deterministic", True) is False:
        loose.append("extract.deterministic")
    if not spec.transform.deterministic:
        loose.append("transform.deterministic")
    if loose:
        yield f"{' and '.join(loose)} = false: the order of examples, and so every number, differs from run to run."


def decisive_values(plan_: Plan) -> dict[str, Any]:
    """Everything that decides a run's numbers, by dotted path, speed left out."""
    spec = plan_.spec
    values: dict[str, Any] = {}
    for stage in (spec.dataset, *sections(spec)):
        values |= _values(stage, "")
    for prefix, stages in (("train/", plan_.train), ("eval/", plan_.evaluation)):
        flat = [inner for outer in stages for inner in (outer, *outer.steps)]
        values[f"{prefix}stages"] = [planned.stage.path for planned in flat if _changes_data(planned.stage)]
        for planned in flat:
            values |= _values(planned.stage, prefix)
    return values


def _changes_data(stage: Stage) -> bool:
    """Whether a stage makes a difference by being there at all."""
    return not stage.path.startswith(_SPEED_ONLY)


def _values(stage: Stage, prefix: str) -> dict[str, Any]:
    return {
        f"{prefix}{stage.path}.{parameter.name}": parameter.value
        for parameter in parameters(stage)
        if parameter.kind != SPEED
    }
