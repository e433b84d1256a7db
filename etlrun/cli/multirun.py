"""`etlrun -m`: a new sweep or a resumed one, from the command line to the report."""

from __future__ import annotations

import dataclasses
import gc
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from etlrun.cli import answer, launch, launchers
from etlrun.config import grid
from etlrun.config.grid import Multirun
from etlrun.config.request import Request, changed, files_digest, merged
from etlrun.planning.plan import require_one_host
from etlrun.planning.spec import show
from etlrun.record.outcome import outcome_of
from etlrun.record.record import held, held_if_there
from etlrun.results import report
from etlrun.results.collect import of_ledger
from etlrun.run.loggers import require
from etlrun.stages import STAGES
from etlrun.stages.sweep import Sweep
from etlrun.sweep.engine import new_ledger, run_all
from etlrun.sweep.ledger import RESUME, SWEEP, Ledger, describe, left_out
from etlrun.sweep.preview import Preview, preview
from etlrun.sweep.runs import Progress, Runs, say_of_sweep, unfinished
from etlrun.system.errors import INTERRUPTED, ConfigError, Fault
from etlrun.system.files import refuse_unwritable
from etlrun.system.terminal import tell

SUBDIR = "${hydra.job.num}"
LAUNCHERS_OWN = {
    "prune": False, "max_jobs_in_flight": 1, "on_error": "continue", "retries": 0, "timeout_s": None
}  # fmt: skip
"""Required values of settings with another launcher than Hydra's basic one, which has its own settings for them."""
_ONE_PROCESS = {"nodes": 1, "tasks_per_node": 1, "max_num_timeout": 0}
"""Required values of settings of submitit's launchers: a job is one process, and `sweep.resume` repeats it."""


def multirun(arguments: Sequence[str]) -> None:
    """Run all combinations of the command line, and end the process with an exit status.

    Raises:
        ConfigError: Some combination is invalid; none has started.
        WorldError: The sweep's folder can't be used.
    """
    # The million objects of a large sweep are not garbage; searching them for some took a sixth of the time.
    gc.set_threshold(50_000)
    request = Request.of(list(arguments))
    folder = _resume_folder(request)
    if folder is not None:
        _resume(request, folder)
        return
    found = grid.of(request, STAGES)
    _refuse_unfit(found.sweep, found.multirun)
    for job in found.jobs:
        require_one_host(job.plan.spec, "the jobs of a sweep run on one host")
    for logger in {job.plan.spec.logger for job in found.jobs}:
        require(logger)
    if not found.multirun.is_grid:
        refuse_unwritable(Path(found.multirun.dir), "hydra.sweep.dir")
        launch.launch(arguments)
        return
    with held(Path(found.multirun.dir)):
        ledger = new_ledger(request, found)
        if len(ledger.configs) < len(found.jobs):
            combinations = f"{len(found.jobs)} combinations, {len(ledger.configs)} distinct configs"
            tell(f"etlrun: {combinations}")
        _run(ledger, request, found.multirun)


def planned(request: Request) -> Preview:
    """Return the preview of a new sweep; `ConfigError` if it would be refused, or is a search."""
    if _resume_folder(request) is not None:
        remedy = "leave it out, or resume the sweep, which reports what is left"
        expected = "null in the plan of a new sweep"
        raise ConfigError([Fault(where=Sweep.key("resume"), found="a sweep", expected=expected, remedy=remedy)])
    found = grid.of(request, STAGES)
    _refuse_unfit(found.sweep, found.multirun)
    if not found.multirun.is_grid:
        who = found.multirun.sweeper.rpartition(".")[2]
        expected = "a grid, whose jobs are known before they run"
        raise ConfigError([Fault(where="hydra/sweeper", found=who, expected=expected, remedy="leave it out")])
    return preview(found)


def _resume_folder(request: Request) -> Path | None:
    """Return the value of `sweep.resume`."""
    own = [override.lstrip("+") for override in request.overrides if override.lstrip("+").startswith(RESUME)]
    value = own[-1].removeprefix(RESUME).strip("'\"") if own else "null"
    if not value:
        expected = "the folder of a sweep, or null"
        raise ConfigError([Fault(where=Sweep.key("resume"), found="nothing", expected=expected)])
    return None if value == "null" else Path(value)


