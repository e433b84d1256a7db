"""Sweeps whose jobs are run by a launcher of Hydra: joblib, submitit (processes, Slurm), or Ray."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from functools import partial
from multiprocessing.pool import ThreadPool

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, RunMode

from etlrun.cli.launch import AGAIN, LONGER, Callbacks, job, lost
from etlrun.config.grid import Multirun
from etlrun.config.request import Request, composer
from etlrun.record.record import Record
from etlrun.record.summary import FAILED, RUNNING
from etlrun.run.run import close
from etlrun.sweep.ledger import RunKey
from etlrun.sweep.runs import Runs
from etlrun.system.errors import Fault, WorldError

_LOST = re.compile(r".*?\(state: ([A-Z_]+).*?\)", re.DOTALL)
"""What submitit says of a job without a result, before the end of its log: its files, and how it ended."""
_POLL_S = 0.5
_REMEDIES = {"TIMEOUT": LONGER, "OUT_OF_MEMORY": "raise hydra.launcher.mem_gb, and resume the sweep"}


def run_all(runs: Runs, request: Request, multirun: Multirun) -> bool:
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
            _launch_all(launcher, runs, batch, multirun)
    except KeyboardInterrupt:
        return False
    return True


def _require_accounting() -> None:
    """Refuse a machine on which submitit would wait for ever for a job that Slurm has ended: it asks `sacct` alone."""
    try:
        subprocess.run(["sacct"], capture_output=True, check=True, text=True)  # noqa: S607
    except (OSError, subprocess.CalledProcessError) as error:
        raise WorldError(
            where="hydra/launcher",
            found=f"no answer of sacct: {' '.join((getattr(error, 'stderr', None) or str(error)).split())}",
            expected="a login node of a cluster with Slurm and its accounting, which says how jobs have ended",
            remedy="start the sweep there, or leave hydra/launcher out",
        ) from error


def _launch_all(launcher: Launcher, runs: Runs, batch: Sequence[RunKey], multirun: Multirun) -> None:
    """Run jobs by one call of a launcher; submitit's, which stops to wait once a job is lost, has a call for each."""
    if not multirun.is_submitit:
        _launch(launcher, runs, batch)
        return
    with ThreadPool(multirun.at_a_time(runs.ledger.sweep)) as pool:
        launched = pool.map_async(partial(_launch, launcher, runs), [[run] for run in batch], chunksize=1)
        while not launched.ready():  # a wait without an end sleeps through a Ctrl-C that another thread receives
            launched.wait(_POLL_S)
        launched.get()


def _launch(launcher: Launcher, runs: Runs, batch: Sequence[RunKey]) -> None:
    """Run jobs by one call of a launcher, and report each of them as it is then."""
    begun, reason = [run for run in batch if runs.start(run) is not None], lost("no result")
    jobs = [[*runs.ledger.frozen(run)[1], f"hydra.sweep.subdir='{run.name}'"] for run in begun]
    try:
        if jobs:
            launcher.launch(jobs, initial_job_idx=runs.left.index(begun[0]))
    except Exception as error:  # noqa: BLE001 - of any launcher: it is the reason in a row
        reason = _reason(error)
    for run in begun:
        folder = runs.ledger.folder_of(run)
        if Record(folder).summary.status == RUNNING:
            close(folder, FAILED, reason)
        runs.end(run)


def _reason(error: Exception) -> Fault:
    """Return why jobs have no result: the end of one in Slurm, or what a launcher raised, with its traceback."""
    found = _LOST.match(str(error))
    if found:
        return lost(" ".join(found[0].split()), _REMEDIES.get(found[1], AGAIN))
    return lost(str(error).strip() or type(error).__name__)
