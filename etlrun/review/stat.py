"""A review in a line for each experiment that changes, with their sums, for a terminal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from etlrun.review.caches import filled_bytes
from etlrun.review.review import Review, Reviewed
from etlrun.review.shown import groups
from etlrun.review.text import colour_of, indented, of_policy
from etlrun.stages.base import Kind
from etlrun.system.machine import megabytes
from etlrun.system.terminal import print_parts

if TYPE_CHECKING:
    from rich.console import Console

_RATE = "examples/s"


def print_stat(review: Review, console: Console | None) -> None:
    """Print a line for each experiment that changes, their sums, and what a policy says."""
    found = {name for names, _ in groups(review) for name in names}
    told = [of for of in review.experiments if of.name in found]
    rows = [_row(of) for of in told]
    longest = max([0, *(len(row[0]) for row in rows)])
    widths = [max(map(len, column)) for column in zip(*(row for row in rows if row[2]), strict=True)]
    for reviewed, (name, kinds, *cells) in zip(told, rows, strict=True):
        columns = zip(cells, widths[2:], strict=False)  # without widths, no experiment is on both sides
        rest = "  ".join(f"{cell:<{width}}" for cell, width in columns if width).rstrip()
        padded = f"{kinds:<{widths[1]}}  " if rest else kinds
        title = f"{name:<{longest}}  " if longest else ""
        print_parts(console, (title, "bold"), (padded, colour_of(reviewed)), (rest, ""))
    for parts in indented(dict.fromkeys(fault for reviewed in told for fault in reviewed.faults)):
        print_parts(console, *parts)
    print_parts(console, (_sums(review), "bold"))
    for parts in of_policy(review):
        print_parts(console, *parts)


def _row(reviewed: Reviewed) -> list[str]:
    """Return name, kinds, number of differences, what is filled, the rate of runs, and what was read."""
    found, kinds = reviewed.comparison.differences, ", ".join(reviewed.kinds) or "nothing"
    kinds = f"perhaps {kinds}" if reviewed.comparison.is_unsure else kinds
    is_compared = reviewed.state == "compared" and not reviewed.was
    count = f"{len(found)} difference{'s' * (len(found) != 1)}" if is_compared else ""
    filled = filled_bytes(reviewed.caches)
    fills = "fills caches of unknown size" if filled is None else f"fills {megabytes(filled)}" if filled else ""
    measured = () if reviewed.ran is None else reviewed.ran.measured
    rate = next((f"{of.measure} {of.ratio:.2f}x" for of in measured if of.measure == _RATE and of.ratio), "")
    read = reviewed.facts.summary if reviewed.facts is not None and is_compared else ""
    return [reviewed.name, kinds if is_compared else reviewed.headline, count, fills, rate, read]


def _sums(review: Review) -> str:
    """Return how many experiments change, how many of them what, and how many can't be compared."""
    changed = [of for of in review.experiments if of.changes and not of.faults]
    kinds = Counter(kind for of in changed for kind in of.kinds)
    parts = [f"{kinds[kind]} the {kind}" for kind in Kind if kinds[kind]]
    states = Counter(of.headline.removeprefix("is ") for of in changed if of.state != "compared")
    parts += [f"{count} {state}" for state, count in states.items()]
    text = f"{len(changed)} of {len(review.experiments)} change" if changed else "nothing changes"
    text += f": {', '.join(parts)}" if parts else ""
    faulty = sum(bool(of.faults) for of in review.experiments)
    return f"{text}; {faulty} cannot be compared" if faulty else text