def _resume(now: Request, folder: Path) -> None:
    with held_if_there(folder, SWEEP):
        ledger = Ledger.open(folder)
        before = ledger.request
        own = [override for override in now.overrides if override.lstrip("+").startswith("sweep.")]
        others = [override for override in now.overrides if override not in own]
        settings = [override for override in own if not override.lstrip("+").startswith(RESUME)]
        ledger.sweep = changed(ledger.sweep, settings)
        request = Request(
            overrides=merged(before["overrides"], others),
            config_dir=now.config_dir or before["config_dir"],
            config_name=now.config_name or before["config_name"],
            multirun=True,
        )
        multirun_config = Multirun(**before["multirun"]) if not others else _settings_now(request, folder)
        _refuse_unfit(ledger.sweep, multirun_config)
        if others or files_digest(request) != before["files"]:
            for line in _changes(ledger, request, is_strict=bool(others)):
                tell(line)
        ledger.save()
        _run(ledger, request, multirun_config)


def _settings_now(request: Request, folder: Path) -> Multirun:
    """Return the settings of the multirun that `request` now asks for, in the folder of its sweep."""
    overrides = [*request.overrides, f"hydra.sweep.dir='{folder}'"]
    return grid.settings(dataclasses.replace(request, overrides=overrides), STAGES)[1]


def _changes(ledger: Ledger, request: Request, *, is_strict: bool) -> Iterator[str]:
    """Yield what has changed in the command line or the files; they need not be valid to resume with frozen configs."""
    try:
        found = grid.of(request, STAGES)
    except ConfigError as error:
        if is_strict:
            raise
        yield f"etlrun: the current config files are refused; the sweep resumes with its frozen configs:\n{error}"
    else:
        yield from ledger.extended(found.jobs, found.unfit)


def _run(ledger: Ledger, request: Request, config: Multirun) -> None:
    outcomes = {key: outcome_of(ledger.folder_of(key)) for key in ledger.runs}
    left, many, configs = unfinished(ledger, outcomes), len(outcomes), len(ledger.configs)
    jobs = f"{many} job{'s' * (many != 1)} of {configs} config{'s' * (configs != 1)}"
    say_of_sweep(f"sweep     {jobs}, {len(left)} to run, in {ledger.folder}")
    for line in describe(left_out(ledger.unfit, [of.overrides for of in ledger.configs])):
        say_of_sweep(f"left out  {line}")
    with Progress(ledger, config.at_a_time(ledger.sweep)) as progress:
        runs = Runs(ledger, outcomes, progress)
        came_to_end = run_all(runs, progress) if config.is_basic else launchers.run_all(runs, request, config)
    outcomes |= {key: outcome_of(ledger.folder_of(key)) for key in left}
    results = of_ledger(ledger, outcomes)
    status = report.conclude(results)
    answer.of_sweep(results.as_json, status if came_to_end else INTERRUPTED)
    if not came_to_end:
        print(f"etlrun: interrupted; resume with: {ledger.resume_command}", file=sys.stderr)
    raise SystemExit(status if came_to_end else INTERRUPTED)


def _of_launcher(config: Multirun) -> Iterator[Fault]:
    """Yield the faults of settings of the launcher with which a job would be several processes."""
    for name, wanted in _ONE_PROCESS.items():
        found = config.settings.get(name, wanted)
        if found != wanted:
            expected = f"{wanted}, since a job of a sweep is one process, which sweep.resume repeats"
            yield Fault(where=f"hydra.launcher.{name}", found=str(found), expected=expected, remedy="leave it out")


def _refuse_unfit(sweep: Sweep, config: Multirun) -> None:
    """Refuse settings that the sweeper, the launcher or the ledger would ignore."""
    others: dict[str, Any] = (
        LAUNCHERS_OWN if config.is_grid else {**LAUNCHERS_OWN, "repeats": 1, "exclude": (), "zip": ()}
    )
    heeded = config.is_grid and config.is_basic
    who = (config.launcher if config.is_grid else config.sweeper).rpartition(".")[2]
    faults = [
        Fault(
            where=f"sweep.{name}",
            found=show(getattr(sweep, name)),
            expected=f"{show(wanted)}, since {who} {'runs' if config.is_grid else 'chooses'} the jobs",
            remedy="use its own setting, or leave it out",
        )
        for name, wanted in others.items()
        if not heeded and getattr(sweep, name) != wanted
    ]
    if heeded and sweep.prune and sweep.max_jobs_in_flight > 1:
        expected = f"false with sweep.max_jobs_in_flight={sweep.max_jobs_in_flight}"
        expected += ", since a bound measured beside other jobs holds for no other job"
        remedy = "run one job at a time, or don't prune"
        faults.append(Fault(where=Sweep.key("prune"), found="true", expected=expected, remedy=remedy))
    faults += _of_launcher(config) if config.is_grid else ()
    if config.is_grid and config.subdir != SUBDIR:
        remedy = "leave it as it is, and choose hydra.sweep.dir"
        expected = f"{SUBDIR}: a sweep names the folders of its runs"
        faults.append(Fault(where="hydra.sweep.subdir", found=config.subdir, expected=expected, remedy=remedy))
    if faults:
        raise ConfigError(faults)
