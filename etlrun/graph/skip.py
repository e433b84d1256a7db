"""Skipping of corrupt records, and of nothing else."""

from __future__ import annotations

import numpy as np

from etlrun.graph.context import Context
from etlrun.sources.base import Split
from etlrun.stages.lazy import tf
from etlrun.stages.skip import SkipCorrupt


def readable(dataset: tf.data.Dataset, split: Split) -> tf.data.Dataset:
    """Return (number, element) of those elements of a dataset that do not raise.

    The number of reads is limited to that of examples, since a file that can't be opened raises on every read.
    """
    return tf.data.Dataset.zip((tf.data.Dataset.range(split.num_examples), dataset)).ignore_errors()


def skip_corrupt(dataset: tf.data.Dataset, _stage: SkipCorrupt, context: Context) -> tf.data.Dataset:
    """Drop elements that raise; at the end of a pass, all missing examples have to be corrupt records."""
    total = context.split.num_examples
    blank = tf.nest.map_structure(
        lambda spec: tf.zeros([side or 0 for side in spec.shape], spec.dtype), dataset.element_spec
    )
    end = tf.data.Dataset.from_tensors((tf.constant(total, tf.int64), blank))

    def checked(kept: np.int64) -> np.bool_:
        context.losses.explain(context.source, context.split, int(kept))
        return np.bool_(False)  # noqa: FBT003 - the type that TensorFlow requires

    def is_example(kept: tf.Tensor, numbered: tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]) -> tf.Tensor:
        return tf.cond(
            numbered[0] < total,
            lambda: tf.constant(True),  # noqa: FBT003
            lambda: tf.ensure_shape(tf.numpy_function(checked, [kept], tf.bool), ()),
        )

    as_is = tf.autograph.experimental.do_not_convert
    numbered = readable(dataset, context.split).concatenate(end)
    return numbered.enumerate().filter(as_is(is_example)).map(as_is(lambda _, numbered: numbered[1]))
