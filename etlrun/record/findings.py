"""Measurements of a run: the part of `summary.json` that holds them. Each key is a field with its unit and meaning."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

_IfKnown = Annotated[float | None, Field(exclude_if=lambda value: value is None)]
Kind = Literal["input", "model", "balanced", "unknown"]


def finite(value: Any) -> Any:
    """Replace numbers that JSON cannot represent (NaN, infinity) with None, at every depth."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Part(BaseModel):
    """Base of all parts of a summary.

    Only fields that were set are written: a missing key is not known yet, `null` is a value.
    """

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, defer_build=True)

    @property
    def written(self) -> dict[str, Any]:
        """Fields that were set, as plain values; numbers that JSON cannot represent are None."""
        plain: dict[str, Any] = finite(self.model_dump(exclude_unset=True))
        return plain

    def with_values(self, **values: Any) -> Self:
        """Return a copy with these values.

        Raises:
            ValidationError: A value has the wrong type for its field.
            TypeError: There is no such field.
        """
        if unknown := values.keys() - type(self).model_fields.keys():
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}")
        return type(self).model_validate({**self.model_dump(exclude_unset=True), **values})


class GpuUse(Part):
    """Usage of one GPU by a run."""

    index: int = 0
    """Index of the GPU, as the driver counts."""
    utilisation_percent: float | None = None
    """Mean utilization of the GPU, in percent."""
    peak_memory_bytes: int | None = None
    """Peak GPU memory of the run; null if the driver does not report it."""


class Resources(Part):
    """Resource usage of a run."""

    peak_rss_bytes: int | None = None
    """Peak resident memory of the process."""
    cpu_s: float = 0.0
    """CPU seconds of all threads during training."""
    cores_used: float | None = None
    """Mean number of cores in use: CPU seconds per second."""
    bytes_read: int | None = None
    """Bytes read from files; null if the system does not report it."""
    cache_bytes: int | None = None
    """Size of the caches."""
    gpus: list[GpuUse] = []
    """Usage of each NVIDIA GPU available to the run."""
    peak_gpu_bytes: int | None = None
    """Peak GPU memory used for tensors; null without a GPU, or if the backend does not report it."""


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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
        apart: The start-up, the first epoch and the validation, each with what it would gain.
    """

    kind: Kind
    stage: str | None = None
    pipeline: str | None = None
    max_gain: float | None = None
    train_max_gain: float | None = None
    because: str = ""
    arriving_bytes_per_s: _IfKnown = None
    consumed_bytes_per_s: _IfKnown = None
    advice: str | None = None
    apart: tuple[Apart, ...] = ()


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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
    filled_s: float | None = None
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
    step_floor_ms: float | None = None
    """Milliseconds of a training step whose batch is ready; the mean, where steps differ with the shapes of batches."""
    step_floor_cores: float | None = None
    """Mean number of cores in use while such steps were measured; null if they were not."""
    pipeline_examples_per_s: float | None = None
    """Throughput of the input pipeline alone, in examples/s."""
    au: float | None = None
    """Accelerator utilization (AU), from 0 to 1: the time of all steps if each batch were ready, over that of training
    and validation; both without steps that may compile."""
    input_wait_s: float | None = None
    """Seconds that training steps waited for batches, without the first batch of each pass."""
    input_wait_ms_median: float = 0.0
    """Median input wait per step, in milliseconds."""
    input_wait_ms_p95: float = 0.0
    """95th percentile of the input wait per step, in milliseconds."""
    input_wait_share: float | None = None
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
