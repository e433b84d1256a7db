"""Runs and sweeps: a run in this process, a job of a multirun in a process of its own, and `etlrun -m`.

Grids may leave their jobs to a launcher (`hydra/launcher`); that, or another sweeper (`hydra/sweeper`, such as
Optuna's), calls `job`.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import run_job
from hydra.experimental.callback import Callback
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, read_write

from etlrun.cluster.hosts import HostPlace, place_of, require_jax
from etlrun.config import grid
from etlrun.config.composer import of_a_run, resolved
from etlrun.config.grid import Job, Multirun
from etlrun.config.overrides import set_to
from etlrun.config.request import Request, by_hydra, changed, composer, files_digest, merged, noted
from etlrun.planning.spec import parse_command, show
from etlrun.record.folders import SWEEP, found_by
from etlrun.record.outcome import UNCACHED, Outcome, outcome, outcome_of
from etlrun.record.part import finite
from etlrun.record.record import Record, held
from etlrun.record.summary import COMPLETED, EVENTS, FAILED, INTERRUPTED, RUNNING, SUMMARY, written_summary
from etlrun.run import run
from etlrun.run.checkpoint import previous_run
from etlrun.run.loggers import require
from etlrun.stages import STAGES
from etlrun.stages.sweep import Sweep
from etlrun.sweep.engine import Engine, new_ledger, started
from etlrun.sweep.ledger import RESUME, Ledger, RunKey, describe, left_out
from etlrun.sweep.runs import Runs, say_of_sweep
from etlrun.system import errors, terminal
from etlrun.system.errors import ConfigError, EtlrunError, Fault, WorldError, counted, headline, refuse
from etlrun.system.files import refuse_unwritable
from etlrun.system.loading import interrupts
from etlrun.system.terminal import showing, tell
from etlrun.system.values import Block, Composed

if TYPE_CHECKING:
    from etlrun.report.doc import Doc
    from etlrun.results.results import Results


QUIET, JSON = "--quiet", "--json"


class _Answer:
    """What returns the document that `--json` prints at the end; None before a run or a sweep has ended."""

    document: Callable[[], Block] | None = None


_answer = _Answer()


def answer_run(folder: Path) -> None:
    """Take the summary of a run that has ended as the answer, the loss and the metric of its result first."""

    def document() -> Block:
        try:
            ended = written_summary(folder)
            result, summary = finite(outcome(ended).measures), ended.written
        except (OSError, ValueError) as error:
            result, summary = {}, {"status": FAILED, "error": f"{folder / SUMMARY}: {headline(error)}"}
        return {"folder": str(folder), **({"result": result} if result else {}), **summary}

    _answer.document = document


@contextmanager
def answering(options: set[str]) -> Iterator[None]:
    """Print what `options` ask for, with `--json` of a run that failed, too; what is refused is told by the caller."""
    with terminal.quietly(is_quiet=QUIET in options):
        if JSON not in options:
            yield
            return
        _answer.document = None
        try:
            with _on_stderr():
                yield
        except (EtlrunError, KeyboardInterrupt):
            raise
        except SystemExit as error:
            status = INTERRUPTED if error.code == errors.INTERRUPTED else FAILED
            _say_ended({"status": status, "exit_status": error.code, "error": str(error.code), "faults": []})
            raise
        except Exception as error:
            told = f"{type(error).__name__}: {headline(error)}"
            _say_ended({"status": FAILED, "exit_status": EtlrunError.status, "error": told, "faults": []})
            raise


def _say_ended(otherwise: Block) -> None:
    """Print the answer of a run or a sweep, or without one how it has ended."""
    document = _answer.document() if _answer.document is not None else otherwise
    terminal.say_whole(json.dumps(document, indent=2) + "\n")


@contextmanager
def _on_stderr() -> Iterator[None]:
    """Have standard error print what is printed on standard output, also by libraries and by processes."""
    saved = None
    with suppress(OSError, AttributeError):  # a notebook has no such file, and a shell may close it
        if sys.stdout.fileno() == 1:
            sys.stdout.flush()
            saved = os.dup(1)
            os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if saved is not None:
            os.dup2(saved, 1)
            os.close(saved)


AGAIN, LONGER = ("resume the sweep, which runs it again", "raise hydra.launcher.timeout_min, and resume the sweep")
"""Remedies for a job that has not come to its end."""


def start(request: Request, planned: Job, config: DictConfig) -> None:
    """Run the one job of `request` in this process, in the folder and with the logging that Hydra's `config` names.

    The part of a host that doesn't lead is run in a folder that is removed.
    """
    fit = planned.plan.spec.fit
    place = place_of(fit)
    require_jax(fit)
    if not place.leads:
        named = partial(Record.create, config_dir=request.own_dir, config_name=request.config_name)
        kept = partial(named, config=planned.config, overrides=request.overrides)
        _end(place, run.followed(place, planned.plan, kept))
    previous_run(planned.plan, STAGES)  # refused while there is no folder, so that the mended command may have it
    refuse_unwritable(Path(config.hydra.run.dir), "hydra.run.dir")
    with read_write(config.hydra):
        config.hydra.mode = RunMode.RUN
    context = HydraContext(config_loader=composer(request).loader, callbacks=Callback())

    def run_planned(_: DictConfig) -> None:
        folder = Path(HydraConfig.get().runtime.output_dir)
        _freeze(folder, planned.config)
        status = run.run(folder, planned=planned.plan)
        answer_run(folder)
        _end(place, status)

    ended = run_job(run_planned, config, job_dir_key="hydra.run.dir", job_subdir_key=None, hydra_context=context)
    if isinstance(error := ended._return_value, Exception):  # noqa: SLF001  # `return_value` prints a line, too
        raise error


def _end(place: HostPlace, status: int) -> NoReturn:
    """End this process after a run."""
    place.end(status, is_failure=status not in (run.OK, run.TOO_SLOW))


def job(config: DictConfig, *, sitting_s: float | None = None) -> Any:
    """Execute a job of a multirun in a new process, with the config frozen in its folder; return its objectives.

    A job of a sweep with a ledger uses the config frozen at the start of the sweep, whatever Hydra composes now;
    `sitting_s` is its `Ledger.opened_s`.
    """
    folder = Path(HydraConfig.get().runtime.output_dir)
    if sitting_s is None:
        _freeze(folder, of_a_run(resolved(config)))
    elif not _is_to_start(folder, sitting_s):
        return None
    process = started(folder)
    try:
        with interrupts():
            process.join()
    except (Exception, KeyboardInterrupt) as error:
        process.terminate()
        process.join()
        run.settle(folder, process.exitcode or 0)
        if isinstance(error, Exception):  # of submitit, shortly before the time limit of Slurm
            run.close(folder, FAILED, lost(headline(error), LONGER))
            raise
        raise SystemExit(errors.INTERRUPTED) from None
    run.settle(folder, process.exitcode or 0)
    return _objectives(outcome_of(folder), parse_command(resolved(config)["sweep"], Sweep))


def _freeze(folder: Path, config: Composed) -> None:
    """Keep the config of the job that Hydra has set up, with its overrides and the folder of a person's own configs."""
    try:
        Record.create(folder, config, **noted(HydraConfig.get()))
    except EtlrunError as error:
        raise SystemExit(errors.describe(error)) from None


