"""Rules of a training: what it may monitor, keep and resume."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etlrun.planning.spec import RunSpec, bare, show
from etlrun.stages.base import Stage
from etlrun.stages.flow import Feature, Flow
from etlrun.stages.load import Load
from etlrun.stages.measure import Trace, Window
from etlrun.stages.network import Network
from etlrun.stages.objectives import KINDS, classes_of, is_loss, is_of_kind, kind_of, metric_of, metrics_of, top_of
from etlrun.stages.plugins import LOSSES, METRICS, names
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import Fault, did_you_mean

_MOST_CLASSES = 20


def validates(spec: RunSpec) -> bool:
    """Return whether the run validates."""
    return spec.dataset.eval_split is not None


def monitor_of(spec: RunSpec) -> str | None:
    """Return the metric by which a run can keep the best epoch; None if it measures or learns nothing to compare."""
    trainer = spec.fit
    if trainer is None or not spec.model.learns:
        return None
    return trainer.checkpoint_best or (trainer.early_stopping.monitor if validates(spec) else None)


def kept_by(spec: RunSpec) -> str | None:
    """Return the metric whose best epoch a run keeps; None if it keeps the last one."""
    return monitor_of(spec) if spec.fit is not None and spec.fit.keep == "best" else None


def training_rules(spec: RunSpec, trainer: Trainer) -> Iterator[Fault]:
    """Yield the faults of a run that trains."""
    yield from _objective(spec, trainer)
    yield from _schedule(spec, trainer)
    yield from _checkpoints(spec, trainer)
    if trainer.devices != 1 and trainer.hosts == 1:
        yield from _devices(spec, trainer)
    is_kept_by = trainer.checkpoint_best is None and kept_by(spec) is not None
    if is_kept_by or (spec.model.learns and trainer.early_stopping.patience is not None):
        yield from _monitored(spec, trainer.early_stopping.key("monitor"), trainer.early_stopping.monitor)
    if trainer.callbacks and not spec.model.learns:
        expected = f"[], since {spec.model.path} learns nothing"
        yield conflict(trainer, "callbacks", expected, f"set {trainer.key('callbacks')}=[]")
    if spec.dataset.on_corrupt == "skip" and trainer.steps_per_epoch is not None:
        expected = "null with dataset.on_corrupt=skip, since the length of a pass is then unknown"
        remedy = "set trainer.steps_per_epoch=null, or repair the data and set dataset.on_corrupt=raise"
        yield conflict(trainer, "steps_per_epoch", expected, remedy)
    if trainer.steps_per_epoch is not None:
        yield from windows_past(spec.profile.windows, trainer.steps_per_epoch * trainer.all_epochs)
    if trainer.phases is not None:
        yield from _phases(spec, trainer)


def _devices(spec: RunSpec, trainer: Trainer) -> Iterator[Fault]:
    """Yield the faults of a run that several devices can't share."""
    key, one = trainer.key("devices"), f"set {trainer.key('devices')}=1"
    if not spec.model.learns:
        yield conflict(trainer, "devices", f"1 with {spec.model.path}, which computes nothing", one)
    if spec.cache.keeps_features:
        yield conflict(trainer, "devices", "1 with cache.at=features, which one device computes", one)
    if not spec.load.drop_remainder:
        expected = f"true with {key}={trainer.devices}, since a smaller batch may have no equal shares"
        yield fault(spec.load.key("drop_remainder"), "false", expected, f"set load.drop_remainder=true, or {key}=1")
    if trainer.devices != "all":
        yield from undivided(spec.load, trainer, trainer.devices)


