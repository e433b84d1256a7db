"""Published caches as listed, and the one that is most similar to a wanted one."""

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
        key: Key of its identity.
        manifest: Manifest; None if it can't be read.
        bytes: Size of all its files.
        used_s: Time of the last use, in seconds since 1970.
        in_use: Whether a run is reading it.
    """

    key: str
    manifest: Manifest | None
    bytes: int
    used_s: float
    in_use: bool


def first_difference(wanted: Pairs, there: Pairs) -> tuple[str, Any, Any] | None:
    """Return the first name whose values differ, with both values; None if there is no difference."""
    others = dict(map(tuple, there))
    for name, value in wanted:
        if name not in others or others[name] != value:
            return name, value, others.get(name)
    names = {name for name, _ in wanted}
    return next(((name, None, value) for name, value in there if name not in names), None)


def nearest(wanted: Pairs, entries: Sequence[Entry]) -> Entry | None:
    """Return the entry that has most in common with `wanted`; of several, the one used last."""
    readable = [entry for entry in entries if entry.manifest is not None]
    pairs = {json.dumps(pair) for pair in wanted}
    return max(
        readable,
        key=lambda entry: (len(pairs & {json.dumps(p) for p in entry.manifest.identity}), entry.used_s),  # type: ignore[union-attr]
        default=None,
    )
