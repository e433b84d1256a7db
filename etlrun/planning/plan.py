"""Plan of a run: its stages in order, without TensorFlow. `etlrun.planning.planner` makes it from a `RunSpec`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from etlrun.planning.spec import RunSpec, bare, show
from etlrun.stages.base import DATA, ORDER, SPEED, TRAINING, Kind, Parameter, Stage, parameters
from etlrun.stages.cache import Cache, NoCache
from etlrun.stages.dataset import Dataset
from etlrun.stages.flow import Flow
from etlrun.stages.image import Decode, turbo_of, turbo_steps
from etlrun.stages.load import Batch, FullShuffle, Load, Shuffle
from etlrun.stages.measure import Trace, Window
from etlrun.stages.mix import Mix
from etlrun.stages.model import Backbone, ImageModel
from etlrun.stages.objectives import KINDS, Kinds, default_metrics, top_of
from etlrun.stages.plugins import CALLBACKS, LOSSES, METRICS, MODELS, STEPS, Plugin, named
from etlrun.stages.step import Map, Step
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import Fault
from etlrun.system.values import Block, Composed, frozen, sha256_of

_MOST_CLASSES = 20


def validates(spec: RunSpec) -> bool:
    """Return whether the run validates: on `dataset.eval_split`, or on named validation sets."""
    return len(spec.dataset.splits) > 1


def monitor_of(spec: RunSpec) -> str | None:
    """Return the metric by which a run can keep the best epoch; None if it measures or learns nothing to compare."""
    trainer = spec.learner
    return None if trainer is None or not validates(spec) else trainer.early_stopping.monitor


def kept_by(spec: RunSpec) -> str | None:
    """Return the metric whose best epoch a run keeps; None if it keeps the last one."""
    return monitor_of(spec) if spec.fit is not None and spec.fit.keep == "best" else None


def set_of_monitor(spec: RunSpec) -> str | None:
    """Return the named validation set whose measure decides the best epoch; None if that is none of a set."""
    name = (monitor_of(spec) or "").partition(".")[0]
    return name if name in spec.dataset.sets else None


def unordered(spec: RunSpec) -> list[str]:
    """Return the keys of values that leave the order of the examples to chance."""
    ordered = {f"{spec.extract.block}.deterministic": spec.extract.deterministic}
    ordered[spec.transform.key("deterministic")] = spec.transform.deterministic
    return [key for key, is_ordered in ordered.items() if not is_ordered]


def undivided(load: Load, trainer: Trainer, devices: int) -> Iterator[Fault]:
    """Yield the fault of a batch size without equal shares for so many devices."""
    if load.batch_size % devices:
        size = -(-load.batch_size // devices) * devices
        expected = f"a multiple of {devices}, the number of devices that share a batch"
        remedy = f"set {load.key('batch_size')}={size}, or another {trainer.key('devices')}"
        yield conflict(load, "batch_size", expected, remedy)


def warmup_past(trainer: Trainer, steps: int) -> Iterator[Fault]:
    """Yield the fault of a warm-up that leaves no step of a run of `steps` for the decay."""
    schedule = trainer.schedule
    if schedule.warmup_steps >= steps:
        expected = f"fewer than the {steps} steps of the run: the decay takes the rest"
        remedy = f"set a smaller one, or {schedule.key('decay_steps')}, or train longer"
        yield conflict(schedule, "warmup_steps", expected, remedy)


def windows_past(windows: Sequence[Window], steps: int) -> Iterator[Fault]:
    """Yield the fault of profile windows that exceed a run of `steps` training steps."""
    if windows and windows[-1][1] > steps:
        found, expected = show([list(window) for window in windows]), f"windows within the {steps} steps of the run"
        remedy = f"end the last one at step {steps} or earlier, or train longer"
        yield Fault(Trace.key("windows"), found, expected, remedy, is_rule=True)


def past_classes(trainer: Trainer, classes: Sequence[str]) -> Iterator[Fault]:
    """Yield the fault of a metric over as many classes as the dataset has, which is always 1."""
    if max(map(top_of, trainer.metrics), default=0) >= len(classes):
        expected = f"at most top_{len(classes) - 1}_accuracy, since there are {len(classes)} classes"
        yield conflict(trainer, "metrics", expected, "name a smaller number")


def conflict(stage: Stage, name: str, expected: str, remedy: str) -> Fault:
    """Return the fault of the field `name` of `stage`, whose value conflicts with another one."""
    return Fault(stage.key(name), bare(getattr(stage, name)), expected, remedy, is_rule=True)


StageT = TypeVar("StageT", bound=Stage)
CODE_OF = "code of "
"""Beginning of the paths of code in `decisive`."""
STAGES = "stages"
"""End of the paths of the orders of stages in `decisive`."""
_PREFIXES = ("train/", "eval/", "model/")


@frozen
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


@frozen
class PlannedStep(PlannedStage):
    """A step of a planned pipeline."""

    stage: Step


@frozen
class Plan:
    """A run before it starts.

    Attributes:
        spec: The requested run.
        train: Stages of the training pipeline, in order.
        evaluation: Stages of the validation pipelines, which are all the same; empty without validation.
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
        """Stages of all pipelines by name: `train`, `validation` and the named validation sets."""
        dataset = self.spec.dataset
        primary = () if dataset.eval_split is None else self.evaluation
        return {"train": self.train, "validation": primary, **dict.fromkeys(dataset.sets, self.evaluation)}

    @property
    def deciding(self) -> Iterator[tuple[str, Stage]]:
        """Stages whose parameters determine the results, each with the prefix of its values in `decisive`."""
        yield from (("", stage) for stage in (self.spec.dataset, *sections(self.spec)))
        for prefix, stages in zip(_PREFIXES, self.plain, strict=True):
            yield from ((prefix, inner.stage) for outer in stages for inner in (outer, *outer.steps))

    @cached_property
    def decisive(self) -> Composed:
        """All values that determine the results, by dotted path; without those that only change the speed."""
        spec, values = self.spec, Block()
        for stage in (spec.dataset, *sections(spec)):
            values |= data_values(stage, "")
        for prefix, stages in zip(_PREFIXES, self.plain, strict=True):
            values |= values_of(stages, prefix)
        values.pop(Dataset.key("eval_splits"), None)
        if (name := set_of_monitor(spec)) is not None:
            values[Dataset.key_of(name)] = spec.dataset.sets[name]  # others decide nothing of the training
        if spec.load.class_weights != "none":
            values[spec.load.key("class_weights")] = spec.load.class_weights
        if spec.fit is not None and spec.fit.jit_compile is None:
            values[f"{spec.fit.path}.jit_compile"] = False  # what it is, but for JAX, which has no other default
        if monitor_of(spec) is None:
            values.pop(f"{Trainer.path}.keep", None)  # the last epoch either way
        if keeps_file_order(spec):
            values[f"train/{spec.extract.path}.shuffle_files"] = "in the first pass, whose order the cache keeps"
        return values | {f"{CODE_OF}{name}": of for name, of in self.code.items()}

    @property
    def fingerprint(self) -> str:
        """First 16 hex digits of a SHA-256 over all values that determine the results of a run.

        Two runs with the same fingerprint, on the same data and machine, give the same results (unless a note says
        otherwise).
        """
        text = json.dumps(self.decisive, sort_keys=True, default=str)
        return sha256_of(text)


