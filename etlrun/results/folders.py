"""Folders of runs and sweeps: which they are, what is in them, and what of it is somebody's own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from etlrun.record.locks import CLAIM, LOCK
from etlrun.record.page import EVALUATIONS, THUMBNAILS
from etlrun.record.record import CONFIG, EVENTS, EXPORTS, LOG, MODEL, PAGE, PLAN, REPORT, RESULTS
from etlrun.record.summary import SUMMARY
from etlrun.run.checkpoint import CHECKPOINTS
from etlrun.sweep.attempts import ATTEMPTS
from etlrun.sweep.hparams import FOLDER
from etlrun.sweep.ledger import CONFIGS, SWEEP
from etlrun.sweep.tune import CACHES, SEARCH, WINDOWS

Kind = Literal["run", "sweep", "search", "removed"]
"""`removed` is what a killed removal has left."""

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
_LEFT = re.compile(r"\.(.+)\.removed")
_JOB = re.compile(r"\d+(\.\d+)?|fill-[0-9a-f]{8}")
_ATTEMPT = re.compile(rf"({_JOB.pattern})-\d+|\.\d.*\.removed")
_BLOCK_BYTES = 512
"""Unit of `st_blocks`."""


def kind_of(folder: Path) -> Kind | None:
    """Return what `folder` holds by the names of its files; None for anything else, and for a symbolic link."""
    if folder.is_symlink() or not folder.is_dir():
        return None
    marks: dict[str, Kind] = {SWEEP: "sweep", SEARCH: "search", SUMMARY: "run"}
    kind = next((kind for mark, kind in marks.items() if is_file(folder / mark)), None)
    if _LEFT.fullmatch(folder.name):
        return "removed" if kind is not None or not any(folder.iterdir()) else None
    return kind


def left_of(folder: Path) -> Path:
    """Return the hidden name, in the same folder, that `folder` has while it is removed."""
    return folder.with_name(f".{folder.name}.removed")


def is_file(path: Path) -> bool:
    """Return whether `path` is a file, and no symbolic link."""
    return path.is_file() and not path.is_symlink()


def walked(folder: Path) -> Iterator[tuple[Path, Kind]]:
    """Yield the folders of runs and sweeps, and leftovers; symbolic links below `folder` are not followed.

    A job of a sweep is part of it.
    """
    kind = kind_of(folder)
    if kind is not None:
        yield folder, kind
    with os.scandir(folder) as inside:
        names = sorted(found.name for found in inside if found.is_dir(follow_symlinks=False))
    for name in names:
        is_closed = name.startswith(".") or (kind and _is_own(name, kind))
        if kind != "removed" and (_LEFT.fullmatch(name) or not is_closed):
            yield from walked(folder / name)


def sweep_of(folder: Path) -> Path | None:
    """Return the folder of the sweep that `folder` is, or by its name may be, a job of; None if it is none."""
    is_job = is_file(folder.parent / SWEEP) and _JOB.fullmatch(folder.name) is not None
    return folder.parent if is_job else None


def jobs_of(sweep: Path) -> list[Path]:
    """Return the folders of the jobs that a sweep has begun, those that fill caches first, then by their numbers."""
    jobs = [path for path in sweep.iterdir() if _JOB.fullmatch(path.name) and kind_of(path) == "run"]
    return sorted(jobs, key=lambda path: [int(part) for part in re.findall(r"^\d+|(?<=\.)\d+", path.name)])


def strangers(folder: Path, kind: Kind) -> list[str]:
    """Return the paths in a folder that neither a run nor a sweep writes there."""
    found = []
    for name in sorted(path.name for path in folder.iterdir()):
        inside = folder / name
        if kind == "run" and name == EXPORTS and inside.is_dir() and not inside.is_symlink():
            exports = sorted(path.name for path in inside.iterdir())
            found += [f"{name}/{export}" for export in exports if not _TEMPORARY.fullmatch(export)]
        elif not _is_own(name, kind):
            found.append(name)
        elif kind == "sweep" and inside.is_dir() and not inside.is_symlink():
            found += [f"{name}/{other}" for other in _in_part(inside)]
        elif kind == "search" and name == WINDOWS:
            found += [f"{name}/{other}" for other in _in_windows(inside)]
    return found


def _in_part(folder: Path) -> list[str]:
    """Return the strangers in a folder of a sweep, if it is that of a job, or that of earlier attempts."""
    if _JOB.fullmatch(folder.name):
        return strangers(folder, "run")
    found = []
    for attempt in sorted(folder.iterdir()) if folder.name == ATTEMPTS else ():
        is_run = _ATTEMPT.fullmatch(attempt.name) is not None and attempt.is_dir()
        found += [f"{attempt.name}/{other}" for other in strangers(attempt, "run")] if is_run else [attempt.name]
    return found


def _in_windows(folder: Path) -> Iterator[str]:
    """Yield the strangers in the folder of a search's runs."""
    for inside in sorted(folder.iterdir()):
        if not inside.is_dir() or inside.is_symlink():
            yield inside.name
        elif inside.name != CACHES:  # a run that was killed at its start has no summary yet
            others = _in_windows(inside) if inside.name == ATTEMPTS else strangers(inside, "run")
            yield from (f"{inside.name}/{other}" for other in others)


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
