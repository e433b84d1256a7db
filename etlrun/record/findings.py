"""What was measured of a run, as `summary.json` holds it: each key is a field here, with its unit and meaning."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict

Kind = Literal["input", "model", "balanced", "unknown"]


def finite(value: Any) -> Any:
    """`value` with numbers that JSON lacks (NaN, infinity) as None, at every depth."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Part(BaseModel):
    """What is written of it are the fields that were set: a reader tells what is not known yet from what is null."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, defer_build=True)

    @property
    def written(self) -> dict[str, Any]:
        """Its fields that were set, as plain values; numbers that JSON lacks are None."""
        plain: dict[str, Any] = finite(self.model_dump(exclude_unset=True))
        return plain

    def with_values(self, **values: Any) -> Self:
        """This with other values; `ValidationError` where one is none of its field's, `TypeError` of a key."""
        if unknown := values.keys() - type(self).model_fields.keys():
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}")
        return type(self).model_validate({**self.model_dump(exclude_unset=True), **values})


class GpuUse(Part):
    """What a run used of one GPU."""

    index: int = 0
    """Of the driver."""
    utilisation_percent: float | None = None
    """In the mean."""
    peak_memory_bytes: int | None = None
    """That the run held at most; null where the driver does not tell."""


class Resources(Part):
    """What a run used of its machine."""

    peak_rss_bytes: int | None = None
    """Memory of its process at most."""
    cpu_s: float = 0.0
    """CPU seconds of all its threads while it trained."""
    cores_used: float | None = None
    """CPU seconds a second."""
    bytes_read: int | None = None
    """From files; null where the system does not tell."""
    cache_bytes: int | None = None
    """That its caches held."""
    gpus: list[GpuUse] = []
    """Each NVIDIA GPU that it could use."""
    peak_gpu_bytes: int | None = None
    """GPU memory for tensors at most; null without a GPU, or where the backend does not tell."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What bounds a run.

    Attributes:
        kind: `input`, `model`, `balanced`, or `unknown` where the measures can't tell.
        stage: Where it is the input, the stage that bounds it, as the plan names it.
        pipeline: `train` or `validation`, whichever that stage is of.
        max_gain: How many times faster the run would be with a pipeline that costs nothing; None where unknown.
        train_max_gain: The same of the training alone, and where it has later epochs without the first, whose
            beginnings are no pipeline's; None where that is too few steps, too.
        because: The evidence.
        advice: What to try, or where the measures can't tell, what does.
    """

    kind: Kind
    stage: str | None = None
    pipeline: str | None = None
    max_gain: float | None = None
    train_max_gain: float | None = None
    because: str = ""
    advice: str | None = None


@dataclass(frozen=True, kw_only=True)
class StageCost:
    """What one stage did in one pass.

    Attributes:
        stage: As the plan names it.
        examples: That left it.
        cost_ms: Per example, of all threads together, waiting for storage included.
        parallelism: Threads as AUTOTUNE or the config set them; None for a stage without threads of its own.
        buffer_size: Elements that it may hold ready, in the same way.
        buffered_bytes: What it held when it was last looked at.
    """

    stage: str
    examples: int
    cost_ms: float
    parallelism: int | None = None
    buffer_size: int | None = None
    buffered_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class StageRow(StageCost):
    """A stage in the table of a run.

    Attributes:
        set_by: `autotune` or `config`, whichever has set its parallelism and its buffer.
    """

    set_by: str


class Findings(Part):
    """What was measured of a whole run."""

    verdict: Verdict | None = None
    """What bounds it."""
    step_floor_ms: float | None = None
    """Milliseconds of a step on a batch that is there."""
    pipeline_examples_per_s: float | None = None
    """Examples a second that the pipeline alone gives."""
    au: float | None = None
    """Accelerator utilization: time of the model's steps over all time, from 0 to 1."""
    input_wait_s: float | None = None
    """Seconds that training steps waited for batches, but for the first ones of passes."""
    input_wait_ms_median: float = 0.0
    """Milliseconds that a step waited, in the median."""
    input_wait_ms_p95: float = 0.0
    """The same in the 95th percentile."""
    input_wait_share: float | None = None
    """`input_wait_s` over the time of the steps that compile nothing, from 0 to 1."""
    fill_wait_s: float = 0.0
    """Seconds that the first batches of passes were waited for."""
    validation_wait_s: float = 0.0
    """Seconds that validation steps waited for batches."""
    stages: list[StageRow] = []
    """Of the pipeline that the verdict is about."""
    autotune: dict[str, int] | None = None
    """What AUTOTUNE settled on, by dotted keys of the config."""
    resources: Resources | None = None
    """What it used of its machine."""
