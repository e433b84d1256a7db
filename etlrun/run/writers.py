"""Writers of logs: files in the run's folder, MLflow, and Weights & Biases."""

from __future__ import annotations

import csv
import io
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import yaml

from etlrun.record.summary import COMPLETED, FAILED
from etlrun.run.loggers import Opening
from etlrun.system.files import write_atomically


class TensorBoardWriter:
    """Event files without TensorFlow: scalars by epoch, and texts."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._last = 0

    def open(self, opening: Opening) -> str:
        """Begin the event file; that of a resumed run has all epochs again."""
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder = Path(opening.folder, "tensorboard")
        folder.mkdir(exist_ok=True)
        self._file = (folder / f"events.out.tfevents.{round(opening.began_s)}.etlrun").open("wb")
        self._records = RecordWriter(self._file)
        self._write(opening.began_s, file_version="brain.Event:2")
        config = yaml.safe_dump(dict(opening.parameters), sort_keys=False, allow_unicode=True)
        self._texts({**opening.texts, "config": f"```yaml\n{config}```"}, opening.began_s)
        return ""

    def texts(self, texts: Mapping[str, str]) -> None:
        """Write texts, which TensorBoard shows as Markdown."""
        self._texts(texts, time.time())

    def epoch(self, number: int, at_s: float, figures: Mapping[str, float]) -> None:
        """Write the figures as scalars of the step `number`."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._last = number
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in figures.items()]
        self._write(at_s, step=number, summary=Summary(value=values))

    def end(self, status: str, texts: Mapping[str, str], figures: Mapping[str, float]) -> None:
        """Write the figures of the whole run as scalars of the last step."""
        now = time.time()
        self._texts({"status": status, **texts}, now)
        self.epoch(self._last, now, figures)
        if self._file is not None:
            self._file.close()

    def _texts(self, texts: Mapping[str, str], at_s: float) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.text.summary_v2 import text_pb

        for tag, text in texts.items():
            self._write(at_s, step=0, summary=Summary.FromString(text_pb(tag, text).SerializeToString()))

    def _write(self, at_s: float, **values: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._records.write(Event(wall_time=at_s, **values).SerializeToString())
        if self._file is not None:
            self._file.flush()


class CsvWriter:
    """`csv/epochs.csv` and `csv/run.csv`; each is replaced as a whole, so that a reader never sees a part of a row."""

    def __init__(self) -> None:
        self._epochs: list[dict[str, float]] = []
        self._run: dict[str, Any] = {}

    def open(self, opening: Opening) -> str:
        """Write what is known of the run; the tables of a resumed run have all epochs again."""
        self._folder = Path(opening.folder, "csv")
        self._folder.mkdir(exist_ok=True)
        self.texts({**opening.texts, **{f"config/{key}": value for key, value in opening.parameters.items()}})
        return ""

    def texts(self, texts: Mapping[str, Any]) -> None:
        """Write a row for each text."""
        self._run |= texts
        self._table("run.csv", ["name", "value"], self._run.items())

    def epoch(self, number: int, at_s: float, figures: Mapping[str, float]) -> None:
        """Write a row; a figure that an epoch doesn't have is empty."""
        self._epochs.append({"epoch": number, "ended_s": at_s, **figures})
        names = list(dict.fromkeys(name for row in self._epochs for name in row))
        self._table("epochs.csv", names, ([row.get(name, "") for name in names] for row in self._epochs))

    def end(self, status: str, texts: Mapping[str, str], figures: Mapping[str, float]) -> None:
        """Write what is known at the end."""
        self.texts({"status": status, **texts, **figures})

    def _table(self, name: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)
        write_atomically(self._folder / name, text.getvalue())


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

    def open(self, opening: Opening) -> str:
        """Begin a run in the experiment, which is created if there is none, or continue one."""
        for name, value in _IMPATIENT.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        self._client = MlflowClient(opening.options["tracking_uri"])
        if opening.continues is not None:
            self._run = opening.continues
            self._client.update_run(self._run, status="RUNNING")
        else:
            began_ms = round(1000 * opening.began_s)
            experiment = self._experiment(opening.options["experiment_name"])
            made = self._client.create_run(experiment, start_time=began_ms, run_name=opening.name)
            self._run = made.info.run_id
            self._parameters(opening.parameters)
        group = {} if opening.group is None else {"sweep": opening.group}
        self.texts({**opening.texts, **group, "folder": opening.folder})
        return self._run

    def _experiment(self, name: str) -> str:
        """Return the identifier of the experiment of that name, which is created if there is none."""
        from mlflow.exceptions import MlflowException

        if (found := self._client.get_experiment_by_name(name)) is None:
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:  # another run has created it meanwhile, or the server says no
                if (found := self._client.get_experiment_by_name(name)) is None:
                    raise
        return str(found.experiment_id)

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
        self.epoch(getattr(self, "_last", 0), time.time(), figures)
        words = {COMPLETED: "FINISHED", FAILED: "FAILED"}
        self._client.set_terminated(self._run, words.get(status, "KILLED"))

    def _parameters(self, parameters: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        made = [Param(name, str(value)[:_MOST_CHARACTERS]) for name, value in parameters.items()]
        for first in range(0, len(made), _MOST_PARAMETERS):
            self._client.log_batch(self._run, params=made[first : first + _MOST_PARAMETERS])


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
