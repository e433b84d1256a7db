"""Reports of a search: lines for the terminal, and `tune.json` for everything else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from etlrun.record.record import PAGE
from etlrun.sweep.tune.overlay import again, gain_words, proofs
from etlrun.sweep.tune.search import FOUND, KEEP, MODEL, Found

FORMAT_VERSION = 1
_MOST_REASONS = 6
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


def lines(found: Found, overrides: list[str], folder: Path) -> Iterator[str]:
    """Yield the lines of the report."""
    yield f"result    {sentence(found)}"
    if found.headspace is not None and found.end != MODEL:
        yield f"headspace at most {found.headspace:.2f} times as fast with an ideal input pipeline"
    if found.autotune is not None:
        yield f"autotune  {over_autotune(found)}"
    if found.end == FOUND:
        yield from (f"proof     {line}" for line in proofs(found))
    ran = len(found.candidates)
    yield f"cost      {found.windows} windows in {found.spent_s:.0f} s; {ran} of {found.size:,} configs ran"
    for reason, number in found.left_out.most_common(_MOST_REASONS):
        yield f"never ran {number:,} config{'s' * (number != 1)}: {reason}"
    yield from (f"note      {note}" for note in found.notes)
    if found.end == FOUND:
        yield f"again     {again(found, overrides)}"
    elif found.advice:
        yield f"advice    {found.advice}"
    yield f"report    {folder / PAGE}"


def over_autotune(found: Found) -> str:
    """Return the gain over the config that leaves all to AUTOTUNE."""
    assert found.autotune is not None  # noqa: S101 - for mypy
    _, gain = found.autotune
    return f"{gain.words} times as fast as all left to AUTOTUNE: {gain.call}"


def as_json(found: Found, overrides: list[str]) -> str:
    """Return the result as JSON."""
    winner = found.winner
    values: dict[str, Any] = {
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
    return to_json(values, indent=2).decode() + "\n"
