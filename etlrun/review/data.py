"""What differs between the data of two sides, by their figures: examples, missing values, classes, numbers, lengths."""

import math
from collections.abc import Iterator, Sequence

from etlrun.report.doc import Col, Lines, Part, Table
from etlrun.system.errors import counted, printable
from etlrun.system.terminal import in_four_digits
from etlrun.system.values import Block, frozen

FIGURES = "data.json"
"""File of a run with the figures of the data of each pipeline."""
_MOST_ROWS = 20
NOT_KEPT, _NONE = "not kept", "none"
_UNITS = {"text": "characters, ", "image": "bytes, ", "integers": "items, ", "numbers": "items, "}
_KIN = {"integer": "number", "integers": "numbers"}
"""Types that have another name where values are missing."""
_ENDS = "least, 5 %, median, 95 %, largest"
_NEW = 1.0
"""How much something changes that one side alone has, more than what both have in another share."""
_Figure = tuple[str, str, str, float]


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


def changes(old: Block, new: Block) -> tuple[DataChange, ...]:
    """Return the figures that differ in what is shown of them, those that change most first."""
    found = [
        DataChange(data=name, figure=figure, before=before, after=after, by=by)
        for name in new
        for figure, before, after, by in _of_split(old.get(name), new[name])
        if before != after
    ]
    return tuple(sorted(found, key=lambda of: -of.by))


def parts_of(found: Sequence[DataChange]) -> list[Part]:
    """Return the figures as a table, and how many are left out."""
    columns = [Col("data"), Col("figure", is_head=True), Col("before"), Col("after")]
    more = len(found) - _MOST_ROWS
    left_out = f"{counted(more, 'figure')} that change{'s' * (more == 1)} less left out; JSON has all" * (more > 0)
    return [Table(found[:_MOST_ROWS], columns, title="What differs in the data"), Lines([("", left_out)])]


def _of_split(old: Block | None, new: Block) -> Iterator[_Figure]:
    was, now = None if old is None else old["examples"], new["examples"]
    yield "examples", NOT_KEPT if was is None else f"{was:,}", f"{now:,}", 0.0 if was is None else _ratio(was, now)
    before, after = {} if old is None else old["columns"] or {}, new["columns"] or {}
    if not before:
        yield from [("columns", NOT_KEPT, f"{len(after):,}", 0.0)] * bool(after)
        return
    for name in {**before, **after}:
        one, other = before.get(name), after.get(name)
        types = [_NONE if of is None else _KIN.get(of["type"], of["type"]) for of in (one, other)]
        yield printable(name), types[0], types[1], 1 + _NEW
        if one is not None and other is not None and types[0] == types[1]:
            yield from ((f"{printable(name)}{what}", *rest) for what, *rest in _of_column(one, other))  # type: ignore[misc]


def _of_column(old: Block, new: Block) -> Iterator[_Figure]:
    def shares(what: str, was: int, now: int) -> _Figure:
        one, other = was / max(old["rows"], 1), now / max(new["rows"], 1)
        texts = [f"{count:,} ({share:.1%})" if count else _NONE for count, share in ((was, one), (now, other))]
        return what, texts[0], texts[1], abs(other - one) + _NEW * (0 in (was, now) and what.startswith(" "))

    yield shares(": missing", old["missing"], new["missing"])
    if bool(old["counts"]) != bool(new["counts"]):
        yield ": values", str(len(old["counts"]) or "more"), str(len(new["counts"]) or "more"), _NEW
    else:
        for value in {**old["counts"], **new["counts"]}:
            yield shares(f" = {printable(value)}", old["counts"].get(value, 0), new["counts"].get(value, 0))
    for what, was, now in (
        ("", old["quantiles"], new["quantiles"]),
        (_UNITS.get(old["type"], ""), old["lengths"], new["lengths"]),
    ):
        apart, by = zip(was, now, strict=False), 0.0
        if was and now:
            spread = was[3] - was[1] or was[4] - was[0] or 1.0
            by = max(_ratio(*both) if what else abs(both[1] - both[0]) / spread for both in apart)
        yield f": {what}{_ENDS}", _told(was, old["type"]), _told(now, new["type"]), by


def _ratio(old: float, new: float) -> float:
    return abs(math.log((new + 1) / (old + 1)))


def _told(values: Sequence[float], kind: str) -> str:
    if kind == "timestamp":
        from etlrun.sources.rows.dividing import time_of  # imports NumPy

        return ", ".join(time_of(int(value)) for value in values) or _NONE
    return ", ".join(map(in_four_digits, values)) or _NONE
