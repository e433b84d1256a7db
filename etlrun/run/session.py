"""Input of a run, of a host's part of it, or of a program's own loop: the dataset and its pipelines."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, Self

import tensorflow as tf

from etlrun.cache.keeper import Keeper
from etlrun.cache.store import folder_of
from etlrun.graph.build import Pipeline, fits
from etlrun.graph.context import Context, FrozenBase, Reading
from etlrun.graph.datasets import keep_sequences
from etlrun.graph.shards import count_of_batches
from etlrun.measure.assessment import Work
from etlrun.measure.watched import Watch
from etlrun.planning.plan import Plan, stage_of
from etlrun.planning.planner import plan
from etlrun.record.record import Record
from etlrun.remote.copies import Traffic
from etlrun.run.backend import seed_all
from etlrun.run.checkpoint import PreviousRun, has_read_the_same
from etlrun.run.devices import shares
from etlrun.run.hosts import HostPlace, gathered, here
from etlrun.run.keepers import base_of, keepers_of, readings_of
from etlrun.service.pipeline import pipelines_of
from etlrun.sources.base import Identified, Source, Split, note_of_unused, open_source, source_type
from etlrun.sources.corrupt import corrupt_records, counts_of, raise_cause
from etlrun.stages.extract import Interleave
from etlrun.stages.load import note_of_classes
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import EtlrunError, Fault, WorldError, counted
from etlrun.system.machine import rounded
from etlrun.system.terminal import doing, tell

_SEEDS_APART = 2**31
"""Distance of the seeds of two hosts, so that their examples are shuffled and augmented differently."""


def part_of(planned: Plan) -> Plan:
    """Return the plan of the part that one host has in each batch; `planned` itself for a run on one host."""
    spec, fit = planned.spec, planned.spec.fit
    if fit is None or fit.hosts == 1:
        return planned
    load = dataclasses.replace(spec.load, batch_size=spec.load.batch_size // fit.hosts)
    return plan(dataclasses.replace(spec, load=load, trainer=dataclasses.replace(fit, hosts=1)))


def part_on(place: HostPlace, split: Split) -> Split:
    """Return what a host reads of a split: a part of consecutive examples, as many as every other host reads."""
    each = split.num_examples // place.count
    return split.part(each * place.number, each * (place.number + 1))


def notes_on(place: HostPlace, devices: int, splits: dict[str, Split]) -> Iterator[str]:
    """Yield the notes on splits that hosts share, each with so many `devices`, one sentence each."""
    for name, split in splits.items():
        each = split.num_examples // place.count
        left = split.num_examples - place.count * (each if name == "train" else each - each % devices)
        if left:
            last = f"The last {counted(left, 'example')} of '{split.name}' {'are' if left > 1 else 'is'}"
            passes = "no pass" if name == "train" else "no validation"
            why = "all hosts read equally many" if devices == 1 else "all devices compute equally many"
            yield f"{last} in {passes}, so that {why}."
    train = splits["train"]
    if (files := len(train.paths)) < place.count and train.noun == "shard":
        few = f"{counted(files, 'shard')}, fewer than the {place.count} hosts"
        yield f"'{train.name}' has {few}: a host reads over the records of others to find its own."


class HostPart(Pipeline):
    """A pipeline of the part of one host, of a `context` of the whole split."""

    def __init__(self, place: HostPlace, planned: Plan, name: str, context: Context) -> None:
        part = part_on(place, context.split)
        self._whole = context.split if place.leads else part
        if not place.leads:
            _ = part.content.digest  # finds images that are too large
        seed = context.seed + place.number * _SEEDS_APART
        of_host = Context(source=context.source, split=part, seed=seed, backbone=context.backbone)
        super().__init__(planned.pipelines[name], of_host)

    @property
    def content(self) -> Identified:
        """The records that this host identifies: all of the split on host 0, its part on others."""
        return self._whole.content


_BYTES, _BYTES_EACH = 2048, 64
"""Bytes of what a host says, and more for each host."""
_SHOWN_CLASSES = 100
"""Most characters of the classes in a message."""


def require_same(plan: Plan, readings: Mapping[str, Reading]) -> None:
    """Raise `EtlrunError`, on all hosts, unless they have the same plan and the same data; all of them call it.

    Each host reads the checksums of its own part of the data; host 0, which identifies all of it, those of all parts.
    """
    place = here()
    if place.count > 1:
        said = gathered(json.dumps(said_by(place, plan, readings)), _BYTES + _BYTES_EACH * place.count)
        if faults := [*differences([*map(json.loads, said)])]:
            raise EtlrunError(faults)


def said_by(place: HostPlace, plan: Plan, readings: Mapping[str, Reading]) -> dict[str, Any]:
    """Return what a host says of its plan and its data: digests of its own part, on host 0 those of all parts."""
    names = readings["train"].source.names_of_classes or ()
    shown = ", ".join(names)
    if len(shown) > _SHOWN_CLASSES:
        shown = f"{shown[:_SHOWN_CLASSES]}… of digest {_hashed(names)}"
    digests = {}
    for number in range(place.count) if place.leads else [place.number]:
        of = HostPlace(number=number, count=place.count)
        parts = [part_on(of, reading.split).content.digest for reading in readings.values()]
        digests[str(number)] = None if None in parts else _hashed(parts)
    return {
        "plan": f"the plan {plan.fingerprint}",
        "resume": f"{Trainer.key('resume')}={(plan.spec.fit and plan.spec.fit.resume) or 'null'}",
        "classes": f"the classes {shown} ({len(names):,})",
        "examples": ", ".join(f"{of.split.num_examples:,} examples in '{of.split.name}'" for of in readings.values()),
        "digests": digests,
    }


def _hashed(value: object) -> str:
    return hashlib.sha256(repr(value).encode(errors="surrogateescape")).hexdigest()[:16]


def differences(said: Sequence[Mapping[str, Any]]) -> Iterator[Fault]:
    """Yield the first difference between each host and host 0, from what they say."""
    for number, other in enumerate(said[1:], 1):
        copy = f"copy the dataset of host 0 to host {number}, or share one storage"
        same = "start all with the same command"
        remedies = {"plan": f"{same}, in the same version of etlrun", "resume": same, "classes": copy, "examples": copy}
        found, expected = (of["digests"][str(number)] for of in (other, said[0]))
        for key, remedy in remedies.items():
            if other[key] != said[0][key]:
                yield Fault(f"host {number}", other[key], f"{said[0][key]}, as on host 0", remedy)
                break
        else:
            if None not in (found, expected) and found != expected:
                what = "other records or images in its part of the data"
                yield Fault(f"host {number}", what, "the same ones, as on host 0", copy)


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
    backbone: FrozenBase | None = None,
    previous: PreviousRun | None = None,
) -> Work:
    """Build the pipelines, and open their caches.

    Raises:
        WorldError: Data is missing, too small, or differs from that of the `previous` run; or there is no space.
    """
    contexts = contexts_of(plan, source, with_validation=plan.spec.fit is not None, backbone=backbone)
    place = here()
    require_enough(plan, contexts)
    keep_sequences(plan, contexts)
    data = _described(source, contexts)
    digests = {name: context.split.content.digest for name, context in contexts.items()} if place.leads else {}
    if previous is not None and not has_read_the_same(previous, digests, plan.spec.dataset):
        record.remark(f"It is unknown whether {previous.folder} has read the same records.")
    for note in _notes(plan, source, contexts):
        record.remark(note)

    def say(text: str) -> None:
        """Report an event of a cache: on the terminal, in the events, and in the notes of the report."""
        tell(text)
        record.event("cache", text=text)
        record.remark(f"{text[0].upper()}{text[1:]}.")

    made_by = {"folder": str(record.folder), "overrides": record.summary.overrides}
    keepers = keepers_of(plan, contexts, made_by, say)
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
    validation, devices, batch = contexts.get("validation"), hosts * shares(), load.batch_size * hosts
    if validation is not None and validation.split.num_examples < devices:
        key, found = plan.spec.dataset.key_of("validation"), validation.split
        raise WorldError(
            key,
            f"{found.num_examples} examples in '{found.name}'",
            f"at least {devices}, the number of devices that share a batch",
            f"set a larger {key}, or fewer devices",
        )
    if load.drop_remainder and num_examples < batch:
        raise WorldError(
            load.key("batch_size"),
            f"{batch}, with {num_examples} examples in the training split",
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
    keepers = _keepers(pipelines)
    for keeper in keepers:
        if keeper.failure is not None:
            raise keeper.failure from error
    for keeper in keepers:
        keeper.close()  # TensorFlow's threads may still run
    read = [(pipeline.split, pipeline.context.losses) for pipeline in pipelines.values()]
    raise_cause(error, pipelines["train"].context.source, read, plan.spec.load.to_skip)


def _keepers(pipelines: Mapping[str, Pipeline]) -> list[Keeper]:
    return [pipeline.keeper for pipeline in pipelines.values() if pipeline.keeper is not None]


def _close(pipelines: Mapping[str, Pipeline]) -> None:
    for pipeline in pipelines.values():
        pipeline.close()
    for keeper in _keepers(pipelines):
        keeper.close()


@contextmanager
def at_work(work: Work) -> Iterator[None]:
    """Report corrupt records and broken caches while the pipelines are read, and close the caches."""
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
            for keeper in _keepers(work.pipelines):
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
    work.record.update(skipped=skipped)
    if total := sum(skipped.values()):
        more = "; etlrun doctor lists all" if named[_SHOWN:] else ""
        count = f"{counted(total, 'corrupt record')} {'was' if total == 1 else 'were'} skipped"
        work.record.remark(f"{count}: {'; '.join(named[:_SHOWN])}{more}.")


def _open_caches(plan: Plan, record: Record, pipelines: Mapping[str, Pipeline]) -> None:
    """Open or claim the disk caches, and check that there is space for those to be filled."""
    cache = plan.spec.cache
    if not cache.keeps:
        return
    try:
        for keeper in sorted(_keepers(pipelines), key=lambda keeper: keeper.key):  # so that two runs cannot deadlock
            keeper.prepare()
        to_fill = {name: of for name, of in pipelines.items() if of.keeper is None or of.keeper.is_to_fill}
        forecast = fits(plan, to_fill, folder_of(cache.dir))
    except BaseException:
        _close(pipelines)
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


class Datasets(dict[str, tf.data.Dataset]):
    """Datasets of a plan by name, `train` and, if it has validation, `validation`.

    An element is what the model gets: (inputs, targets), and a weight behind them where the plan has weights. Each
    iteration over a dataset, also over one that is derived from it, is the next pass, with the order and the
    augmentation of the epoch of that number. Its length is unknown to tf.data, so that Keras reads it to its end.

    A cache in memory belongs to these datasets alone. One on disk is read if a run has filled it, until `close`, at the
    latest until nothing refers to the datasets any more; else passes run without it. In a `with` statement they are
    closed at its end, and a record that can't be read is an `EtlrunError` with its place.
    """

    def __init__(self, plan: Plan, pipelines: Mapping[str, Pipeline]) -> None:
        super().__init__({name: pipeline.each_pass() for name, pipeline in pipelines.items()})
        self._plan, self._pipelines = plan, pipelines
        held = _Held()
        self.close = weakref.finalize(held, _close, pipelines)
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

    Raises:
        EtlrunError: Data is missing, too small or can't be read, or there is no space for a cache.
    """
    dataset = plan.spec.dataset
    source_type(dataset).begin(dataset)
    source = open_source(dataset)
    base = base_of(plan, source)
    contexts = contexts_of(plan, source, with_validation=bool(plan.evaluation), backbone=base)
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
        _close(pipelines)
        raise
