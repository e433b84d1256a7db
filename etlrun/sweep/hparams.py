"""Event files for TensorBoard's HParams tab: hyperparameters and metrics of each run of a sweep."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from etlrun.record.outcome import UNCACHED, Outcome
from etlrun.record.summary import COMPLETED, MEASURES

FOLDER = "hparams"
METRICS = ("examples_per_s", "au", "peak_rss_bytes", "val_accuracy")


def write(run: Path, config: int, own: Sequence[str], outcome: Outcome | None) -> None:
    """Write the event file of a completed run of a config with these overrides, unless it exists.

    Nothing is written for a run without the cache of its config, or if TensorBoard is not installed. TensorBoard's own
    writer of event files would import TensorFlow.
    """
    folder = run / FOLDER
    if outcome is None or outcome.status != COMPLETED or outcome.state == UNCACHED or outcome.only_fills:
        return
    if folder.exists() or not _is_installed():
        return
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.summary.writer.record_writer import RecordWriter

    temporary = folder.with_name(f".{FOLDER}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    values = {key: _figure(value) for key, _, value in (override.partition("=") for override in own)}
    swept = hparams_pb(values, trial_id=f"config {config}", start_time_secs=outcome.created_s)
    figures = {metric: getattr(outcome, metric) for metric in METRICS}
    figures |= {name: of for name, of in outcome.measures.items() if name.startswith("val_") and name not in MEASURES}
    metrics = [Summary.Value(tag=tag, simple_value=value) for tag, value in figures.items() if value is not None]
    at = outcome.created_s
    with (temporary / f"events.out.tfevents.{round(at)}.etlrun").open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=at, file_version="brain.Event:2").SerializeToString())
        for summary in (Summary.FromString(swept.SerializeToString()), Summary(value=metrics)):
            writer.write(Event(wall_time=at, step=0, summary=summary).SerializeToString())
    temporary.replace(folder)


@cache
def _is_installed() -> bool:
    return importlib.util.find_spec("tensorboard") is not None


def _figure(value: str) -> str | float:
    """Convert a number, which then gets an axis; one string makes TensorBoard treat all values of a key as strings."""
    try:
        return float(value)
    except ValueError:
        return value