def given_to_model(stages: Sequence[PlannedStage]) -> Flow:
    """Return the input of the whole model: the output of a pipeline, or of its part before the model's base."""
    own = (place for place, planned in enumerate(stages) if planned.stage.path == Backbone.path)
    return stages[next(own, 0) - 1].gives


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


def last_random(stages: Sequence[PlannedStage]) -> PlannedStage | None:
    """Return the last stage with random steps, up to which examples carry their numbers; None if there is none."""
    return next((planned for planned in reversed(stages) if any(step.is_random for step in planned.steps)), None)


def name_of_point(steps: Sequence[Step]) -> str:
    """Return the value of `cache.at` for the point after `steps`."""
    return steps[-1].points[0] if steps else "source"


def stage_of(stages: Iterable[PlannedStage], kind: type[StageT]) -> StageT | None:
    """Return the only stage of that type; None if there is none."""
    return next((planned.stage for planned in stages if isinstance(planned.stage, kind)), None)


def values_of(stages: Iterable[PlannedStage], prefix: str = "", shards: int | None = None) -> Block:
    """Return the values that determine the output of `stages`: their order, as `stages`, and their parameters.

    With a number of `shards`, values that are equivalent for that number are equal.
    """
    flat = [inner.stage for outer in stages for inner in (outer, *outer.steps)]
    values: Block = {f"{prefix}{STAGES}": [stage.path for stage in flat if stage.changes_data]}
    for stage in flat:
        values |= data_values(stage if shards is None else stage.canonical(shards), prefix)
    return values


