"""Decoding of whole batches without TensorFlow."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from etlrun.graph.context import Context
from etlrun.graph.parallel import parallel_map
from etlrun.stages.image import Decode
from etlrun.stages.turbo import MODULES, Turbo
from etlrun.system.errors import WorldError

if TYPE_CHECKING:
    import tensorflow as tf
else:
    from etlrun.stages.lazy import tf


def turbo(dataset: tf.data.Dataset, stage: Turbo, context: Context) -> tf.data.Dataset:
    """Return (inputs, target) with decoded images, from batches or from single examples.

    Raises:
        WorldError: A package of the extra `turbo` is not installed.
    """
    missing = [package for module, package in MODULES.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise WorldError(
            where=Decode.key("library"),
            found=f"no package {' and no package '.join(missing)}",
            expected="the packages that decode, since transform.decode.library=turbo",
            remedy="pip install 'etlrun[turbo]', or set transform.decode.library=tensorflow",
        )
    flow = context.source.dataset.examples

    def compute(encoded: Any) -> Any:
        try:
            return stage.op(encoded, **stage.values)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(
                error.message
            ) from error  # of all Python's errors the one that TensorFlow hands on as that

    def apply(inputs: Any, targets: tf.Tensor) -> tuple[Any, tf.Tensor]:
        example = flow.named(inputs, targets)
        images = tf.numpy_function(compute, [example[Decode.feature]], tf.uint8)
        images = tf.ensure_shape(images, (None, *(stage.size or (None, None)), 3))
        return flow.handed({**example, Decode.feature: images})

    if not stage.at_once:
        return parallel_map(dataset, apply, stage, context)
    return parallel_map(dataset.batch(stage.at_once), apply, stage, context).unbatch()
