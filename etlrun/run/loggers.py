"""Log of a run, from the events of its record, and its writers: whatever happens to it, the run goes on."""

import importlib.util
import json
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from pkgutil import resolve_name
from textwrap import shorten
from typing import IO, Any, Protocol

import yaml

from etlrun.planning.plan import Plan
from etlrun.planning.spec import leaves
from etlrun.record.config import read_config
from etlrun.record.outcome import outcome
from etlrun.record.record import LOG, Record
from etlrun.record.summary import COMPLETED, FAILED, SUMMARY, Findings
from etlrun.stages.measure import Logger
from etlrun.system.errors import WorldError, headline
from etlrun.system.files import write_atomically
from etlrun.system.loading import pip_install
from etlrun.system.terminal import say_note
from etlrun.system.values import Block, frozen


@frozen
class Opening:
    """A run at its start.

    Attributes:
        options: Values of the logger in the config.
        folder: Folder of the run.
        name: Name of the run: the last two parts of the folder.
        group: Folder of the sweep; None for a single run.
        parameters: Values of the config by dotted key.
        texts: What identifies the run: its overrides and the fingerprint of its plan.
        began_s: Start of the run, in seconds since 1970.
        continues: Identifier of the log of the resumed run; None to begin a new one.
    """

    options: Mapping[str, Any]
    folder: str
    name: str
    group: str | None
    parameters: Mapping[str, Any]
    texts: Mapping[str, str]
    began_s: float
    continues: str | None = None


class LogWriter(Protocol):
    """Writes the log of one run. Any exception ends the log, and never the run."""

    def open(self, opening: Opening) -> str:
        """Begin the log, or continue one, and return its identifier; empty if none is needed to continue it."""

    def texts(self, texts: Mapping[str, str]) -> None:
        """Add texts that identify the run."""

    def epoch(self, number: int, at_s: float, figures: Mapping[str, float]) -> None:
        """Add the figures of an epoch (from 1) that ended at `at_s`, in seconds since 1970."""

    def end(self, status: str, texts: Mapping[str, str], figures: Mapping[str, float]) -> None:
        """Add what is known at the end of the run, whose status is that of its summary, and close the log."""


_OF_COURSE = ("parameters", "examples", "examples_per_s", "wall_s", "best_epoch")
"""Figures of the whole run beside its findings."""
_LONGEST = 200
"""Characters of a reason."""
_NOT_FIGURES = ("epoch", "ended_s")
PATIENCE_S, IMPATIENCE_S = 30.0, 5.0
"""Longest wait for a log at the end of a run, and at that of one that was interrupted or has failed."""
_LOOK_S = 0.1


def require(stage: Logger) -> None:
    """Raise `WorldError` if the package of a logger is not installed."""
    if stage.package and importlib.util.find_spec(stage.package) is None:
        expected = f"the package that writes the log, since logger={stage.name}"
        remedy = f"{pip_install(stage.package)}, or set logger=none"
        raise WorldError(f"{stage.block}.name", f"no package {stage.package}", expected, remedy)