def undivided(load: Load, trainer: Trainer, devices: int) -> Iterator[Fault]:
    """Yield the fault of a batch size without equal shares for so many devices."""
    if load.batch_size % devices:
        size = -(-load.batch_size // devices) * devices
        expected = f"a multiple of {devices}, the number of devices that share a batch"
        remedy = f"set {load.key('batch_size')}={size}, or another {trainer.key('devices')}"
        yield conflict(load, "batch_size", expected, remedy)


def _phases(spec: RunSpec, trainer: Trainer) -> Iterator[Fault]:
    """Yield the faults of phases that the model or other values do not fit."""
    phases, model = trainer.key("phases"), spec.model
    one = f"{phases}=null" + f" and {trainer.key('epochs')}" * (trainer.epochs is None)
    if not model.layers:
        expected = f"null with {model.path}, which has no base to train in phases"
        yield conflict(trainer, "phases", expected, f"set {one}{or_base(spec)}")
        return
    if trainer.epochs is not None:
        expected = f"null with {phases}, which have epochs of their own"
        yield conflict(trainer, "epochs", expected, f"set {trainer.key('epochs')}=null or {phases}=null")
    if model.trainable:
        expected = f"false with {phases}, which begin with a frozen base"
        remedy = f"set {model.key('trainable')}=false, or {one}"
        yield conflict(model, "trainable", expected, remedy)
    if len(spec.dataset.examples.targets) > 1:
        yield conflict(trainer, "phases", "null with several targets", f"set {one}")
    for place, phase in enumerate(trainer.phases or ()):
        if isinstance(phase.unfreeze, int) and phase.unfreeze > model.layers:
            expected = f"at most {model.layers}, the layers of {model.title} without its head"
            yield fault(f"{phases}[{place}].unfreeze", phase.unfreeze, expected, "set a smaller number, or all")
    for stage, name in ((trainer, "steps_per_epoch"), (trainer.early_stopping, "patience")):
        if getattr(stage, name) is not None:
            expected = f"null with {phases}, each of which has a number of passes"
            remedy = f"set {stage.key(name)}=null, or {one}"
            yield conflict(stage, name, expected, remedy)


def by_records(spec: RunSpec) -> str:
    """Return the remedy that reads the records of files, in the order that the run needs."""
    return f"set extract={'sequential' if spec.load.is_by_number else 'interleave'}"


def or_base(spec: RunSpec) -> str:
    """Return the end of a remedy that chooses a model with a base; empty without images, which such models take."""
    flow = spec.dataset.examples
    return ", or model=mobilenet_v2" * any(flow.features[name].format == "image" for name in flow.inputs)


def _monitored(spec: RunSpec, key: str, metric: str) -> Iterator[Fault]:
    """Yield the faults of a metric that a run does not have."""
    flow, trainer = spec.dataset.examples, spec.fit
    if len(flow.targets) > 1:
        yield from _monitored_of(spec, key, metric)
        return
    kind, name = kind_of(flow.features[flow.target]), metric.removeprefix("val_")
    measured_names = [of for of in trainer.metrics if is_of_kind(of, kind)] if trainer else []
    if not is_loss(metric) and not is_of_kind(name, kind):
        others = f", or {metrics_of(kind)}" if measured_names else ""
        needed = f"loss or val_loss{others}, since the target {flow.target} is {KINDS[kind].title}"
        yield fault(key, show(metric), needed, f"set {key}=val_loss")
    elif trainer is not None and name not in ("loss", *measured_names):
        named = ("loss", *measured_names)
        measured = [*named, *(f"val_{name}" for name in named)] if validates(spec) else named
        added = f"add {name} to {trainer.key('metrics')}"
        yield fault(key, show(metric), f"a metric of the run: {', '.join(measured)}", f"choose one, or {added}")
    elif not validates(spec) and metric.startswith("val_"):
        remedy = f"set {key}={metric.removeprefix('val_')} or an eval_split"
        others = " or ".join(("loss", *measured_names))
        yield fault(key, show(metric), f"{others}, since dataset.eval_split is null", remedy)


def _monitored_of(spec: RunSpec, key: str, metric: str) -> Iterator[Fault]:
    """Yield the fault of a metric that a run of several targets does not have."""
    flow = spec.dataset.examples
    names = ["loss"]
    for target in flow.targets:
        kind = kind_of(flow.features[target])
        measured = [of for of in spec.fit.metrics if is_of_kind(of, kind)] if spec.fit else []
        names += [f"{target}_{of}" for of in ("loss", *measured)]
    names += [f"val_{name}" for name in names] if validates(spec) else []
    if metric not in names:
        yield fault(key, show(metric), f"a metric of the run: {', '.join(names)}", did_you_mean(metric, names))


def _objective(spec: RunSpec, trainer: Trainer) -> Iterator[Fault]:
    """Yield the faults of losses and metrics that the targets do not have."""
    flow = spec.dataset.examples
    for name in flow.targets:
        kind = _without_head(spec, flow.features[name])
        if kind:
            expected = f"a class, or numbers such as float32, since no model predicts {kind}"
            remedy = "predict another feature, or read the dataset without training a model: trainer=drain"
            yield fault(spec.dataset.key("target"), f"{name}: {flow.features[name]}", expected, remedy)
    yield from _unlike_targets(trainer, flow)
    yield from _beside_own_loss(spec, trainer)
    if (
        flow.features[flow.target].is_class
        and spec.load.mixes
        and (scores := [name for name in trainer.metrics if name in names(METRICS) or _is_of_one(name)])
    ):
        expected = f"no {' or '.join(scores)} with mixed images, which have two classes"
        remedy = f"remove {' and '.join(scores)}, or set load.mixup_alpha=0 and load.cutmix_alpha=0"
        yield conflict(trainer, "metrics", expected, remedy)


def _is_of_one(name: str) -> bool:
    """Return whether a metric is of images that have one class, and no two that are mixed."""
    metric = metric_of(name, "class")
    return metric is not None and not metric.takes_mixed


def _beside_own_loss(spec: RunSpec, trainer: Trainer) -> Iterator[Fault]:
    """Yield the faults of values that the loss of an installed package does not take."""
    if trainer.loss not in names(LOSSES):
        return
    key = f"{trainer.key('loss')}={trainer.loss}, which a package has"
    if trainer.label_smoothing:
        yield conflict(trainer, "label_smoothing", f"0.0 with {key}", f"set {trainer.key('label_smoothing')}=0.0")
    if spec.load.class_weights != "none":
        yield conflict(spec.load, "class_weights", f"none with {key}", f"set {spec.load.key('class_weights')}=none")
    for name in ("mixup_alpha", "cutmix_alpha"):
        if getattr(spec.load, name):
            yield conflict(spec.load, name, f"0.0 with {key}", f"set {spec.load.key(name)}=0.0")


def _unlike_targets(trainer: Trainer, flow: Flow) -> Iterator[Fault]:
    """Yield the faults of values that are for no target of the kinds there are; defaults stand for those of a kind."""
    targets = [flow.features[name] for name in flow.targets]
    kinds = [*dict.fromkeys(map(kind_of, targets))]
    losses = [loss for kind in kinds for loss in KINDS[kind].losses]
    expected = {
        "loss": "" if trainer.loss in (Trainer.loss, *losses, *names(LOSSES)) else " or ".join(dict.fromkeys(losses)),
        "label_smoothing": "0.0" if kinds == ["number"] and trainer.label_smoothing else "",
        "metrics": ""
        if trainer.metrics == Trainer.metrics
        or all(any(is_of_kind(of, kind) for kind in kinds) for of in trainer.metrics)
        else ", or ".join(dict.fromkeys(metrics_of(kind) for kind in kinds)),
    }
    if trainer.loss == "poisson" and any(target.std is not None for target in targets):
        expected["loss"] = "another one with {number: standardize}"
    whose = f"the target {flow.target}, which is {KINDS[kinds[0]].title}"
    if len(targets) > 1:
        whose = f"the targets {', '.join(flow.targets)}, which are {' and '.join(KINDS[kind].title for kind in kinds)}"
    for name, needed in expected.items():
        if needed:
            yield fault(
                trainer.key(name),
                show(getattr(trainer, name)),
                f"{needed} with {whose}",
                f"leave out {trainer.key(name)}",
            )


def _without_head(spec: RunSpec, target: Feature) -> str:
    """Return what a target is if no model that learns has a head for it; empty if one has, or if none is needed.

    A network that predicts by itself may do so for any numbers.
    """
    if not spec.model.learns or target.is_class or target.is_labels:
        return ""
    if target.dtype == "string":
        return "images" if target.format == "image" else "text"
    if isinstance(spec.model, Network) and spec.model.predicts:
        return ""
    if len(target.shape) > 1:
        return "arrays of several dimensions"
    if target.shape and not target.dtype.startswith("float"):
        return "several labels of one example"
    return "truth values" if target.dtype == "bool" else ""


def _schedule(spec: RunSpec, trainer: Trainer) -> Iterator[Fault]:
    """Yield the faults of a schedule that does not fit the steps of the run."""
    schedule = trainer.schedule
    if schedule.needs_run and spec.dataset.on_corrupt == "skip":
        expected = "a number with dataset.on_corrupt=skip, since the length of a pass is then unknown"
        remedy = f"set {schedule.key('decay_steps')}, or repair the data and set dataset.on_corrupt=raise"
        yield conflict(schedule, "decay_steps", expected, remedy)
    elif schedule.needs_run and trainer.steps_per_epoch is not None:
        yield from warmup_past(trainer, trainer.steps_per_epoch * trainer.all_epochs)


def warmup_past(trainer: Trainer, steps: int) -> Iterator[Fault]:
    """Yield the fault of a warm-up that leaves no step of a run of `steps` for the decay."""
    schedule = trainer.schedule
    if schedule.warmup_steps >= steps:
        expected = f"fewer than the {steps} steps of the run, of which the decay takes the rest"
        remedy = f"set a smaller one, or {schedule.key('decay_steps')}, or train longer"
        yield conflict(schedule, "warmup_steps", expected, remedy)


def past_classes(trainer: Trainer, classes: Sequence[str]) -> Iterator[Fault]:
    """Yield the faults of metrics of classes that the dataset does not have, or over more than it has: always 1."""
    if max(map(top_of, trainer.metrics), default=0) >= len(classes):
        expected = f"at most top_{len(classes) - 1}_accuracy, since there are {len(classes)} classes"
        yield conflict(trainer, "metrics", expected, "name a smaller number")
    for name in dict.fromkeys(classes_of(trainer.metrics)):
        if name not in classes:
            listed = ", ".join(classes[:_MOST_CLASSES]) + (", …" if len(classes) > _MOST_CLASSES else "")
            yield fault(trainer.key("metrics"), f"the class {name}", f"one of {listed}", did_you_mean(name, classes))


def _checkpoints(spec: RunSpec, trainer: Trainer) -> Iterator[Fault]:
    if trainer.checkpoint_best is not None:
        yield from _monitored(spec, trainer.key("checkpoint_best"), trainer.checkpoint_best)
        if not spec.model.learns:
            needed, remedy = f"null, since {spec.model.path} learns nothing", "set trainer.checkpoint_best=null"
            yield fault(trainer.key("checkpoint_best"), show(trainer.checkpoint_best), needed, remedy)
        elif trainer.keep == "last":
            expected, remedy = "null with trainer.keep=last", "set trainer.keep=best"
            yield fault(trainer.key("checkpoint_best"), show(trainer.checkpoint_best), expected, remedy)
    loose = unordered(spec)
    if trainer.checkpoint_every_steps is not None and loose:
        expected = f"null with {' and '.join(loose)}=false, since a resumed pass then has another order"
        remedy = f"set {' and '.join(f'{key}=true' for key in loose)}, or trainer.checkpoint_every_steps=null"
        yield conflict(trainer, "checkpoint_every_steps", expected, remedy)


def unordered(spec: RunSpec) -> list[str]:
    """Return the keys of values that leave the order of the examples to chance."""
    ordered = {f"{spec.extract.block}.deterministic": spec.extract.is_ordered}
    ordered[spec.transform.key("deterministic")] = spec.transform.deterministic
    return [key for key, is_ordered in ordered.items() if not is_ordered]


def windows_past(windows: Sequence[Window], steps: int) -> Iterator[Fault]:
    """Yield the fault of profile windows that exceed a run of `steps` training steps."""
    if windows and windows[-1][1] > steps:
        found, expected = show([list(window) for window in windows]), f"windows within the {steps} steps of the run"
        remedy = f"end the last one at step {steps} or earlier, or train longer"
        yield fault(Trace.key("windows"), found, expected, remedy)


def fault(where: str, found: object, expected: str, remedy: str, *, is_rule: bool = True) -> Fault:
    """Return the fault of a value."""
    return Fault(where=where, found=str(found), expected=expected, remedy=remedy, is_rule=is_rule)


def conflict(stage: Stage, name: str, expected: str, remedy: str) -> Fault:
    """Return the fault of the field `name` of `stage`, whose value conflicts with another one."""
    return fault(stage.key(name), bare(getattr(stage, name)), expected, remedy)
