"""The rules between the parts of a run, which no stage can check alone."""

from collections.abc import Callable, Iterator

from etlrun.planning import cluster
from etlrun.planning.plan import at_cache, kept_by, name_of_point, unordered, warmup_past, windows_past
from etlrun.planning.rule import Draft, faults_of, value_of
from etlrun.planning.spec import RunSpec
from etlrun.stages.dataset import Declared
from etlrun.stages.extract import Sequential
from etlrun.stages.flow import Feature, UnfitError
from etlrun.stages.image import Decode
from etlrun.stages.load import Batch
from etlrun.stages.model import require_one_size
from etlrun.stages.network import Network
from etlrun.stages.objectives import KINDS, Kinds, default_metrics, is_of_kind, kind_of, metric_of, metrics_of
from etlrun.stages.plugins import LOSSES, METRICS, names
from etlrun.stages.rows import Rows
from etlrun.stages.rule import Need, Rules, When, Words
from etlrun.stages.step import Step
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import Fault


def _is_of_rows(s: Draft) -> bool:
    return isinstance(s.dataset, Rows)


def _has_buckets(s: Draft) -> bool:
    return bool(s.load.boundaries) and _is_of_rows(s)


def _kinds(s: Draft) -> list[Kinds]:
    return [*dict.fromkeys(map(kind_of, s.targets))]


def _whose(s: Draft) -> str:
    """Return the targets of a run and what they are."""
    names = zip(s.dataset.examples.targets, s.targets, strict=True)
    each = [f"{name} ({KINDS[kind_of(of)].title})" for name, of in names]
    return f"the target{'s' * (len(each) > 1)} {', '.join(each)}"


def _without_validation(s: Draft) -> str:
    return f"{'dataset.eval_split=null and ' * (s.dataset.eval_split is None)}{_whose(s)}"


def _losses(s: Draft) -> list[str]:
    """Return the losses of the targets of a run."""
    return [*dict.fromkeys(loss for kind in _kinds(s) for loss in KINDS[kind].losses)]


def _measured(s: Draft) -> str:
    """Return all that a run measures, what the validation does first."""
    found = ["loss"]
    for name, target in zip(s.dataset.examples.targets, s.targets, strict=True):
        own = [of for of in s.training.metrics if is_of_kind(of, kind_of(target))]
        found += [f"{name}_{of}" for of in ("loss", *own)] if s.targets[1:] else own
    before = [*["val_"] * (s.dataset.eval_split is not None), *(f"{name}." for name in s.dataset.sets), ""]
    return " or ".join(f"{of}{name}" for of in before for name in found)


def _until_random(s: Draft) -> list[Step]:
    """Return the steps before the cache as far as the first random one; none if there is none."""
    steps = [step.stage for planned in at_cache(s.train)[0] for step in planned.steps]
    return steps[: next((place for place, step in enumerate(steps, 1) if step.random), 0)]


def _without_phases(s: Draft) -> Words:
    epochs = sum(phase.epochs for phase in s.training.phases or ())
    return (f"trainer.phases=null{f' trainer.epochs={epochs}' * (s.training.epochs is None)}",)


def _unmixed_metrics(s: Draft) -> list[str]:
    """Return the metrics of a run that two classes of an example have."""
    found = {name: metric_of(name, "class") for name in s.training.metrics if name not in names(METRICS)}
    return [name for name, metric in found.items() if metric is None or metric.takes_mixed]


TO_BASE = ("model=mobilenet_v2",)
_OF_HEADS = ("crossentropy", "mean_squared_error")
"""Losses that several heads can learn."""

DEVICES = When("{trainer.devices}", lambda s: s.fit and s.fit.devices != 1 and s.hosts == 1, ("trainer.devices=1",))
FETCHED = When("shards at URLs", lambda s: isinstance(s.dataset, Declared) and s.dataset.urls)


def _outside(because: str = "") -> Need:
    return Need("cache.at=transformed", because, met=lambda s: not s.cache.keeps_features)


def _one_device(because: str = "") -> Need:
    return Need("trainer.devices=1", because, met=lambda s: not DEVICES.holds(s))


