"""Lengths of the sequences of rows: which are too long, and how much of the batches is padding."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.planning.spec import RunSpec
from etlrun.sources.rows.reader import lengths_of
from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.stages.columns import Columns
from etlrun.stages.load import FullShuffle, Load
from etlrun.stages.sequences import Bucket, batch_of
from etlrun.system.errors import ConfigError, Fault


def lengths_noted(spec: RunSpec, source: RowsSource, splits: list[RowSplit], columns: Columns) -> Iterator[str]:
    """Yield how long the sequences of each split are, and what share of its batches is padding, a sentence each.

    Raises:
        ConfigError: A sequence is longer than the last boundary; or a split has no batch.
    """
    if not columns.flow(source.dataset.examples).sequences:
        return
    for split in splits:
        lengths = np.asarray(lengths_of(source, split, columns))
        yield from _too_long(spec.load, split, lengths)
        drops = spec.load.drop_remainder and split is splits[0]
        share, shapes, rows = padding_of(spec, columns, lengths, drops=drops)
        left = np.count_nonzero(lengths <= max(spec.load.boundaries or [lengths.max()])) - rows
        if not rows:
            raise ConfigError([_of_no_batch(spec.load, split, "drop_remainder" if left else "drop_long")])
        ends = f"{lengths.min():,} to {lengths.max():,} items, {int(np.median(lengths)):,} in the median"
        yield (
            f"{split.name}: {len(lengths):,} sequence{'s' * (len(lengths) > 1)} of {ends}; {share:.1%} of what batches"
            f" hold is padding, in {shapes:,} shape{'s' * (shapes > 1)}."
        )
        if left:
            yield (
                f"{split.name}: load.drop_remainder leaves out {left:,} of {len(lengths):,} sequences in each pass, in"
                " batches that are not full."
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


def _of_no_batch(load: Load, split: RowSplit, key: str) -> Fault:
    found, remedy = f"true, which leaves out all sequences of {split.name}", f"set {load.key(key)}=false"
    remedy = f"{remedy}, or smaller batches" if key == "drop_remainder" else f"{remedy}, or add a boundary"
    return Fault(where=load.key(key), found=found, expected="at least one batch", remedy=remedy)


def padding_of(spec: RunSpec, columns: Columns, lengths: npt.NDArray[Any], *, drops: bool) -> tuple[float, int, int]:
    """Return the share of padding in the batches of a pass, the number of their shapes, and that of their rows.

    Without boundaries the first two differ a little between passes. `drops` says whether batches that are not full are
    left out.
    """
    load = spec.load
    order = FullShuffle.op(len(lengths), spec.trainer.seed) if load.shuffles else np.arange(len(lengths))
    lengths = lengths[order]
    batch = batch_of(load, dataclasses.replace(spec.transform, steps=(columns,)), drops=drops)
    if isinstance(batch, Bucket):
        places, ends = batch.cut(lengths)
        padded_to = [batch.boundaries[at] for at in np.searchsorted(batch.boundaries, lengths[places[ends[:-1]]])]
        lengths = lengths[places]
    else:
        ends = np.unique([*range(0, len(lengths) + 1, batch.batch_size), *([] if drops else [len(lengths)])])
        lengths = lengths[: ends[-1]]
        padded_to = [max(int(lengths[start:end].max()), 1) for start, end in pairwise(ends)]
    sizes = np.diff(ends)
    space = int(np.dot(sizes, padded_to))
    return 1 - lengths.sum() / max(space, 1), len({*zip(sizes.tolist(), padded_to, strict=True)}), int(ends[-1])
