"""Page of a search: what it found, predicted against measured times, and what never ran."""

from __future__ import annotations

import statistics
import textwrap

from markupsafe import Markup

from etlrun.sweep.tune.overlay import again, proofs
from etlrun.sweep.tune.report import over_autotune, sentence
from etlrun.sweep.tune.search import FOUND, Found
from etlrun.sweep.tune.space import Candidate
from etlrun.system import pages, svg

_WIDTH, _MOST_LETTERS = 936, 140
"""Pixels of the chart, and letters of the changes of a config above its windows; the table below has all of them."""


def html(found: Found, overrides: list[str]) -> str:
    """Return the page of a search with these overrides."""
    ran = sorted(found.candidates.values(), key=lambda of: (not of.times_s, statistics.median(of.times_s or [0.0])))
    return pages.rendered(
        "etlrun.sweep.tune",
        "tune.html.j2",
        found=found,
        sentence=sentence(found),
        proofs=proofs(found) if found.end == FOUND else [],
        autotune=over_autotune(found) if found.autotune is not None else "",
        again=again(found, overrides) if found.end == FOUND else "",
        overrides=" ".join(overrides) or "the default config",
        rows=[_row(candidate) for candidate in ran],
        race=_race(ran, found) if len(found.candidates) > 1 else "",
    )


def _row(candidate: Candidate) -> dict[str, str]:
    times, predicted = candidate.times_s, candidate.predicted_s
    return {
        "number": str(candidate.number),
        "words": candidate.words,
        "predicted": f"{predicted[1]:.2f} ({predicted[0]:.2f} to {predicted[2]:.2f})" if predicted else "-",
        "measured": f"{statistics.median(times):.2f}" if times else "-",
        "windows": str(len(times)),
        "error": candidate.error,
    }


def _race(ran: list[Candidate], found: Found) -> Markup:
    """Return the times of all windows, a row for each config, with what was predicted."""
    shown = [candidate for candidate in ran if candidate.times_s]
    bottom = 43 * len(shown)
    most_s = max(second for of in shown for second in (*of.times_s, *(of.predicted_s or ())))
    x, parts = svg.Axis(0.0, 1.02 * most_s, 40, _WIDTH), list[Markup]()
    for row, candidate in enumerate(shown):
        y = 43 * row + 28
        parts += [
            svg.path("grid", f"M{x.start:g} {y}H{_WIDTH}"),
            svg.text(x.start - 8, y, str(candidate.number), "end"),
        ]
        if candidate.predicted_s is not None:
            low, likely, high = map(x.at, candidate.predicted_s)
            parts.append(svg.path("line predicted", f"M{low:.1f} {y}H{high:.1f}"))
            parts.append(svg.path("line other", f"M{likely:.1f} {y - 5}V{y + 5}"))
        look = "first" if candidate is found.winner else "other"
        parts += [svg.dot(look, (x.at(time_s), y), 3.5) for time_s in candidate.times_s]
        words = textwrap.shorten(candidate.words, _MOST_LETTERS, placeholder=" …")
        parts.append(svg.text(x.start + 4, y - 14, words, look="ink"))
    parts += svg.columns(x, bottom, "seconds of all epochs; dots are windows, bars what was predicted")
    description = "Seconds of all epochs by each window of each config that ran."
    return svg.svg(_WIDTH, bottom + 40, "The race", description, parts)
