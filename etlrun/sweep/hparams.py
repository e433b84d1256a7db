"""A sweep for TensorBoard's HParams tab: in each run's folder what it was made with and what it came to."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from etlrun import record as records
from etlrun.sweep.outcome import Outcome
from etlrun.sweep.results import ConfigResult, Results

FOLDER = "hparams"
METRICS = ("examples_per_s", "au", "peak_rss_bytes", "val_accuracy")


def write(folder: Path, results: Results) -> None:
    """Write the events of completed runs that have none yet, where TensorBoard is installed."""
    if importlib.util.find_spec("tensorboard") is None:
        return
    known = {config.number: config for config in results.configs}
    for run in results.runs:
        path = folder / run.name / FOLDER
        if run.outcome is not None and run.outcome.status == records.COMPLETED and not path.exists():
            _write_run(path, known[run.config], run.outcome)


def _write_run(folder: Path, config: ConfigResult, outcome: Outcome) -> None:
    """TensorBoard's own writer of event files would import TensorFlow."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.summary.writer.record_writer import RecordWriter

    temporary = folder.with_name(f".{FOLDER}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    values = {key: _figure(value) for key, value in config.swept.items()}
    swept = hparams_pb(values, trial_id=f"config {config.number}", start_time_secs=outcome.created_s)
    figures = {metric: getattr(outcome, metric) for metric in METRICS}
    metrics = [Summary.Value(tag=tag, simple_value=value) for tag, value in figures.items() if value is not None]
    at = outcome.created_s
    with (temporary / f"events.out.tfevents.{round(at)}.etlrun").open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=at, file_version="brain.Event:2").SerializeToString())
        for summary in (Summary.FromString(swept.SerializeToString()), Summary(value=metrics)):
            writer.write(Event(wall_time=at, step=0, summary=summary).SerializeToString())
    temporary.replace(folder)


def _figure(value: str) -> str | float:
    """A figure as one, so that it has an axis; TensorBoard takes a key's values for words where one of them is one."""
    try:
        return float(value)
    except ValueError:
        return value
