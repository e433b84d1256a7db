"""Kinds of machines that the runs of a sweep had: those of one kind alone are compared."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import chain

from etlrun.record.outcome import Outcome
from etlrun.results.data import Completed
from etlrun.results.results import BASELINE, Run


def alike(completed: Completed) -> dict[int, list[tuple[Run, Outcome]]]:
    """Return the runs that had a machine like most runs of the baseline, as far as that is known."""
    kind = _kind(completed)
    return {number: [run for run in of if run[1].machine in {"", kind}] for number, of in completed.items()}


def notes(completed: Completed) -> Iterator[str]:
    """Yield a sentence on runs that had another kind of machine."""
    kind = _kind(completed)
    others = [(run, of) for several in completed.values() for run, of in several if of.machine not in {"", kind}]
    if others:
        yield (
            f"runs {', '.join(run.name for run, _ in others)} ran on another kind of machine "
            f"({'; '.join(sorted({of.machine for _, of in others}))}) than those that are compared ({kind}), and are "
            "excluded from comparison"
        )


def _kind(completed: Completed) -> str:
    """Return the kind of machine that most runs of the baseline had, or most of all where that is unknown."""
    known = {number: [of.machine for _, of in several if of.machine] for number, several in completed.items()}
    return statistics.mode(known.get(BASELINE) or [*chain.from_iterable(known.values())] or [""])
