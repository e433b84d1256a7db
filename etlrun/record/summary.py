"""The summary of a run: every key of `summary.json` is a field here, with its unit and meaning.

`python -m etlrun.record.summary` prints its JSON schema, which `docs/summary.schema.json` holds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from etlrun.record.findings import Findings, Part

RUNNING, COMPLETED, FAILED, INTERRUPTED, PRUNED = "running", "completed", "failed", "interrupted", "pruned"

SUMMARY = "summary.json"

MEASURES = ("loss", "accuracy", "val_loss", "val_accuracy")
"""Of an epoch, by Keras's names; kept by `as_json`."""

Measure = float | Literal["NaN", "Infinity", "-Infinity"] | None


class Epoch(Part):
    """An epoch of a training, or a pass of `trainer=drain`."""

    epoch: int = 0
    """Its number, from 1."""
    ended_s: float = 0.0
    """When it ended, in seconds since 1970."""
    wall_s: float = 0.0
    """Seconds of its training steps."""
    steps: int = 0
    """Training steps."""
    examples: int = 0
    """Training examples."""
    examples_per_s: float = 0.0
    """Training examples a second of `wall_s`."""
    startup_s: float = 0.0
    """Seconds of its steps that may compile, which are the first ones of a process."""
    startup_examples: int = 0
    """Examples of these steps."""
    fill_wait_s: float = 0.0
    """Seconds that its first batch was waited for, while the shuffle buffer is filled."""
    input_wait_s: float = 0.0
    """Seconds that all other batches were waited for."""
    input_wait_ms_median: float = 0.0
    """Milliseconds that a step waited for its batch, in the median."""
    input_wait_ms_p95: float = 0.0
    """The same in the 95th percentile."""
    digest_s: float = 0.0
    """Seconds in which hashing for `measure.digest` held the steps up."""
    validation_s: float | None = None
    """Seconds of the validation."""
    validation_startup_s: float | None = None
    """Seconds of its steps that may compile."""
    validation_wait_s: float = 0.0
    """Seconds that its steps waited for their batches."""
    digest: str = ""
    """Of the training examples that its steps saw, in any order, with `measure.digest`."""
    validation_digest: str = ""
    """The same of its validation."""
    loss: Measure = None
    """Keras's."""
    accuracy: Measure = None
    """Keras's, from 0 to 1."""
    val_loss: Measure = None
    """Keras's, of the validation."""
    val_accuracy: Measure = None
    """Keras's, of the validation."""

    @property
    def waited_s(self) -> float:
        """Seconds that training steps waited for their batches."""
        return self.fill_wait_s + self.input_wait_s


class Host(Part):
    """The machine of a run."""

    device: str = "CPU"
    """On which the model computes."""
    cores: int = 0
    """CPU cores that the process may use."""
    memory_bytes: int = 0
    """Of the machine."""
    system: str = ""
    """Its operating system."""
    accelerators: list[str] = []
    """The GPUs that the backend sees."""
    driver_gpus: list[str] = []
    """The GPUs that NVIDIA's driver lists."""
    cuda_visible_devices: str | None = None
    """The environment variable CUDA_VISIBLE_DEVICES; null where it is not set."""


class Read(Part):
    """The dataset that a run read."""

    name: str = ""
    """And version, as TFDS has them."""
    examples: dict[str, int] = {}
    """By pipeline, `train` and `validation`."""
    shards: int = 0
    """Files that they are in."""
    bytes: int = 0
    """Of these files."""
    digest: dict[str, str | None] = {}
    """Of the records that each pipeline read, 16 hex digits; null where their files changed meanwhile."""


class Held(Part):
    """What a cache of one pipeline held at the end of a run."""

    held_bytes: int = 0
    """In memory or on disk."""
    key: str | None = None
    """Of a cache on disk."""
    passes: list[str] = []
    """What each pass did with a cache on disk: `filled`, `read` or `uncached`."""


class Caches(Part):
    """The caches of a run."""

    target: str = ""
    """`cache.memory` or `cache.disk`."""
    at: str = ""
    """The point of the pipeline whose examples are kept."""
    forecast_bytes: int | None = None
    """That those to be filled were forecast to take."""
    pipelines: dict[str, Held] = {}
    """What each pipeline's cache held at the end."""


class Course(Part):
    """What a run is, and how far it has come."""

    status: Literal["running", "completed", "failed", "interrupted", "pruned"]
    """How it ended; `pruned` is a job that a sweep left out."""
    overrides: list[str]
    """Of its command line."""
    epochs: list[Epoch] = []
    """Completed ones, those of a run that it resumes among them."""
    created_s: float | None = None
    """When its folder was made, in seconds since 1970."""
    config_dir: str | None = None
    """The folder of its own configs."""
    in_flight: int | None = None
    """Jobs of its sweep at a time."""
    sitting_s: float | None = None
    """When the process that started it as a job began, in seconds since 1970."""
    jobs_on_gpu: int = 1
    """Jobs at a time that share its GPU."""
    au_min: float | None = None
    """The pass mark for `au`."""
    plan_fingerprint: str | None = None
    """The same for runs whose configs differ in speed alone."""
    remarks: list[str] = []
    """What a reader should know."""
    resumed_from: str | None = None
    """The folder of the run that it resumes."""
    versions: dict[str, str] = {}
    """Of packages, and of Python."""
    host: Host = Host()
    """Its machine."""
    au_of: str = "the model"
    """Whose use `au` is."""
    dataset: Read = Read()
    """What it read."""
    cache: Caches | None = None
    """Its caches; null without one."""
    skipped: dict[str, int] = {}
    """Records that were left out, by pipeline, with `dataset.on_corrupt=skip`."""
    parameters: int | None = None
    """Of the model."""
    examples: int = 0
    """Training examples of all epochs."""
    examples_per_s: float | None = None
    """Of all its steps but those that may compile."""
    wall_s: float | None = None
    """Seconds since its process began its work."""
    error: str | None = None
    """Why it failed, or was interrupted."""


class Summary(Findings, Course):
    """The summary of a run."""

    @property
    def is_too_slow(self) -> bool:
        """Whether a completed run used its accelerator less than `measure.au_min` asks; no measure is no pass."""
        return self.au_min is not None and self.status == COMPLETED and (self.au or 0.0) < self.au_min

    @property
    def digests(self) -> tuple[tuple[str, str], ...]:
        """Of each epoch, of its training and of its validation; empty where they were not asked for."""
        of = [(epoch.digest, epoch.validation_digest) for epoch in self.epochs]
        return tuple(of) if any(map(any, of)) else ()


def steady_rate(epochs: Sequence[Epoch]) -> float | None:
    """Examples a second of all their steps but those that may compile; None where there is none."""
    steady_s = sum(epoch.wall_s - epoch.startup_s for epoch in epochs)
    steady = sum(epoch.examples - epoch.startup_examples for epoch in epochs)
    return steady / steady_s if steady > 0 and steady_s > 0 else None


def read_summary(folder: Path) -> Summary | None:
    """The summary in `folder`; None where there is none that can be read."""
    try:
        return Summary.model_validate_json((folder / SUMMARY).read_bytes())
    except (OSError, ValidationError):
        return None


def as_json(value: float) -> float | str:
    """A number that may not be finite, as a summary keeps it: by the names that protobuf's JSON gives those."""
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def from_summary(value: float | str | None) -> float | None:
    """The number that `as_json` kept; None where there is none, or where an older version wrote null for it."""
    return None if value is None else float(value)


if __name__ == "__main__":
    print(json.dumps(Summary.model_json_schema(), indent=2))
