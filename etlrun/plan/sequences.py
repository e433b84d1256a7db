"""Batches of sequences: what is wrong with them, how long the sequences are, and how much of the batches is padding."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.plan.spec import RunSpec
from etlrun.plan.training import conflict
from etlrun.sources.rows.lengths import lengths_of
from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.stages.columns import Columns
from etlrun.stages.extract import Sequential
from etlrun.stages.flow import Flow
from etlrun.stages.load import FullShuffle, Load
from etlrun.stages.rows import Rows
from etlrun.stages.sequences import Bucket, batch_of
from etlrun.system.errors import ConfigError, Fault

_WITHOUT = "load.boundaries=[]"


def sequence_rules(spec: RunSpec, given: Flow) -> Iterator[Fault]:
    """Yield the faults of a run whose batches are made of sequences; `given` is what the model takes."""
    load = spec.load
    if spec.cache.keeps and given.sequences:
        found, remedy = spec.cache.path.removeprefix("cache."), "set cache=none"
        expected = "none with sequences, of which a run of several epochs keeps the items"
        yield Fault(where="cache.name", found=found, expected=expected, remedy=remedy, is_rule=True)
    if load.service is not None and given.sequences:
        yield conflict(load, "service", "null with sequences", "set load.service=null")
    if load.boundaries == () and given.sequences and not isinstance(spec.dataset, Rows):
        expected = "null with a dataset that is not of rows, whose examples are batched one by one"
        yield conflict(load, "boundaries", expected, "end their steps with multi_hot or tf_idf, or set dataset=table")
    if load.boundaries:
        yield from _of_buckets(spec, load, given)


def _of_buckets(spec: RunSpec, load: Load, given: Flow) -> Iterator[Fault]:
    if not isinstance(spec.dataset, Rows):
        expected = "[] with a dataset that is not of rows, of which no length is known before it is read"
        yield conflict(
            load, "boundaries", expected, f"set {_WITHOUT}, or read its TFRecord files as rows: dataset=table"
        )
    elif not given.sequences:
        remedy = "set load=shuffled, or end the steps of a text with `embed`"
        yield conflict(load, "boundaries", f"null, since there is no sequence in {given}", remedy)
    if load.shuffles and not load.is_by_number:
        yield conflict(load, "shuffle", "full with load.boundaries", "set load.shuffle=full or load.shuffle_buffer=0")
    if not isinstance(spec.extract, Sequential):
        found, remedy = spec.extract.path.removeprefix("extract."), "set extract=sequential"
        expected = "sequential with load.boundaries, which reads rows by their numbers"
        yield Fault(where="extract.name", found=found, expected=expected, remedy=remedy, is_rule=True)
    if spec.fit is not None and spec.fit.devices != 1:
        devices = spec.fit.key("devices")
        expected = f"[] with {devices}={spec.fit.devices}, since the last batches of buckets have no equal shares"
        yield conflict(load, "boundaries", expected, f"set {_WITHOUT}, or {devices}=1")
    if spec.fit is not None and spec.fit.hosts > 1:
        expected = f"[] with {spec.fit.key('hosts')}={spec.fit.hosts}, since hosts train on as many batches"
        yield conflict(load, "boundaries", expected, f"set {_WITHOUT}")


def lengths_noted(spec: RunSpec, source: RowsSource, splits: list[RowSplit], columns: Columns) -> Iterator[str]:
    """Yield how long the sequences of each split are, and what share of its batches is padding, a sentence each.

    Raises:
        ConfigError: A sequence is longer than the last boundary.
    """
    if not columns.flow(source.dataset.examples).sequences:
        return
    for split in splits:
        lengths = np.asarray(lengths_of(source, split, columns))
        yield from _too_long(spec.load, split, lengths)
        share, shapes = padding_of(spec, columns, lengths)
        ends = f"{lengths.min():,} to {lengths.max():,} items, {int(np.median(lengths)):,} in the median"
        yield (
            f"{split.name}: {len(lengths):,} sequences of {ends}; {share:.1%} of what batches hold is padding, in"
            f" {shapes:,} shape{'s' * (shapes > 1)}."
        )


def _too_long(load: Load, split: RowSplit, lengths: npt.NDArray[Any]) -> Iterator[str]:
    """Yield how many sequences are left out; raise `ConfigError` for those that are not to be."""
    last = load.boundaries[-1] if load.boundaries else int(lengths.max())
    places = np.flatnonzero(lengths > last)
    if not len(places):
        return
    if load.drop_long:
        yield f"{split.name}: {len(places):,} of {len(lengths):,} sequences are longer than {last:,} and left out."
        return
    first = split.where(split.shards[0], int(places[0]))
    more = f"{len(places):,} of {len(lengths):,} sequences of {split.name} are longer than {last:,}"
    fault = Fault(
        where=load.key("boundaries"),
        found=f"{lengths[places[0]]:,} items in {first}; {more}",
        expected=f"at most {last:,} items, the last boundary",
        remedy=f"add {{truncate: {last}}} to the steps of the column, or a boundary, or set load.drop_long=true",
    )
    raise ConfigError([fault])


def padding_of(spec: RunSpec, columns: Columns, lengths: npt.NDArray[Any]) -> tuple[float, int]:
    """Return the share of padding in the batches of a pass, and the number of their shapes.

    Without boundaries both differ a little between passes.
    """
    load = spec.load
    order = FullShuffle.op(len(lengths), spec.trainer.seed) if load.shuffles else np.arange(len(lengths))
    lengths = lengths[order]
    batch = batch_of(load, dataclasses.replace(spec.transform, steps=(columns,)), drops=False)
    if isinstance(batch, Bucket):
        places, ends = batch.cut(lengths)
        padded_to = [batch.boundaries[at] for at in np.searchsorted(batch.boundaries, lengths[places[ends[:-1]]])]
        held = lengths[places].sum()
    else:
        ends = np.append(np.arange(0, len(lengths), batch.batch_size), len(lengths))
        padded_to, held = np.maximum(np.maximum.reduceat(lengths, ends[:-1]), 1).tolist(), lengths.sum()
    shapes = {*zip(np.diff(ends).tolist(), padded_to, strict=True)}
    return 1 - held / np.dot(np.diff(ends), padded_to), len(shapes)
