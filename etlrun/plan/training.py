"""Rules of a training: what it may monitor, keep and resume."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etlrun.errors import Fault
from etlrun.plan.spec import RunSpec, show
from etlrun.stages.measure import Trace, Window
from etlrun.stages.trainer import Trainer


def validates(spec: RunSpec) -> bool:
    """Return whether the run validates."""
    return spec.dataset.eval_split is not None


def training_rules(spec: RunSpec, trainer: Trainer) -> Iterator[Fault]:
    """Yield the faults of a run that trains."""
    yield from _checkpoints(spec, trainer)
    if trainer.early_stopping.patience is not None:
        yield from _monitored(spec, trainer.early_stopping.key("monitor"), trainer.early_stopping.monitor)
        if not spec.model.learns:
            yield fault(
                trainer.early_stopping.key("patience"),
                trainer.early_stopping.patience,
                "null, since model.emulated learns nothing",
                "set trainer.early_stopping.patience=null",
            )
    if spec.dataset.on_corrupt == "skip" and trainer.steps_per_epoch is not None:
        yield fault(
            trainer.key("steps_per_epoch"),
            trainer.steps_per_epoch,
            "null with dataset.on_corrupt=skip, since the length of a pass is then unknown",
            "set trainer.steps_per_epoch=null, or repair the data and set dataset.on_corrupt=raise",
        )
    if trainer.steps_per_epoch is not None:
        yield from windows_past(spec.profile.windows, trainer.steps_per_epoch * trainer.epochs)


def _monitored(spec: RunSpec, key: str, metric: str) -> Iterator[Fault]:
    """Yield the faults of a metric that a run does not have."""
    flow = spec.dataset.examples
    if metric.endswith("accuracy") and not flow.features[flow.target].is_class:
        needed = f"loss or val_loss, since the target {flow.target} is not a class"
        yield fault(key, show(metric), needed, f"set {key}=val_loss")
    if not validates(spec) and metric.startswith("val_"):
        remedy = f"set {key}={metric.removeprefix('val_')} or an eval_split"
        yield fault(key, show(metric), "loss or accuracy, since dataset.eval_split is null", remedy)


def _checkpoints(spec: RunSpec, trainer: Trainer) -> Iterator[Fault]:
    if trainer.checkpoint_best is not None:
        yield from _monitored(spec, trainer.key("checkpoint_best"), trainer.checkpoint_best)
        if not spec.model.learns:
            needed, remedy = "null, since model.emulated learns nothing", "set trainer.checkpoint_best=null"
            yield fault(trainer.key("checkpoint_best"), show(trainer.checkpoint_best), needed, remedy)
    loose = unordered(spec)
    if trainer.checkpoint_every_steps is not None and loose:
        yield fault(
            trainer.key("checkpoint_every_steps"),
            trainer.checkpoint_every_steps,
            f"null with {' and '.join(loose)}=false, since a resumed pass then has another order",
            f"set {' and '.join(f'{key}=true' for key in loose)}, or trainer.checkpoint_every_steps=null",
        )


def unordered(spec: RunSpec) -> list[str]:
    """Return the keys of values that leave the order of the examples to chance."""
    ordered = {f"{spec.extract.block}.deterministic": spec.extract.is_ordered}
    ordered[spec.transform.key("deterministic")] = spec.transform.deterministic
    return [key for key, is_ordered in ordered.items() if not is_ordered]


def windows_past(windows: Sequence[Window], steps: int) -> Iterator[Fault]:
    """Yield the fault of profile windows that exceed a run of `steps` training steps."""
    if windows and windows[-1][1] > steps:
        yield fault(
            Trace.key("windows"),
            show([list(window) for window in windows]),
            f"windows within the {steps} steps of the run",
            f"end the last one at step {steps} or earlier, or train longer",
        )


def fault(where: str, found: object, expected: str, remedy: str, *, is_rule: bool = True) -> Fault:
    """Return the fault of a value."""
    return Fault(where=where, found=str(found), expected=expected, remedy=remedy, is_rule=is_rule)
