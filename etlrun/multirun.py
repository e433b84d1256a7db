"""A multirun from its command line to its report: a new sweep, or one that goes on."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from etlrun import grid, launch, run
from etlrun.compose import Request, files_digest
from etlrun.errors import ConfigError, Fault
from etlrun.resume import merged
from etlrun.stages import STAGES
from etlrun.stages.sweep import Sweep
from etlrun.sweep import report
from etlrun.sweep.engine import run_all, unfinished
from etlrun.sweep.ledger import Ledger
from etlrun.sweep.outcome import outcome_of
from etlrun.sweep.progress import Progress

RESUME = "sweep.resume="
SUBDIR = "${hydra.job.num}"
LAUNCHERS_OWN = {"prune": False, "on_error": "continue", "retries": 0, "timeout_s": None, "max_jobs_in_flight": 1}
"""Settings, as they have to be with another launcher than Hydra's basic one: it has its own for what they say."""


def multirun(words: Sequence[str]) -> None:
    """Run every combination that the command line `words` asks for; ends the process with its exit status.

    Raises:
        ConfigError: Some combination is wrong; none has started.
        WorldError: The sweep's folder can't be used.
    """
    request = Request.of(list(words))
    resumed = [word.removeprefix(RESUME).strip("'\"") for word in request.overrides if word.startswith(RESUME)]
    if resumed and resumed[-1] != "null":
        _go_on(request, Path(resumed[-1]))
        return
    found = grid.of(request, STAGES)
    if not found.multirun.is_grid:
        launch.launch(words)
        return
    _refuse_unfit(found.sweep, found.multirun)
    known = {**dataclasses.asdict(request), "files": files_digest(request)}
    ledger = Ledger.create(Path(found.multirun.dir), found.sweep, found.jobs, known)
    with ledger.held():
        _run(ledger, request, found.multirun)


def _go_on(now: Request, folder: Path) -> None:
    ledger = Ledger.open(folder)
    with ledger.held():
        before = ledger.request
        request = Request(
            overrides=merged(before["overrides"], now.overrides),
            config_dir=now.config_dir or before["config_dir"],
            config_name=now.config_name or before["config_name"],
            multirun=True,
        )
        sweep, multirun_config = grid.settings(request, STAGES)
        _refuse_unfit(sweep, multirun_config)
        has_other_jobs = any(not word.startswith("sweep.") for word in now.overrides)
        if has_other_jobs or files_digest(request) != before["files"]:
            for line in _changes(ledger, request, is_strict=has_other_jobs):
                print(line, file=sys.stderr)
        ledger.sweep = sweep
        ledger.save()
        _run(ledger, request, multirun_config)


def _changes(ledger: Ledger, request: Request, *, is_strict: bool) -> Iterator[str]:
    """What is new or other in the command line or the files; a sweep that only goes on needs none of it to be right."""
    try:
        jobs = grid.of(request, STAGES).jobs
    except ConfigError as error:
        if is_strict:
            raise
        yield f"etlrun: the files of now are refused, and the sweep goes on with its own configs:\n{error}"
    else:
        yield from ledger.extended(jobs)


def _run(ledger: Ledger, request: Request, config: grid.Multirun) -> None:
    outcomes = {key: outcome_of(ledger.folder_of(key)) for key in ledger.runs}
    left, jobs = unfinished(outcomes), f"{len(outcomes)} jobs of {len(ledger.configs)} configs"
    print(f"sweep     {jobs}, {len(left)} to run, in {ledger.folder}", flush=True)
    if config.is_basic:
        with Progress(ledger) as progress:
            came_to_end = run_all(ledger, outcomes, progress)
    else:
        launch.by_launcher(ledger, left, request)
        came_to_end = True
    status = report.conclude(ledger.folder)
    if not came_to_end:
        print(f"etlrun: interrupted; go on with: etlrun -m {RESUME}{ledger.folder}", file=sys.stderr)
    raise SystemExit(status if came_to_end else run.INTERRUPTED)


def _refuse_unfit(sweep: Sweep, config: grid.Multirun) -> None:
    """Settings that the launcher or the ledger would not heed."""
    faults = [
        Fault(
            where=f"sweep.{name}",
            found=str(getattr(sweep, name)),
            expected=f"{wanted}, since {config.launcher.rpartition('.')[2]} runs the jobs",
            remedy="set what the launcher has for it, or leave hydra/launcher as it is",
        )
        for name, wanted in LAUNCHERS_OWN.items()
        if not config.is_basic and getattr(sweep, name) != wanted
    ]
    if config.subdir != SUBDIR:
        remedy = "leave it as it is, and choose hydra.sweep.dir"
        expected = f"{SUBDIR}: a sweep names the folders of its runs"
        faults.append(Fault(where="hydra.sweep.subdir", found=config.subdir, expected=expected, remedy=remedy))
    if faults:
        raise ConfigError(faults)