def _is_to_start(folder: Path, sitting_s: float) -> bool:
    """Return whether a job is to start: once, and unless a resumed sweep has given its run to another job."""
    if Record(folder).summary.sitting_s != sitting_s:
        print(f"etlrun: {folder} is no longer the folder of this job; nothing is run", file=sys.stderr)
        return False
    if (folder / EVENTS).exists():
        if Record(folder).summary.status != COMPLETED:
            run.close(
                folder, INTERRUPTED, lost("a second start of the job, as after pre-emption or a failure of its node")
            )
        return False
    return True


def lost(found: str, remedy: str = AGAIN) -> Fault:
    """Return the reason of a job that did not come to its end."""
    return Fault("hydra/launcher", found, "a job that runs to its end", remedy)


def _objectives(outcome: Outcome | None, sweep: Sweep) -> float | tuple[float, ...]:
    worst = {"throughput": 0.0, "utilisation": 0.0, "peak_memory": float("inf")}
    figures: dict[str, float | None] = {}
    if outcome is not None and outcome.status == COMPLETED and outcome.state != UNCACHED:
        found = (outcome.examples_per_s, outcome.au, outcome.peak_rss_bytes)
        figures = dict(zip(worst, found, strict=True))
    values = tuple(worst[name] if (value := figures.get(name)) is None else float(value) for name in sweep.objectives)
    return values[0] if len(values) == 1 else values


