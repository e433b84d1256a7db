"""Folders of runs and sweeps: which they are, and what they take."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from etlrun.record.summary import SUMMARY
from etlrun.sweep.ledger import ATTEMPTS, SWEEP
from etlrun.sweep.tune import SEARCH, WINDOWS

Kind = Literal["run", "sweep", "search"]
"""What a folder holds; a search is one of `etlrun tune`."""
_MARKS: dict[str, Kind] = {SWEEP: "sweep", SEARCH: "search", SUMMARY: "run"}
_PARTS = {"sweep": re.compile(rf"\d+(\.\d+)?|fill-[0-9a-f]{{8}}|{ATTEMPTS}"), "search": re.compile(WINDOWS)}
"""Names of folders with runs that are part of a sweep or of a search."""
_BLOCK_BYTES = 512
"""Unit of `st_blocks`."""


def kind_of(folder: Path) -> Kind | None:
    """Return what `folder` holds by the names of its files; None for anything else, and for a symbolic link."""
    if folder.is_symlink() or not folder.is_dir():
        return None
    return next((kind for mark, kind in _MARKS.items() if is_file(folder / mark)), None)


def is_file(path: Path) -> bool:
    """Return whether `path` is a file, and no symbolic link."""
    return path.is_file() and not path.is_symlink()


def walked(folder: Path) -> Iterator[tuple[Path, Kind]]:
    """Yield the folders of runs and sweeps; hidden folders and symbolic links below `folder` are not followed.

    A job of a sweep is part of it.
    """
    kind = kind_of(folder)
    if kind is not None:
        yield folder, kind
    with os.scandir(folder) as inside:
        names = sorted(found.name for found in inside if found.is_dir(follow_symlinks=False))
    parts = _PARTS.get(kind or "")
    for name in names:
        if not name.startswith(".") and not (parts and parts.fullmatch(name)):
            yield from walked(folder / name)


def disk_bytes(folder: Path) -> int:
    """Return the disk space of a folder, as `du` counts it: blocks, and a file with several links once."""
    sizes: dict[tuple[int, int], int] = {}
    for path in _every(folder):
        try:
            found = path.lstat()
        except FileNotFoundError:  # a running job replaces its files
            continue
        sizes[found.st_dev, found.st_ino] = found.st_blocks * _BLOCK_BYTES
    return sum(sizes.values())


def _every(folder: Path) -> Iterator[Path]:
    yield folder
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name) for name in (*folders, *files))
