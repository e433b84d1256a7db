"""Data files of a repository that configs name, and that differ between revisions, of which each side reads its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from etlrun.review.git import differing_paths, top_of
from etlrun.stages.paths import is_remote

_GROUPS = ("dataset", "transform", "model")
_KEYS = {"dir", "file", "files", "folder", "weights", "words"}


def files_in(config: Mapping[str, Any] | None, missing: Iterable[str] = ()) -> dict[tuple[str, str], None]:
    """Return the files, patterns and folders that a config names as data, each with its dotted key.

    Those of keys that are `missing`, which a run is given, are stand-ins.
    """
    found = [of for group in _GROUPS for of in _texts(group, (config or {}).get(group), frozenset(missing))]
    return {(key, text): None for key, text in found if not is_remote(text) and _KEYS & {*key.split(".")}}


def _texts(key: str, value: Any, missing: frozenset[str]) -> Iterator[tuple[str, str]]:
    if key in missing:
        return
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(f"{key}.{name}", inner, missing)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(key, inner, missing)
    elif isinstance(value, str):
        yield key, value


def differing_files(paths: Iterable[str], *between: str) -> set[str]:
    """Return what git has in another state in two revisions, or in one and the working tree."""
    top = top_of(Path.cwd()).resolve()
    below = {path: os.path.relpath(os.path.abspath(Path(path).expanduser()), top) for path in paths}  # noqa: PTH100
    found = differing_paths(top, below.values(), *between)
    return {path for path, name in below.items() if name in found}
