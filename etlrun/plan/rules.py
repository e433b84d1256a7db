"""What no stage can know by itself: rules between the parts of a run, and remarks on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etlrun.errors import Fault
from etlrun.plan.plan import PlannedStage, at_cache, keeps_file_order
from etlrun.plan.spec import RunSpec, show
from etlrun.plan.unused import told
from etlrun.stages.base import Stage
from etlrun.stages.cache import DiskCache, MemoryCache
from etlrun.stages.flow import Flow, UnfitError
from etlrun.stages.image import Decode
from etlrun.stages.measure import Trace
from etlrun.stages.model import Emulated, MobileNetV2, require_one_size
from etlrun.stages.step import Parse
from etlrun.stages.trainer import Drain, Trainer

Stages = Sequence[PlannedStage]


def validates(spec: RunSpec) -> bool:
    """Whether there is validation."""
    return spec.dataset.eval_split is not None


def rules(spec: RunSpec, train: Stages, evaluation: Stages, so_far: Sequence[Fault]) -> Iterator[Fault]:
    """The faults of a run of these stages; `so_far` are those of single stages, after which flows mean nothing."""
    given = train[-1].gives
    if not so_far and evaluation and evaluation[-1].gives != given:
        yield _fault(
            "transform.eval_steps",
            evaluation[-1].gives,
            f"what the training steps give, {given}",
            "make both lists end alike",
        )
    for step in spec.eval_transform.steps:
        if step.random:
            yield _fault(
                "transform.eval_steps",
                step.path,
                "no random step, so that every epoch is validated alike",
                "leave the step out",
                is_rule=False,
            )
    if isinstance(spec.cache, MemoryCache | DiskCache):
        yield from _cache(spec, train)
    if isinstance(spec.trainer, Trainer):
        yield from _fit(spec, spec.trainer)
    else:
        yield from _drain(spec, given)


def _fault(where: str, found: object, expected: str, remedy: str, *, is_rule: bool = True) -> Fault:
    return Fault(where=where, found=str(found), expected=expected, remedy=remedy, is_rule=is_rule)


def _cache(spec: RunSpec, train: Stages) -> Iterator[Fault]:
    before, cache, _ = at_cache(train)
    if cache is None:
        return
    steps = [step.stage for planned in before for step in planned.steps]
    for place, step in enumerate(steps):
        if step.random:
            yield _fault(
                "cache.at",
                f"{cache.at}, which is after {step.path}",
                "a place before the first random step, of which later epochs would repeat the first one's result",
                f"set cache.at={name_after(steps[:place])}, or cache=none",
            )
            break
    gives = before[-1].gives
    if cache.dtype == "uint8" and any(gives.features[name].dtype == "float32" for name in gives.inputs):
        yield _fault(
            "cache.dtype",
            f"uint8, for {gives}",
            "uint8 inputs before the cache",
            "set transform.resize.dtype=uint8, cache.at=decoded, or cache.dtype=auto",
        )
    if spec.dataset.on_corrupt == "skip" and any(feature.format == "image" for feature in gives.features.values()):
        yield _fault(
            "cache.at",
            f"{cache.at}, with dataset.on_corrupt=skip",
            "a place after `decode`, which finds the broken images",
            "set cache.at=decoded",
        )
    if cache.at == "features":
        yield from _features(spec)


def name_after(steps: Sequence[Stage]) -> str:
    """How `cache.at` calls the point after these steps."""
    if not steps or isinstance(steps[-1], Parse):
        return "source"
    return "decoded" if isinstance(steps[-1], Decode) else steps[-1].path.removeprefix("transform.")


def _features(spec: RunSpec) -> Iterator[Fault]:
    if isinstance(spec.trainer, Drain):
        yield _fault("cache.at", "features", "another point, since trainer.drain has no model", "set trainer=fit")
    elif not isinstance(spec.model, MobileNetV2):
        yield _fault(
            "cache.at",
            "features",
            f"another point, since {spec.model.path} has no base",
            "set model=mobilenet_v2, or cache.at=transformed",
        )
    elif spec.model.trainable:
        yield _fault(
            "cache.at",
            "features",
            "a base that does not learn, so that its features stay what they are",
            "set model.trainable=false, or cache.at=transformed",
        )
    if spec.measure.digest:
        yield _fault(
            "measure.digest",
            "true",
            "false where cache.at=features, since steps see no examples then",
            "set measure.digest=false, or cache.at=transformed",
        )


def _fit(spec: RunSpec, trainer: Trainer) -> Iterator[Fault]:
    if trainer.early_stopping.patience is not None:
        flow = spec.dataset.examples
        if trainer.early_stopping.monitor.endswith("accuracy") and not flow.features[flow.target].is_class:
            yield _fault(
                "trainer.early_stopping.monitor",
                show(trainer.early_stopping.monitor),
                f"loss or val_loss, since the target {flow.target} is no class",
                "set trainer.early_stopping.monitor=val_loss",
            )
        if not validates(spec) and trainer.early_stopping.monitor.startswith("val_"):
            yield _fault(
                "trainer.early_stopping.monitor",
                show(trainer.early_stopping.monitor),
                "loss or accuracy, since dataset.eval_split is null",
                f"set trainer.early_stopping.monitor={trainer.early_stopping.monitor.removeprefix('val_')} "
                "or an eval_split",
            )
        if isinstance(spec.model, Emulated):
            yield _fault(
                "trainer.early_stopping.patience",
                trainer.early_stopping.patience,
                "null, since model.emulated learns nothing",
                "set trainer.early_stopping.patience=null",
            )
    if spec.dataset.on_corrupt == "skip" and trainer.steps_per_epoch is not None:
        yield _fault(
            "trainer.steps_per_epoch",
            trainer.steps_per_epoch,
            "null where dataset.on_corrupt=skip, since a pass then has an unknown length",
            "set trainer.steps_per_epoch=null, or mend the data and set dataset.on_corrupt=raise",
        )
    if isinstance(spec.profile, Trace) and trainer.steps_per_epoch is not None:
        yield from windows_past(spec.profile, trainer.steps_per_epoch * trainer.epochs)


def _drain(spec: RunSpec, given: Flow) -> Iterator[Fault]:
    try:
        require_one_size(given)
    except UnfitError as unfit:
        yield _fault("load.batch", f"{given} before it", unfit.expected, unfit.remedy)
    if isinstance(spec.profile, Trace):
        yield _fault("profile.name", "trace", "none, since trainer.drain has no steps to profile", "set profile=none")
    if spec.measure.au_min is not None:
        yield _fault(
            "measure.au_min",
            spec.measure.au_min,
            "null, since trainer.drain uses no accelerator",
            "set measure.au_min=null",
        )


def windows_past(profile: Trace, steps: int) -> Iterator[Fault]:
    """The fault of windows that reach past a run of `steps` training steps."""
    if profile.windows[-1][1] > steps:
        yield _fault(
            "profile.windows",
            show([list(window) for window in profile.windows]),
            f"windows within the {steps} steps of the run",
            f"end the last one at {steps} or before, or train for longer",
        )


def remarks(spec: RunSpec) -> Iterator[str]:
    """What a reader should know of a run that is right, one sentence each."""
    yield from (f"{sentence}." for sentence in told(spec.unused))
    loose = []
    if getattr(spec.extract, "deterministic", True) is False:
        loose.append("extract.deterministic")
    if not spec.transform.deterministic:
        loose.append("transform.deterministic")
    if loose:
        yield f"{' and '.join(loose)} = false: the order of examples, and so every number, differs from run to run."
    if keeps_file_order(spec):
        yield "extract.shuffle_files = true: the cache keeps the order of the first pass for all later ones."
    unread = unread_cache(spec)
    if unread and "cache_unread" not in spec.measure.silence:
        yield unread
    if isinstance(spec.cache, MemoryCache | DiskCache) and spec.cache.at == "features":
        yield "cache.at = features: losses are those of a run without it within float tolerance, not to the bit."


def unread_cache(spec: RunSpec) -> str | None:
    """Why the cache of a run can't pay; None where it can, or where there is none."""
    if spec.trainer.epochs != 1 or getattr(spec.trainer, "steps_per_epoch", None) is not None:
        return None
    if isinstance(spec.cache, MemoryCache):
        return "cache.memory can't pay: with one epoch nothing reads what it keeps."
    if isinstance(spec.cache, DiskCache):
        return "cache.disk can pay only in other runs: with one epoch this one reads nothing that it has kept."
    return None
