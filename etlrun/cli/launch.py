"""Entry point of Hydra: a run in this process, or a job of a multirun in a process of its own.

Grids are run by `etlrun.cli.multirun`, which may leave their jobs to a launcher (`hydra/launcher`); that, or another
sweeper (`hydra/sweeper`, such as Optuna's), calls `job`.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial, partialmethod
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import run_job
from hydra.experimental.callback import Callback
from hydra.types import HydraContext, RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, read_write

from etlrun.cluster.hosts import HostPlace, place_of, require_jax
from etlrun.config.composer import plain, resolved
from etlrun.config.folders import config_dir
from etlrun.config.grid import Job
from etlrun.config.request import PRIMARY, VERSION_BASE, Request, composer, noted
from etlrun.planning.spec import parse_command
from etlrun.record.outcome import UNCACHED, Outcome, outcome, outcome_of
from etlrun.record.record import EVENTS, Record
from etlrun.record.summary import COMPLETED, FAILED, INTERRUPTED, SUMMARY, Summary, finite
from etlrun.run import run
from etlrun.run.checkpoint import previous_run
from etlrun.stages import STAGES
from etlrun.stages.sweep import Sweep
from etlrun.sweep.engine import started
from etlrun.system import errors, terminal
from etlrun.system.errors import EtlrunError, Fault, describe, headline
from etlrun.system.files import refuse_unwritable
from etlrun.system.loading import interrupts

QUIET, JSON = "--quiet", "--json"


class _Answer:
    """State of the command in progress.

    Attributes:
        document: Function that returns what `--json` prints at the end; None before a run or a sweep has ended.
    """

    document: Callable[[], dict[str, Any]] | None = None


_answer = _Answer()


def answer_run(folder: Path) -> None:
    """Take the summary of a run that has ended as the answer, the loss and the metric of its result first."""

    def document() -> dict[str, Any]:
        try:
            summary = json.loads((folder / SUMMARY).read_bytes())
            result = finite(outcome(Summary.model_validate(summary)).measures)
        except (OSError, ValueError) as error:
            result, summary = {}, {"status": FAILED, "error": f"{folder / SUMMARY}: {headline(error)}"}
        return {"folder": str(folder), **({"result": result} if result else {}), **summary}

    _answer.document = document


def answer_sweep(as_json: Callable[[], str], status: int) -> None:
    """Take the results of a sweep that has ended with this exit status as the answer."""
    name = {EtlrunError.status: FAILED, errors.INTERRUPTED: INTERRUPTED}.get(status, COMPLETED)
    _answer.document = lambda: {"status": name, **json.loads(as_json())}


@contextmanager
def answering(options: set[str]) -> Iterator[None]:
    """Print what `options` ask for; with `--json` also of a command that is refused, fails or is interrupted."""
    with terminal.quietly(is_quiet=QUIET in options):
        if JSON not in options:
            yield
            return
        _answer.document, ended = None, {"status": INTERRUPTED, "error": None}
        try:
            with _on_stderr():
                yield
        except EtlrunError as error:
            _answer.document = None
            ended = {"status": FAILED, "error": "\n".join(map(str, error.faults))}
            raise
        except SystemExit as error:
            if error.code != errors.INTERRUPTED:
                ended = {"status": FAILED, "error": str(error.code)}
            raise
        except Exception as error:
            ended = {"status": FAILED, "error": f"{type(error).__name__}: {headline(error)}"}
            raise
        finally:
            document = _answer.document() if _answer.document is not None else ended
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


class Callbacks(Callback):  # type: ignore[misc]
    """All callbacks of a config as one, called for runs and jobs as Hydra calls them: one that fails is a warning."""

    def __init__(self, config: DictConfig) -> None:
        callbacks = OmegaConf.select(config, "hydra.callbacks") or {}
        self._all = [instantiate(callback) for callback in callbacks.values()]

    def _call(self, event: str, **known: Any) -> None:
        for callback in self._all:
            try:
                getattr(callback, event)(**known)
            except Exception as error:  # noqa: BLE001 - whatever a callback raises
                warnings.warn(f"Callback {type(callback).__name__}.{event} raised {error!r}", stacklevel=2)

    on_run_start = partialmethod(_call, "on_run_start")
    on_job_start = partialmethod(_call, "on_job_start")
    on_job_end = partialmethod(_call, "on_job_end")


AGAIN, LONGER = ("resume the sweep, which runs it again", "raise hydra.launcher.timeout_min, and resume the sweep")
"""Remedies for a job that has not come to its end."""


def launch(arguments: Sequence[str]) -> None:
    """Pass the command line to Hydra, which composes the config of each job and calls `job` with it."""
    sys.argv[1:] = arguments
    hydra.main(str(config_dir()), PRIMARY, VERSION_BASE)(job)()


def start(request: Request, planned: Job, config: DictConfig) -> None:
    """Run the one job of `request` in this process, in the folder and with the logging that Hydra's `config` names.

    The part of a host that doesn't lead is run in a folder that is removed.
    """
    fit = planned.plan.spec.fit
    place = place_of(fit)
    require_jax(fit)
    if not place.leads:
        named = partial(run.freeze, config_dir=request.config_dir, config_name=request.config_name)
        kept = partial(named, config=planned.config, overrides=request.overrides)
        _end(place, run.followed(place, planned.plan, kept))
    previous_run(planned.plan, STAGES)  # refused while there is no folder, so that the mended command may have it
    refuse_unwritable(Path(config.hydra.run.dir), "hydra.run.dir")
    with read_write(config.hydra):
        config.hydra.mode = RunMode.RUN
    context = HydraContext(config_loader=composer(request).loader, callbacks=Callbacks(config))
    context.callbacks.on_run_start(config=config, config_name=request.config_name)

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


def _freeze(folder: Path, config: Mapping[str, Any]) -> None:
    """Keep the config of the job that Hydra has set up, with its overrides and the folder of a person's own configs."""
    try:
        run.freeze(folder, config, **noted(HydraConfig.get()))
    except EtlrunError as error:
        raise SystemExit(describe(error)) from None


