"""Runs, sweeps and searches below a folder, as a list, which needs no configs unless there are sweeps."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path

from etlrun.record.folders import MARKS, SEARCH, Kind, walked
from etlrun.record.outcome import outcome
from etlrun.record.part import finite
from etlrun.record.record import BLOCK_BYTES, RESULTS, is_nobodys, state_of
from etlrun.record.summary import COMPLETED, RUNNING, Figure, Summary, read_summary, shown_metric
from etlrun.stages.objectives import falls
from etlrun.system.errors import WorldError, first_few
from etlrun.system.values import frozen

_MOST_COMMITS = 3
TOO_SLOW, UNFINISHED, UNREADABLE = "too slow", "unfinished", "unreadable"
"""States that no summary has: below `measure.au_min`, a sweep with jobs to run, and a file that can't be read."""


@frozen
class RunEntry:
    """A run, a sweep, or a search.

    Attributes:
        folder: Its folder.
        kind: What it is; a search is one of `etlrun tune`.
        status: Status in the summary, or one of the states that no summary has.
        created_s: Start of the run, or of the newest job, in seconds since 1970.
        bytes: Disk space of the folder, as `du` counts it.
        overrides: Overrides on the command line.
        jobs: Number of jobs of a sweep.
        completed: Number of its jobs that need not run again.
        bound_by: Bottleneck: a stage, or the kind of the verdict.
        max_gain: Speedup with an ideal input pipeline.
        best: One metric of the epoch that is kept, the best one of all jobs, by its name; empty without any.
        wall_s: Seconds of the run, or of all jobs together.
        epochs: Number of completed epochs.
        commit: First digits of the commit that it began at, with `*` if files differed; of a sweep those of its jobs.
    """

    folder: Path
    kind: Kind
    status: str
    created_s: float
    bytes: int
    overrides: Sequence[str] = ()
    jobs: int | None = None
    completed: int | None = None
    bound_by: str = ""
    max_gain: Figure = None
    best: Mapping[str, float] = field(default_factory=dict)
    wall_s: Figure = None
    epochs: int = 0
    commit: str = ""


def entries(folder: Path) -> list[RunEntry]:
    """Return the runs and sweeps in `folder` and below it, the newest first; `WorldError` if it is no folder."""
    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
        raise WorldError(folder, found, "a folder of runs", "pass the folder that the runs have in hydra.run.dir")
    return sorted(
        [entry(path, kind) for path, kind in walked(folder)], key=lambda one: (-one.created_s, str(one.folder))
    )


def entry(folder: Path, kind: Kind) -> RunEntry:
    """Return the run, the sweep or the search in `folder`."""
    mark = folder / next(mark for mark, of in MARKS.items() if of == kind)
    unread = RunEntry(
        folder=folder, kind=kind, status=UNREADABLE, created_s=mark.lstat().st_mtime, bytes=disk_bytes(folder)
    )
    if kind == "search":  # whose runs are part of it
        overrides = []
        with suppress(OSError, ValueError, KeyError, TypeError):
            overrides = json.loads((folder / SEARCH).read_bytes())["overrides"]
        ended = COMPLETED if (folder / RESULTS).is_file() else UNFINISHED
        return replace(unread, status=ended if is_nobodys(folder) else RUNNING, overrides=tuple(overrides))
    if kind == "sweep":
        with suppress(WorldError):
            return _sweep(unread)
        return unread
    summary = read_summary(folder)
    if not summary:
        return unread
    verdict = summary.verdict
    return replace(
        unread,
        status=RUNNING if not is_nobodys(folder) else TOO_SLOW if summary.is_too_slow else state_of(folder, summary),
        created_s=summary.created_s or unread.created_s,
        overrides=tuple(summary.overrides),
        bound_by=(verdict.stage or verdict.kind) if verdict else "",
        max_gain=verdict.max_gain if verdict else None,
        best=_best([summary]),
        wall_s=summary.wall_s,
        epochs=len(summary.epochs),
        commit=_commits([summary]),
    )


def _sweep(unread: RunEntry) -> RunEntry:
    from etlrun.sweep.ledger import Ledger
    from etlrun.sweep.runs import unfinished

    ledger = Ledger.open(unread.folder)
    summaries = {key: read_summary(ledger.folder_of(key)) for key in ledger.runs}
    waiting = unfinished(ledger, {key: outcome(of) if of else None for key, of in summaries.items()})
    ran = [*filter(None, summaries.values())]
    is_running = not all(map(is_nobodys, (ledger.folder, *map(ledger.folder_of, summaries))))
    return replace(
        unread,
        status=RUNNING if is_running else UNFINISHED if waiting else COMPLETED,
        created_s=max((summary.created_s or 0.0 for summary in ran), default=0.0) or unread.created_s,
        overrides=tuple(ledger.request["overrides"] or ()),
        jobs=len(summaries),
        completed=len(summaries) - len(waiting),
        best=_best(ran),
        wall_s=sum(summary.wall_s or 0.0 for summary in ran),
        epochs=sum(len(summary.epochs) for summary in ran),
        commit=_commits(ran),
    )


def _commits(summaries: Sequence[Summary]) -> str:
    commits = {of.commit.short: None for of in summaries if of.commit}
    return first_few([*filter(None, commits)], _MOST_COMMITS)


def _best(summaries: Sequence[Summary]) -> dict[str, float]:
    epochs = [*filter(None, (of.kept_epoch for of in summaries))]
    metric = shown_metric(epochs)
    for name in (f"val_{metric}", metric, "val_loss", "loss"):
        if values := [value for epoch in epochs if (value := finite(epoch.measure(name))) is not None]:
            return {name: (min if falls(name) else max)(values)}
    return {}


def disk_bytes(folder: Path) -> int:
    """Return the disk space of a folder, as `du` counts it: blocks, and a file with several links once."""
    sizes: dict[tuple[int, int], int] = {}
    inside = (f"{parent}/{name}" for parent, folders, files in os.walk(folder) for name in (*folders, *files))
    for path in (str(folder), *inside):
        with suppress(FileNotFoundError):  # a running job replaces its files
            found = os.lstat(path)
            sizes[found.st_dev, found.st_ino] = found.st_blocks * BLOCK_BYTES
    return sum(sizes.values())
