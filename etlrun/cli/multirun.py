"""`etlrun -m`: a new sweep or a resumed one, from the command line to the report."""

from __future__ import annotations

import dataclasses
import gc
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, RunMode

from etlrun.cli.launch import AGAIN, LONGER, Callbacks, answer_sweep, job, launch, lost
from etlrun.config import grid
from etlrun.config.grid import Multirun
from etlrun.config.request import Request, changed, composer, files_digest, merged
from etlrun.planning.spec import show
from etlrun.record.outcome import outcome_of
from etlrun.record.record import Record, held
from etlrun.record.summary import FAILED, RUNNING
from etlrun.results import report
from etlrun.results.collect import of_ledger
from etlrun.run.loggers import require
from etlrun.run.run import close
from etlrun.stages import STAGES
from etlrun.stages.sweep import Sweep
from etlrun.sweep.engine import Engine, new_ledger
from etlrun.sweep.ledger import RESUME, SWEEP, Ledger, RunKey, describe, left_out
from etlrun.sweep.preview import Preview, preview
from etlrun.sweep.runs import Runs, say_of_sweep
from etlrun.system.errors import INTERRUPTED, ConfigError, Fault, WorldError
from etlrun.system.files import refuse_unwritable
from etlrun.system.terminal import showing, tell

_LOST = re.compile(r".*?\(state: ([A-Z_]+).*?\)", re.DOTALL)
"""What submitit says of a job without a result, before the end of its log: its files, and how it ended."""
_POLL_S = 0.5
_REMEDIES = {"TIMEOUT": LONGER, "OUT_OF_MEMORY": "raise hydra.launcher.mem_gb, and resume the sweep"}


def launch_jobs(runs: Runs, request: Request, multirun: Multirun) -> bool:
    """Run all jobs that are left with the launcher of the command line, which calls `job` for each.

    Returns:
        Whether the sweep came to its end; after Ctrl-C jobs that have been submitted go on.

    Raises:
        WorldError: The cluster doesn't say how its jobs end.
    """
    if multirun.is_slurm:
        _require_accounting()
    parsed = OverridesParser.create().parse_overrides(request.overrides)
    own = [override.input_line for override in parsed if override.is_hydra_override()]
    first = runs.ledger.configs[0].overrides  # an experiment that is swept may choose the launcher
    overrides = [*first, *own, f"hydra.sweep.dir='{runs.ledger.folder}'"]
    loader = composer(request).loader
    config = loader.load_configuration(request.config_name or "config", overrides, run_mode=RunMode.MULTIRUN)
    context = HydraContext(config_loader=loader, callbacks=Callbacks(config))
    task = partial(job, sitting_s=runs.ledger.opened_s)
    launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=task, config=config)
    batches = [[run for run in runs.left if run.fills], [run for run in runs.left if not run.fills]]
    try:
        for batch in filter(None, batches):  # caches are filled before any run that reads them
            if not multirun.is_submitit:
                _launch(launcher, runs, batch)
                continue
            with ThreadPool(multirun.at_a_time(runs.ledger.sweep)) as pool:  # submitit stops to wait once a job is lost
                launched = pool.map_async(partial(_launch, launcher, runs), [[run] for run in batch], chunksize=1)
                while not launched.ready():  # a wait without end sleeps through a Ctrl-C that another thread receives
                    launched.wait(_POLL_S)
                launched.get()
    except KeyboardInterrupt:
        return False
    return True


def _require_accounting() -> None:
    """Refuse a machine on which submitit would wait for ever for a job that Slurm has ended: it asks `sacct` alone."""
    try:
        subprocess.run(["sacct"], capture_output=True, check=True, text=True)  # noqa: S607
    except (OSError, subprocess.CalledProcessError) as error:
        raise WorldError(
            "hydra/launcher",
            f"no answer of sacct: {' '.join((getattr(error, 'stderr', None) or str(error)).split())}",
            "a login node of a cluster with Slurm and its accounting, which says how jobs have ended",
            "start the sweep there, or leave hydra/launcher out",
        ) from error


def _launch(launcher: Launcher, runs: Runs, batch: Sequence[RunKey]) -> None:
    """Run jobs by one call of a launcher, and report each of them as it is then."""
    begun, reason = [run for run in batch if runs.start(run) is not None], lost("no result")
    jobs = [[*runs.ledger.frozen(run)[1], f"hydra.sweep.subdir='{run.name}'"] for run in begun]
    try:
        if jobs:
            launcher.launch(jobs, initial_job_idx=runs.left.index(begun[0]))
    except Exception as error:  # noqa: BLE001 - of any launcher: it is the reason in a row
        if found := _LOST.match(str(error)):
            reason = lost(" ".join(found[0].split()), _REMEDIES.get(found[1], AGAIN))
        else:
            reason = lost(str(error).strip() or type(error).__name__)
    for run in begun:
        folder = runs.ledger.folder_of(run)
        if Record(folder).summary.status == RUNNING:
            close(folder, FAILED, reason)
        runs.end(run)


SUBDIR = "${hydra.job.num}"
LAUNCHERS_OWN = {
    "prune": False, "max_jobs_in_flight": 1, "on_error": "continue", "retries": 0, "timeout_s": None
}  # fmt: skip
"""Required values of settings with another launcher than Hydra's basic one, which has its own settings for them."""
_ONE_PROCESS = {"nodes": 1, "tasks_per_node": 1, "max_num_timeout": 0}
"""Required values of settings of submitit's launchers: a job is one process, and `sweep.resume` repeats it."""


