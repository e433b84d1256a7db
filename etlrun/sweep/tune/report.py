"""Report of a search: what it found, predicted against measured times, and what never ran."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from etlrun.record.record import PAGE
from etlrun.report.doc import Chart, Code, Col, Doc, Lines, Part, Series, Table
from etlrun.sweep.tune.overlay import again, gain_words, proofs
from etlrun.sweep.tune.search import FOUND, KEEP, MODEL, Found
from etlrun.sweep.tune.space import Candidate

FORMAT_VERSION = 1
_MOST_REASONS, _MOST_LETTERS = 6, 140
"""Reasons on terminals; letters of the changes of a config in the chart: the table has all of them."""
_DESCRIBED = ("number", "changes", "predicted_s", "times_s", "error")
"""Attributes of a candidate in `results.json`."""


def sentence(found: Found) -> str:
    """Return what came of a search, in one sentence."""
    if found.end == MODEL:
        return f"nothing to gain: the model is the limit (headspace {found.headspace:.2f})"
    if found.end == FOUND and found.winner is not None:
        return f"{gain_words(found)}: {found.winner.words}"
    if found.end == KEEP:
        return f"keep what you have: {found.why}"
    return f"nothing can be told: {found.why}"


def of_search(found: Found, overrides: list[str], folder: Path) -> Doc:
    """Return the report of a search with these overrides."""
    ran = sorted(found.candidates.values(), key=lambda of: (not of.times_s, statistics.median(of.times_s or [0.0])))
    reasons = found.left_out.most_common()
    follow = ("again", again(found, overrides)) if found.end == FOUND else ("advice", found.advice)
    never = [("never ran", f"{number:,} config{'s' * (number != 1)}: {reason}") for reason, number in reasons]
    notes = [("note", note) for note in found.notes]
    pages: list[Part] = [
        Lines([*_lines(found), *notes, *[follow] * (follow[0] == "advice")], only=["md", "html"]),
        Code(follow[1] if follow[0] == "again" else "", title="Compare the later epochs again", only=["md", "html"]),
        _race(ran, found),
        Table(ran, _CANDIDATES, title="Configs", only=["md", "html"]),
        Lines(never, title="Configs that never ran", only=["md", "html"]),
    ]
    lines = [("result", sentence(found)), *_lines(found), *never[:_MOST_REASONS], *notes, follow]
    return Doc(
        f"{sentence(found)}.",
        [Lines([*lines, ("report", str(folder / PAGE))], only=["text"]), *pages],
        over=f"Search for the fastest config of {' '.join(overrides) or 'the default config'}",
        json=lambda: _values(found, overrides),
    )


def _lines(found: Found) -> Iterator[tuple[str, str]]:
    """Yield what is known of the gain, and what the search took."""
    if found.headspace is not None and found.end != MODEL:
        yield "headspace", f"at most {found.headspace:.2f} times as fast with an ideal input pipeline"
    if found.autotune is not None:
        _, gain = found.autotune
        yield "autotune", f"{gain.words} times as fast as all left to AUTOTUNE: {gain.call}"
    if found.end == FOUND:
        yield from (("proof", line) for line in proofs(found))
    many = f"{len(found.candidates)} of {found.size:,} configs ran"
    yield "cost", f"{found.windows} windows in {found.spent_s:.0f} s; {many}"


def _predicted(place: int) -> Callable[[Candidate], float | None]:
    return lambda candidate: candidate.predicted_s and candidate.predicted_s[place]


_CANDIDATES = (
    Col("config", "number", is_head=True),
    Col("changes", "words", is_long=True),
    Col("predicted s", _predicted(1), ".2f"),
    Col("at least", _predicted(0), ".2f"),
    Col("at most", _predicted(2), ".2f"),
    Col("measured s", lambda of: statistics.median(of.times_s) if of.times_s else None, ".2f"),
    Col("windows", lambda of: len(of.times_s)),
    Col("error", "error", is_long=True),
)


def _race(ran: list[Candidate], found: Found) -> Chart:
    """Return the times of all windows, a row for each config, with what was predicted."""
    shown = [candidate for candidate in ran if candidate.times_s] if len(found.candidates) > 1 else []
    rows = [*enumerate(shown)]
    ends = [(end, row) for row, of in rows if of.predicted_s for end in (of.predicted_s[0], of.predicted_s[2])]
    times = {is_best: [(time_s, row) for row, of in rows if (of is found.winner) is is_best for time_s in of.times_s]
             for is_best in (False, True)}  # fmt: skip
    return Chart(
        [
            Series("predicted", ends, "predicted", "range"),
            Series("windows", times[False], "other", "dot"),
            Series("windows of the fastest", times[True], "first", "dot"),
        ],
        title="Predicted and measured",
        x="seconds of all epochs",
        rows=[textwrap.shorten(f"{of.number}  {of.words}", _MOST_LETTERS, placeholder=" …") for of in shown],
    )


def _values(found: Found, overrides: list[str]) -> dict[str, Any]:
    """Return the result as JSON has it."""
    winner = found.winner
    return {
        "format": FORMAT_VERSION,
        "end": found.end,
        "sentence": sentence(found),
        "overrides": overrides,
        "headspace": found.headspace,
        "changes": winner.changes if found.end == FOUND and winner is not None else {},
        "gain": found.gain,
        "over_autotune": found.autotune and found.autotune[1],
        "noise": found.noise,
        "same_digests": found.digests,
        "cache_bytes": found.cache_bytes,
        "again": again(found, overrides) if found.end == FOUND else None,
        "spent_s": found.spent_s,
        "windows": found.windows,
        "notes": found.notes,
        "configs": found.size,
        "candidates": [{key: getattr(of, key) for key in _DESCRIBED} for of in found.candidates.values()],
        "never_ran": dict(found.left_out),
        "scene": found.scene,
    }
