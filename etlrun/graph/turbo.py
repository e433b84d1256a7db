"""Decoding of whole batches without TensorFlow."""

from __future__ import annotations

from functools import partial
from typing import Any

from etlrun.graph.context import Context
from etlrun.graph.parallel import parallel_map
from etlrun.graph.skip import complete, readable
from etlrun.sources.base import Example
from etlrun.sources.usable import without_refused
from etlrun.stages.image import Decode
from etlrun.stages.lazy import tf
from etlrun.stages.turbo import Turbo, usable


def turbo(dataset: tf.data.Dataset, stage: Turbo, context: Context) -> tf.data.Dataset:
    """Return the features by name with decoded images, from batches or from single examples."""
    is_single = stage.at_once == 1
    decode: partial[Any] = partial(type(stage).op, **stage.values)
    if stage.skips:
        decode = partial(usable, decode=decode, size=stage.size)

    def compute(encoded: Any) -> Any:
        if not context.split.is_read_by_parser:
            encoded = [without_refused(data) if isinstance(data, bytes) else data for data in encoded]
        try:
            return decode(encoded)
        except tf.errors.InvalidArgumentError as error:
            # of all Python's errors the one that TensorFlow hands on as that, with the traceback of what it is from
            raise ValueError(error.message) from None

    def apply(example: Example) -> Example:
        dtypes = (tf.uint8, tf.bool) if stage.skips else tf.uint8
        image = example[Decode.feature]
        images = tf.numpy_function(compute, [tf.expand_dims(image, 0) if is_single else image], dtypes)
        if stage.skips:
            images, is_usable = images
            is_usable = tf.ensure_shape(is_usable, (None,))
            example = {name: tf.boolean_mask(values, is_usable) for name, values in example.items()}
        images = tf.ensure_shape(images, (1 if is_single else None, *stage.size, 3))
        return {**example, Decode.feature: tf.squeeze(images, 0) if is_single else images}

    if stage.at_once <= 1:
        return parallel_map(dataset, apply, stage, context)
    if not stage.skips:
        return parallel_map(dataset.batch(stage.at_once), apply, stage, context).unbatch()
    numbered = readable(dataset, context.split).batch(stage.at_once)  # an error would lose the batch
    # TensorFlow names inputs after parameters, and warns of `_`
    batches = parallel_map(numbered, lambda *given: apply(given[1]), stage, context)
    return complete(batches, context).unbatch()
