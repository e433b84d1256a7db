"""Folders of runs and sweeps: which they are, and what they take."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from etlrun.record.locks import CLAIM, LOCK
from etlrun.record.page import EVALUATIONS, THUMBNAILS
from etlrun.record.record import CONFIG, EVENTS, LOG, MODEL, PAGE, PLAN, REPORT, RESULTS
from etlrun.record.summary import SUMMARY
from etlrun.run.checkpoint import CHECKPOINTS
from etlrun.sweep.attempts import ATTEMPTS
from etlrun.sweep.hparams import FOLDER
from etlrun.sweep.ledger import CONFIGS, SWEEP
from etlrun.sweep.tune import SEARCH, WINDOWS

Kind = Literal["run", "sweep", "search"]
"""What a folder holds; a search is one of `etlrun tune`."""

_OWN = {
    "run": (
        CONFIG, "plan.txt", PLAN, EVENTS, SUMMARY, REPORT, PAGE, THUMBNAILS, MODEL, CHECKPOINTS, LOCK, FOLDER,
        "output.txt", "traceback.txt", CLAIM, "tensorboard", "csv", "wandb", LOG, "profile", ".hydra", EVALUATIONS,
    ),
    "sweep": (
        SWEEP, CONFIGS, LOCK, ATTEMPTS, RESULTS, "results.csv", PAGE, REPORT, ".submitit",
        "multirun.yaml",
    ),
    "search": (SEARCH, WINDOWS, LOCK, RESULTS, PAGE),
}  # fmt: skip
_TEMPORARY = re.compile(r"\.\d+\..+|\.hparams\.\d+|.+\.log")
"""What a killed process has left, and Hydra's log."""
_JOB = re.compile(r"\d+(\.\d+)?|fill-[0-9a-f]{8}")
_BLOCK_BYTES = 512
"""Unit of `st_blocks`."""


def kind_of(folder: Path) -> Kind | None:
    """Return what `folder` holds by the names of its files; None for anything else, and for a symbolic link."""
    if folder.is_symlink() or not folder.is_dir():
        return None
    marks: dict[str, Kind] = {SWEEP: "sweep", SEARCH: "search", SUMMARY: "run"}
    return next((kind for mark, kind in marks.items() if is_file(folder / mark)), None)


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
    for name in names:
        if not name.startswith(".") and not (kind and _is_own(name, kind)):
            yield from walked(folder / name)


def _is_own(name: str, kind: Kind) -> bool:
    """Return whether a run or a sweep writes a file or a folder of this name into its folder."""
    is_job = kind == "sweep" and _JOB.fullmatch(name) is not None
    return name in _OWN.get(kind, ()) or is_job or _TEMPORARY.fullmatch(name) is not None


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
