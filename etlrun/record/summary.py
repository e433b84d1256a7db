"""The summary of a run: every key of `summary.json` is a field here, with its unit and meaning."""

import json
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, WithJsonSchema

from etlrun.record.commit import Commit
from etlrun.record.part import Part, finite
from etlrun.system.terminal import significant
from etlrun.system.values import Block, frozen

_IfKnown = Annotated[float | None, Field(exclude_if=lambda value: value is None)]
Figure = float | None
"""A number; None where it is not known."""
Kind = Literal["input", "model", "balanced", "unknown"]
RUNNING, COMPLETED, FAILED, INTERRUPTED = "running", "completed", "failed", "interrupted"
SUMMARY, EVENTS = "summary.json", "events.jsonl"
EPOCH = "epoch"
"""Kind of the event of a completed epoch, which has its keys."""
MEASURES = ("loss", "accuracy", "val_loss", "val_accuracy")
"""Metrics of an epoch by their names in Keras."""


class Resources(Part):
    """Resource usage of a run."""

    peak_rss_bytes: int | None = None
    """Peak resident memory of the process."""
    cpu_s: float = 0.0
    """CPU seconds of all threads during training."""
    cores_used: Figure = None
    """Mean number of cores in use: CPU seconds per second."""
    cores_idle: Figure = None
    """Mean number of cores of the machine that nothing used meanwhile."""
    cache_bytes: int | None = None
    """Size of the caches."""
    peak_gpu_bytes: int | None = None
    """Peak GPU memory used for tensors; null without a GPU, or if the backend does not report it."""


@frozen
class Apart:
    """Part of a run that the gain of its verdict leaves out.

    Attributes:
        name: `start-up`, which happens once: tracing, compiling and building graphs; `first epoch`, which may fill a
            cache; or `validation`.
        lost_s: Seconds that steps waited for batches; of the start-up, its seconds.
        total_s: Seconds of the part without start-up; of the start-up, those of all epochs.
        max_gain: Speedup of the part without avoidable waits; of the start-up, that of all epochs without it.
        stage: Stage that limits the part, if it is input-bound.
    """

    name: str
    lost_s: float
    total_s: float
    max_gain: float
    stage: str | None = None


@frozen
class Verdict:
    """Bottleneck of the training in the epochs that are to come: those after the first, if these have enough steps.

    Attributes:
        kind: `input`, `model`, `balanced`, or `unknown` if the measurements are not conclusive.
        stage: Name of the limiting stage in the plan, if the run is input-bound; None if its passes begin too slowly.
        pipeline: Pipeline of that stage: `train` or `validation`.
        max_gain: Speedup of these epochs' training without avoidable input wait; None if unknown.
        train_max_gain: The same if the pipeline also took no core from the model, so that each step were as short as on
            a batch that is ready: for the highest throughput.
        because: Evidence for the verdict.
        arriving_bytes_per_s: Rate at which shards arrive, where they are fetched and limit the run.
        consumed_bytes_per_s: Rate at which the model would consume them then.
        advice: Change to try; if the measurements are not conclusive, how to get conclusive ones.
        overrides: Overrides that the advice names first; empty if it names none.
        apart: The start-up, the first epoch and the validation, each with what it would gain.
    """

    kind: Kind
    stage: str | None = None
    pipeline: str | None = None
    max_gain: Figure = None
    train_max_gain: Figure = None
    because: str = ""
    arriving_bytes_per_s: _IfKnown = None
    consumed_bytes_per_s: _IfKnown = None
    advice: str | None = None
    overrides: tuple[str, ...] = ()
    apart: tuple[Apart, ...] = ()


@frozen
class StageCost:
    """Cost of one stage in one pass.

    Attributes:
        stage: Name of the stage in the plan.
        examples: Number of examples that the stage produced.
        cost_ms: Milliseconds per example, summed over all threads, including waits for storage.
        parallelism: Number of threads, set by AUTOTUNE or by the config; None for a stage without threads of its own.
        buffer_size: Capacity of the buffer in elements, set by AUTOTUNE or by the config; None without a buffer.
        buffered_bytes: Size of the buffer's content at the last sample.
    """

    stage: str
    examples: int
    cost_ms: float
    parallelism: int | None = None
    buffer_size: int | None = None
    buffered_bytes: int = 0


