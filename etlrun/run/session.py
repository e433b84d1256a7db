"""Input of a run, or of a program's own loop: the dataset and its pipelines."""

import json
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from functools import partial
from types import TracebackType
from typing import NoReturn, Self

import tensorflow as tf

from etlrun.cache.store import folder_of
from etlrun.cluster.hosts import here
from etlrun.cluster.service import pipelines_of
from etlrun.datasets.examine.profile import profiled
from etlrun.graph.build import Pipeline, fits
from etlrun.graph.context import Context, FrozenBase
from etlrun.graph.datasets import keep_sequences
from etlrun.graph.disk import keepers_of
from etlrun.measure.assessment import Input, Work
from etlrun.measure.digest import Digest
from etlrun.measure.watched import Watch
from etlrun.planning.plan import Plan, stage_of
from etlrun.record.record import Record
from etlrun.remote.copies import Traffic
from etlrun.review.data import FIGURES
from etlrun.run.backend import peak_gpu_bytes, seed_all
from etlrun.run.checkpoint import PreviousRun, has_read_the_same
from etlrun.run.devices import shares
from etlrun.run.readings import base_of, readings_of
from etlrun.sources.base import Source, notes_on, open_source, source_type
from etlrun.sources.corrupt import corrupt_records, counts_of, raise_cause
from etlrun.stages.extract import Interleave
from etlrun.stages.load import TO_SKIP, note_of_classes, too_few
from etlrun.system.errors import WorldError, counted
from etlrun.system.files import write_atomically
from etlrun.system.machine import rounded
from etlrun.system.terminal import doing, tell
from etlrun.system.values import Block, grouped

MOST_CORRUPT_NAMED, _SHOWN = 20, 5
SKIPPED = "skipped.txt"
"""File of a run with the place of each record that was skipped, and why."""


def opened(plan: Plan) -> Source:
    """Open the dataset, prepared if necessary, and set the trainer's seed; `WorldError` if it is unavailable."""
    doing("open the data")
    source = open_source(plan.spec.dataset)
    seed_all(plan.spec.trainer.seed)  # afterwards, since TFDS draws random numbers when it prepares a dataset
    return source


def prepared(
    plan: Plan, record: Record, source: Source, backbone: FrozenBase | None = None, previous: PreviousRun | None = None
) -> Work:
    """Build the pipelines, and open their caches.

    Raises `WorldError` if data is missing, too small, or not that of the `previous` run, or if there is no space.
    """
    place, wholes = here(), contexts_of(plan, source, with_validation=plan.spec.fit is not None, backbone=backbone)
    require_enough(plan, wholes)
    data, contexts = _described(source, wholes), {name: place.context(of) for name, of in wholes.items()}
    contents = {name: of.split.content for name, of in (wholes if place.leads else contexts).items()}
    digests = {name: content.digest for name, content in contents.items()}  # which finds images that are too large
    if not place.leads:
        digests = {}
    notes = list[str]()
    if previous is not None and not has_read_the_same(previous, digests, plan.spec.dataset):
        notes.append(f"It is unknown whether {previous.folder} has read the same records.")
    notes += _notes(plan, source, wholes)
    keep_sequences(plan, wholes)

    def say(text: str) -> None:
        """Report an event of a cache: on the terminal, in the events, and in the notes of the report."""
        tell(text)
        record.event("cache", text=text)
        record.remark(f"{text[0].upper()}{text[1:]}.")

    made_by = {"folder": str(record.folder), "overrides": record.summary.overrides}
    pipelines = pipelines_of(plan, contexts, keepers_of(plan, contexts, made_by, say))
    for note in notes:
        record.remark(note)
    _open_caches(plan, record, pipelines)
    if place.leads:
        figures = {name: profiled(source, of.split, digests[name]) for name, of in wholes.items()}
        with record.writing():
            write_atomically(record.folder / FIGURES, json.dumps(figures, indent=1) + "\n")
    record.update(dataset={**data, "digest": digests, "classes": source.class_names and list(source.class_names)})
    record.event("dataset", **data)
    sequences, copies, inputs = plan.train[-1].gives.sequences, source.copies, {}
    traffic = Traffic if copies is None else lambda: copies.traffic
    for name, pipeline in pipelines.items():
        watch = Watch(Digest(sequences) if plan.spec.measure.digest else None, traffic)
        inputs[name] = Input(name, plan, pipeline, watch, contents[name])
    return Work(plan, record, inputs, peak_gpu_bytes)


