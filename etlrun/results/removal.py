"""Removal of runs and sweeps: what may be removed, and how, so that a kill leaves nothing that can't be completed."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from etlrun.record import record as records
from etlrun.record.locks import ended
from etlrun.record.summary import COMPLETED, FAILED, INTERRUPTED, RUNNING, SUMMARY, read_summary
from etlrun.results.folders import disk_bytes, is_file, kind_of, left_of, strangers, sweep_of
from etlrun.results.results import KILLED, TOO_SLOW
from etlrun.results.runs import REMOVED, UNFINISHED, UNREADABLE, Entry, entry
from etlrun.run.checkpoint import CHECKPOINTS, checkpoints, newest_checkpoint
from etlrun.sweep.ledger import SWEEP, Ledger, resume_command
from etlrun.sweep.tune import SEARCH
from etlrun.system.errors import Fault

_MARKS = (SUMMARY, SWEEP, SEARCH)
"""Files by which a folder is known as a run or a sweep, which are removed last."""
_LISTED = 3
Needs = Sequence[tuple[str, Path]]
"""Folders, as they were named, that runs without a checkpoint of their own have to resume; each with its run."""
_DAY_S = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Which runs and sweeps a collection removes.

    Attributes:
        keep: Number of the newest ones to keep; None for all, unless `older_than_s` is set.
        older_than_s: Age in seconds from which they are removed; None for any, if `keep` is set.
        failed: Whether runs that failed, or were interrupted or killed, are removed, too.
    """

    keep: int | None = None
    older_than_s: float | None = None
    failed: bool = False


@dataclass(frozen=True, kw_only=True)
class Removal:
    """What a collection removes.

    Attributes:
        folder: Folder of the run or the sweep.
        reason: Why.
        bytes: Disk space that this frees.
        is_whole: Whether the folder is removed; if not, its checkpoints are.
    """

    folder: Path
    reason: str
    bytes: int
    is_whole: bool

    def carry_out(self) -> None:
        """Remove it; `WorldError` if a process is at work there."""
        if self.is_whole:
            remove(self.folder)
        else:
            _drop_checkpoints(self.folder)


def collectable(found: Sequence[Entry], rules: Rules, needs: Needs, now_s: float) -> tuple[list[Removal], list[Fault]]:
    """Return what `rules` remove of `found`, the newest first, and why other runs that they name are kept."""
    removals, kept, newer = [], [], 0
    for one in found:
        reason = _useless(one, rules) or _old(one, newer, rules, now_s)
        newer += not _useless(one, rules) and one.status != UNREADABLE
        fault = refusal(one, needs, is_asked=False) if reason else None
        if fault is not None:
            kept.append(fault)
        if reason and fault is None:
            removals.append(Removal(folder=one.folder, reason=reason, bytes=one.bytes, is_whole=True))
        else:
            removals += _checkpoints(one, needs)
    return removals, kept


def _useless(one: Entry, rules: Rules) -> str:
    """Return why nobody needs a run or a leftover, whatever its age; empty if somebody may."""
    if one.status == REMOVED:
        return "left by a removal that was killed"
    has_trained = one.epochs > 0 or bool(checkpoints(one.folder))
    if one.status not in (FAILED, INTERRUPTED, KILLED) or (has_trained and not rules.failed):
        return ""
    return one.status if has_trained else f"{one.status} before its first checkpoint"


def _old(one: Entry, newer: int, rules: Rules, now_s: float) -> str:
    """Return that a run or a sweep is too old, of which so many `newer` ones are kept; empty if it is not."""
    age_s = now_s - one.created_s
    if rules.keep is None and rules.older_than_s is None:
        return ""
    if newer < (rules.keep or 0) or age_s < (rules.older_than_s or 0.0):
        return ""
    age = f"{age_s / _DAY_S:.0f} days old"
    return age if rules.keep is None else f"not among the newest {rules.keep}, {age}"


def _checkpoints(one: Entry, needs: Needs) -> Iterator[Removal]:
    """Yield the removal of the checkpoints of a completed run, or of each job of a completed sweep."""
    for folder in _jobs(one) if one.status in (COMPLETED, TOO_SLOW) else ():
        is_saved = is_file(folder / records.MODEL) and (folder / records.MODEL).stat().st_size > 0
        if checkpoints(folder) and is_saved and not _needed_by(folder, needs):
            size = disk_bytes(folder / CHECKPOINTS)
            yield Removal(folder=folder, reason=f"{COMPLETED}, with {records.MODEL}", bytes=size, is_whole=False)


def refusal(one: Entry, needs: Needs, *, is_asked: bool) -> Fault | None:
    """Return why a run or a sweep is not removed; None if it is. A person may ask for an unfinished sweep."""
    return next(_refusals(one, needs, is_asked=is_asked), None)


