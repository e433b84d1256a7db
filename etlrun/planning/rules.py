"""Rules between the parts of a run, which no stage can check alone, and notes on valid runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etlrun.planning.hosts import host_note, host_rules
from etlrun.planning.plan import PlannedStage, at_cache, keeps_file_order, name_of_point
from etlrun.planning.remote import remote_notes, remote_rules
from etlrun.planning.sequences import sequence_rules
from etlrun.planning.service import service_notes, service_rules
from etlrun.planning.spec import RunSpec
from etlrun.planning.training import by_records, conflict, fault, or_base, training_rules, unordered
from etlrun.planning.unused import told
from etlrun.stages.column_numbers import EPSILON, Standardize
from etlrun.stages.columns import Columns
from etlrun.stages.flow import Flow, UnfitError
from etlrun.stages.load import Batch
from etlrun.stages.model import require_one_size
from etlrun.stages.objectives import is_of_kind, kind_of, loss_of
from etlrun.stages.rows import Rows
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import Fault, override

Stages = Sequence[PlannedStage]
_LARGE = 10_000
"""Standard deviation of a target above which a network needs many epochs to reach its values."""


def rules(spec: RunSpec, train: Stages, evaluation: Stages, so_far: Sequence[Fault]) -> Iterator[Fault]:
    """Yield the faults of a run of these stages; flows are only valid if `so_far`, the faults of stages, is empty."""
    given = train[-1].gives
    if spec.load.mixes and not so_far:  # which gives training examples another target
        given = given.with_feature(given.target, spec.dataset.examples.features[given.target])
    yield from _evaluation(spec, given, [] if so_far else evaluation)
    if spec.extract.parses and not spec.dataset.is_of_tfds:
        expected = f"sequential or interleave with dataset.name={spec.dataset.name}, which TFDS does not read"
        yield fault("extract.name", spec.extract.path.removeprefix("extract."), expected, by_records(spec))
    if spec.load.is_by_number:
        yield from _by_number(spec, given)
    yield from sequence_rules(spec, given)
    yield from remote_rules(spec)
    yield from _classes(spec)
    yield from _parsing(spec)
    if spec.load.service is not None:
        yield from service_rules(spec, () if so_far else train)
    if spec.cache.keeps:
        yield from _cache(spec, train)
    if spec.fit is not None:
        yield from training_rules(spec, spec.fit)
        yield from host_rules(spec, spec.fit, given) if spec.fit.hosts > 1 else ()
    else:
        yield from _drain(spec, given)


def _evaluation(spec: RunSpec, given: Flow, evaluation: Stages) -> Iterator[Fault]:
    """Yield the faults of the steps of validation, with its stages, beside training that gives `given`."""
    eval_steps = f"{spec.transform.block}.eval_steps"
    if evaluation and evaluation[-1].gives != given:
        expected = f"the output of the training steps, {given}"
        yield fault(eval_steps, evaluation[-1].gives, expected, "end both lists with the same steps")
    for step in spec.eval_transform.steps:
        if step.random:
            expected = "no random step, so that all epochs are validated on the same data"
            yield fault(eval_steps, step.path, expected, "remove the step", is_rule=False)


def _by_number(spec: RunSpec, given: Flow) -> Iterator[Fault]:
    """Yield the faults of a run that reads examples by number, and by that number alone; `given` is what it gives."""
    shuffle = spec.load.key("shuffle")
    buffer = [] if spec.load.boundaries else ["load.shuffle=buffer"]  # buckets are read by number
    if not spec.extract.is_numbered:
        files = ", shuffle_files=true" if spec.extract.random else ""
        expected = "extract.sequential in the order of the files, which gives each example its number"
        ordered = " and extract.shuffle_files=false" if spec.extract.random else ""
        remedy = ", or ".join([f"set extract=sequential{ordered}", *buffer])
        yield fault(shuffle, f"full, with {spec.extract.path}{files}", expected, remedy)
    if spec.cache.keeps and not spec.cache.outlives_run and not given.sequences:  # of which no cache keeps any
        found = f"full, with {spec.cache.path}, which can only be read in order"
        kept = "; rows are in mapped files already" if isinstance(spec.dataset, Rows) else ""
        others = ["cache=none", "cache=disk"] if kept else ["cache=disk", "cache=none"]
        if spec.fit is not None and spec.fit.hosts > 1:  # which share no disk
            others.remove("cache=disk")
        remedy = f"set {' or '.join([', '.join(others), *buffer])}{kept}"
        yield fault(shuffle, found, "a cache on disk, or none", remedy)
    if spec.dataset.on_corrupt == "skip":
        expected = "dataset.on_corrupt=raise, since a skipped example would change the numbers of all others"
        remedy = ", or set ".join(["repair the data and set dataset.on_corrupt=raise", *buffer])
        yield fault(shuffle, "full, with dataset.on_corrupt=skip", expected, remedy)


def _parsing(spec: RunSpec) -> Iterator[Fault]:
    """Yield the faults of a run that parses several examples at once."""
    transform, remedy = spec.transform, f"set {spec.transform.key('parse_batch')}=null"
    if transform.parse_batch and spec.extract.parses:
        yield conflict(transform, "parse_batch", f"null with {spec.extract.path}, which parses by itself", remedy)
    if transform.parse_batch and isinstance(spec.dataset, Rows):
        expected = f"null with dataset.name={spec.dataset.name}, whose rows are taken in batches"
        yield conflict(transform, "parse_batch", expected, remedy)
    if transform.parse_batch and spec.dataset.on_corrupt == "skip":
        expected = "null with dataset.on_corrupt=skip, since one corrupt record would lose all that are parsed with it"
        yield conflict(transform, "parse_batch", expected, remedy)


def _classes(spec: RunSpec) -> Iterator[Fault]:
    """Yield the faults of values that need a target with classes, or a model that learns."""
    flow = spec.dataset.examples
    is_class = flow.features[flow.target].is_class and len(flow.targets) == 1
    for name, default in (("sample", "all"), ("class_weights", "none")):
        if not is_class and getattr(spec.load, name) != default:
            are = f"targets are {', '.join(flow.targets)}" if len(flow.targets) > 1 else f"target is {flow.target}"
            expected = f"a class to predict; the {are}"
            yield conflict(spec.load, name, expected, f"set {spec.load.key(name)}={default}")
    if flow.features[flow.target].is_binary and spec.load.class_weights != "none":
        expected = f"none with the target {flow.target}, which is one of two classes"
        yield conflict(spec.load, "class_weights", expected, f"set {override('dataset.target', flow.target, 'class')}")
    if spec.load.mixes and spec.cache.keeps_features:
        for name in ("mixup_alpha", "cutmix_alpha"):
            if getattr(spec.load, name):
                expected = "0 with cache.at=features, which are no images"
                remedy = f"set {spec.load.key(name)}=0, or cache.at=transformed"
                yield conflict(spec.load, name, expected, remedy)
    if spec.load.class_weights != "none" and not (spec.fit is not None and spec.model.learns):
        yield conflict(spec.load, "class_weights", "none, since nothing is learned", "set load.class_weights=none")


def _cache(spec: RunSpec, train: Stages) -> Iterator[Fault]:
    before, cache, _ = at_cache(train)
    if cache is None:
        return
    steps = [step.stage for planned in before for step in planned.steps]
    for place, step in enumerate(steps):
        if step.random:
            expected = "a point before the first random step, whose first result all later epochs would repeat"
            remedy = f"set cache.at={name_of_point(steps[:place])}, or cache=none"
            yield fault(cache.key("at"), f"{cache.at}, which is after {step.path}", expected, remedy)
            break
    gives = before[-1].gives
    if cache.dtype == "uint8" and any(gives.features[name].dtype == "float32" for name in gives.inputs):
        points = {of for step in steps for of in step.points}
        others = (("resize", "transform.resize.dtype=uint8, "), ("decoded", "cache.at=decoded, or "))
        remedy = f"set {''.join(text for point, text in others if point in points)}cache.dtype=auto"
        yield fault(cache.key("dtype"), f"uint8, for {gives}", "uint8 inputs before the cache", remedy)
    is_encoded = cache.quality is None and any(feature.format == "image" for feature in gives.features.values())
    if spec.dataset.on_corrupt == "skip" and is_encoded:
        found, expected = (
            f"{cache.at}, with dataset.on_corrupt=skip",
            "a point after `decode`, which detects broken images",
        )
        yield fault(cache.key("at"), found, expected, "set cache.at=decoded")
    if cache.at == "features":
        yield from _features(spec)


def _features(spec: RunSpec) -> Iterator[Fault]:
    cache, other = spec.cache, "or cache.at=transformed"
    if spec.fit is None:
        yield conflict(cache, "at", f"another point, since {spec.trainer.path} has no model", "set trainer=fit")
    elif spec.model.features is None:
        expected = f"another point, since {spec.model.path} has no base"
        yield conflict(cache, "at", expected, f"set cache.at=transformed{or_base(spec)}")
    elif spec.model.trainable:
        expected = "a frozen base, so that its features stay the same"
        yield conflict(cache, "at", expected, f"set model.trainable=false, {other}")
    elif len(spec.dataset.examples.targets) > 1:
        yield conflict(cache, "at", "another point with several targets", "set cache.at=transformed")
    if cache.quality is not None:
        expected = "raw with cache.at=features, which are no images"
        yield conflict(cache, "codec", expected, f"set cache.codec=raw, {other}")
    if spec.measure.digest:
        expected = "false with cache.at=features, since the steps then see no examples"
        yield conflict(spec.measure, "digest", expected, f"set measure.digest=false, {other}")


def _drain(spec: RunSpec, given: Flow) -> Iterator[Fault]:
    try:
        require_one_size(given)
    except UnfitError as unfit:
        yield fault(Batch.path, f"{given} before it", unfit.expected, unfit.remedy)
    if spec.profile.windows:
        expected = f"none, since {spec.trainer.path} has no steps to profile"
        yield fault(f"{spec.profile.block}.name", "trace", expected, "set profile=none")
    if spec.measure.au_min is not None:
        expected = f"null, since {spec.trainer.path} uses no accelerator"
        yield conflict(spec.measure, "au_min", expected, "set measure.au_min=null")


def remarks(spec: RunSpec) -> Iterator[str]:
    """Yield the notes on a valid run, one sentence each."""
    yield from (f"{sentence}." for sentence in told(spec.unused))
    if isinstance(spec.dataset, Rows):
        yield from spec.dataset.found.remarks
    yield from remote_notes(spec)
    loose = unordered(spec)
    if loose:
        yield f"{' and '.join(loose)} = false: the order of the examples, and so every result, differs from run to run."
    if spec.load.service is not None:
        yield from service_notes(spec)
    if spec.fit is not None and spec.fit.hosts > 1:
        yield host_note(spec.fit, spec.load.batch_size)
    if keeps_file_order(spec):
        yield "extract.shuffle_files = true: the cache keeps the order of the first pass for all later ones."
    if spec.load.class_weights == "balanced":
        yield "load.class_weights = balanced: losses are weighted by the inverse of the share of their class."
    yield from _of_targets(spec)
    yield from _of_columns(spec)
    yield from _short_of(spec)
    if spec.cache.codec != "raw" and not spec.cache.keeps:
        what = "examples" if isinstance(spec.dataset, Rows) else "images"
        yield f"cache.codec = {spec.cache.codec} has no effect with cache=none: {what} stay as they are."
    unread = unread_cache(spec)
    if unread and "cache_unread" not in spec.measure.silence:
        yield unread
    if spec.cache.keeps_features and spec.fit is not None:
        yield from _served(spec.fit)
        yield "cache.at = features: losses equal those of a run without it within float tolerance, not bit for bit."


def _short_of(spec: RunSpec) -> Iterator[str]:
    """Yield the note on an early stop of what learns nothing."""
    trainer = spec.fit
    if trainer is not None and trainer.early_stopping.patience is not None and not spec.model.learns:
        key, value = trainer.early_stopping.key("patience"), trainer.early_stopping.patience
        yield f"{key} = {value} has no effect, since {spec.model.path} learns nothing."


def _of_columns(spec: RunSpec) -> Iterator[str]:
    """Yield the notes on columns that are nearly constant."""
    outputs = [output for step in spec.transform.steps if isinstance(step, Columns) for output in step.outputs]
    for name, step in [(output.name, step) for output in outputs for step in output.steps]:
        if isinstance(step, Standardize) and step.std is not None and step.std < EPSILON:
            smaller = (
                f"{name} has a standard deviation of {step.std:.3g}, and standardize divides by {EPSILON:g} at least"
            )
            yield f"{smaller}, as Keras does: write it in a smaller unit, or use minmax."


def _of_targets(spec: RunSpec) -> Iterator[str]:
    """Yield the notes on targets that are numbers, labels or one of two classes, and on weights."""
    flow, trainer = spec.dataset.examples, spec.fit
    given = _given(spec)
    for name in flow.targets:
        target, classes = flow.features[name], given.get(name, ())
        if target.is_binary and classes:
            negative, positive = classes
            yield f"{name} is {positive} or {negative}: the model gives the probability of {positive}."
        if target.is_labels and classes:
            yield f"{name} has {len(classes):,} labels: the model gives the probability of each."
        if trainer is not None and spec.model.learns and kind_of(target) == "number":
            loss = loss_of(target, trainer.loss).replace("_", " ")
            metrics = [name for name in trainer.metrics if is_of_kind(name, "number")]
            measured = f"its metrics are {', '.join(metrics)}" if metrics else "there is no metric"
            yield f"{name} is not a class: its loss is {'the ' * ('error' in loss)}{loss}, and {measured}."
            if (std := _deviation(spec, name)) > _LARGE:
                scaled = f"{{{name}: {{number: standardize}}}} in {spec.dataset.key('target')}"
                yield f"{name} has a standard deviation of {std:,.0f}: with {scaled} it takes fewer epochs to learn."
    if trainer is not None and spec.model.learns and len(flow.targets) > 1:
        terms = (name if of == 1 else f"{of:g} of {name}" for name, of in spec.dataset.loss_weights.items())
        yield f"The loss is the sum of those of {', '.join(terms)}."
    if flow.weight:
        yield f"Losses and metrics are weighted by {flow.weight}, also those of the validation."


def _deviation(spec: RunSpec, name: str) -> float:
    """Return the standard deviation of a target of rows that is trained in its own units; 0 of any other."""
    from etlrun.stages.columns import Number

    outputs = [output for step in spec.transform.steps if isinstance(step, Columns) for output in step.outputs]
    steps = [step for output in outputs if output.is_of_target and output.name == name for step in output.steps]
    return next((of.std or 0 for of in steps if isinstance(of, Number) and not of.standardize), 0)


def _given(spec: RunSpec) -> dict[str, tuple[str, ...]]:
    """Return the names of the classes of the targets of rows, as their columns give them."""
    columns = next((step for step in spec.transform.steps if isinstance(step, Columns)), None)
    if columns is None or not isinstance(spec.dataset, Rows):
        return {}
    features = columns.flow(spec.dataset.examples).features
    return {name: of.classes for name, of in features.items() if of.classes}


def _served(trainer: Trainer) -> Iterator[str]:
    """Yield the note on the phases that cached features do not serve."""
    frozen, others = trainer.frozen_phases, trainer.planned_phases[len(trainer.frozen_phases) :]
    if others:
        last = others[-1].number if others[1:] else 0
        served = f"phase{'s 1 to' * bool(frozen[1:])} {frozen[-1].number}"
        later = f"phase{'s' * bool(last)} {others[0].number}{f' to {last}' * bool(last)}"
        yield (
            f"cache.at = features: the cache serves {served}; {later} train{'s' * (not last)} layers of the base, and "
            f"read{'s' * (not last)} images without a cache."
        )


def unread_cache(spec: RunSpec) -> str | None:
    """Return why the cache of a run has no benefit; None if it has one, or if there is no cache."""
    epochs = spec.trainer.all_epochs
    if spec.fit is not None and spec.cache.keeps_features:
        epochs = spec.fit.frozen_phases[-1].end
    if epochs != 1 or spec.trainer.steps_per_epoch is not None or not spec.cache.keeps:
        return None
    if spec.load.is_by_number or spec.load.service is not None:
        return f"{spec.cache.path} benefits only other runs: a single epoch waits for all of it, and reads it once."
    if spec.cache.outlives_run:
        return f"{spec.cache.path} benefits only other runs: a single epoch never reads it back."
    return f"{spec.cache.path} has no effect: a single epoch never reads it back."