class Log:
    """Listener of a run's record. An error is noted once, with the remedy, and ends the log alone."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._work: queue.Queue[Callable[[LogWriter], object] | None] = queue.Queue()
        self._errors: list[Exception] = []

    def open(self, planned: Plan, previous: Path | None) -> None:
        """Begin the log, or continue that of the run in the folder `previous`; WorldError without its package."""
        self._stage = stage = planned.spec.logger
        require(stage)
        if not stage.writer:
            return
        folder, summary = self._record.folder.absolute(), self._record.summary
        same = {"logger": stage.name, "options": asdict(stage)}  # type: ignore[call-overload] # each logger is a dataclass
        before: Block = {}
        if previous is not None:
            with suppress(OSError, ValueError):
                before = json.loads((previous / LOG).read_bytes())
        if not same.items() <= before.items():  # then the log is elsewhere
            before = {}
        self._known: Block = {**same, "epochs": before.get("epochs", 0)}
        opening = Opening(
            options=same["options"],
            folder=str(folder),
            name="/".join(folder.parts[-2:]),
            group=None if summary.in_flight is None else folder.parent.name,
            parameters=dict(leaves("", read_config(self._record.folder))),
            texts={"overrides": " ".join(summary.overrides), "fingerprint": planned.fingerprint},
            began_s=summary.created_s or 0.0,
            continues=before.get("run"),
        )
        writer: LogWriter = resolve_name(stage.writer)()
        self._thread: threading.Thread | None = threading.Thread(
            target=self._write, args=[writer], name="etlrun-log", daemon=True
        )
        self._thread.start()
        self._record.listeners.append(self)
        self._do(lambda writer: self._keep(run=writer.open(opening)))

    def _write(self, writer: LogWriter) -> None:
        try:
            while (work := self._work.get()) is not None:
                work(writer)
        except Exception as error:  # noqa: BLE001 - of any package, server or disk; noted by `_do`
            self._errors.append(error)

    def __call__(self, kind: str) -> None:
        """Log what has happened to the record."""
        summary = self._record.summary
        if kind == "dataset":
            name, digests = summary.dataset.name, summary.dataset.digest
            texts = {"dataset/name": name, **{f"dataset/{of}": digest or "" for of, digest in digests.items()}}
            self._do(lambda writer: writer.texts(texts))
        elif kind == "epoch" and (last := summary.epochs[-1]).epoch > self._known["epochs"]:
            written = last.written
            figures = dict(_numbers({**written.pop("metrics", {}), **written}))

            def log(writer: LogWriter) -> None:
                writer.epoch(last.epoch, last.ended_s, figures)
                self._keep(epochs=last.epoch)

            self._do(log)
        elif kind == "ended":
            verdict = asdict(summary.verdict) if summary.verdict is not None else {}
            texts = {f"verdict/{key}": value for key, value in verdict.items() if isinstance(value, str)}
            patience_s = PATIENCE_S if summary.status == COMPLETED else IMPATIENCE_S
            figures = self._figures_at_end()
            self._do(lambda writer: writer.end(summary.status, texts, figures), patience_s)
            self._thread = None

    def _figures_at_end(self) -> dict[str, float]:
        """Return the findings of the whole run, those of its verdict and resources, and measures of the kept epoch."""
        written = self._record.summary.written
        groups = ("verdict", "resources")
        found = {f"{group}/{key}": value for group in groups for key, value in (written.get(group) or {}).items()}
        found |= {key: value for key, value in written.items() if key in Findings.model_fields or key in _OF_COURSE}
        found |= outcome(self._record.summary).measures
        return {f"run/{key}": value for key, value in _numbers(found)}

    def _keep(self, **known: Any) -> None:
        """Write what a run that resumes this one has to know to continue the log; in the thread of the log."""
        self._known |= known
        if self._known.get("run"):
            write_atomically(self._record.folder / LOG, json.dumps(self._known) + "\n")

    def _do(self, work: Callable[[LogWriter], object], patience_s: float = 0.0) -> None:
        """Have the thread do some work, and wait for up to `patience_s` until all is done; an error ends the log."""
        if self._thread is None:
            return
        self._work.put(work)
        why = ""
        if patience_s:
            self._work.put(None)
            try:
                until_s = time.monotonic() + patience_s
                while self._thread.is_alive() and time.monotonic() < until_s:
                    self._thread.join(_LOOK_S)  # a longer one would sleep through a Ctrl-C that another thread receives
                why = f"no answer within {patience_s:.0f} s" if self._thread.is_alive() else ""
            except KeyboardInterrupt:  # which ends the wait, since the run is over
                why = "it was interrupted"
        why = headline(self._errors[0]) if self._errors else why
        if why:
            self._thread = None
            short = shorten(why, _LONGEST, placeholder="…").rstrip(".")
            note = f"logger={self._stage.name} has stopped, and its log is incomplete: {short}. "
            note += f"To repair it: {self._stage.remedy}. {SUMMARY} in the run's folder has all figures."
            say_note(note)
            with suppress(OSError):  # the run itself reports that its folder can't be written to
                self._record.remark(note)


def _numbers(values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        if isinstance(value, int | float) and key not in _NOT_FIGURES:
            yield key, value
        elif value in ("NaN", "Infinity", "-Infinity"):
            yield key, float(value)


class TensorBoardWriter:
    """Event files without TensorFlow: scalars by epoch, and texts."""

    _last = 0

    def open(self, opening: Opening) -> str:
        """Begin the event file; that of a resumed run has all epochs again."""
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder = Path(opening.folder, "tensorboard")
        folder.mkdir(exist_ok=True)
        self._file: IO[bytes] = (folder / f"events.out.tfevents.{round(opening.began_s)}.etlrun").open("wb")
        self._records = RecordWriter(self._file)
        self._write(opening.began_s, file_version="brain.Event:2")
        config = yaml.safe_dump(dict(opening.parameters), sort_keys=False, allow_unicode=True)
        self.texts({**opening.texts, "config": f"```yaml\n{config}```"})
        return ""

    def texts(self, texts: Mapping[str, str]) -> None:
        """Write texts, which TensorBoard shows as Markdown."""
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.text.summary_v2 import text_pb

        for tag, text in texts.items():
            summary = Summary.FromString(text_pb(tag, text).SerializeToString())
            self._write(time.time(), step=0, summary=summary)

    def epoch(self, number: int, at_s: float, figures: Mapping[str, float]) -> None:
        """Write the figures as scalars of the step `number`."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._last = number
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in figures.items()]
        self._write(at_s, step=number, summary=Summary(value=values))

    def end(self, status: str, texts: Mapping[str, str], figures: Mapping[str, float]) -> None:
        """Write the figures of the whole run as scalars of the last step."""
        self.texts({"status": status, **texts})
        self.epoch(self._last, time.time(), figures)
        self._file.close()

    def _write(self, at_s: float, **values: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._records.write(Event(wall_time=at_s, **values).SerializeToString())
        self._file.flush()


_MOST_PARAMETERS = 100
"""Parameters in one of MLflow's requests."""
_MOST_CHARACTERS = 5000
"""Characters of one of MLflow's tags or parameters."""
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")
"""Characters that names of MLflow's metrics may not have: those of a class may."""
_IMPATIENT = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}
"""Environment of MLflow, where it is not set already: it tries for up to hours otherwise."""
_INIT_S = 20
"""Longest wait for an answer of Weights & Biases at the start."""


