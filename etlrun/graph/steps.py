"""What each step does to one example.

What a random step does follows from the seed of the pass and from the picture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from etlrun.graph.context import Context
from etlrun.sources.tfds import Example, decoded
from etlrun.stages.transform import (
    CenterCrop,
    Decode,
    Parse,
    RandomFlip,
    Rescale,
    Resize,
    ScaleMinusOneOne,
    ScaleZeroOne,
)

Step = Callable[[Any], Any]

Picture = Callable[[tf.Tensor], tf.Tensor]


def _on_picture(function: Picture) -> Step:
    """A function of the picture as one of the example."""

    def step(example: Example) -> Example:
        return {**example, "image": function(example["image"])}

    return step


def parse(_stage: Parse, context: Context) -> Step:
    """String scalar -> {image: string scalar, label: int64 scalar}."""
    return context.source.parser()


def decode(_stage: Decode, _context: Context) -> Step:
    """String scalar -> uint8 (height, width, 3)."""
    return _on_picture(decoded)


def resize(stage: Resize, _context: Context) -> Step:
    """(height, width, 3) -> (*size, 3) of the stage's dtype, same range; uint8 is rounded."""

    def resized(image: tf.Tensor) -> tf.Tensor:
        picture = tf.image.resize(image, stage.size, method=stage.method, antialias=stage.antialias)
        picture = tf.round(picture) if stage.dtype == "uint8" else picture
        return tf.ensure_shape(tf.saturate_cast(picture, tf.as_dtype(stage.dtype)), (*stage.size, 3))

    return _on_picture(resized)


def center_crop(_stage: CenterCrop, _context: Context) -> Step:
    """(height, width, 3) -> (side, side, 3) with the smaller of both."""

    def cropped(image: tf.Tensor) -> tf.Tensor:
        height, width = tf.unstack(tf.shape(image)[:2])
        side = tf.minimum(height, width)
        return tf.image.crop_to_bounding_box(image, (height - side) // 2, (width - side) // 2, side, side)

    return _on_picture(cropped)


def random_flip(_stage: RandomFlip, context: Context) -> Step:
    """Shape and dtype stay; flipped or not by the seed of the pass and a checksum of the pixels, or of floats' bits."""

    def step(example: Example) -> Example:
        image = example["image"]
        numbers = tf.bitcast(image, tf.int32) if image.dtype == tf.float32 else image
        checksum = tf.reduce_sum(tf.cast(numbers, tf.int64))
        seed = tf.stack([context.pass_seed(context.passes_begun), checksum])
        return {**example, "image": tf.image.stateless_random_flip_left_right(image, seed)}

    return step


def rescale(stage: Rescale, _context: Context) -> Step:
    """float32 `image * scale + offset`."""
    return _on_picture(lambda image: tf.cast(image, tf.float32) * stage.scale + stage.offset)


def scale_zero_one(_stage: ScaleZeroOne, _context: Context) -> Step:
    """[0, 255] -> float32 in [0, 1]."""
    return _on_picture(lambda image: tf.cast(image, tf.float32) / 255.0)


def scale_minus_one_one(_stage: ScaleMinusOneOne, _context: Context) -> Step:
    """[0, 255] -> float32 in [-1, 1], as `keras.applications.mobilenet_v2.preprocess_input` does."""
    return _on_picture(lambda image: tf.cast(image, tf.float32) / 127.5 - 1.0)


STEPS: dict[type, Callable[[Any, Context], Step]] = {
    Parse: parse,
    Decode: decode,
    CenterCrop: center_crop,
    Resize: resize,
    RandomFlip: random_flip,
    Rescale: rescale,
    ScaleZeroOne: scale_zero_one,
    ScaleMinusOneOne: scale_minus_one_one,
}
"""The function that each kind of step stands for."""
