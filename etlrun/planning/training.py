"""What a training compares and keeps, and the faults of its figures, which are known once the data are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etlrun.planning.spec import RunSpec, bare, show
from etlrun.stages.base import Stage
from etlrun.stages.load import Load
from etlrun.stages.measure import Trace, Window
from etlrun.stages.objectives import classes_of, top_of
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import ConfigError, Fault, did_you_mean

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


def unordered(spec: RunSpec) -> list[str]:
    """Return the keys of values that leave the order of the examples to chance."""
    ordered = {f"{spec.extract.block}.deterministic": spec.extract.is_ordered}
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
        expected = f"fewer than the {steps} steps of the run, of which the decay takes the rest"
        remedy = f"set a smaller one, or {schedule.key('decay_steps')}, or train longer"
        yield conflict(schedule, "warmup_steps", expected, remedy)


def windows_past(windows: Sequence[Window], steps: int) -> Iterator[Fault]:
    """Yield the fault of profile windows that exceed a run of `steps` training steps."""
    if windows and windows[-1][1] > steps:
        found, expected = show([list(window) for window in windows]), f"windows within the {steps} steps of the run"
        remedy = f"end the last one at step {steps} or earlier, or train longer"
        yield Fault(Trace.key("windows"), found, expected, remedy, is_rule=True)


def past_classes(trainer: Trainer, classes: Sequence[str]) -> Iterator[Fault]:
    """Yield the faults of metrics of classes that the dataset does not have, or over more than it has: always 1."""
    if max(map(top_of, trainer.metrics), default=0) >= len(classes):
        expected = f"at most top_{len(classes) - 1}_accuracy, since there are {len(classes)} classes"
        yield conflict(trainer, "metrics", expected, "name a smaller number")
    for name in dict.fromkeys(classes_of(trainer.metrics)):
        if name not in classes:
            listed = ", ".join(classes[:_MOST_CLASSES]) + (", …" if len(classes) > _MOST_CLASSES else "")
            remedy = did_you_mean(name, classes)
            yield Fault(trainer.key("metrics"), f"the class {name}", f"one of {listed}", remedy, is_rule=True)


def require_one_host(spec: RunSpec, what: str) -> None:
    """Raise `ConfigError` if the run trains on several hosts, as `what` does not."""
    if spec.fit is not None and spec.fit.hosts != 1:
        raise ConfigError([conflict(spec.fit, "hosts", f"1, since {what}", f"add {spec.fit.key('hosts')}=1")])


def conflict(stage: Stage, name: str, expected: str, remedy: str) -> Fault:
    """Return the fault of the field `name` of `stage`, whose value conflicts with another one."""
    return Fault(stage.key(name), bare(getattr(stage, name)), expected, remedy, is_rule=True)