@frozen
class StageRow(StageCost):
    """Row of a run's stage table.

    Attributes:
        set_by: What set parallelism and buffer size: `autotune` or `config`.
    """

    set_by: str


class Held(Part):
    """Cache of one pipeline at the end of a run."""

    held_bytes: int = 0
    """Size in memory or on disk."""
    key: str | None = None
    """Key of a cache on disk."""
    passes: list[str] = []
    """Use of a cache on disk by each pass: `filled`, `read` or `uncached`."""
    filled_s: Figure = None
    """Seconds of the pass that filled it, without start-up and building its graph; null if it was there."""
    is_filled_ahead: bool = False
    """Whether a run fills it before its first pass, and not by that."""


class Caches(Part):
    """Caches of a run."""

    target: str = ""
    """Kind of cache: `cache.memory` or `cache.disk`."""
    at: str = ""
    """Point of the pipeline whose examples are cached."""
    forecast_bytes: int | None = None
    """Forecast size of the caches that the run fills."""
    pipelines: dict[str, Held] = {}
    """Cache of each pipeline at the end of the run."""


class Fetched(Part):
    """What a run has fetched from URLs; on several hosts, what the first one has."""

    bytes: int = 0
    """Bytes that arrived."""
    requests: int = 0
    """Number of requests for them."""
    busy_s: float = 0.0
    """Seconds in which at least one object was being fetched."""
    waited_s: float = 0.0
    """Seconds in which the reader of shards waited for one."""


class Findings(Part):
    """Measurements of a whole run."""

    verdict: Verdict | None = None
    """Bottleneck of the run."""
    step_floor_ms: Figure = None
    """Milliseconds of a training step whose batch is ready; the mean, where steps differ with the shapes of batches."""
    step_floor_cores: Figure = None
    """Mean number of cores in use while such steps were measured; null if they were not."""
    pipeline_examples_per_s: Figure = None
    """Throughput of the input pipeline alone, in examples/s."""
    au: Figure = None
    """Accelerator utilization (AU), from 0 to 1: the time of all steps if each batch were ready, over that of training
    and validation; both without steps that may compile."""
    input_wait_s: Figure = None
    """Seconds that training steps waited for batches, without the first batch of each pass."""
    input_wait_share: Figure = None
    """`input_wait_s` as a fraction of the time of steps that compile nothing, from 0 to 1."""
    fill_wait_s: float = 0.0
    """Seconds that training steps waited for the first batches of passes."""
    validation_wait_s: float = 0.0
    """Seconds that validation steps waited for batches."""
    stages: list[StageRow] = []
    """Stages of the pipeline that the verdict is about."""
    autotune: dict[str, int] | None = None
    """Values chosen by AUTOTUNE, by dotted config key."""
    fetched: Fetched | None = None
    """What was fetched; null if the dataset is on this machine."""
    resources: Resources | None = None
    """Resource usage of the run."""


def _as_json(value: float | None) -> float | str | None:
    """Encode a number for a summary; non-finite ones by their names in protobuf's JSON mapping."""
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


