"""Findings of equal rows: in several splits, with several targets, or several times in one split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from etlrun.datasets.examine.finding import NAMED, Finding
from etlrun.datasets.examine.row_values import Examined, kind_of
from etlrun.datasets.prepare.check import identical
from etlrun.sources.rows.dividing import Numbers
from etlrun.sources.rows.leaks import columns_compared, hashes_of, names_examined
from etlrun.sources.rows.source import RowsSource

_MEMBERS = 4
"""Equal rows that a finding names."""


def of_equal(splits: Sequence[Examined], begin: Callable[[int], None]) -> Iterator[Finding]:
    """Yield the findings of equal rows in all splits; `begin` is told how many rows have been read."""
    source = splits[0].source
    names = columns_compared(source)
    targets = [name for name in names if name in source.dataset.target]
    inputs = [name for name in names if name not in targets]
    if inputs:
        yield from _equal(splits, inputs, targets, "row", _left_out(source, names), begin)


def of_equal_texts(splits: Sequence[Examined]) -> Iterator[Finding]:
    """Yield the findings of equal texts of many words, whose rows may differ in other columns."""
    source = splits[0].source
    compared = [name for name in columns_compared(source) if name not in source.dataset.target]
    for of in splits[0].texts:
        if compared != [of.name]:  # else equal rows have it
            yield from _equal(splits, [of.name], [*source.dataset.target], f"text of {of.name}", "", lambda _: None)


def _equal(
    splits: Sequence[Examined],
    inputs: Sequence[str],
    targets: Sequence[str],
    noun: str,
    but: str,
    begin: Callable[[int], None],
) -> Iterator[Finding]:
    """Yield the findings of what is equal in the columns `inputs`."""
    source = splits[0].source
    rows = np.concatenate([split.reader.rows for split in splits])
    hashes = hashes_of(source.kept, inputs, rows, begin)
    outcomes = hashes_of(source.kept, targets, rows) if targets else np.zeros(len(rows), np.uint64)
    places = np.repeat(np.arange(len(splits)), [len(split.reader.rows) for split in splits])
    groups = identical(hashes, outcomes, places)  # type: ignore[arg-type] # any sortable values
    is_class = any(kind_of(source.dataset, name) != "number" for name in targets)
    is_same = ~groups.is_conflicting
    kinds = (
        (groups.is_across & is_same, "in several splits", "remove them from all but one"),
        (groups.is_conflicting & is_class, "under several targets", "correct the targets, or add columns that differ"),
        (is_same & ~groups.is_across, "several times in one split", "remove them, unless they are to count more"),
    )
    starts = np.cumsum([0, *(len(split.reader.rows) for split in splits)])
    for is_chosen, text, remedy in kinds:
        chosen = np.flatnonzero(is_chosen)
        if len(chosen):
            named = (_places(splits, starts, groups.members(group)) for group in chosen[:NAMED].tolist())
            several = f"{len(chosen):,} {noun.replace(' ', 's ', 1) if ' ' in noun else f'{noun}s'} are"
            what = f"1 {noun} is" if len(chosen) == 1 else several
            yield Finding(f"{what} {text}{but}", remedy, tuple(named))


def _left_out(source: RowsSource, names: Sequence[str]) -> str:
    others = [name for name in names_examined(source) if name not in names]
    return f", if {', '.join(others)} is left out" if others else ""


def _places(splits: Sequence[Examined], starts: Numbers, members: Numbers) -> str:
    """Return the places of equal rows; of many, the first ones and their number."""
    found = []
    for member in members[:_MEMBERS].tolist():
        split = int(np.searchsorted(starts, member, side="right")) - 1
        found.append(splits[split].reader.where(member - int(starts[split])))
    return " = ".join(found) + (f" = … ({len(members):,} in all)" if len(members) > _MEMBERS else "")
