"""Input of a run, or of a program's own loop: the dataset and its pipelines, which are measured while they are read."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, Self

import tensorflow as tf

from etlrun.cache.store import folder_of
from etlrun.graph.build import Pipeline, fits
from etlrun.graph.context import Context, FrozenBase
from etlrun.graph.datasets import keep_sequences
from etlrun.graph.numbered import count_of_batches
from etlrun.measure.assessment import Work
from etlrun.measure.watched import Watch
from etlrun.planning.plan import Plan, reads_features, stage_of
from etlrun.record.record import Record
from etlrun.remote.copies import Traffic
from etlrun.run.backend import seed_all
from etlrun.run.checkpoint import PreviousRun, has_read_the_same
from etlrun.run.devices import shares
from etlrun.run.hosts import here
from etlrun.run.keepers import keepers_of, readings_of
from etlrun.run.parts import HostPart, notes_on
from etlrun.service.pipeline import pipelines_of
from etlrun.sources.base import Source, open_source, source_type
from etlrun.sources.corrupt import corrupt_records, counts_of, raise_cause
from etlrun.sources.slices import note_of_unused
from etlrun.stages.extract import Interleave
from etlrun.stages.load import note_of_classes
from etlrun.system.errors import WorldError, counted
from etlrun.system.machine import rounded
from etlrun.system.progress import doing
from etlrun.system.terminal import tell

MOST_CORRUPT_NAMED, _SHOWN = 20, 3


def opened(plan: Plan) -> Source:
    """Open the dataset, and prepare it if necessary; `WorldError` if it is unavailable.

    Sets the trainer's seed.
    """
    doing("open the data")
    source = open_source(plan.spec.dataset)
    seed_all(plan.spec.trainer.seed)  # afterwards, since TFDS draws random numbers when it prepares a dataset
    return source


def prepared(
    plan: Plan,
    record: Record,
    source: Source,
    *,
    with_validation: bool = True,
    backbone: FrozenBase | None = None,
    previous: PreviousRun | None = None,
) -> Work:
    """Build the pipelines, and open their caches.

    Raises:
        WorldError: Data is missing, too small, or differs from that of the `previous` run; or there is no space.
    """
    contexts = contexts_of(plan, source, with_validation=with_validation, backbone=backbone)
    place = here()
    require_enough(plan, contexts)
    keep_sequences(plan, contexts)
    data = _described(source, contexts)
    digests = {name: context.split.content.digest for name, context in contexts.items()} if place.leads else {}
    if previous is not None and not has_read_the_same(previous, digests, plan.spec.dataset):
        record.remark(f"It is unknown whether {previous.folder} has read the same records.")
    for note in _notes(plan, source, contexts):
        record.remark(note)
    made_by = {"folder": str(record.folder), "overrides": record.summary.overrides}
    keepers = keepers_of(plan, contexts, made_by, partial(_note, record))
    if place.count > 1:
        pipelines: dict[str, Pipeline] = {name: HostPart(place, plan, name, of) for name, of in contexts.items()}
    else:
        pipelines = pipelines_of(plan, contexts, keepers)
    _open_caches(plan, record, pipelines)
    record.update(dataset={**data, "digest": digests, "classes": source.class_names and list(source.class_names)})
    record.event("dataset", **data)
    digest, sequences, copies = plan.spec.measure.digest, plan.train[-1].gives.sequences, source.copies
    traffic = Traffic if copies is None else lambda: copies.traffic
    watches = {name: Watch(with_digest=digest, sequences=sequences, traffic=traffic) for name in pipelines}
    return Work(plan=plan, record=record, pipelines=pipelines, watches=watches)


def without_cache(work: Work, plan: Plan) -> Work:
    """Return the work of the phases that cached features do not serve."""
    contexts = contexts_of(plan, work.train.context.source)
    pipelines = {name: Pipeline(plan.pipelines[name], context) for name, context in contexts.items()}
    for watch in work.watches.values():
        watch.ready.clear()  # which are of features
    return dataclasses.replace(work, plan=plan, pipelines=pipelines)


def contexts_of(
    plan: Plan, source: Source, *, with_validation: bool = True, backbone: FrozenBase | None = None
) -> dict[str, Context]:
    """Return the context of each pipeline: `train` and, if there is validation, `validation`."""
    readings = readings_of(plan, source, with_validation=with_validation, backbone=backbone)
    return {name: Context(**vars(reading)) for name, reading in readings.items()}


def _described(source: Source, contexts: Mapping[str, Context]) -> dict[str, Any]:
    """Print and return the name of the dataset, the examples of each split, and the number and bytes of the shards."""
    examples = {name: context.split.num_examples for name, context in contexts.items()}
    try:
        sizes = {path: size for context in contexts.values() for path, size in context.split.sizes.items()}
    except OSError as error:  # a broken link, or a file that has gone since the listing
        raise source.unreadable(str(error.filename), error.strerror or str(error)) from error
    counts = " + ".join(f"{count:,}" for count in examples.values())
    size, name = sum(sizes.values()), source.full_name
    many = f"{len(sizes):,} {contexts['train'].split.noun}{'s' if len(sizes) > 1 else ''}, {rounded(size)}"
    tell(f"data  {name}  {counts} examples in {many}")
    return {"name": name, "examples": examples, "shards": len(sizes), "bytes": size}


def require_enough(plan: Plan, contexts: Mapping[str, Context]) -> None:
    """Raise `WorldError` if a split has too few examples for a batch."""
    load, hosts, num_examples = plan.spec.load, here().count, contexts["train"].split.num_examples
    validation, devices = contexts.get("validation"), hosts * shares()
    if validation is not None and validation.split.num_examples < devices:
        raise WorldError(
            plan.spec.dataset.key_of("validation"),
            f"{validation.split.num_examples} examples in '{validation.split.name}'",
            f"at least {devices}, the number of devices that share a batch",
            f"set a larger {plan.spec.dataset.key_of('validation')}, or fewer devices",
        )
    if load.drop_remainder and num_examples < load.batch_size * hosts:
        raise WorldError(
            load.key("batch_size"),
            f"{load.batch_size * hosts}, with {num_examples} examples in the training split",
            f"at most {num_examples} with load.drop_remainder=true, which otherwise drops the only batch",
            f"set load.batch_size={num_examples} or smaller, or load.drop_remainder=false",
        )


def _notes(plan: Plan, source: Source, contexts: Mapping[str, Context]) -> Iterator[str]:
    """Yield what is to know of the examples before a run reads them."""
    load, split, validation = plan.spec.load, contexts["train"].split, contexts.get("validation")
    yield from source.notes
    if validation is not None:
        shared = split.shared(validation.split)
        if shared and split.name != validation.split.name:
            both = f"{shared:,} examples of '{validation.split.name}' are in '{split.name}', too"
            yield f"{both}: the validation knows them."
        if unused := note_of_unused(plan.spec.dataset, source.counts):
            yield unused
    counts = partial(counts_of, source, split, by_number=load.is_by_number)
    if of_classes := note_of_classes(load, split.name, counts):
        yield of_classes
    yield from notes_on(here(), shares(), {name: context.split for name, context in contexts.items()})
    extract, shards = stage_of(plan.train, Interleave), len(split.shards)  # known only once the dataset is open
    if extract is not None and extract.cycle_length not in ("all", extract.at_once(shards)):
        has = f"the split has {counted(shards, 'shard')}"
        yield f"extract.cycle_length = {extract.cycle_length} is limited to {shards}: {has}."


def batches_of(pipeline: Pipeline) -> int:
    """Return the number of batches in a pass over the split of a pipeline, if no record is skipped."""
    return count_of_batches(pipeline.stages, pipeline.context.source, pipeline.split)


def _raise_cause(error: tf.errors.OpError, plan: Plan, pipelines: Mapping[str, Pipeline]) -> None:
    """Raise the broken cache or the corrupt record that has ended the reading of pipelines, if one has."""
    keepers = [pipeline.keeper for pipeline in pipelines.values() if pipeline.keeper is not None]
    for keeper in keepers:
        if keeper.failure is not None:
            raise keeper.failure from error
    for keeper in keepers:
        keeper.close()  # TensorFlow's threads may still run
    read = [(pipeline.split, pipeline.context.losses) for pipeline in pipelines.values()]
    raise_cause(error, pipelines["train"].context.source, read, plan.spec.load.to_skip)


def _close(pipelines: Iterable[Pipeline]) -> None:
    for pipeline in pipelines:
        pipeline.close()
    for pipeline in pipelines:
        if pipeline.keeper is not None:
            pipeline.keeper.close()


@contextmanager
def at_work(work: Work) -> Iterator[None]:
    """Report corrupt records and broken caches while the pipelines are read, and close the caches."""
    keepers = [pipeline.keeper for pipeline in work.pipelines.values() if pipeline.keeper is not None]
    try:
        yield
    except tf.errors.OpError as error:
        _raise_cause(error, work.plan, work.pipelines)
        raise
    finally:
        for watch in work.watches.values():
            watch.close()
        for pipeline in work.pipelines.values():
            pipeline.close()
        try:
            _describe_caches(work.plan, work.record, work.pipelines)
        finally:
            for keeper in keepers:
                keeper.close()
    _report_skipped(work)
    changed = {name: pipeline.content.changed() for name, pipeline in work.pipelines.items()}
    dataset = work.record.summary.dataset
    digests = {name: None if changed[name] else digest for name, digest in dataset.digest.items()}
    work.record.update(dataset=dataset.with_values(digest=digests))
    for path in dict.fromkeys(path for path in changed.values() if path):
        work.record.remark(f"{path} changed during the run: it is unknown which of its records were read.")


def _report_skipped(work: Work) -> None:
    """Record how many records `on_corrupt: skip` skipped, and which."""
    if work.plan.spec.dataset.on_corrupt != "skip":
        return
    skipped, named = dict[str, Any](), list[str]()
    for name, pipeline in work.pipelines.items():
        records = pipeline.context.losses.records
        found = list(corrupt_records(pipeline.context.source, pipeline.split)) if records is None else records
        skipped[name] = sum(corrupt.lost for corrupt in found)
        for corrupt in found[:MOST_CORRUPT_NAMED]:
            work.record.event("skipped", where=corrupt.where, reason=corrupt.reason)
        named += [f"{corrupt.where} ({corrupt.reason})" for corrupt in found]
    total = sum(skipped.values())
    work.record.update(skipped=skipped)
    if total:
        more = "; etlrun doctor lists all" if named[_SHOWN:] else ""
        count = f"{counted(total, 'corrupt record')} {'was' if total == 1 else 'were'} skipped"
        work.record.remark(f"{count}: {'; '.join(named[:_SHOWN])}{more}.")


def _note(record: Record, text: str) -> None:
    """Report an event of a cache: on the terminal, in the events, and in the notes of the report."""
    tell(text)
    record.event("cache", text=text)
    record.remark(f"{text[0].upper()}{text[1:]}.")


def _open_caches(plan: Plan, record: Record, pipelines: Mapping[str, Pipeline]) -> None:
    """Open or claim the disk caches, and check that there is space for those to be filled."""
    cache = plan.spec.cache
    if not cache.keeps:
        return
    keepers = [pipeline.keeper for pipeline in pipelines.values() if pipeline.keeper is not None]
    try:
        # In the order of their keys, so that two runs cannot deadlock.
        for keeper in sorted(keepers, key=lambda keeper: keeper.key):
            keeper.prepare()
        to_fill = {
            name: pipeline
            for name, pipeline in pipelines.items()
            if pipeline.keeper is None or pipeline.keeper.is_to_fill
        }
        forecast = fits(plan, to_fill, folder_of(cache.dir))
    except BaseException:
        _close(pipelines.values())
        raise
    record.update(cache={"target": cache.path, "at": cache.at, "forecast_bytes": forecast})


def _describe_caches(plan: Plan, record: Record, pipelines: Mapping[str, Pipeline]) -> None:
    """Record what the caches hold at the end of the run, and what their passes did."""
    if record.summary.cache is None or not plan.spec.cache.keeps:
        return
    held = {
        name: {
            "held_bytes": pipeline.held_bytes,
            **({"key": pipeline.keeper.key, "passes": pipeline.keeper.passes} if pipeline.keeper else {}),
            **({"filled_s": seconds} if (seconds := pipeline.filling_s or pipeline.filled_s) else {}),
            **({"is_filled_ahead": True} if pipeline.fills_ahead else {}),
        }
        for name, pipeline in pipelines.items()
    }
    record.update(cache=record.summary.cache.with_values(pipelines=held))


class Datasets(Mapping[str, tf.data.Dataset]):
    """Datasets of a plan by name, `train` and, if it has validation, `validation`.

    An element is what the model gets: (inputs, targets), and a weight behind them where the plan has weights. Each
    iteration over a dataset, also over one that is derived from it, is the next pass, with the order and the
    augmentation of the epoch of that number. Its length is unknown to tf.data, so that Keras reads it to its end.

    A cache in memory belongs to these datasets alone. One on disk is read if a run has filled it, until `close`, at the
    latest until nothing refers to the datasets any more; else passes run without it. In a `with` statement they are
    closed at its end, and a record that can't be read is an `EtlrunError` with its place.
    """

    def __init__(self, plan: Plan, pipelines: Mapping[str, Pipeline]) -> None:
        self._plan, self._pipelines = plan, pipelines
        self._datasets = {name: pipeline.each_pass() for name, pipeline in pipelines.items()}
        held = _Held()
        self.close = weakref.finalize(held, _close, tuple(pipelines.values()))
        for dataset in self._datasets.values():  # which what is derived from them refers to
            dataset._etlrun = held  # noqa: SLF001 - see `_Held`

    def __getitem__(self, name: str) -> tf.data.Dataset:
        return self._datasets[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._datasets)

    def __len__(self) -> int:
        return len(self._datasets)

    def __repr__(self) -> str:
        return f"<etlrun datasets {', '.join(self)} of {self._plan.spec.dataset.title}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("datasets of TensorFlow can't be pickled: pickle what etlrun.plan returns")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if isinstance(error, tf.errors.OpError):
                _raise_cause(error, self._plan, self._pipelines)
        finally:
            self.close()


class _Held:
    """What datasets refer to: when it is gone, their caches are closed."""


def datasets_of(plan: Plan) -> Datasets:
    """Return the datasets of a plan, after TensorFlow has been prepared for it.

    Raises:
        EtlrunError: Data is missing, too small or can't be read, or there is no space for a cache.
    """
    dataset = plan.spec.dataset
    source_type(dataset).begin(dataset)
    source, backbone = open_source(dataset), None
    if reads_features(plan):
        from etlrun.run import model as models  # imports Keras, which only the features of a base need

        seed_all(plan.spec.trainer.seed)  # for a base without pretrained weights
        backbone = models.backbone(models.whole_model(plan, source))
    contexts = contexts_of(plan, source, with_validation=bool(plan.evaluation), backbone=backbone)
    require_enough(plan, contexts)
    keep_sequences(plan, contexts)
    keepers = keepers_of(plan, contexts, {"folder": "", "overrides": []}, tell)
    pipelines = {name: Pipeline(plan.pipelines[name], of, keepers.get(name)) for name, of in contexts.items()}
    try:
        for keeper in keepers.values():
            keeper.read_only()
        if plan.spec.cache.keeps and not keepers:
            fits(plan, pipelines, folder_of(None))
        return Datasets(plan, pipelines)
    except BaseException:
        _close(pipelines.values())
        raise