UNWEIGHTED = Need("load.class_weights=none")
NO_PHASES = Need("trainer.phases=null", by=_without_phases)
KEEPS_ALL = Need(
    "dataset.keep=all",
    "since all shards are read at once",
    met=lambda s: not FETCHED.holds(s) or value_of(s, "dataset.keep") == "all",
)
RULES: Rules = {
    When("", lambda s: s.cache.keeps): (
        Need(
            lambda s: f"cache.at=a point before {_until_random(s)[-1].path}",
            "whose first result all later epochs would repeat",
            met=lambda s: not _until_random(s),
            by=lambda s: (f"cache.at={name_of_point(_until_random(s)[:-1])}", "cache=none"),
        ),
        Need(
            "cache.at=decoded",
            "since decoding finds the broken images that dataset.on_corrupt=skip leaves out",
            met=lambda s: (
                s.dataset.on_corrupt == "raise"
                or s.cache.quality is not None
                or all(of.format != "image" for of in s.held.features.values())
            ),
        ),
    ),
    When(
        "no resize of OpenCV right after decode",
        lambda s: (
            value_of(s, "transform.decode.library") == "turbo"
            and any(
                isinstance(step.stage, Decode) and step.stage.fast and step.stage.library == "tensorflow"
                for planned in (*s.train, *s.evaluation)
                for step in planned.steps
            )
        ),
    ): (
        Need(
            "transform.decode.fast=false",
            by=(
                "transform.resize.dtype=uint8",
                "transform.resize.antialias=false",
                "transform.resize.method=bilinear",
                "transform.resize.dtype=uint8 transform.resize.antialias=false",
                "transform.decode.fast=false",
            ),
        ),
    ),
    **cluster.RULES,
    DEVICES: cluster.SHARED,
    When(
        "{model.trainable}", lambda s: s.model.features is not None and s.model.trainable, ("model.trainable=false",)
    ): (_outside("so that its features stay the same"),),
    When("{model}, which has no base", lambda s: s.fit and s.model.features is None, TO_BASE): (_outside(),),
    When("{model}, which has no layers to unfreeze", lambda s: s.fit and not s.model.layers, TO_BASE): (NO_PHASES,),
    When(
        "{extract}",
        lambda s: s.extract.path != Sequential.path or s.extract.random,
        ("extract=sequential", "extract=sequential extract.shuffle_files=false"),
    ): (Need("load.shuffle=buffer", "which numbers no examples"),),
    When(
        "{cache}",
        lambda s: s.cache.keeps and not s.cache.outlives_run and not s.given.sequences,  # of which no cache keeps any
        lambda s: ("cache=none", "cache=disk") if _is_of_rows(s) else ("cache=disk", "cache=none"),
    ): (Need("load.shuffle=buffer", "which can only be read in order"),),
    When("dataset.on_corrupt=skip", lambda s: s.dataset.on_corrupt == "skip", ("dataset.on_corrupt=raise",)): (
        Need("load.shuffle=buffer", "since a skipped example would change the numbers of all others"),
        Need("trainer.steps_per_epoch=null", "since the length of a pass is unknown"),
        Need(
            "trainer.schedule.decay_steps=a number",
            "since the length of a pass is unknown",
            met=lambda s: not s.fit or not s.fit.schedule.needs_run,
            by=(),
        ),
    ),
    When(
        "{extract}, which parses by itself", lambda s: s.extract.parses, ("extract=interleave", "extract=sequential")
    ): (KEEPS_ALL,),
    When("{dataset.name}, which TFDS does not read", lambda s: not s.dataset.is_of_tfds): (
        Need("extract=interleave or sequential"),
    ),
    When("sequences", lambda s: s.given.sequences): (
        Need("cache=none", "whose items a run of several epochs keeps anyway"),
        Need("load.service=null"),
    ),
    When("examples that are batched one by one", lambda s: not _is_of_rows(s)): (
        Need(
            "load.boundaries=null",
            met=lambda s: not (s.load.boundaries or (s.load.boundaries is not None and s.given.sequences)),
            advice="end their steps with multi_hot, or set dataset=table",
        ),
    ),
    When("rows without sequences", lambda s: _has_buckets(s) and not s.given.sequences): (
        Need("load.boundaries=null"),
    ),
    When("{load.boundaries}", _has_buckets, ("load.boundaries=null",)): (
        Need(
            "load.shuffle=full",
            met=lambda s: not s.load.shuffles or s.load.is_by_number,
            by=("load.shuffle=full", "load.shuffle=full extract.shuffle_files=false", "load.shuffle_buffer=0"),
        ),
        Need("extract=sequential", "which reads rows by their numbers"),
    ),
    FETCHED: (Need("load.service=null", "which Python reads in its own process"),),
    When("load.shuffle=full", lambda s: s.load.is_by_number, ("load.shuffle=buffer",)): (KEEPS_ALL,),
    When("{load.class_weights}", lambda s: s.load.class_weights != "none", ("load.class_weights=none",)): (KEEPS_ALL,),
    When(_whose, lambda s: s.targets[1:] or not s.targets[0].is_class): (Need("load.sample=all"), UNWEIGHTED),
    When(_whose, lambda s: s.targets[0].is_binary): (UNWEIGHTED,),
    When("several targets", lambda s: s.targets[1:]): (_outside(), NO_PHASES),
    When("cache.at=features", lambda s: s.cache.keeps_features, ("cache.at=transformed",)): (
        Need("trainer.hosts=1", "which one device computes"),
        _one_device("which one device computes"),
        Need("cache.codec=raw", "which are no images"),
        Need("measure.digest=false", "since the steps then see no examples"),
        Need("load.mixup_alpha=0.0", "which are no images"),
        Need("load.cutmix_alpha=0.0", "which are no images"),
    ),
    When("{model}, which learns nothing", lambda s: s.fit and not s.model.learns, TO_BASE): (
        Need("trainer.hosts=1"),
        _one_device(),
        Need("trainer.callbacks=[]"),
        UNWEIGHTED,
    ),
    When("{trainer}, which has no model", lambda s: s.fit is None): (
        _outside(),
        UNWEIGHTED,
        Need("profile=none"),
        Need("measure.au_min=null"),
    ),
    When(_whose, lambda s: s.fit): (
        Need(
            lambda s: f"trainer.loss={' or '.join(_losses(s))}",
            met=lambda s: s.training.loss in (Trainer.loss, *_losses(s), *names(LOSSES)),
        ),
        Need(
            lambda s: f"trainer.metrics={', or '.join(dict.fromkeys(map(metrics_of, _kinds(s))))}",
            met=lambda s: (
                s.training.metrics == Trainer.metrics
                or all(any(is_of_kind(of, kind) for kind in _kinds(s)) for of in s.training.metrics)
            ),
            by=lambda s: (f"trainer.metrics=[{','.join(default_metrics(_kinds(s)))}]",),
        ),
    ),
    When(
        _without_validation,
        lambda s: s.fit and (kept_by(s) or (s.learner and s.fit.early_stopping.patience is not None)),
    ): (Need(lambda s: f"trainer.early_stopping.monitor={_measured(s)}"),),
    When(_whose, lambda s: s.fit and _kinds(s) == ["number"]): (Need("trainer.label_smoothing=0.0"),),
    When(
        "{model.heads}", lambda s: s.fit and isinstance(s.model, Network) and s.model.num_heads > 1, ("model.heads=1",)
    ): (
        Need(
            "trainer.loss=crossentropy or mean_squared_error",
            "since only these losses can be averaged over heads",
            met=lambda s: s.training.loss in _OF_HEADS or s.training.loss not in (*_losses(s), *names(LOSSES)),
            by=lambda s: (f"trainer.loss={Trainer.loss if s.targets[1:] else _losses(s)[0]}",),
        ),
    ),
    When("{trainer.loss}, which a package has", lambda s: s.fit and s.fit.loss in names(LOSSES)): (
        Need("trainer.label_smoothing=0.0"),
        UNWEIGHTED,
        Need("load.mixup_alpha=0.0"),
        Need("load.cutmix_alpha=0.0"),
    ),
    When(
        "load.shuffle=buffer",
        lambda s: not s.load.is_by_number,
        ("load.shuffle=full", "load.shuffle=full cache=disk extract=sequential"),
    ): (Need("load.sample=all", "which reads each example once"),),
    When("{load.sample}", lambda s: s.load.sample != "all", ("load.sample=all",)): (
        Need("load.class_weights=none", "which balances the classes already"),
    ),
    When(
        "mixed images, which have two classes", lambda s: s.load.mixes, ("load.mixup_alpha=0.0 load.cutmix_alpha=0.0",)
    ): (
        UNWEIGHTED,
        Need(
            "trainer.metrics=no precision, recall, f1, or metric of a package",
            met=lambda s: not (s.fit and s.targets[0].is_class) or list(s.training.metrics) == _unmixed_metrics(s),
            by=lambda s: (f"trainer.metrics=[{','.join(_unmixed_metrics(s))}]",),
        ),
    ),
    When("no fixed order of the examples", unordered, lambda s: (" ".join(f"{key}=true" for key in unordered(s)),)): (
        Need("trainer.checkpoint_every_steps=null", "since resuming within a pass needs one"),
    ),
    When("{trainer.phases}", lambda s: s.fit and s.fit.phases is not None and s.model.layers, _without_phases): (
        Need("trainer.epochs=null", "which have epochs of their own"),
        Need("model.trainable=false", "which begin with a frozen base"),
        Need("trainer.steps_per_epoch=null", "whose epochs are whole passes"),
        Need("trainer.early_stopping.patience=null", "which have fixed numbers of epochs"),
    ),
}