def go_on_without_cache(work: Work, plan: Plan) -> None:
    """Go on with the phases that cached features do not serve."""
    inputs = {}
    for name, context in contexts_of(plan, work.train.pipeline.context.source).items():
        watch = work.inputs[name].watch
        watch.ready.clear()  # which are of features
        inputs[name] = Input(name, plan, Pipeline(plan.pipelines[name], context), watch, context.split.content)
    work.plan, work.inputs = plan, inputs


def contexts_of(
    plan: Plan, source: Source, *, with_validation: bool = True, backbone: FrozenBase | None = None
) -> dict[str, Context]:
    """Return the context of each pipeline: `train` and, with validation, `validation` and the named sets."""
    readings = readings_of(plan, source, with_validation=with_validation, backbone=backbone)
    return {name: Context(**vars(reading)) for name, reading in readings.items()}


def _described(source: Source, contexts: Mapping[str, Context]) -> Block:
    """Print and return the name of the dataset, the examples of each split, and the number and bytes of the shards."""
    examples = {name: context.split.num_examples for name, context in contexts.items()}
    try:
        sizes = {path: size for context in contexts.values() for path, size in context.split.sizes.items()}
    except OSError as error:  # a broken link, or a file that has gone since the listing
        raise source.unreadable(str(error.filename), error.strerror or str(error)) from error
    counts = " + ".join(f"{count:,}" for count in examples.values())
    size, name = sum(sizes.values()), source.full_name
    many = f"{len(sizes):,} {contexts['train'].source.noun_of_shards}{'s' if len(sizes) > 1 else ''}, {rounded(size)}"
    tell(f"data  {name}  {counts} examples in {many}")
    return {"name": name, "examples": examples, "shards": len(sizes), "bytes": size}


def require_enough(plan: Plan, contexts: Mapping[str, Context]) -> None:
    """Raise `WorldError` if a split has too few examples for a batch."""
    load, hosts, num_examples = plan.spec.load, here().count, contexts["train"].split.num_examples
    devices = hosts * shares()
    for name, split in ((name, of.split) for name, of in contexts.items() if name != "train"):
        if split.num_examples < devices:
            key, found = plan.spec.dataset.key_of(name), f"{split.num_examples} examples in '{split.name}'"
            expected = f"at least {devices}, the number of devices that share a batch"
            raise WorldError(key, found, expected, f"set a larger {key}, or fewer devices")
    if error := too_few(load, hosts, num_examples):
        raise error


def _notes(plan: Plan, source: Source, contexts: Mapping[str, Context]) -> Iterator[str]:
    """Yield what is to know of the examples before a run reads them."""
    load, split = plan.spec.load, contexts["train"].split
    yield from source.notes
    yield from notes_on({name: context.split for name, context in contexts.items()})
    counts = partial(counts_of, split, by_number=load.is_by_number)
    if of_classes := note_of_classes(load, split.name, counts):
        yield of_classes
    yield from here().notes(shares(), {name: context.split for name, context in contexts.items()})
    extract, shards = stage_of(plan.train, Interleave), len(split.shards)  # known only once the dataset is open
    if extract is not None and extract.cycle_length not in ("all", extract.at_once(shards)):
        has = f"the split has {counted(shards, 'shard')}"
        yield f"extract.cycle_length = {extract.cycle_length} is limited to {shards}: {has}."


def _raise_cause(error: tf.errors.OpError, plan: Plan, pipelines: Collection[Pipeline]) -> None:
    """Raise the broken cache or the corrupt record that has ended the reading of pipelines, if one has."""
    keepers = [pipeline.keeper for pipeline in pipelines if pipeline.keeper is not None]
    for keeper in keepers:
        if keeper.failure is not None:
            raise keeper.failure from error
    for keeper in keepers:
        keeper.close()  # TensorFlow's threads may still run
    contexts = [pipeline.context for pipeline in pipelines]
    read = [(context.split, context.losses) for context in contexts]
    load = plan.spec.load
    to_skip = "load=shuffled" if load.service is not None else TO_SKIP if load.is_by_number else ""
    raise_cause(error, read, to_skip)


def _close(pipelines: Iterable[Pipeline]) -> None:
    for pipeline in pipelines:
        pipeline.close()


@contextmanager
def at_work(work: Work) -> Iterator[None]:
    """Report corrupt records and broken caches while the pipelines are read, and close the caches."""
    work = copy(work)  # which may go on with others
    inputs, pipelines = work.inputs.values(), [of.pipeline for of in work.inputs.values()]
    try:
        yield
    except tf.errors.OpError as error:
        _raise_cause(error, work.plan, pipelines)
        raise
    finally:
        for of in inputs:
            of.watch.close()
        try:
            _describe_caches(work)
        finally:
            _close(pipelines)
    _report_skipped(work)
    changed = {of.name: of.content.changed() for of in inputs}
    dataset = work.record.summary.dataset
    digests = {name: None if changed[name] else digest for name, digest in dataset.digest.items()}
    work.record.update(dataset=dataset.with_values(digest=digests))
    for path in dict.fromkeys(path for path in changed.values() if path):
        work.record.remark(f"{path} changed during the run: it is unknown which of its records were read.")


