"""What a review shows in each of its forms: experiments that are alike, and the sentences on each."""

from __future__ import annotations

from typing import Any

from etlrun.review.caches import filled_line
from etlrun.review.difference import Difference
from etlrun.review.review import File, Review, Reviewed
from etlrun.system.errors import printable


def groups(review: Review) -> list[tuple[list[str], Reviewed]]:
    """Return the experiments that change, grouped by equal differences."""
    found: dict[Any, tuple[list[str], Reviewed]] = {}
    for reviewed in review.experiments:
        if reviewed.changes or reviewed.comparison.differences or reviewed.ran is not None or reviewed.was:
            alike = (reviewed.state, reviewed.was, reviewed.comparison, tuple(points(reviewed)), reviewed.faults)
            key = reviewed.name if reviewed.state in {"added", "removed"} else alike
            found.setdefault(key, ([], reviewed))[0].append(reviewed.name)
    return list(found.values())


def unchanged(review: Review) -> list[str]:
    """Return the experiments without any difference."""
    changed = {name for names, _ in groups(review) for name in names}
    return [reviewed.name for reviewed in review.experiments if reviewed.name not in changed]


def what(difference: Difference) -> str:
    """Return the text of what a difference changes."""
    words = [" and ".join([difference.kind or "nothing", *difference.also])]
    words += [f"from {difference.since} on"] if difference.since else []
    words += [f"in {' and '.join(difference.pipelines)}"] if difference.pipelines else []
    words += [difference.note] if difference.note else []
    return ", ".join(words)


def change(difference: Difference) -> str:
    """Return the old and the new value of a difference."""
    return " -> ".join("(none)" if value is None else printable(value) for value in (difference.old, difference.new))


def points(reviewed: Reviewed) -> list[str]:
    """Return the sentences on an experiment below its differences: caches, runs and facts."""
    found = _cache_lines(reviewed)
    found += [] if reviewed.ran is None else reviewed.ran.lines
    return found + ([] if reviewed.facts is None else reviewed.facts.lines)


def _cache_lines(reviewed: Reviewed) -> list[str]:
    """Return the lines on caches, with equal pipelines combined."""
    found: dict[str, list[str]] = {}
    for kept in reviewed.caches:
        found.setdefault(str(kept), []).append(kept.pipeline)
    lines = [f"cache of {' and '.join(pipelines)}: {text}" for text, pipelines in found.items()]
    return lines + [filled_line(reviewed.caches)] * any(kept.is_filled for kept in reviewed.caches)


def file_line(file: File, review: Review) -> str:
    """Return the sentence on a file that differs."""
    reached = [reviewed for reviewed in review.experiments if reviewed.name in file.reaches]
    plans = "" if not reached or any(reviewed.changes for reviewed in reached) else ", and changes no plan"
    if not file.reaches and review.experiment is not None:
        return f"{file.name}: {file.state}, does not reach {review.experiment}"
    return f"{file.name}: {file.state}, reaches {', '.join(file.reaches) or 'no experiment'}{plans}"
