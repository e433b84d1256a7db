"""What a search found: its report, and the result as an experiment for a config folder, with its evidence as comments.

`etlrun check` reads the evidence back, and reports what is out of date.
"""

import shlex
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from etlrun.planning.spec import bare
from etlrun.record.record import PAGE
from etlrun.report.doc import Chart, Code, Col, Doc, Lines, Series, Table
from etlrun.review.check import Evidence
from etlrun.stages.load import Load
from etlrun.stages.measure import Measure
from etlrun.sweep.tune.search import FOUND, KEEP, MODEL, Search
from etlrun.sweep.tune.space import Candidate, changed, value_of
from etlrun.system.errors import counted
from etlrun.system.machine import megabytes
from etlrun.system.values import grouped

FORMAT_VERSION = 1
_FILES = ("md", "html")
_MOST_REASONS, _MOST_LETTERS = 6, 140
"""Reasons on terminals; letters of the changes of a config in the chart: the table has all of them."""


def sentence(found: Search) -> str:
    """Return what came of a search, in one sentence."""
    if found.end == MODEL:
        return f"nothing to gain: the model is the limit (headspace {found.headspace:.2f})"
    if found.end == FOUND:
        return f"{gain_words(found)}: {found.winner.words}"
    return f"{'keep what you have' if found.end == KEEP else 'nothing can be told'}: {found.why}"


def of_search(found: Search, folder: Path) -> Doc:
    """Return the report of a search in this folder."""
    ran = sorted(found.candidates.values(), key=lambda of: (not of.times_s, median(of.times_s or [0.0])))
    command = again(found) if found.end == FOUND else ""
    never = [("never ran", f"{counted(number, 'config')}: {reason}") for reason, number in found.left_out.most_common()]
    advice = ("advice", found.advice)
    lines = [("result", sentence(found)), *_lines(found), *never[:_MOST_REASONS], advice]
    return Doc(
        f"{sentence(found)}.",
        [
            Lines([*lines, ("again", command), ("report", str(folder / PAGE))], only=["text"]),
            Lines([*_lines(found), advice], only=_FILES),
            Code(command, title="Compare the later epochs again", only=_FILES),
            _race(ran, found),
            Table(ran, _CANDIDATES, title="Configs", note=_more_windows(found), only=_FILES),
            Lines(never, title="Configs that never ran", only=_FILES),
        ],
        over=f"Search for the fastest config of {' '.join(found.windows.overrides) or 'the default config'}",
        json=lambda: _values(found),
    )


def _lines(found: Search) -> Iterator[tuple[str, str]]:
    """Yield what is known of the gain, and what the search took."""
    if found.headspace is not None and found.end != MODEL:
        yield "headspace", f"at most {found.headspace:.2f} times as fast with an ideal input pipeline"
    if gain := found.autotune:
        yield "autotune", f"{gain.words} times as fast as all left to AUTOTUNE: {gain.call}"
    yield from (("proof", line) for line in (proofs(found) if found.end == FOUND else ()))
    many = f"{len(found.candidates)} of {len(found.space):,} configs ran"
    yield "cost", f"{len(found.windows.ended)} windows in {found.windows.spent_s:.0f} s; {many}"


def _more_windows(found: Search) -> str:
    """Return which windows are none of a config that ran; empty if all are."""
    others = [name for name in found.windows.ended if not name[0].isdigit()]
    words = (
        f"{counted(len(others), 'more window')} measured what stages cost, or compared digests: {', '.join(others)}."
    )
    return words if others else ""


_CANDIDATES = (
    Col("config", "number", is_head=True),
    Col("changes", "words", is_long=True),
    Col("predicted s", lambda of: of.predicted_s and of.predicted_s[1], ".2f"),
    Col("at least", lambda of: of.predicted_s and of.predicted_s[0], ".2f"),
    Col("at most", lambda of: of.predicted_s and of.predicted_s[2], ".2f"),
    Col("measured s", lambda of: median(of.times_s) if of.times_s else None, ".2f"),
    Col("windows", lambda of: len(of.times_s)),
    Col("error", is_long=True),
)


def _race(ran: list[Candidate], found: Search) -> Chart:
    """Return the times of all windows, a row for each config, with what was predicted."""
    shown = [candidate for candidate in ran if candidate.times_s] if len(found.candidates) > 1 else []
    ends = [(end, row) for row, of in enumerate(shown) if of.predicted_s for end in of.predicted_s[::2]]
    times = grouped((of is found.winner, (time_s, row)) for row, of in enumerate(shown) for time_s in of.times_s)
    return Chart(
        [
            Series("predicted", ends, "predicted", "range"),
            Series("windows", times.get(False, []), "other", "dot"),
            Series("windows of the fastest", times.get(True, []), "first", "dot"),
        ],
        title="Predicted and measured",
        x="seconds of all epochs",
        rows=[textwrap.shorten(f"{of.number}  {of.words}", _MOST_LETTERS, placeholder=" …") for of in shown],
    )


