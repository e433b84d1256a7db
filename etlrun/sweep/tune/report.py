"""What a search found: its report, and the result as an experiment for a config folder, with its proof as comments."""

import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from etlrun.record.record import EXPERIMENT, PAGE, experiments_of
from etlrun.report.doc import Col, Doc, Lines, Table
from etlrun.sweep.tune.search import FOUND, KEEP, MODEL, Search
from etlrun.sweep.tune.space import changed
from etlrun.system.errors import counted
from etlrun.system.machine import megabytes

FORMAT_VERSION = 1
_FILES = ("md", "html")
_MOST_REASONS = 6
"""Reasons on terminals."""
_CANDIDATES = (
    Col("config", "number", is_head=True),
    Col("changes", "words", is_long=True),
    Col("predicted s", lambda of: of.predicted_s and of.predicted_s[1], ".2f"),
    Col("measured s", lambda of: median(of.times_s) if of.times_s else None, ".2f"),
    Col("windows", lambda of: len(of.times_s)),
    Col("error", is_long=True),
)


def sentence(found: Search) -> str:
    """Return what came of a search, in one sentence."""
    if found.end == MODEL:
        return f"nothing to gain: the model is the limit (headspace {found.headspace:.2f})"
    if found.end == FOUND:
        return f"{gain_words(found)}: {found.winner.words}"
    return f"{'keep the config' if found.end == KEEP else 'inconclusive'}: {found.why}"


def of_search(found: Search, folder: Path) -> Doc:
    """Return the report of a search in this folder."""
    ran = sorted(found.candidates.values(), key=lambda of: (not of.times_s, median(of.times_s or [0.0])))
    never = [("never ran", f"{counted(number, 'config')}: {reason}") for reason, number in found.left_out.most_common()]
    advice = ("advice", found.advice)
    lines = [("result", sentence(found)), *_lines(found), *never[:_MOST_REASONS], advice]
    return Doc(
        f"{sentence(found)}.",
        [
            Lines([*lines, ("report", str(folder / PAGE))], only=["text"]),
            Lines([*_lines(found), advice], only=_FILES),
            Table(ran, _CANDIDATES, title="Configs", only=_FILES),
            Lines(never, title="Configs that never ran", only=_FILES),
        ],
        over=f"Search for the fastest config of {' '.join(found.windows.overrides) or 'the default config'}",
        json=lambda: _values(found),
    )


def _lines(found: Search) -> Iterator[tuple[str, str]]:
    """Yield what is known of the gain, and what the search took."""
    if found.headspace is not None and found.end != MODEL:
        yield "headspace", f"at most {found.headspace:.2f} times as fast with an ideal input pipeline"
    yield from (("proof", line) for line in (proofs(found) if found.end == FOUND else ()))
    if found.as_fast and found.end != FOUND:
        few = ", ".join(of.words for of in found.as_fast)
        yield "as fast", f"{few}: fewer parallel calls, which keep less in memory"
    many = f"{len(found.candidates)} of {counted(len(found.space), 'config')} ran"
    yield "cost", f"{counted(len(found.windows.ended), 'window')} in {found.windows.spent_s:.0f} s; {many}"


def _values(found: Search) -> dict[str, Any]:
    """Return the result as JSON has it."""
    return {name: getattr(found, name) for name in ("end", "headspace", "gain", "noise", "cache_bytes", "scene")} | {
        "overrides": found.windows.overrides,
        "spent_s": found.windows.spent_s,
        "windows": len(found.windows.ended),
        "format": FORMAT_VERSION,
        "sentence": sentence(found),
        "changes": found.winner.changes if found.end == FOUND else {},
        "same_digests": found.digests,
        "configs": len(found.space),
        "candidates": [
            {key: getattr(of, key) for key in ("number", "changes", "predicted_s", "times_s", "error")}
            for of in found.candidates.values()
        ],
        "never_ran": dict(found.left_out),
    }


def overlay(found: Search, name: str, files: list[str]) -> str:
    """Return the text of `experiment/NAME.yaml` for a search that found something; with `files` a command finds it."""
    base, replaced = experiments_of(found.windows.overrides), (*found.winner.changes, EXPERIMENT[:-1])
    words = [word for word in found.windows.overrides if word.partition("=")[0].lstrip("+") not in replaced]
    values = ({"defaults": [*base, "_self_"]} if base else {}) | changed({}, found.winner.changes)
    lines = (
        "# @package _global_",
        f"# {gain_words(found)}, found by `etlrun tune` on {time.strftime('%Y-%m-%d')}.",
        f"#   {shlex.join(['etlrun', *files, *words, f'{EXPERIMENT}{name}'])}",
        *(f"# {line}" for line in proofs(found)),
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