def keeps_file_order(spec: RunSpec) -> bool:
    """Return whether a cache fixes the shard order of the first pass for all later ones."""
    return spec.extract.random and spec.cache.keeps


def data_values(stage: Stage, prefix: str) -> Block:
    """Return the parameters of `stage` that change more than the speed, by dotted path; optional ones only if set."""
    others = stage.chooses_stages if isinstance(stage, Step) else ()
    return {
        f"{prefix}{stage.path}.{parameter.name}": parameter.value
        for parameter in parameters(stage)
        if parameter.kind != SPEED and not parameter.is_default and parameter.name not in others
    }


_WORDS = {LOSSES: "the loss ", METRICS: "the metric ", CALLBACKS: "the callback "}


def plugins_in(spec: RunSpec) -> dict[str, Plugin]:
    """Return the steps, the model, the loss, metrics and callbacks that packages add to a run, by their names in it."""
    steps = dict.fromkeys((*spec.transform.steps, *spec.eval_transform.steps))
    stages = [(STEPS, step.path) for step in steps] + [(MODELS, spec.model.path)]
    used = {path: plugin for group, path in stages if (plugin := named(group, path.partition(".")[2])) is not None}
    if spec.fit is not None:
        used |= {f"{_WORDS[of.group]}{of.name}": of for of in spec.fit.own_functions}
    return used


def as_recorded(plan: Plan, path: Path) -> Plan:
    """Return the plan of a run with the code that its `plan.json` has noted; as it is if there is no such file."""
    try:
        code = json.loads(path.read_bytes()).get("code", {})
    except (OSError, ValueError, AttributeError):
        return plan
    return replace(plan, code=code)


def is_fast(steps: Map) -> bool:
    """Return whether images are decoded more coarsely than TensorFlow does."""
    return any(isinstance(step, Decode) and step.fast for step in steps.steps)


def with_library(steps: Map, library: Literal["tensorflow", "turbo"]) -> Map:
    """Return the same steps with images decoded by that library; no process decodes for TensorFlow."""
    changes: Block = {"library": library} | ({"processes": 0} if library == "tensorflow" else {})
    decoded = (replace(step, **changes) if isinstance(step, Decode) else step for step in steps.steps)
    return replace(steps, steps=tuple(decoded))


def resizes(spec: RunSpec, library: Literal["tensorflow", "turbo"] | None = None) -> bool:
    """Return whether `turbo` resizes images of a run, or would if they were decoded by that library."""
    for whole in (spec.transform, *([spec.eval_transform] if validates(spec) else [])):
        steps = (whole if library is None else with_library(whole, library)).steps
        part = [step for step, fits in zip(steps, turbo_steps(steps), strict=True) if fits]
        if turbo_of(part, whole, skips=False) is not None:
            return True
    return False


def served(spec: RunSpec) -> RunSpec:
    """Return the run with images decoded by TensorFlow if it reads from a service; `fast` is refused there."""
    if spec.load.service is None or is_fast(spec.transform) or is_fast(spec.eval_transform):
        return spec
    return spec.with_maps(lambda of: with_library(of, "tensorflow"))