class MlflowWriter:
    """A run of MLflow. Its parameters are those of the config, and can't be changed by a run that continues it."""

    _last = 0

    def open(self, opening: Opening) -> str:
        """Begin a run in the experiment, which is created if there is none, or continue one."""
        for name, value in _IMPATIENT.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient
        from mlflow.entities import Param
        from mlflow.exceptions import MlflowException

        self._client = MlflowClient(opening.options["tracking_uri"])
        if opening.continues is not None:
            self._run = opening.continues
            self._client.update_run(self._run, status="RUNNING")
        else:
            name, began_ms = opening.options["experiment_name"], round(1000 * opening.began_s)
            found = self._client.get_experiment_by_name(name)
            try:
                experiment = self._client.create_experiment(name) if found is None else found.experiment_id
            except MlflowException:  # another run has created it meanwhile, or the server says no
                if (found := self._client.get_experiment_by_name(name)) is None:
                    raise
                experiment = found.experiment_id
            self._run = self._client.create_run(experiment, start_time=began_ms, run_name=opening.name).info.run_id
            made = [Param(name, str(value)[:_MOST_CHARACTERS]) for name, value in opening.parameters.items()]
            for first in range(0, len(made), _MOST_PARAMETERS):
                self._client.log_batch(self._run, params=made[first : first + _MOST_PARAMETERS])
        group = {} if opening.group is None else {"sweep": opening.group}
        self.texts({**opening.texts, **group, "folder": opening.folder})
        return self._run

    def texts(self, texts: Mapping[str, str]) -> None:
        """Set tags."""
        for name, text in texts.items():
            self._client.set_tag(self._run, name, text[:_MOST_CHARACTERS])

    def epoch(self, number: int, at_s: float, figures: Mapping[str, float]) -> None:
        """Log metrics with the epoch as the step."""
        from mlflow.entities import Metric

        self._last = number
        at_ms, named = round(1000 * at_s), {_NOT_IN_NAMES.sub("_", name): value for name, value in figures.items()}
        metrics = [Metric(name, value, at_ms, number) for name, value in named.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def end(self, status: str, texts: Mapping[str, str], figures: Mapping[str, float]) -> None:
        """Log the figures of the whole run, and end it with MLflow's word for the status."""
        self.texts({"status": status, **texts})
        self.epoch(self._last, time.time(), figures)
        words = {COMPLETED: "FINISHED", FAILED: "FAILED"}
        self._client.set_terminated(self._run, words.get(status, "KILLED"))


class WandbWriter:
    """A run of Weights & Biases: its config is that of the run, its group the sweep."""

    def open(self, opening: Opening) -> str:
        """Begin a run, or continue one. Its files are in the run's folder."""
        import wandb

        Path(opening.folder, "wandb").mkdir(exist_ok=True)
        self._run = wandb.init(
            **opening.options,
            dir=opening.folder,
            name=opening.name,
            group=opening.group,
            id=opening.continues,
            resume=None if opening.continues is None else "allow",
            config={**opening.parameters},
            settings=wandb.Settings(
                init_timeout=_INIT_S, silent=True, console="off", disable_git=True, x_disable_stats=True
            ),
        )
        self.texts({**opening.texts, "folder": opening.folder})
        return str(self._run.id)

    def texts(self, texts: Mapping[str, str]) -> None:
        """Add values to the config."""
        self._run.config.update({**texts}, allow_val_change=True)

    def epoch(self, number: int, at_s: float, figures: Mapping[str, float]) -> None:
        """Log the figures with the epoch as the step."""
        self._run.log({**figures}, step=number)

    def end(self, status: str, texts: Mapping[str, str], figures: Mapping[str, float]) -> None:
        """Write the summary of the run, and end it."""
        self._run.summary.update({"status": status, **texts, **figures})
        self._run.finish(exit_code=0 if status == COMPLETED else 1)