def _values(found: Search) -> dict[str, Any]:
    """Return the result as JSON has it."""
    return {name: getattr(found, name) for name in ("end", "headspace", "gain", "noise", "cache_bytes", "scene")} | {
        "overrides": found.windows.overrides,
        "spent_s": found.windows.spent_s,
        "windows": len(found.windows.ended),
        "format": FORMAT_VERSION,
        "sentence": sentence(found),
        "changes": found.winner.changes if found.end == FOUND else {},
        "over_autotune": found.autotune,
        "same_digests": found.digests,
        "again": again(found) if found.end == FOUND else None,
        "configs": len(found.space),
        "candidates": [
            {key: getattr(of, key) for key in ("number", "changes", "predicted_s", "times_s", "error")}
            for of in found.candidates.values()
        ],
        "never_ran": dict(found.left_out),
    }


EXPERIMENT = "experiment="


def overlay(found: Search, name: str, files: list[str]) -> str:
    """Return the text of `experiment/NAME.yaml` for a search that found something; with `files` a command finds it."""
    evidence = Evidence.here(found.winner.plan.fingerprint, _others(found), found.winner.changes)
    base = [word.removeprefix(EXPERIMENT) for word in found.windows.overrides if word.startswith(EXPERIMENT)]
    values = ({"defaults": [*base[-1:], "_self_"]} if base else {}) | changed({}, found.winner.changes)
    command = ["etlrun", *files, *evidence.overrides, f"{EXPERIMENT}{name}"]
    lines = (
        "# @package _global_",
        f"# {gain_words(found)}, found by `etlrun tune` on {time.strftime('%Y-%m-%d')}.",
        f"#   {shlex.join(command)}",
        *(f"# {line}" for line in proofs(found)),
        f"# Compare the later epochs of both again: {again(found)}",
        evidence.comment,
        yaml.safe_dump(values, sort_keys=False),
    )
    return "\n".join(lines)


def gain_words(found: Search) -> str:
    """Return how much faster the winner is, with the interval."""
    assert found.gain is not None  # noqa: S101 - for mypy
    return f"{found.gain.words} times as fast over {counted(found.scene.epochs, 'epoch')}"


def proofs(found: Search) -> Iterator[str]:
    """Yield the noise, the data and the space, a sentence each."""
    if found.noise and found.noise.median is not None:
        apart = f"{found.noise.median:.1%} in the median, {found.noise.largest:.1%} at most"
        yield f"Two equal runs differ by {apart} ({found.noise.pairs} pairs)."
    if found.digests is not None:
        is_same = found.winner.plan.fingerprint == found.baseline.plan.fingerprint
        yield (
            f"{'The same' if is_same else 'Another'} fingerprint as the baseline, and "
            f"{'the same' if found.digests else 'OTHER'} examples by their digests."
        )
    if found.cache_bytes is not None:
        target = found.winner.config["cache"]
        yield f"The cache takes {megabytes(found.cache_bytes)}: {target['name']}, {target['at']}."


def again(found: Search) -> str:
    """Return the command of a sweep that compares the winner with the baseline once more."""
    changes = found.winner.changes
    pairs = [f"{key}={bare(value_of(found.baseline.config, key))},{bare(value)}" for key, value in changes.items()]
    zipped = [f"sweep.zip=[[{','.join(changes)}]]"] if len(changes) > 1 else []
    trainer = [
        "trainer=drain",
        f"trainer.epochs={found.scene.epochs}",
        *[f"trainer.step_ms={found.scene.step_ms:.4g}", f"trainer.step_cores={found.scene.step_cores:.3g}"],
    ]
    neutral = {Measure.key("au_min"): None, Load.key("class_weights"): "none", "profile.name": "none"}
    changed = {key: value for key, value in neutral.items() if value_of(found.baseline.config, key) != value}
    idle = [f"{key.removesuffix('.name')}={bare(value)}" for key, value in changed.items()]
    replaced = ("trainer", *(word.partition("=")[0] for word in idle))
    kept = [word for word in _others(found, with_experiment=True) if not word.lstrip("+").startswith(replaced)]
    return shlex.join(["etlrun", "-m", *found.files, *kept, *trainer, *idle, *pairs, *zipped, "sweep.repeats=5"])


def _others(found: Search, *, with_experiment: bool = False) -> list[str]:
    """Return the overrides that the experiment does not replace."""
    return [
        word
        for word in found.windows.overrides
        if word.partition("=")[0].lstrip("+") not in found.winner.changes
        and not word.startswith("tune.")
        and (with_experiment or not word.startswith(EXPERIMENT))
    ]