def _conclude(results: Results | None, *, is_whole: bool = True) -> int:
    """Print and write the report of a sweep, take its results as the answer, and return its exit status."""
    from etlrun.results import report  # imported here, since a single run needs no tables and charts of sweeps

    status = report.conclude(results)
    status = status if is_whole else errors.INTERRUPTED
    if results is not None:
        name = {EtlrunError.status: FAILED, errors.INTERRUPTED: INTERRUPTED}.get(status, COMPLETED)
        _answer.document = lambda: {"status": name, **json.loads(results.as_json())}
    return status


_LOST = re.compile(r".*?\(state: ([A-Z_]+).*?\)", re.DOTALL)
"""What submitit says of a job without a result, before the end of its log: its files, and how it ended."""
_POLL_S = 0.5
_REMEDIES = {"TIMEOUT": LONGER, "OUT_OF_MEMORY": "raise hydra.launcher.mem_gb, and resume the sweep"}


def _launch_jobs(runs: Runs, request: Request, multirun: Multirun) -> bool:
    """Run what is left by a launcher, which calls `job`; return whether it ended: after Ctrl-C submitted jobs go on."""
    if multirun.is_submitit and multirun.launcher.endswith(".SlurmLauncher"):
        _require_accounting()
    parsed = OverridesParser.create().parse_overrides(request.overrides)
    own = [override.input_line for override in parsed if override.is_hydra_override()]
    first = runs.ledger.configs[0].overrides  # an experiment that is swept may choose the launcher
    overrides = [*first, *own, set_to("hydra.sweep.dir=", runs.ledger.folder)]
    loader = composer(request).loader
    config = loader.load_configuration(request.config_name or "config", overrides, run_mode=RunMode.MULTIRUN)
    context = HydraContext(config_loader=loader, callbacks=Callback())
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
    for key in begun:
        folder = runs.ledger.folder_of(key)
        if Record(folder).summary.status == RUNNING:
            run.close(folder, FAILED, reason)
        runs.end(key)


SUBDIR = "${hydra.job.num}"
LAUNCHERS_OWN = {"max_jobs_in_flight": 1, "on_error": "continue", "timeout_s": None}
"""Required values of settings with another launcher than Hydra's basic one, which has its own settings for them."""
_ONE_PROCESS = {"nodes": 1, "tasks_per_node": 1, "max_num_timeout": 0}
"""Required values of settings of submitit's launchers: a job is one process, and `sweep.resume` repeats it."""


def multirun(request: Request) -> None:
    """Run all combinations, and end the process with an exit status; `EtlrunError`, before any, if one is invalid."""
    # The million objects of a large sweep are not garbage; searching them for some took a sixth of the time.
    gc.set_threshold(50_000)
    folder = _resume_folder(request)
    if folder is not None:
        _resume(request, folder)
        return
    found = grid.of(request, STAGES)
    _refuse_unfit(found.sweep, found.multirun)
    for one in found.jobs:
        one.plan.spec.require_one_host("the jobs of a sweep run on one host")
    for logger in {one.plan.spec.logger for one in found.jobs}:
        require(logger)
    if not found.multirun.is_grid:
        _search(request, found.multirun.dir)
    with held(Path(found.multirun.dir)):
        ledger = new_ledger(request, found)
        if len(ledger.configs) < len(found.jobs):
            tell(
                f"etlrun: {counted(len(found.jobs), 'combination')}, {counted(len(ledger.configs), 'distinct config')}"
            )
        _run(ledger, request, found.multirun)


def _search(request: Request, folder: str) -> NoReturn:
    """Leave the jobs to another sweeper than Hydra's basic one, and end with their report."""
    from etlrun.results.report import collect

    refuse_unwritable(Path(folder), "hydra.sweep.dir")
    try:
        by_hydra([*request.overrides, set_to("hydra.sweep.dir=", folder), *request.files, "--multirun"], job)
    finally:
        status = _conclude(collect(Path(folder)))
    raise SystemExit(status)


def planned(request: Request) -> Doc:
    """Return the preview of a new sweep; `ConfigError` if it would be refused, or is a search."""
    from etlrun.sweep.preview import preview

    if _resume_folder(request) is not None:
        remedy = "leave it out, or resume the sweep, which reports what is left"
        raise ConfigError([Fault(Sweep.key("resume"), "a sweep", "null in the plan of a new sweep", remedy)])
    found = grid.of(request, STAGES)
    _refuse_unfit(found.sweep, found.multirun)
    if not found.multirun.is_grid:
        who = found.multirun.sweeper.rpartition(".")[2]
        raise ConfigError([Fault("hydra/sweeper", who, "a grid, whose jobs are known before they run", "leave it out")])
    return preview(found)