def job(config: DictConfig, *, sitting_s: float | None = None) -> Any:
    """Execute a run in this process, or a job of a multirun in a new one, with the config frozen in its folder.

    A job of a sweep with a ledger uses the config frozen at the start of the sweep, whatever Hydra composes now.

    Args:
        config: Config that Hydra has composed.
        sitting_s: `Ledger.opened_s` of the sweep that has launched the job; None without a ledger.

    Returns:
        The objectives of a multirun's job, for a search.
    """
    settings = HydraConfig.get()
    folder = Path(settings.runtime.output_dir)
    if sitting_s is None:
        _freeze(folder, plain(config))
    elif not _is_to_start(folder, sitting_s):
        return None
    if settings.mode == RunMode.RUN:
        raise SystemExit(run.run(folder))
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
        if sitting_s is None:
            _conclude(settings.sweep.dir)
        raise SystemExit(errors.INTERRUPTED) from None
    run.settle(folder, process.exitcode or 0)
    return _objectives(outcome_of(folder), parse_command(resolved(config)["sweep"], Sweep))


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


def _conclude(folder: str) -> int:
    from etlrun.results import report  # imported here, since a single run needs no tables and charts of sweeps
    from etlrun.results.collect import collect

    results = collect(Path(folder))
    status = report.conclude(results)
    if results is not None:
        answer_sweep(results.as_json, status)
    return status


class SweepTable(Callback):  # type: ignore[misc]
    """Hydra callback that ends a multirun of another sweeper with its report and an exit status."""

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """Print and write the report; status 1 if a job did not complete, 3 if one was below `measure.au_min`."""
        status = _conclude(config.hydra.sweep.dir)
        if status:
            raise SystemExit(status)