def _report_skipped(work: Work) -> None:
    """Record how many records `on_corrupt: skip` skipped, and which: all of them in a file."""
    if work.plan.spec.dataset.on_corrupt != "skip":
        return
    skipped, named = Block(), list[tuple[str, str]]()
    for name, of in work.inputs.items():
        context = of.pipeline.context
        records = context.losses.records
        found = list(corrupt_records(context.split)) if records is None else records
        skipped[name] = sum(corrupt.lost for corrupt in found)
        for corrupt in found[:MOST_CORRUPT_NAMED]:
            work.record.event("skipped", where=corrupt.where, reason=corrupt.reason)
        named += [(corrupt.reason, corrupt.where) for corrupt in found]
    work.record.update(skipped=skipped)
    if total := sum(skipped.values()):
        lines = "".join(f"{where}: {reason}\n" for reason, where in named)
        write_atomically(work.record.folder / SKIPPED, lines)
        count = f"{counted(total, 'corrupt record')} {'was' if total == 1 else 'were'} skipped"
        told = (f"{', '.join(places)} ({reason})" for reason, places in grouped(named[:_SHOWN]).items())
        more = f"; {len(named) - _SHOWN:,} more in {SKIPPED}" if named[_SHOWN:] else ""
        work.record.remark(f"{count}: {'; '.join(told)}{more}.")


def _open_caches(plan: Plan, record: Record, pipelines: Mapping[str, Pipeline]) -> None:
    """Open or claim the disk caches, and check that there is space for those to be filled."""
    cache = plan.spec.cache
    if not cache.keeps:
        return
    keepers = [of.keeper for of in pipelines.values() if of.keeper is not None]
    try:
        for keeper in sorted(keepers, key=lambda keeper: keeper.key):  # so that two runs cannot deadlock
            keeper.prepare()
        to_fill = {name: of for name, of in pipelines.items() if of.keeper is None or of.keeper.is_to_fill}
        forecast = fits(plan, to_fill, folder_of(cache.dir))
    except BaseException:
        _close(pipelines.values())
        raise
    record.update(cache={"target": cache.path, "at": cache.at, "forecast_bytes": forecast})


def _describe_caches(work: Work) -> None:
    """Record what the caches hold at the end of the run, and what their passes did."""
    cache = work.record.summary.cache
    if cache is None or not work.plan.spec.cache.keeps:
        return
    held = {}
    for name, of in work.inputs.items():
        pipeline, keeper = of.pipeline, of.pipeline.keeper
        held[name] = {
            "held_bytes": pipeline.held_bytes,
            **({"key": keeper.key, "passes": keeper.passes} if keeper else {}),
            **({"filled_s": seconds} if (seconds := pipeline.filling_s or pipeline.filled_s) else {}),
            **({"is_filled_ahead": True} if pipeline.fills_ahead else {}),
        }
    work.record.update(cache=cache.with_values(pipelines=held))


class Datasets(dict[str, tf.data.Dataset]):
    """Datasets of a plan by name, `train` and, if it has validation, `validation` and its named validation sets.

    An element is what the model gets: (inputs, targets), and a weight behind them where the plan has weights. Each
    iteration over a dataset, also over one that is derived from it, is the next pass, with the order and the
    augmentation of the epoch of that number. Its length is unknown to tf.data, so that Keras reads it to its end.

    A cache in memory belongs to these datasets alone. One on disk is read if a run has filled it, until `close`, at the
    latest until nothing refers to the datasets any more; else passes run without it. In a `with` statement they are
    closed at its end, and a record that can't be read is an `EtlrunError` with its place.
    """

    def __init__(self, plan: Plan, pipelines: Mapping[str, Pipeline]) -> None:
        super().__init__({name: pipeline.each_pass() for name, pipeline in pipelines.items()})
        self._plan, self._pipelines = plan, pipelines.values()
        held = _Held()
        self.close = weakref.finalize(held, _close, self._pipelines)
        for dataset in self.values():  # which what is derived from them refers to
            dataset._etlrun = held  # noqa: SLF001 - see `_Held`

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

    Raises `EtlrunError` if data is missing, too small or can't be read, or if there is no space for a cache.
    """
    dataset = plan.spec.dataset
    source_type(dataset).begin(dataset)
    source = open_source(dataset)
    contexts = contexts_of(plan, source, backbone=base_of(plan, source))
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
