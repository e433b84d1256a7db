"""State shared by the functions of the stages, and maps of datasets with the parallelism of a config."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from etlrun.planning.plan import PlannedStage, last_random
from etlrun.sources.base import Source, Split
from etlrun.sources.corrupt import Losses
from etlrun.stages.base import Stage
from etlrun.stages.lazy import tf
from etlrun.system.machine import CORES, calls_here, cores
from etlrun.system.values import frozen

_SEED_STRIDE = 1_000_003
"""Larger than the number of passes of a run, so that runs with adjacent seeds share no pass."""


@frozen
class FrozenBase:
    """The frozen base of a model.

    Attributes:
        features: Function from a batch of inputs, as the model takes them, to float32 (batch, features).
        identity: Names and values that determine its output.
    """

    features: Callable[[npt.NDArray[Any]], npt.NDArray[np.float32]]
    identity: list[list[Any]]


@frozen
class Reading:
    """What a pipeline reads, which together with its stages determines its examples.

    Attributes:
        split: Examples to read.
        seed: Seed of the run.
        backbone: Frozen base for stages that need a model; None if there is none.
    """

    split: Split
    seed: int
    backbone: FrozenBase | None = None

    @property
    def source(self) -> Source:
        """The dataset."""
        return self.split.source


@frozen
class Context(Reading):
    """State of a pipeline.

    Attributes:
        losses: Examples lost to corrupt records.
        pass_number: Number of this pass over the data, from 1: an integer or an int64 scalar. 0 outside of passes.
        skipped: Number of examples that an earlier process has read of this pass; None for a whole pass.
        passes_begun: The same for functions that outlive a pass; before a cache always 1, since it keeps the first.
        held_bytes: Size of the cache in memory; int64 scalar.
        traced: Functions of maps that have been traced, by stage; columns with their tables, by columns without.
        numbered_to: Last stage with random steps, up to which examples carry their numbers; None if they carry none.
        compare: Function that compares what is read at a place, both tensors, and returns it; None if nothing does.
        calls_python: Whether the graph may call functions of this process.
    """

    pass_number: Any = 0
    skipped: Any = None
    losses: Losses = field(default_factory=Losses)
    passes_begun: tf.Variable | tf.Tensor = field(default_factory=lambda: tf.Variable(0, dtype=tf.int64))
    held_bytes: tf.Variable = field(default_factory=lambda: tf.Variable(0, dtype=tf.int64))
    traced: dict[Any, Any] = field(default_factory=dict)
    numbered_to: Stage | None = None
    compare: Callable[[Any, Any], Any] | None = None
    calls_python: bool = True

    def pass_seed(self, number: Any) -> Any:
        """Return the seed of that pass, which determines all its randomness and differs for each pass of each run."""
        return number + self.seed * _SEED_STRIDE

    def numbered(self, stages: Sequence[PlannedStage]) -> Self:
        """Return the context of stages whose examples carry numbers as far as the last of them with random steps."""
        last = last_random(stages)
        return replace(self, numbered_to=None if last is None else last.stage)


def autotuned(value: int | str | None) -> int | None:
    """Return a config's number, `autotune`, `cores`, `cores-1` or null as tf.data takes it."""
    if value in CORES:
        return calls_here(str(value), cores())
    return tf.data.AUTOTUNE if value == "autotune" else value  # type: ignore[return-value]


def as_is(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that TensorFlow doesn't rewrite."""
    return tf.autograph.experimental.do_not_convert(function)  # type: ignore[no-any-return]


def computed(
    function: Callable[..., Any], *arguments: Any, dtype: Any = np.int64, shape: tuple[int | None, ...] = ()
) -> tf.Tensor:
    """Return what a function of Python returns for tensors; an int64 scalar unless it is told otherwise."""
    return tf.ensure_shape(tf.numpy_function(function, arguments, dtype), shape)


def ended(dataset: tf.data.Dataset, end: Callable[[], tf.Tensor]) -> tf.data.Dataset:
    """Return the same elements, behind the last of which `end` is computed, which is 0."""
    none = tf.data.Dataset.from_tensors(0).flat_map(as_is(lambda _: dataset.take(end())))
    return dataset.concatenate(none)


def blank_like(dataset: tf.data.Dataset) -> Any:
    """Return an element of zeros and empty texts, like those of a dataset."""
    specs = dataset.element_spec
    return tf.nest.map_structure(lambda spec: tf.zeros([side or 0 for side in spec.shape], spec.dtype), specs)


def parallel_map(
    dataset: tf.data.Dataset, function: Callable[..., Any], stage: Any, context: Context, size: int | None = None
) -> tf.data.Dataset:
    """Return `dataset` after `function`, with the parallelism of `stage`; with a `size`, in batches of its own.

    TensorFlow traces the function as it is, once for a pipeline, since that takes long.
    """
    if size:
        return parallel_map(dataset.batch(size), function, stage, context).unbatch()
    traced = as_is(function)
    if not tf.inside_function():  # which is traced once, too, and whose tensors stay in it
        key = stage, str(dataset.element_spec), id(context.passes_begun)
        traced = context.traced.setdefault(key, tf.function(function, autograph=False))
    return dataset.map(
        traced,
        num_parallel_calls=autotuned(stage.num_parallel_calls),
        deterministic=stage.deterministic if stage.num_parallel_calls else None,
    )
