"""Page of a search: what it found, predicted against measured times, and what never ran."""

from __future__ import annotations

import statistics
import textwrap

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure

from etlrun.sweep.tune.overlay import again, proofs
from etlrun.sweep.tune.report import over_autotune, sentence
from etlrun.sweep.tune.search import FOUND, Found
from etlrun.sweep.tune.space import Candidate
from etlrun.system import pages
from etlrun.system.svg import COLOURS, STYLE, svg

_MOST_LETTERS = 140
"""Letters of the changes of a config above its windows; the table below has all of them."""


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
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(13, 0.9 + 0.6 * len(shown)), dpi=72, layout="constrained")
        axes = figure.subplots()
        for place, candidate in enumerate(reversed(shown)):
            if candidate.predicted_s is not None:
                low, likely, high = candidate.predicted_s
                axes.plot([low, high], [place, place], color=COLOURS["line"], linewidth=6, solid_capstyle="butt")
                axes.plot([likely], [place], "|", color=COLOURS["soft"], markersize=10)
            colour = COLOURS["accent"] if candidate is found.winner else COLOURS["dot"]
            axes.plot(candidate.times_s, [place] * len(candidate.times_s), "o", color=colour, markersize=5, alpha=0.8)
            words = textwrap.shorten(candidate.words, _MOST_LETTERS, placeholder=" …")
            axes.annotate(words, (0, place), xytext=(4, 9), textcoords="offset points", fontsize=11)
        axes.set_yticks(range(len(shown)), [str(of.number) for of in reversed(shown)])
        axes.set(xlim=(0, None), ylim=(-0.5, len(shown) - 0.2), ylabel="config")
        axes.set_xlabel("seconds of all epochs; dots are windows, bars what was predicted")
        return svg(figure, "race", "The race", "Seconds of all epochs by each window of each config that ran.")