def multirun(arguments: Sequence[str]) -> None:
    """Run all combinations, and end the process with an exit status; `EtlrunError`, before any, if one is invalid."""
    # The million objects of a large sweep are not garbage; searching them for some took a sixth of the time.
    gc.set_threshold(50_000)
    request = Request.of(list(arguments))
    folder = _resume_folder(request)
    if folder is not None:
        _resume(request, folder)
        return
    found = grid.of(request, STAGES)
    _refuse_unfit(found.sweep, found.multirun)
    for one in found.jobs:
        one.plan.spec.cluster.require_one_host("the jobs of a sweep run on one host")
    for logger in {one.plan.spec.logger for one in found.jobs}:
        require(logger)
    if not found.multirun.is_grid:
        refuse_unwritable(Path(found.multirun.dir), "hydra.sweep.dir")
        launch(arguments)
        return
    with held(Path(found.multirun.dir)):
        ledger = new_ledger(request, found)
        if len(ledger.configs) < len(found.jobs):
            tell(f"etlrun: {len(found.jobs)} combinations, {len(ledger.configs)} distinct configs")
        _run(ledger, request, found.multirun)


def planned(request: Request) -> Preview:
    """Return the preview of a new sweep; `ConfigError` if it would be refused, or is a search."""
    if _resume_folder(request) is not None:
        remedy = "leave it out, or resume the sweep, which reports what is left"
        expected = "null in the plan of a new sweep"
        raise ConfigError([Fault(Sweep.key("resume"), "a sweep", expected, remedy)])
    found = grid.of(request, STAGES)
    _refuse_unfit(found.sweep, found.multirun)
    if not found.multirun.is_grid:
        who = found.multirun.sweeper.rpartition(".")[2]
        expected = "a grid, whose jobs are known before they run"
        raise ConfigError([Fault("hydra/sweeper", who, expected, "leave it out")])
    return preview(found)


def _resume_folder(request: Request) -> Path | None:
    own = [override.lstrip("+") for override in request.overrides if override.lstrip("+").startswith(RESUME)]
    value = own[-1].removeprefix(RESUME).strip("'\"") if own else "null"
    if not value:
        expected = "the folder of a sweep, or null"
        raise ConfigError([Fault(Sweep.key("resume"), "nothing", expected)])
    return None if value == "null" else Path(value)


def _resume(now: Request, folder: Path) -> None:
    with held(folder) if (folder / SWEEP).is_file() else nullcontext():
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
        if not others:
            multirun_config = Multirun(**before["multirun"])
        else:  # which may have other settings, in the folder of this sweep
            overrides = [*request.overrides, f"hydra.sweep.dir='{folder}'"]
            multirun_config = grid.settings(dataclasses.replace(request, overrides=overrides), STAGES)[1]
        _refuse_unfit(ledger.sweep, multirun_config)
        if others or files_digest(request) != before["files"]:
            for line in _changes(ledger, request, is_strict=bool(others)):
                tell(line)
        ledger.save()
        _run(ledger, request, multirun_config)


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
    runs, many, configs = Runs(ledger, outcomes, config.at_a_time(ledger.sweep)), len(outcomes), len(ledger.configs)
    jobs = f"{many} job{'s' * (many != 1)} of {configs} config{'s' * (configs != 1)}"
    say_of_sweep(f"sweep     {jobs}, {len(runs.left)} to run, in {ledger.folder}")
    for line in describe(left_out(ledger.unfit, [of.overrides for of in ledger.configs])):
        say_of_sweep(f"left out  {line}")
    with showing(runs.task):
        came_to_end = Engine(runs).run() if config.is_basic else launch_jobs(runs, request, config)
    outcomes |= {key: outcome_of(ledger.folder_of(key)) for key in runs.left}
    results = of_ledger(ledger, outcomes)
    status = report.conclude(results)
    answer_sweep(results.as_json, status if came_to_end else INTERRUPTED)
    if not came_to_end:
        print(f"etlrun: interrupted; resume with: {ledger.resume_command}", file=sys.stderr)
    raise SystemExit(status if came_to_end else INTERRUPTED)


def _refuse_unfit(sweep: Sweep, config: Multirun) -> None:
    """Refuse settings that the sweeper, the launcher or the ledger would ignore."""
    others: dict[str, Any] = (
        LAUNCHERS_OWN if config.is_grid else {**LAUNCHERS_OWN, "repeats": 1, "exclude": (), "zip": ()}
    )
    heeded = config.is_grid and config.is_basic
    who = (config.launcher if config.is_grid else config.sweeper).rpartition(".")[2]
    faults = [
        Fault(
            f"sweep.{name}",
            show(getattr(sweep, name)),
            f"{show(wanted)}, since {who} {'runs' if config.is_grid else 'chooses'} the jobs",
            "use its own setting, or leave it out",
        )
        for name, wanted in others.items()
        if not heeded and getattr(sweep, name) != wanted
    ]
    if heeded and sweep.prune and sweep.max_jobs_in_flight > 1:
        expected = f"false with sweep.max_jobs_in_flight={sweep.max_jobs_in_flight}"
        expected += ", since a bound measured beside other jobs holds for no other job"
        remedy = "run one job at a time, or don't prune"
        faults.append(Fault(Sweep.key("prune"), "true", expected, remedy))
    for name, wanted in _ONE_PROCESS.items() if config.is_grid else ():
        if (value := config.settings.get(name, wanted)) != wanted:
            expected = f"{wanted}, since a job of a sweep is one process, which sweep.resume repeats"
            faults.append(Fault(f"hydra.launcher.{name}", str(value), expected, "leave it out"))
    if config.is_grid and config.subdir != SUBDIR:
        expected, remedy = f"{SUBDIR}: a sweep names the folders of its runs", "leave it, and choose hydra.sweep.dir"
        faults.append(Fault("hydra.sweep.subdir", config.subdir, expected, remedy))
    if faults:
        raise ConfigError(faults)