def rules(draft: Draft, redraft: Callable[[RunSpec], Draft]) -> Iterator[Fault]:
    """Yield the faults of a run of these stages; `redraft` makes the stages of a changed one, to try remedies."""
    key = "transform.eval_steps"
    if draft.evaluation and not draft.faults and draft.evaluation[-1].gives != draft.given:
        found, expected = str(draft.evaluation[-1].gives), f"the output of the training steps, {draft.given}"
        yield Fault(key, found, expected, "end both lists with the same steps", is_rule=True)
    for step in (step for step in draft.eval_transform.steps if step.random):
        expected = "no random step, so that all epochs are validated on the same data"
        yield Fault(key, step.path, expected, "remove the step")
    yield from faults_of(draft, RULES, redraft)
    if draft.fit is None:
        try:
            require_one_size(draft.given)
        except UnfitError as unfit:
            yield Fault(Batch.path, f"{draft.given} before it", unfit.expected, unfit.remedy, is_rule=True)
    else:
        yield from _unmended(draft, draft.fit)


def _unmended(draft: Draft, trainer: Trainer) -> Iterator[Fault]:
    """Yield the faults of a training that a person mends: targets without a head, and numbers that are too large."""
    flow, steps, model = draft.dataset.examples, trainer.steps_per_epoch, draft.model
    for target in flow.targets if flow.targets[1:] else ():
        if (name := target.partition(".")[0]) != target and name in draft.dataset.sets:
            expected = f"another name, since the measures of the target {target} begin with it and a dot"
            where = draft.dataset.key_of(name)
            yield Fault(where, f"the name {name!r}", expected, "give the set another name", is_rule=True)
    for name in flow.targets:
        if kind := _without_head(draft, flow.features[name]):
            expected = f"a class, or numbers such as float32, since no model predicts {kind}"
            remedy = "predict another feature, or read the dataset without training a model: trainer=drain"
            yield Fault(draft.dataset.key("target"), f"{name}: {flow.features[name]}", expected, remedy, is_rule=True)
    if steps is not None:
        if trainer.schedule.needs_run and draft.dataset.on_corrupt != "skip":
            yield from warmup_past(trainer, steps * trainer.all_epochs)
        yield from windows_past(draft.profile.windows, steps * trainer.all_epochs)
    for place, phase in enumerate(trainer.phases or ()):
        if isinstance(phase.unfreeze, int) and model.layers and phase.unfreeze > model.layers:
            key = f"{trainer.key('phases')}[{place}].unfreeze"
            expected = f"at most {model.layers}, the layers of {model.title} without its head"
            yield Fault(key, str(phase.unfreeze), expected, "set a smaller number, or all", is_rule=True)


def _without_head(spec: RunSpec, target: Feature) -> str:
    """Return what a target is if no model that learns has a head for it; empty if one has, or if none is needed."""
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
