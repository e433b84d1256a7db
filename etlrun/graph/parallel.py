"""Maps of datasets, with the parallelism of a config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from etlrun.machine import CORES, calls_here, cores


def autotuned(value: int | str | None) -> int | None:
    """Return a config's number, `autotune`, `cores`, `cores-1` or null as tf.data takes it."""
    if value in CORES:
        return calls_here(str(value), cores())
    return tf.data.AUTOTUNE if value == "autotune" else value  # type: ignore[return-value]


def parallel_map(dataset: tf.data.Dataset, function: Callable[..., Any], stage: Any) -> tf.data.Dataset:
    """Return `dataset` after `function`, which TensorFlow traces as it is, with the parallelism of `stage`."""
    return dataset.map(
        tf.autograph.experimental.do_not_convert(function),
        num_parallel_calls=autotuned(stage.num_parallel_calls),
        deterministic=stage.deterministic if stage.num_parallel_calls else None,
    )