_REPORTED = f"{Trainer.path}.metrics"
"""Path of what is only reported of a training."""
_MIXED = {Load.key("shuffle_buffer"), Load.key("shuffle"), Shuffle.key("buffer_size")}
"""Keys of how far apart the examples of a batch stand in the dataset, which the statistics of batch norms rest on."""


def kinds_in(spec: RunSpec, stage: Stage, parameter: Parameter) -> tuple[Kind, ...]:
    """Return the kinds of a parameter of `stage` in a run, the strongest first.

    Batches are part of a training; the order of examples only where it trains batch norms: elsewhere another order is
    as another seed. The library that decodes images changes them only where it resizes them, too; the place of a cache
    only where it holds JPEGs; the seed where the training draws from it what its examples are.
    """
    key = stage.key(parameter.name)
    if key == Decode.key("library") and not resizes(spec, "turbo"):
        return (SPEED,)
    if (key == NoCache.key("at") and spec.cache.quality is not None) or (key == Trainer.key("seed") and drawn(spec)):
        return (DATA, *(kind for kind in parameter.kinds if kind != SPEED))
    model = spec.model
    trains = spec.learner is not None
    if trains and key in _MIXED and isinstance(model, ImageModel):
        trains = model.trainable and model.known.has_batch_norms
    if ORDER not in parameter.kinds or trains:
        return parameter.kinds
    return tuple(kind for kind in parameter.kinds if kind != TRAINING)


def drawn(spec: RunSpec) -> list[str]:
    """Return what draws by the seed which examples a training has, and what becomes of them, in the order of stages."""
    steps = [step.path for step in spec.transform.steps if step.random]
    return [*[Load.key("sample")] * (spec.load.sample != "all"), *steps, *[Mix.path] * spec.load.mixes]


def differing(old: Plan, new: Plan) -> dict[str, set[Kind]]:
    """Return the paths of all that differs in the fingerprints of two plans, with what it changes.

    Left out are metrics, which change nothing but what is reported, the code of packages, and the parameters of a stage
    that one side alone has, which is among what differs itself.
    """
    kinds: dict[str, set[Kind]] = {}
    for plan in (old, new):
        for prefix, stage in plan.deciding:
            for parameter in parameters(stage):
                path = f"{prefix}{stage.path}.{parameter.name}"
                kinds.setdefault(path, set()).update(kinds_in(plan.spec, stage, parameter))
    owners = [{f"{prefix}{stage.path}" for prefix, stage in plan.deciding} for plan in (old, new)]
    alone = {path for path in owners[0] ^ owners[1] if "/" in path and not _reorders(path.partition("/")[2])}
    found: dict[str, set[Kind]] = {}
    for path in sorted(old.decisive.keys() | new.decisive.keys()):
        values = [plan.decisive.get(path) for plan in (old, new)]
        if path.endswith(f"/{STAGES}"):
            values = [[stage for stage in of or () if not _reorders(stage)] for of in values]
        is_told_elsewhere = path.startswith(CODE_OF) or path == _REPORTED or path.rpartition(".")[0] in alone
        if values[0] != values[1] and not is_told_elsewhere:
            found[path] = kinds.get(path, {DATA if "/" in path else TRAINING})
    return found


def _reorders(path: str) -> bool:
    """Return whether a stage changes no example, so that its parameters alone tell what it changes."""
    return path.startswith(("extract.", Shuffle.path, Batch.path))


def with_defaults(spec: RunSpec, of_targets: Sequence[Kinds]) -> RunSpec:
    """Return a run with the loss and the metrics of such targets where a config leaves them as they are."""
    trainer = spec.learner
    if trainer is None:
        return spec
    is_left = trainer.loss == Trainer.loss and len(of_targets) == 1
    loss: Any = KINDS[of_targets[0]].losses[0] if is_left else trainer.loss
    metrics = default_metrics(of_targets) if trainer.metrics == Trainer.metrics else trainer.metrics
    return replace(spec, trainer=replace(trainer, loss=loss, metrics=metrics))