def _resume_folder(request: Request) -> Path | None:
    folder = request.folder_of(RESUME)
    if folder == "":
        raise ConfigError([Fault(Sweep.key("resume"), "nothing", "the folder of a sweep, or null")])
    return None if folder is None else found_by(folder, RESUME, "sweep")


def _resume(now: Request, folder: Path) -> None:
    with held(folder) if (folder / SWEEP).is_file() else nullcontext():
        ledger = Ledger.open(folder)
        before, keys = ledger.request, {word: word.lstrip("+~") for word in now.overrides}
        own = [word for word, key in keys.items() if key.startswith("sweep.") and not key.startswith(RESUME)]
        of_hydra = [word for word, key in keys.items() if key.startswith("hydra")]
        if others := [word for word, key in keys.items() if not key.startswith(("sweep.", "hydra"))]:
            expected = "settings of sweep and hydra alone: a sweep keeps the configs that it began with"
            remedy = "leave them out, or start a new sweep"
            raise ConfigError([Fault(f"{RESUME}{folder}", " ".join(others), expected, remedy)])
        ledger.sweep = changed(ledger.sweep, own)
        request = Request(
            overrides=merged(before["overrides"], of_hydra),
            config_dir=now.config_dir or before["config_dir"],
            config_name=now.config_name or before["config_name"],
            multirun=True,
        )
        config = Multirun(**before["multirun"])
        if of_hydra:  # of a launcher, in the folder of this sweep
            overrides = [*request.overrides, set_to("hydra.sweep.dir=", folder)]
            config = grid.settings(dataclasses.replace(request, overrides=overrides), STAGES)[1]
        _refuse_unfit(ledger.sweep, config)
        if files_digest(request) != before["files"]:
            tell("etlrun: config files have changed since; the sweep keeps the configs that it began with")
        ledger.save()
        _run(ledger, request, config)


def _run(ledger: Ledger, request: Request, config: Multirun) -> None:
    from etlrun.results.report import of_ledger

    outcomes = {key: outcome_of(ledger.folder_of(key)) for key in ledger.runs}
    runs = Runs(ledger, outcomes, config.at_a_time(ledger.sweep))
    jobs = f"{errors.counted(len(outcomes), 'job')} of {errors.counted(len(ledger.configs), 'config')}"
    say_of_sweep(f"sweep     {jobs}, {len(runs.left)} to run, in {ledger.folder}")
    for line in describe(left_out(ledger.unfit, [of.overrides for of in ledger.configs])):
        say_of_sweep(f"left out  {line}")
    with showing(runs.task):
        came_to_end = Engine(runs).run() if config.is_basic else _launch_jobs(runs, request, config)
    outcomes |= {key: outcome_of(ledger.folder_of(key)) for key in runs.left}
    status = _conclude(of_ledger(ledger, outcomes), is_whole=came_to_end)
    if not came_to_end:
        print(f"etlrun: interrupted; resume with: {ledger.resume_command}", file=sys.stderr)
    raise SystemExit(status)


def _refuse_unfit(sweep: Sweep, config: Multirun) -> None:
    """Refuse settings that the sweeper, the launcher or the ledger would ignore."""
    of_grids = {"repeats": 1, "folds": None, "comparisons": 1, "exclude": (), "zip": ()}
    others: Block = LAUNCHERS_OWN | ({} if config.is_grid else of_grids)
    who = (config.launcher if config.is_grid else config.sweeper).rpartition(".")[2]
    faults = [
        Fault(
            f"sweep.{name}",
            show(getattr(sweep, name)),
            f"{show(wanted)}, since {who} {'runs' if config.is_grid else 'chooses'} the jobs",
            "use its own setting, or leave it out",
        )
        for name, wanted in others.items()
        if not (config.is_grid and config.is_basic) and getattr(sweep, name) != wanted
    ]
    for name, wanted in _ONE_PROCESS.items() if config.is_grid else ():
        if (value := config.settings.get(name, wanted)) != wanted:
            expected = f"{wanted}, since a job of a sweep is one process, which sweep.resume repeats"
            faults.append(Fault(f"hydra.launcher.{name}", str(value), expected, "leave it out"))
    if config.is_grid and config.subdir != SUBDIR:
        expected = f"{SUBDIR}: a sweep names the folders of its runs"
        faults.append(Fault("hydra.sweep.subdir", config.subdir, expected, "leave it, and choose hydra.sweep.dir"))
    refuse(faults)
