"""Skipping of corrupt records, and of nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from etlrun.graph.context import Context
from etlrun.sources.base import Split
from etlrun.stages.extract import SkipCorrupt
from etlrun.stages.lazy import tf


def readable(dataset: tf.data.Dataset, split: Split) -> tf.data.Dataset:
    """Return (number, element) of those elements of a dataset that do not raise.

    The number of reads is limited to that of examples, since a file that can't be opened raises on every read.
    """
    return tf.data.Dataset.zip((tf.data.Dataset.range(split.num_examples), dataset)).ignore_errors()


def skip_corrupt(dataset: tf.data.Dataset, _stage: SkipCorrupt, context: Context) -> tf.data.Dataset:
    """Drop elements that raise; at the end of a pass, all missing examples have to be corrupt records."""
    total = context.split.num_examples
    numbered = readable(dataset, context.split).concatenate(_end(dataset, total)).enumerate()
    is_example = _checked(context)
    kept = numbered.filter(_as_is(lambda kept, numbered: is_example(kept, numbered[0] == total)))
    return kept.map(_as_is(lambda _, numbered: numbered[1]))


def complete(batches: tf.data.Dataset, context: Context) -> tf.data.Dataset:
    """Return the same batches; at the end of a pass, all examples that are in none have to be corrupt records."""
    numbered = batches.enumerate().concatenate(_end(batches, -1))

    def count(kept: tf.Tensor, numbered: Any) -> Any:
        return kept + tf.shape(tf.nest.flatten(numbered[1])[0], tf.int64)[0], (kept, numbered)

    counted, is_example = numbered.scan(tf.constant(0, tf.int64), _as_is(count)), _checked(context)
    checked = counted.filter(_as_is(lambda kept, numbered: is_example(kept, numbered[0] < 0)))
    return checked.map(_as_is(lambda _, numbered: numbered[1]))


def _end(dataset: tf.data.Dataset, number: int) -> tf.data.Dataset:
    """Return an element of that number behind all others, like those of `dataset`."""
    specs = dataset.element_spec
    blank = tf.nest.map_structure(lambda spec: tf.zeros([side or 0 for side in spec.shape], spec.dtype), specs)
    return tf.data.Dataset.from_tensors((tf.constant(number, tf.int64), blank))


def _checked(context: Context) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Return a function that is true except at the end, where it checks the number of examples that were kept."""

    def explain(kept: np.int64) -> np.bool_:
        context.losses.explain(context.source, context.split, int(kept))
        return np.bool_(False)  # noqa: FBT003 - the type that TensorFlow requires

    def is_example(kept: tf.Tensor, is_end: tf.Tensor) -> tf.Tensor:
        at_end = lambda: tf.ensure_shape(tf.numpy_function(explain, [kept], tf.bool), ())  # noqa: E731
        return tf.cond(is_end, at_end, lambda: tf.constant(True))  # noqa: FBT003

    return is_example


def _as_is(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that TensorFlow doesn't rewrite."""
    return tf.autograph.experimental.do_not_convert(function)  # type: ignore[no-any-return]
