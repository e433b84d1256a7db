"""What is known of a published cache from outside, and which one comes nearest to what a config would read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from etlrun.cache.parts import Manifest

Pairs = Sequence[Sequence[Any]]
"""An identity: names with their values."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A published cache.

    Attributes:
        key: Of its identity.
        manifest: None for one that can't be read.
        bytes: Of all its files.
        used_s: When it was used last, in seconds since 1970.
        in_use: Whether a run reads it now.
    """

    key: str
    manifest: Manifest | None
    bytes: int
    used_s: float
    in_use: bool


def first_difference(wanted: Pairs, there: Pairs) -> tuple[str, Any, Any] | None:
    """The first name whose values differ, with both; None where there is no difference."""
    others = dict(map(tuple, there))
    for name, value in wanted:
        if name not in others or others[name] != value:
            return name, value, others.get(name)
    names = {name for name, _ in wanted}
    return next(((name, None, value) for name, value in there if name not in names), None)


def nearest(wanted: Pairs, entries: Sequence[Entry]) -> Entry | None:
    """The entry that has most in common with `wanted`; of several the one that was used last."""
    readable = [entry for entry in entries if entry.manifest is not None]
    pairs = {json.dumps(pair) for pair in wanted}
    return max(
        readable,
        key=lambda entry: (len(pairs & {json.dumps(p) for p in entry.manifest.identity}), entry.used_s),  # type: ignore[union-attr]
        default=None,
    )