Measure = Annotated[
    float | None,
    PlainSerializer(_as_json),
    WithJsonSchema(
        {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"], "type": "string"}, {"type": "null"}]}
    ),
]


class Epoch(Part):
    """A training epoch, or a pass of `trainer=drain`."""

    epoch: int = 0
    """Number of the epoch, from 1."""
    phase: int | None = None
    """Number of its phase, from 1, with `trainer.phases`."""
    ended_s: float = 0.0
    """End of the epoch, in seconds since 1970."""
    wall_s: float = 0.0
    """Seconds of the training steps."""
    steps: int = 0
    """Number of training steps that were measured."""
    resumed_steps: int = 0
    """Number of earlier training steps of the epoch, of the resumed run; times, rates and `examples` leave them out."""
    examples: int = 0
    """Number of training examples."""
    examples_per_s: float = 0.0
    """Training throughput in examples/s: `examples` over `wall_s`."""
    startup_s: float = 0.0
    """Seconds of steps that may compile: the first ones of a process."""
    startup_examples: int = 0
    """Number of examples in the steps of `startup_s`."""
    fill_wait_s: float = 0.0
    """Seconds that the first step of a pass waited for its batch; the shuffle buffer is filled in this time."""
    input_wait_s: float = 0.0
    """Seconds that training steps waited for all other batches."""
    digest_s: float = 0.0
    """Seconds that hashing for `measure.digest` delayed the steps."""
    au: Figure = None
    """Accelerator utilization (AU) of the training, from 0 to 1: as that of the run, of this epoch; null if unknown."""
    learning_rate: Figure = None
    """Learning rate after the last step of the epoch."""
    validation_s: Figure = None
    """Seconds of the validation, with that of named validation sets."""
    validation_startup_s: Figure = None
    """Seconds of validation steps that may compile."""
    validation_wait_s: float = 0.0
    """Seconds that validation steps waited for batches."""
    digest: str = ""
    """Digest of the training examples, independent of their order, with `measure.digest`."""
    validation_digest: str = ""
    """Digest of the validation examples, independent of their order, with `measure.digest`."""
    set_digests: dict[str, str] = {}
    """Digests of the examples of named validation sets, by their names."""
    loss: Measure = None
    """Training loss, as Keras reports it."""
    accuracy: Measure = None
    """Training accuracy from 0 to 1, as Keras reports it."""
    val_loss: Measure = None
    """Validation loss, as Keras reports it."""
    val_accuracy: Measure = None
    """Validation accuracy from 0 to 1, as Keras reports it."""
    metrics: dict[str, Measure] = {}
    """The other metrics of `trainer.metrics` by their names in Keras, and with `val_` those of the validation; behind
    the name of a validation set and a dot, all measures of that set, such as `hard.loss`."""

    def measure(self, name: str) -> float | None:
        """Return the loss or a metric by its name in Keras; None if it was not measured."""
        value: float | None = getattr(self, name) if name in MEASURES else self.metrics.get(name)
        return value

    @property
    def waited_s(self) -> float:
        """Seconds that training steps waited for batches, the first one included."""
        return self.fill_wait_s + self.input_wait_s

    @property
    def steady(self) -> tuple[int, float]:
        """Examples, and their seconds, of the steps that compile nothing."""
        return self.examples - self.startup_examples, self.wall_s - self.startup_s


def sets_in(measures: Collection[str]) -> list[str]:
    """Return the named validation sets of which these measures are: the names before a dot and a measure."""
    known, parts = {*MEASURES, *measures}, (name.partition(".") for name in measures)
    return [*dict.fromkeys(name for name, _, measure in parts if measure in known)]


def metric_of(measures: Collection[str]) -> str:
    """Return the metric beside the loss that runs have, by all their measures: the accuracy, or another one."""
    validated = ("val_", *(f"{name}." for name in sets_in(measures)))
    return next((name for name in measures if name not in MEASURES and not name.startswith(validated)), "accuracy")


def shown_metric(epochs: Sequence[Epoch]) -> str:
    """Return the metric that is shown beside the loss: the accuracy, or the first one of epochs that have none."""
    has_accuracy = any(epoch.accuracy is not None for epoch in epochs)
    return "accuracy" if has_accuracy else metric_of(dict.fromkeys(name for epoch in epochs for name in epoch.metrics))


class Kept(Part):
    """The epoch whose model is `model.keras`; of a run that has not completed, the best one so far."""

    epoch: int
    """Number of the epoch, from 1."""
    monitor: str | None = None
    """Measure by which it is the first of the best ones; null if it is kept as the last one."""
    value: Measure = None
    """That measure of the epoch."""


class Baseline(Part):
    """What simple predictions come to, beside the network of `kept`; fitted on examples that it was trained on."""

    examples: int = 0
    """Number of training examples that it was fitted on: those of the first whole epoch, or so many of them."""
    constant: dict[str, Measure] = {}
    """Loss and metrics, by their names in an epoch, of one prediction for all examples: the shares of the classes or
    labels, or the mean of a number."""
    linear: dict[str, Measure] = {}
    """Those of a linear model of the same inputs; empty without one, as of images and of sequences."""
    results: dict[str, str | None] = {}
    """The first measure of each target: whether the network is `better` in it than both, `worse` or `tied`, by the 95 %
    interval of two accuracies; null for other measures."""
    note: str = ""
    """What the baseline lacks, and why."""
    fit_s: float = 0.0
    """Seconds in which it was fitted and judged."""


class TrainedPhase(Part):
    """A phase of a training, with `trainer.phases`."""

    phase: int
    """Number of the phase, from 1."""
    first_epoch: int
    """Number of its first epoch, from 1."""
    last_epoch: int
    """Number of its last epoch."""
    unfreeze: str | None = None
    """Layers of the base that it trains: `last_block`, a number of last layers, or `all`; null for none."""
    learning_rate: float
    """Learning rate of its optimizer."""
    trainable_parameters: int
    """Number of parameters that it trains."""


class Host(Part):
    """The machine of a run."""

    device: str = "CPU"
    """Device that the model runs on."""
    processor: str = ""
    """Model of the CPU."""
    cores: int = 0
    """Number of CPU cores available to the process."""
    memory_bytes: int = 0
    """Memory of the machine."""
    system: str = ""
    """Operating system."""
    accelerators: list[str] = []
    """GPUs visible to the backend."""
    driver_gpus: list[str] = []
    """GPUs listed by the NVIDIA driver."""
    cuda_visible_devices: str | None = None
    """Environment variable CUDA_VISIBLE_DEVICES; null if it is not set."""
    precision: str = "float32"
    """Keras's dtype policy of new layers, such as mixed_bfloat16."""


class Read(Part):
    """Dataset that a run read."""

    name: str = ""
    """Name and version in TFDS."""
    examples: dict[str, int] = {}
    """Number of examples by pipeline: `train`, `validation`, and the named validation sets."""
    shards: int = 0
    """Number of files with these examples."""
    bytes: int = 0
    """Total size of these files."""
    classes: list[str] | None = None
    """Names of the classes, in the order of the model's outputs; null if unknown, or if the target is no class."""
    digest: dict[str, str | None] = {}
    """Digest of the records that each pipeline read, 16 hex digits; null if their files changed during the run."""


class Course(Part):
    """Identity and progress of a run."""

    status: Literal["running", "completed", "failed", "interrupted"]
    """State of the run."""
    overrides: list[str]
    """Overrides on the command line."""
    epochs: list[Epoch] = []
    """Completed epochs, including those of the resumed run."""
    created_s: Figure = None
    """Creation of the run's folder, in seconds since 1970."""
    config_dir: str | None = None
    """Additional folder of configs (--config-dir)."""
    config_name: str | None = None
    """Name of the primary config (--config-name); null for `config`, and for runs of older versions."""
    in_flight: int | None = None
    """Number of jobs that the sweep runs at a time."""
    sitting_s: Figure = None
    """Start of the sweep's process, in seconds since 1970: jobs with one value were run in one session."""
    only_fills: bool = False
    """Whether it is a job of a sweep that fills the caches of its config, for others to read, and trains nothing."""
    jobs_on_gpu: int = 1
    """Number of jobs that share the GPU at a time."""
    au_min: Figure = None
    """Required accelerator utilization (`measure.au_min`)."""
    plan_fingerprint: str | None = None
    """Fingerprint of the plan, equal for configs that differ only in speed."""
    remarks: list[str] = []
    """Notes on the run, a sentence each."""
    resumed_from: str | None = None
    """Folder of the resumed run."""
    commit: Commit | None = None
    """Commit at which the run's process began, of a resumed run the later one; null in runs of older versions."""
    versions: dict[str, str] = {}
    """Versions of Python and of packages."""
    host: Host = Host()
    """Machine of the run."""
    au_of: str = "the model"
    """Device whose utilization `au` is."""
    dataset: Read = Read()
    """Dataset of the run."""
    cache: Caches | None = None
    """Caches of the run; null without one."""
    skipped: dict[str, int] = {}
    """Number of corrupt records skipped by each pipeline, with `dataset.on_corrupt=skip`."""
    best_epoch: int | None = None
    """The epoch of `kept`, if that is the best by a measure."""
    kept: Kept | None = None
    """Epoch whose model is `model.keras`; null before there is one, and of older versions, which kept the last one."""
    baseline: Baseline | None = None
    """What simple predictions come to; null of a model that does not learn, and of older versions."""
    parameters: int | None = None
    """Number of parameters of the model."""
    phases: list[TrainedPhase] = []
    """Phases that have begun, with `trainer.phases`."""
    examples: int = 0
    """Number of training examples in all epochs."""
    examples_per_s: Figure = None
    """Training throughput in examples/s, without steps that may compile."""
    wall_s: Figure = None
    """Seconds since the run's process began its work."""
    imports_s: Figure = None
    """Seconds of these in which TensorFlow, Keras and the backend were imported."""
    error: str | None = None
    """Reason why the run failed or was interrupted."""
    faults: list[Block] = []
    """The same as values: where, what was found and expected, overrides that end it, and whether a person decides."""


class Summary(Findings, Course):
    """Summary of a run, the content of `summary.json`."""

    def __repr__(self) -> str:
        return f"<etlrun summary: {self.status}, {len(self.epochs)} epoch{'s' * (len(self.epochs) != 1)}>"

    @property
    def without_epochs(self) -> Block:
        """Fields that were set, but the epochs."""
        return dict(finite(self.model_dump(exclude_unset=True, exclude={"epochs"})))

    @property
    def files(self) -> list[str]:
        """Options that name the folder and the name of its config files."""
        named = (("--config-dir", self.config_dir), ("--config-name", self.config_name))
        return [word for option, value in named if value is not None for word in (option, value)]

    @property
    def sets(self) -> list[str]:
        """Names of its validation sets beside the validation."""
        return [name for name in self.dataset.examples if name not in ("train", "validation")]

    @property
    def kept_epoch(self) -> Epoch | None:
        """The epoch whose model is kept: the last one unless `kept` names another; None before the first epoch."""
        kept = [of for of in self.epochs if self.kept and of.epoch == self.kept.epoch] or self.epochs
        return kept[-1] if kept else None

    @property
    def kept_text(self) -> str:
        """The epoch whose model is kept, as `epoch 2 (val loss 0.461); epoch 30 has 1.176`; empty if it is unknown."""
        if not self.kept:
            return ""
        if self.kept.monitor is None:
            return f"epoch {self.kept.epoch}, the last"
        name, last = self.kept.monitor.replace("_", " "), self.epochs[-1]
        text = f"epoch {self.kept.epoch} ({name} {significant(self.kept.value)})"
        if last.epoch == self.kept.epoch:
            return text
        return f"{text}; epoch {last.epoch} has {significant(last.measure(self.kept.monitor))}"

    @property
    def is_too_slow(self) -> bool:
        """Whether a completed run is below `measure.au_min`; an unknown utilization counts as below it."""
        return self.au_min is not None and self.status == COMPLETED and (self.au or 0.0) < self.au_min

    @property
    def digests(self) -> tuple[tuple[str, str], ...]:
        """Training and validation digest of each epoch; empty without `measure.digest`."""
        of = [(epoch.digest, epoch.validation_digest) for epoch in self.epochs]
        return tuple(of) if any(map(any, of)) else ()


def rate_of(examples: int, seconds: float) -> float | None:
    """Return a throughput in examples/s; None if there are no examples, or if they took no time."""
    return examples / seconds if examples > 0 and seconds > 0 else None


def events(folder: Path, last_bytes: int | None = None) -> Iterator[Mapping[str, Any]]:
    """Yield the events of a run, or those in the last bytes of their file; lines that are cut off are left out."""
    try:
        with (folder / EVENTS).open("rb") as file:
            if last_bytes is not None:
                file.seek(max(0, file.seek(0, os.SEEK_END) - last_bytes))
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        with suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, Mapping):
                yield event


def read_summary(folder: Path) -> Summary | None:
    """Read the summary in `folder`; None if there is none or it is invalid."""
    try:
        return written_summary(folder)
    except (OSError, ValueError):
        return None


def written_summary(folder: Path) -> Summary:
    """Read the summary in `folder`, of a run that has not ended with the epochs of its events.

    `OSError` if it can't be read, `ValueError` if it is invalid.
    """
    found = json.loads((folder / SUMMARY).read_bytes())
    if isinstance(found, dict) and "epochs" not in found:
        found["epochs"] = [of for of in events(folder) if of.get("event") == EPOCH]
    summary = Summary.model_validate(found)
    if summary.kept and summary.kept.epoch not in {of.epoch for of in summary.epochs}:
        raise ValueError(f"no epoch {summary.kept.epoch}, which is kept")
    return summary
