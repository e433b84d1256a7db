"""Notes on valid runs."""

from __future__ import annotations

from collections.abc import Iterator

from etlrun.planning.plan import keeps_file_order, served, unordered
from etlrun.planning.spec import RunSpec, told
from etlrun.stages.column_numbers import EPSILON, Standardize
from etlrun.stages.dataset import Declared
from etlrun.stages.image import Decode
from etlrun.stages.objectives import is_of_kind, kind_of, loss_of
from etlrun.stages.rows import Rows
from etlrun.stages.trainer import Trainer

_LARGE = 10_000
"""Standard deviation of a target above which a network needs many epochs to reach its values."""


def remarks(spec: RunSpec) -> Iterator[str]:
    """Yield the notes on a valid run, one sentence each."""
    yield from (f"{sentence}." for sentence in told(spec.unused))
    if isinstance(spec.dataset, Rows):
        yield from spec.dataset.found.remarks
    yield from remote_notes(spec)
    loose = unordered(spec)
    if loose:
        yield f"{' and '.join(loose)} = false: the order of the examples, and so every result, differs from run to run."
    yield from _of_places(spec)
    if keeps_file_order(spec):
        yield "extract.shuffle_files = true: the cache keeps the order of the first pass for all later ones."
    if spec.load.class_weights == "balanced":
        yield "load.class_weights = balanced: losses are weighted by the inverse of the share of their class."
    yield from _of_targets(spec)
    yield from _of_columns(spec)
    if spec.fit is not None and spec.fit.early_stopping.patience is not None and not spec.model.learns:
        key, value = spec.fit.early_stopping.key("patience"), spec.fit.early_stopping.patience
        yield f"{key} = {value} has no effect, since {spec.model.path} learns nothing."
    if spec.cache.codec != "raw" and not spec.cache.keeps:
        what = "examples" if isinstance(spec.dataset, Rows) else "images"
        yield f"cache.codec = {spec.cache.codec} has no effect with cache=none: {what} stay as they are."
    unread = unread_cache(spec)
    if unread and "cache_unread" not in spec.measure.silence:
        yield unread
    if spec.cache.keeps_features and spec.fit is not None:
        yield from _served(spec.fit)
        yield "cache.at = features: losses equal those of a run without it within float tolerance, not bit for bit."


def _of_columns(spec: RunSpec) -> Iterator[str]:
    """Yield the notes on columns that are nearly constant."""
    outputs = spec.columns.outputs if spec.columns is not None else ()
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

    outputs = spec.columns.outputs if spec.columns is not None else ()
    steps = [step for output in outputs if output.is_of_target and output.name == name for step in output.steps]
    return next((of.std or 0 for of in steps if isinstance(of, Number) and not of.standardize), 0)


def _given(spec: RunSpec) -> dict[str, tuple[str, ...]]:
    """Return the names of the classes of the targets of rows, as their columns give them."""
    columns = spec.columns
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


def remote_notes(spec: RunSpec) -> Iterator[str]:
    """Yield the note on options of URLs that have no effect, since there are none."""
    dataset = spec.dataset
    if isinstance(dataset, Declared) and not dataset.urls:
        idle = {"storage": dataset.storage, "keep": dataset.keep, "copies": dataset.copies}
        for name in (name for name, value in idle.items() if value not in (None, "all")):
            yield f"{dataset.key(name)} has no effect: {dataset.key(dataset.given_by)} is on this machine."


def decoding_notes(asked: RunSpec) -> Iterator[str]:
    """Yield the note on a library that does not decode because of a service."""
    if served(asked) != asked:
        why = "libjpeg-turbo is called by Python, which stays in its process"
        yield f"{Decode.key('library')} = turbo: with load.service TensorFlow decodes and resizes, since {why}."


def _of_places(spec: RunSpec) -> Iterator[str]:
    """Yield the notes on a run that reads in other processes, or on several hosts."""
    if spec.load.service is not None and spec.cache.keeps:
        yield (
            f"{spec.cache.path}: the run fills the cache, or compares it with its checksums, before the first pass; "
            "workers read it at the same path."
        )
    if spec.load.service is not None:
        yield "load.service: tf.data's service listens on all interfaces of its machines: let a firewall limit it."
    if spec.fit is not None and spec.fit.hosts > 1:
        own = spec.load.batch_size // spec.fit.hosts
        yield (
            f"trainer.hosts = {spec.fit.hosts}: each host reads its own part of the examples, and makes {own} of the "
            f"{spec.load.batch_size} of a batch."
        )