def _refusals(one: Entry, needs: Needs, *, is_asked: bool) -> Iterator[Fault]:
    if one.status == REMOVED:
        return
    if one.status == RUNNING:
        yield _fault(one, "is still running", "one that has ended", "wait for it to end, or stop it")
    if one.status == UNREADABLE:
        name = SWEEP if one.kind == "sweep" else SUMMARY
        found = f"has a {name} that is not etlrun's, or of a version that this one can't read"
        yield _fault(one, found, "a run or a sweep", "look at it, and remove the folder yourself")
    if one.status == UNFINISHED and not is_asked:
        found = "has not ended" if one.jobs is None else f"has completed {one.completed} of {one.jobs} jobs"
        resume = f"etlrun tune tune.resume={one.folder}" if one.kind == "search" else resume_command(one.folder)
        yield _fault(one, found, f"a completed {one.kind}", f"resume it with: {resume}")
    sweep = sweep_of(one.folder)
    if sweep is not None and (not is_asked or entry(sweep, "sweep").status != COMPLETED):
        found = f"is a job of {sweep}, which needs it"
        yield _fault(one, found, "a job of a completed sweep", f"complete the sweep with: {resume_command(sweep)}")
    by = next(filter(None, (_needed_by(folder, needs) for folder in (one.folder, *_jobs(one)))), None)
    if by is not None:
        found = f"has the last checkpoint of {by}, which resumes it"
        yield _fault(one, found, "a run that no other one needs", "resume that one first, or remove both")
    if others := strangers(one.folder, one.kind):
        listed = ", ".join([*others[:_LISTED], *(["…"] if others[_LISTED:] else [])])
        yield _fault(one, f"has files that no run writes: {listed}", "files of a run alone", "move them elsewhere")


def _fault(one: Entry, found: str, expected: str, remedy: str) -> Fault:
    return Fault(where=str(one.folder), found=f"a {one.kind} that {found}", expected=expected, remedy=remedy)


def _jobs(one: Entry) -> list[Path]:
    """Return the folders of the runs of an entry that can be read."""
    if one.kind == "run":
        return [one.folder]
    if one.kind != "sweep" or one.status == UNREADABLE:
        return []
    ledger = Ledger.open(one.folder)
    return [ledger.folder_of(key) for key in ledger.runs]


def needed(found: Iterable[Entry]) -> Needs:
    """Return which folders the runs of `found`, and the jobs of unfinished sweeps, have to resume."""
    needs: list[tuple[str | None, Path]] = []
    for one in found:
        for folder in _jobs(one):
            summary = read_summary(folder)
            if summary is not None and summary.status != COMPLETED and not newest_checkpoint(folder):
                needs.append((summary.resumed_from or _resume_of(_config(folder)), folder))
        if one.kind == "sweep" and one.status in (RUNNING, UNFINISHED):
            needs += [(_resume_of(config.values), one.folder) for config in Ledger.open(one.folder).configs]
    return [(name, by) for name, by in needs if name]


def _config(folder: Path) -> Any:
    with suppress(OSError, ValueError, yaml.YAMLError):
        return records.read_config(folder)
    return None


def _resume_of(config: Any) -> str | None:
    trainer = config.get("trainer") if isinstance(config, Mapping) else None
    name = trainer.get("resume") if isinstance(trainer, Mapping) else None
    return name if isinstance(name, str) else None


def _needed_by(folder: Path, needs: Needs) -> Path | None:
    """Return a run that has to be resumed from the one in `folder`."""
    return next((by for name, by in needs if _is_named(folder, name)), None)


def _is_named(folder: Path, name: str) -> bool:
    """Return whether `name` may mean `folder`; a relative one was written in a folder that isn't known any more."""
    path, own = Path(name), folder.resolve()
    parts = tuple(part for part in path.parts if part != "..")
    return path.resolve() == own or (not path.is_absolute() and own.parts[-len(parts) :] == parts)


def remove(folder: Path) -> None:
    """Remove the folder of a run or a sweep: it is hidden first, so that a kill leaves no part of a run.

    Raises:
        WorldError: A process is at work there.
        OSError: A file can't be removed.
    """
    hidden = left_of(folder)
    if kind_of(folder) == "removed":
        _complete(folder)
        return
    if kind_of(hidden) == "removed":
        _complete(hidden)
    if kind_of(folder) is None:
        return
    with ExitStack() as locks:
        for owner in (sweep_of(folder), folder):
            if owner is not None:
                locks.enter_context(ended(owner))
        folder.rename(hidden)
    _complete(hidden)


def _complete(hidden: Path) -> None:
    """Remove a hidden folder; the files by which it is known come last."""
    for path in sorted(hidden.iterdir(), key=lambda path: path.name in _MARKS):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    hidden.rmdir()


def _drop_checkpoints(folder: Path) -> None:
    with ended(folder):
        for path in checkpoints(folder):
            path.unlink()
        with suppress(OSError):  # of another file that somebody has put there
            (folder / CHECKPOINTS).rmdir()
