"""Execution of one run, from the config in its folder to its report."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from etlrun.cluster.hosts import HostPlace, here, leads, part_of
from etlrun.graph import figures as plans
from etlrun.planning import learned, render
from etlrun.planning.plan import Plan
from etlrun.planning.planner import plan
from etlrun.planning.spec import RunSpec, parse
from etlrun.record import record as records
from etlrun.record import report
from etlrun.record import summary as statuses
from etlrun.record.commit import Commit
from etlrun.record.config import PLAN, read_config
from etlrun.record.record import Record, nobodys
from etlrun.record.summary import Summary, read_summary
from etlrun.report.render import show
from etlrun.run import checkpoint
from etlrun.run.commit import begun
from etlrun.run.loggers import Log
from etlrun.sources.base import source_type
from etlrun.stages import STAGES, Stages
from etlrun.system.errors import INTERRUPTED, ConfigError, EtlrunError, Failure, Fault, counted, headline, of_system
from etlrun.system.files import write_atomically
from etlrun.system.hidden import traced
from etlrun.system.loading import how_ended, interrupts
from etlrun.system.machine import rounded
from etlrun.system.terminal import doing, is_quiet, say_note, showing, tell

if TYPE_CHECKING:
    from etlrun.run.backend import Backend

OK, FAILED, TOO_SLOW = 0, 1, 3
TRACEBACK = "traceback.txt"
_NO_MEMORY = re.compile(
    r"OOM when allocating|out of memory|bad_alloc|failed to allocate|cannot allocate memory", re.IGNORECASE
)
_LESS_MEMORY = (
    "take less memory, such as a smaller load.batch_size or load.shuffle_buffer, or cache=disk in the place of "
    "cache=memory, or allow the process more; "
)


def run(folder: Path, stages: Stages = STAGES, planned: Plan | None = None) -> int:
    """Do what `execute` does, print how the run ended, and return the exit status."""
    try:
        with nobodys(folder):
            record = Record(folder)
            try:
                _execute(record, stages, planned)
                status = TOO_SLOW if record.summary.is_too_slow else OK
            except KeyboardInterrupt:
                left = checkpoint.resumable(folder, record.summary)
                how = f"; resume with: {_resume_command(left)}" if left else " before the first checkpoint"
                print(f"etlrun: interrupted{how}", file=sys.stderr)
                status = INTERRUPTED
            except EtlrunError as error:
                _say_failed(error.faults)
                if os.environ.get("HYDRA_FULL_ERROR", "0") != "0":
                    print(traced(error), end="", file=sys.stderr)
                if not isinstance(error, ConfigError) and checkpoint.checkpoints(folder):
                    print(f"etlrun: resume with: {_resume_command(str(folder))}", file=sys.stderr)
                status = error.status
            if not is_quiet():
                show(report.of_end(record.summary, folder))
            return status
    except EtlrunError as error:
        _say_failed(error.faults)
        return error.status


def execute(folder: Path, stages: Stages = STAGES, planned: Plan | None = None) -> None:
    """Execute the run in `folder`, created by `Record.create`; it always writes a summary.

    `planned` is the plan of that config, if it exists already; a run on several hosts needs it. Raises `EtlrunError` if
    the run has failed, `KeyboardInterrupt` if it was interrupted.
    """
    with nobodys(folder):
        _execute(Record(folder), stages, planned)


def _execute(record: Record, stages: Stages, planned: Plan | None) -> None:
    log = Log(record)
    try:
        with interrupts(), showing("plan the run"):
            if planned is None:
                planned = plan(parse(read_config(record.folder), stages))
                planned.spec.require_one_host("only a single run without options of Hydra's joins other hosts")
            _work(record, stages, planned, log)
    except KeyboardInterrupt:
        _end(record, statuses.INTERRUPTED, Failure(found="The run was interrupted"))
        raise
    except Exception as error:
        known = _reported(record, error)
        _end(record, statuses.FAILED, *known.faults)
        if known is error:
            raise
        raise known from error


def _reported(record: Record, error: Exception) -> EtlrunError:
    """Return the error to report. The traceback of an unexpected error is written to a file."""
    if record.refusal is not None:  # which a library may have replaced with another error
        return records.unwritable(record.folder, record.refusal)
    if isinstance(error, EtlrunError):
        return error
    if isinstance(error, PermissionError) and error.filename is not None:
        return of_system(error)
    path = record.folder / TRACEBACK
    remedy = here().remedy(lambda: checkpoint.resumable(record.folder, record.summary))
    found = f"The run failed: {type(error).__name__}: {headline(error)}"
    is_of_memory = isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)) is not None
    try:
        path.write_text(traced(error), encoding="utf-8", errors="backslashreplace")
    except OSError as refusal:
        print(traced(error), end="", file=sys.stderr)
        record.refusal = refusal
        return EtlrunError([Failure(found=found, remedy=remedy), *records.unwritable(record.folder, refusal).faults])
    asks = "" if is_of_memory or remedy else "; etlrun doctor --report prints what an issue needs"
    less = _LESS_MEMORY if is_of_memory else ""
    return EtlrunError([Failure(found=found, remedy=f"{less}{remedy}the traceback is in {path}{asks}")])


def settle(folder: Path, status: int, remedy: str = "") -> None:
    """Complete the summary of a job whose process was killed or crashed."""
    if Record(folder).summary.status != statuses.RUNNING:
        return
    is_interrupt = status in {-signal.SIGINT, -signal.SIGTERM, INTERRUPTED}
    if status == -signal.SIGKILL:
        remedy = "the kernel kills processes that exhaust the memory; check its log"
    fault = Fault("the job's process", how_ended(status), "a normal exit", remedy)
    close(folder, statuses.INTERRUPTED if is_interrupt else statuses.FAILED, fault)


def close(folder: Path, status: str, fault: Fault) -> None:
    """Complete the summary and the reports of a job that can't do so itself."""
    Record(folder).update(status=status, error=str(fault), faults=[fault.values])
    report.write(folder)


