"""Maps of datasets, with the parallelism of a config."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from etlrun.graph.context import Context
from etlrun.stages.lazy import tf
from etlrun.stages.sequences import PadSequences, padded
from etlrun.system.machine import CORES, calls_here, cores


def autotuned(value: int | str | None) -> int | None:
    """Return a config's number, `autotune`, `cores`, `cores-1` or null as tf.data takes it."""
    if value in CORES:
        return calls_here(str(value), cores())
    return tf.data.AUTOTUNE if value == "autotune" else value  # type: ignore[return-value]


def parallel_map(
    dataset: tf.data.Dataset, function: Callable[..., Any], stage: Any, context: Context
) -> tf.data.Dataset:
    """Return `dataset` after `function`, with the parallelism of `stage`.

    TensorFlow traces the function as it is, once for a pipeline, since that takes long.
    """
    traced = tf.autograph.experimental.do_not_convert(function)
    if not tf.inside_function():  # which is traced once, too, and whose tensors stay in it
        key = stage, str(dataset.element_spec), id(context.passes_begun)
        traced = context.traced.setdefault(key, tf.function(function, autograph=False))
    return dataset.map(
        traced,
        num_parallel_calls=autotuned(stage.num_parallel_calls),
        deterministic=stage.deterministic if stage.num_parallel_calls else None,
    )


def pad(dataset: tf.data.Dataset, stage: PadSequences, _context: Context) -> tf.data.Dataset:
    """Return batches whose sequences have one length."""
    return dataset.map(tf.autograph.experimental.do_not_convert(partial(padded, boundaries=stage.boundaries)))
