"""A review as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from etlrun.review.facts import CONTRADICTION
from etlrun.review.review import Review, Reviewed
from etlrun.review.shown import change, file_line, groups, points, unchanged, what
from etlrun.system.errors import printable
from etlrun.system.terminal import print_parts

if TYPE_CHECKING:
    from rich.console import Console

_COLOURS = {"data": "bold red", "order": "yellow", "training": "magenta", "speed": "green", "nothing": "dim"}


def print_review(review: Review, console: Console | None) -> None:
    """Print the review, with colours if there is a `console` that supports them."""
    for parts in _lines(review):
        print_parts(console, *parts)


def text(review: Review) -> str:
    """Return the review as `print_review` prints it without colours."""
    return "".join(f"{printable(''.join(words for words, _ in parts))}\n" for parts in _lines(review))


def _lines(review: Review) -> Iterator[tuple[tuple[str, str], ...]]:
    if review.is_of_runs:
        yield ((f"{review.old} -> {review.new}", "bold"),)
    found = groups(review)
    for names, reviewed in found:
        title = f"{', '.join(names)}: " if names != [""] else ""
        yield (title, "bold"), (reviewed.headline, colour_of(reviewed))
        yield from _body(reviewed)
        yield ()
    rest = unchanged(review)
    if rest:
        yield ((f"{', '.join(rest)}: no difference" if rest != [""] else "no difference", ""),)
    for file in review.files:
        yield ((file_line(file, review), ""),)
    yield from of_policy(review)


def colour_of(reviewed: Reviewed) -> str:
    """Return the style of what a change is."""
    return "bold red" if reviewed.faults else _COLOURS[str(next(iter(reviewed.kinds), "nothing"))]


def of_policy(review: Review) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield the lines on what a policy says, each of texts with their styles; none without a policy."""
    if (policy := review.policy) is not None:
        by = f" ({policy.file})" if policy.file else ""
        yield ((f"policy: {policy.headline}{by}", "bold red" if policy.is_failed else "green"),)
        yield from indented(policy.lines)


def indented(texts: Iterable[object]) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield the lines of texts, such as those of faults, whose remedies stand in lines of their own."""
    yield from (((line, ""),) for text in texts for line in f"  {text}".splitlines())


def _body(reviewed: Reviewed) -> Iterator[tuple[tuple[str, str], ...]]:
    found = reviewed.comparison.differences
    widths = [max([0, *map(len, column)]) for column in ([item.path for item in found], map(change, found))]
    for item in found:
        head = f"  {item.path:<{widths[0]}}  {change(item):<{widths[1]}}  "
        yield (head, ""), (what(item), _COLOURS[str(item.kind or "nothing")])
    for line in (*(f"note: {note}" for note in reviewed.comparison.notes), *points(reviewed)):
        yield ((f"  {line}", "bold red" if line.startswith(CONTRADICTION) else ""),)
    if (images := reviewed.images) is not None:
        yield (("  " + ", ".join(filter(None, [f"images: {images.text}", images.page, images.image])), ""),)
    yield from indented(reviewed.faults)