def _work(record: Record, stages: Stages, planned: Plan, log: Log) -> None:
    spec, commit = planned.spec, begun(planned, record.summary.config_dir)
    record.update(au_min=spec.measure.au_min)
    record.event("planned", fingerprint=planned.fingerprint)
    noted = plans.with_figures(planned)
    with record.writing():
        write_atomically(record.folder / "plan.txt", plans.text_of(noted))
        write_atomically(record.folder / PLAN, render.as_json(noted))
        learned.write(spec, record.folder)
    record.update(plan_fingerprint=planned.fingerprint, remarks=[*record.summary.remarks, *planned.remarks])
    previous = checkpoint.previous_run(planned, stages)
    if previous is not None:
        record.update(resumed_from=str(previous.folder))
    if leads(spec.fit):
        log.open(planned, previous.folder if previous is not None else None)

    source_type(spec.dataset).begin(spec.dataset)
    doing("import TensorFlow")
    began_s = record.elapsed_s()
    from etlrun.run.backend import prepare  # imports TensorFlow, so only after the config has been validated

    with prepare(spec.fit, joins=True) as backend:
        from etlrun.run.epochs import drain, fill
        from etlrun.run.fit import train

        host, worker = backend.host, "the emulated accelerator"
        if spec.model.learns:
            worker = "the GPU" if host.accelerators else "the model"
        record.update(versions=backend.versions, host=host, au_of=worker, imports_s=record.elapsed_s() - began_s)
        record.update(commit=commit.result())
        tell(f"device  {host.device}, {counted(host.cores, 'core')}, {rounded(host.memory_bytes)}")
        for note in [*_notes(record, backend, spec), *_of_commits(record.summary)]:
            say_note(note)
            record.remark(note)
        record.event("started", backend=backend.name, pid=os.getpid())
        if record.summary.only_fills:
            fill(planned, record)
        elif spec.fit is not None:
            train(part_of(planned), record, previous)
        else:
            drain(planned, record)
    _end(record, statuses.COMPLETED)


def _notes(record: Record, backend: Backend, spec: RunSpec) -> Iterator[str]:
    """Yield the notes on unused or shared GPUs, and on steps that nothing compiles."""
    fit, sharing = spec.fit, record.summary.jobs_on_gpu
    if backend.unseen:
        yield backend.unseen
    if backend.host.accelerators and sharing > 1:
        yield f"Up to {sharing} concurrent jobs share this GPU, which affects their times and its memory."
    if fit is not None and fit.mixed_precision == "auto":
        yield f"{fit.key('mixed_precision')} = auto: {backend.host.precision}."
    if backend.name == "jax" and fit is not None and spec.model.learns and fit.jit_compile is False:
        key = fit.key("jit_compile")
        yield f"{key} = false: Keras's jax backend takes each operation of a step by itself; set {key}=auto."


def _of_commits(summary: Summary) -> Iterator[str]:
    """Yield the note on a resumed run whose earlier part is of another commit, or of other changes of one."""
    before = None if summary.resumed_from is None else read_summary(Path(summary.resumed_from))
    commits = [of.commit or Commit() for of in (before or summary, summary)]
    if len({(of.revision, of.changes, repr(of.plugins)) for of in commits}) > 1:
        then, now = (of.short or "an unknown commit" for of in commits)
        yield f"{summary.resumed_from} ran at {then}, this run at {now}{' with other files' * (then == now)}."


def _end(record: Record, status: str, *faults: Fault) -> None:
    """End the run, one that is not completed also in a folder that can't be written to."""
    is_known, error = record.refusal is not None, "\n".join(map(str, faults)) or None
    why = {"error": error, "faults": [of.values for of in faults]} if error else {}
    try:
        record.update(status=status, wall_s=record.elapsed_s(), **why)
        record.event("ended", status=status, error=error)
        report.renew(record)
    except OSError as refusal:
        if status == statuses.COMPLETED:
            raise
        with suppress(OSError):
            record.update_in_place(status=status, error=record.summary.error)
        if not is_known:
            _say_failed(records.unwritable(record.folder, refusal).faults)


def _resume_command(folder: str) -> str:
    from etlrun.config.overrides import typed  # imports Hydra

    return f"etlrun {typed('trainer.resume=', folder)}"


def _say_failed(faults: Sequence[Fault]) -> None:
    print("\n".join(["etlrun: failed", *(f"  {fault}" for fault in faults)]), file=sys.stderr)


def followed(place: HostPlace, plan: Plan, freeze: Callable[[Path], object]) -> int:
    """Run `plan`, frozen by `freeze` in a folder that is removed, and return the exit status; print an error alone.

    The folder is kept if the message names a file in it, such as the traceback of an error.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"etlrun_host_{place.number}_")) / "run"
    freeze(folder)
    with (folder / "output.txt").open("w") as output, redirect_stdout(output), redirect_stderr(output):
        status = run(folder, planned=plan)
    error = Record(folder).summary.error
    if error:
        print(f"etlrun: {'' if error.startswith('host ') else f'host {place.number}: '}{error}", file=sys.stderr)
    if error is None or str(folder) not in error:
        shutil.rmtree(folder.parent, ignore_errors=True)
    return status
