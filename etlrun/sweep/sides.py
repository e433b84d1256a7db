"""The two sides of a review as people name them, of which one alone may be a run or a sweep."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from etlrun.config.request import Request
from etlrun.record.config import CONFIG
from etlrun.record.folders import LATEST, SWEEP, found_by, named
from etlrun.review.folders import Folders, is_revision, working_tree
from etlrun.review.sides import Side, Variant, of_folders, of_request, of_runs, resolve
from etlrun.system.errors import ConfigError, EtlrunError, Fault, fault

if TYPE_CHECKING:
    from etlrun.record.summary import Summary


def sides_of(
    first: str | Side, second: str | Side | None, experiment: str | None = None, config_dir: str | None = None
) -> tuple[Side, Side, str | None]:
    """Return the two sides that these name, and the experiment that is compared of revisions, None for all.

    Without a second one it is the configs of the working tree; of a run, that which its overrides compose now. Beside a
    run a revision is what its overrides compose there, unless an experiment is named. `EtlrunError` if one of them is
    nothing to compare, or not with the other.
    """
    first = _named(first) if isinstance(first, str) else first
    second = _named(second) if isinstance(second, str) else second
    sweeps = [
        of.word if isinstance(of, Side) else of
        for of in (first, second)
        if of is not None and (of.jobs if isinstance(of, Side) else _has(of, SWEEP))
    ]
    if len(sweeps) == 1:
        remedy = f"name one of its jobs, such as {sweeps[0]}/0"
        raise ConfigError([fault(sweeps[0], "a sweep", "another sweep as the other side", remedy)])
    experiment, run = experiment or None, None
    words = sorted((word for word in (first, second) if isinstance(word, str)), key=lambda word: _has(word, CONFIG))
    is_beside = [_has(word, CONFIG) for word in words] == [False, True] and is_revision(words[0])
    if is_beside and not experiment and (then := _summary(words[1])):
        run, config_dir = _request(then, config_dir), config_dir or then.config_dir
    now = working_tree(config_dir)
    old = _side(first, now, experiment, run=run)
    if second is not None:
        new = _side(second, now, experiment, old, run)
    elif old.is_of_runs:
        new = _composed_now(old, config_dir)
    else:
        new = of_folders("the working tree", now, experiment, old)
    is_told = any(side.revision for side in (old, new))
    old, new = (_as_it_ran(side, is_told=is_told) for side in (old, new))
    return old, new, experiment


def _named(word: str) -> str:
    """Return the folder of the run or of the sweep that a word names which is neither a path nor a revision.

    `ConfigError` if it is a revision and a run's whole name, `WorldError` if it is a part of the names of several.
    """
    if not word or "=" in word or word[0] in "+~" or os.path.exists(word):  # noqa: PTH110 - false if it is too long
        return word
    found = named(word, "run", "sweep")
    if not is_revision(word):
        return str(found_by(word, "", "run", "sweep")) if found or word == LATEST else word
    same = next((of for of in found if word == LATEST or f"/{of}".endswith(f"/{word}")), None)
    if same is not None:
        expected, remedy = "one of the two", f"write {word}~0 for the revision, or {same}"
        raise ConfigError([fault(word, f"a git revision, and the name of {same}", expected, remedy)])
    return word


def _as_it_ran(side: Side, *, is_told: bool) -> Side:
    """Return the side of a run with the sources of its packages and its commit, as its summary has them."""
    variant = side.variants.get("")
    then = _summary(variant.runs[0]) if variant is not None and variant.runs else None
    if variant is None or then is None:
        return side
    commit = then.commit
    told = commit.told if commit is not None else "unknown: an older version has run it"
    revision = commit.revision if commit is not None and commit.is_clean else None
    sources = None if commit is None else commit.plugins
    return replace(
        side,
        variants={"": replace(variant, sources=sources)},
        revision=revision if revision is not None and is_revision(revision) else "",
        note=f"the commit of {side.word}: {told}" * is_told,
    )


def _summary(folder: str | Path) -> "Summary | None":
    from etlrun.record.summary import read_summary  # whose models take a tenth of a second to define

    return read_summary(Path(folder))


def _request(then: "Summary", config_dir: str | None) -> Request:
    return Request(overrides=then.overrides, config_dir=config_dir or then.config_dir, config_name=then.config_name)


def _side(
    word: str | Side, now: Folders, experiment: str | None, like: Side | None = None, run: Request | None = None
) -> Side:
    if isinstance(word, Side):
        return word
    is_sweep = _has(word, SWEEP)
    try:
        return _of_sweep(word) if is_sweep else resolve(word, now, experiment, like, run)
    except EtlrunError as error:
        if is_sweep or _has(word, CONFIG):
            raise ConfigError(_of(word, error)) from error
        raise


def _has(word: str, name: str) -> bool:
    return bool(word) and os.path.isfile(Path(word, name))  # noqa: PTH113 - false for many overrides, too long for a name


def _of(word: str, error: EtlrunError) -> tuple[Fault, ...]:
    """Return the faults of an error, which name the run or the sweep that they are about."""
    return tuple(of if of.where.startswith(word) else replace(of, where=f"{word}: {of.where}") for of in error.faults)


def _of_sweep(word: str) -> Side:
    """Return the side of a sweep: each of its configs, with its runs so far."""
    from etlrun.sweep.ledger import Ledger

    ledger, jobs = Ledger.open(Path(word)), []
    for config in ledger.configs:
        runs = [run for run in ledger.runs if run.config == config.number and not run.fills]
        runs = sorted(runs) if ledger.sweep.cuts else runs
        begun = {run: folder for run in runs if ((folder := ledger.folder_of(run)) / CONFIG).is_file()}
        first = next(iter(begun), runs[0]) if ledger.sweep.cuts else min(runs)  # whose splits its columns are of
        values, folders = ledger.frozen(first)[0], tuple(begun.values())
        try:
            variant = of_runs(values, *folders)
        except EtlrunError as error:  # such as of another version
            variant = Variant(config=values, plan=None, faults=_of(f"{word}/{config.number}", error))
        jobs.append(replace(variant, overrides=config.overrides, runs=folders, sweep=ledger.sweep))
    return Side(word=word, variants={}, jobs=tuple(jobs))


def _composed_now(old: Side, config_dir: str | None) -> Side:
    """Return the side of the config that the overrides of a run compose now, of the files that it named."""
    (run,) = old.variants[""].runs or ()
    if not (then := _summary(run)):
        expected, remedy = "the summary of the run, which has its overrides", "name the other side, too"
        raise ConfigError([fault(old.word, "no summary", expected, remedy)])
    try:
        return of_request("the config of its overrides now", _request(then, config_dir).resuming())
    except EtlrunError as error:
        raise ConfigError(_of(f"{old.word} now", error)) from error
