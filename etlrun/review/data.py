"""What differs between the data of two sides, by their figures: examples, missing values, classes, numbers, lengths."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from etlrun.record.profile import ColumnProfile, Profile, Profiles
from etlrun.report.doc import Col, Lines, Part, Table
from etlrun.system.errors import counted, printable
from etlrun.system.terminal import in_four_digits
from etlrun.system.values import frozen

_MOST_ROWS = 20
NOT_KEPT, _NONE = "not kept", "none"
_UNITS = {"text": "characters", "image": "bytes", "integers": "items", "numbers": "items"}
_KIN = {"integer": "number", "integers": "numbers"}
"""Types that have another name where values are missing."""
_ENDS = "least, 5 %, median, 95 %, largest"
_NEW = 1.0
"""How much something changes that one side alone has, more than what both have in another share."""


@frozen
class DataChange:
    """A figure that differs.

    Attributes:
        data: Pipeline that reads the data.
        figure: What it is.
        before: The figure before, and `after` it after the change, in words.
        by: How much it changes: shares by their difference, numbers by their spread, other counts by their ratio.
    """

    data: str
    figure: str
    before: str
    after: str
    by: float


_Figure = tuple[str, str, str, float]


def changes(old: Profiles, new: Profiles) -> tuple[DataChange, ...]:
    """Return the figures that differ, those that change most first."""
    found = [
        DataChange(data=name, figure=figure, before=before, after=after, by=by)
        for name in new
        for figure, before, after, by in _of_split(old.get(name), new[name])
    ]
    return tuple(sorted(found, key=lambda of: -of.by))


def parts_of(found: Sequence[DataChange]) -> list[Part]:
    """Return the figures as a table, and how many are left out."""
    columns = [Col("data"), Col("figure", is_head=True), Col("before"), Col("after")]
    more = len(found) - _MOST_ROWS
    left_out = f"{counted(more, 'figure')} that change{'s' * (more == 1)} less left out; JSON has all" * (more > 0)
    return [Table(found[:_MOST_ROWS], columns, title="What differs in the data"), Lines([("", left_out)])]


def _of_split(old: Profile | None, new: Profile) -> Iterator[_Figure]:
    if old is None or old.examples != new.examples:
        was = NOT_KEPT if old is None else f"{old.examples:,}"
        by = 0.0 if old is None else abs(math.log((new.examples + 1) / (old.examples + 1)))
        yield "examples", was, f"{new.examples:,}", by
    before, after = None if old is None else old.columns, new.columns or {}
    for name in {**(before or {}), **after}:
        one, other, named = (before or {}).get(name), after.get(name), printable(name)
        if before is None and other is not None:
            yield named, NOT_KEPT, other.type, 0.0
        elif one is None or other is None or len({_KIN.get(of.type, of.type) for of in (one, other)}) > 1:
            types = [_NONE if of is None else of.type for of in (one, other)]
            yield named, types[0], types[1], 1 + _NEW
        else:
            yield from ((f"{named}{what}", *rest) for what, *rest in _of_column(one, other))


def _of_column(old: ColumnProfile, new: ColumnProfile) -> Iterator[Any]:
    shares = [of.missing / max(of.rows, 1) for of in (old, new)]
    if shares[0] != shares[1]:
        yield ": missing", *(_share(of.missing, of) for of in (old, new)), abs(shares[1] - shares[0])
    for value in {**old.counts, **new.counts} if old.counts and new.counts else ():
        was, now = old.counts.get(value, 0), new.counts.get(value, 0)
        apart = abs(now / max(new.rows, 1) - was / max(old.rows, 1))
        if apart:
            texts = [_share(count, of) if count else _NONE for count, of in ((was, old), (now, new))]
            yield f" = {printable(value)}", *texts, apart + _NEW * (0 in (was, now))
    if bool(old.counts) != bool(new.counts):
        yield ": values", *(f"{len(of.counts):,} values" if of.counts else "more values" for of in (old, new)), _NEW
    if old.quantiles != new.quantiles:
        apart = 0.0
        if old.quantiles and new.quantiles:
            spread = old.quantiles[3] - old.quantiles[1] or old.quantiles[4] - old.quantiles[0] or 1.0
            apart = max(abs(now - was) for was, now in zip(old.quantiles, new.quantiles, strict=True)) / spread
        yield f": {_ENDS}{_first(old, new)}", *_numbers(old, new), apart
    if old.lengths != new.lengths:
        apart, unit = 0.0, _UNITS[old.type]
        if old.lengths and new.lengths:
            ratios = ((now + 1) / (was + 1) for was, now in zip(old.lengths, new.lengths, strict=True))
            apart = max(abs(math.log(ratio)) for ratio in ratios)
        yield f": {unit}, {_ENDS}{_first(old, new)}", *(_joined(of.lengths) for of in (old, new)), apart


def _share(count: int, of: ColumnProfile) -> str:
    return f"{count:,} ({count / max(of.rows, 1):.1%})"


def _first(old: ColumnProfile, new: ColumnProfile) -> str:
    first = old.first or new.first
    return f" of the first {first:,}" if first else ""


def _numbers(old: ColumnProfile, new: ColumnProfile) -> tuple[str, str]:
    if old.type == "timestamp":
        from etlrun.sources.rows.dividing import time_of  # imports NumPy

        was, now = (", ".join(time_of(int(value)) for value in of.quantiles) or _NONE for of in (old, new))
        return was, now
    was, now = (_joined(of.quantiles) for of in (old, new))
    return (was, now) if was != now else (str([*old.quantiles]), str([*new.quantiles]))


def _joined(values: tuple[float, ...]) -> str:
    return ", ".join(map(in_four_digits, values)) or _NONE
