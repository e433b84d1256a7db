"""Encoded images of records, which are looked at before they are decoded; files are when they are listed."""

from __future__ import annotations

import functools
from typing import Any

from etlrun.graph.context import Context
from etlrun.sources.usable import MOST_PIXELS, SMALL_JPEG_BYTES, without_refused
from etlrun.stages.lazy import tf

_LOOKED_AT = r"(BM|GIF8|RIFF|\CPNG)\C*"
"""BMPs, GIFs, WebPs and PNGs, by their first bytes."""
_SMALL_PNG = r"\CPNG\C{12}(\x00\x00[\x00-\x1f]\C){2}\C*"
"""PNGs of fewer than 8,192 pixels a side."""
_UNKNOWN = (
    "an image that is neither a JPEG nor a PNG of fewer than 8,192 pixels a side, whose header the processes of a "
    "service do not read: set load=shuffled"
)


def usable(image: tf.Tensor, context: Context) -> tf.Tensor:
    """Return an encoded image (string scalar); an empty one, which is an error to decode, in place of a refused one.

    Most JPEGs take two operations more, and nothing calls Python for them or for PNGs.
    """
    if context.split.is_read_by_parser:
        return image

    is_odd = tf.strings.regex_full_match(image, _LOOKED_AT) | (tf.strings.length(image) > SMALL_JPEG_BYTES)
    return tf.cond(is_odd, lambda: _looked_at(calls_python=context.calls_python)(image), lambda: image)


@functools.cache
def _looked_at(*, calls_python: bool) -> Any:
    """Return a function of an encoded image that no pipeline traces again: it was a third of the tracing of each."""

    def of_jpeg(image: tf.Tensor) -> tf.Tensor:
        sides = tf.cast(tf.image.extract_jpeg_shape(image)[:2], tf.int64)
        return tf.where(tf.reduce_prod(sides) > MOST_PIXELS, "", image)

    def of_others(image: tf.Tensor) -> tf.Tensor:
        if calls_python:
            return tf.ensure_shape(tf.numpy_function(without_refused, [image], tf.string), ())
        with tf.control_dependencies([tf.debugging.Assert(tf.constant(False), [_UNKNOWN])]):  # noqa: FBT003
            return tf.identity(image)

    def looked_at(image: tf.Tensor) -> Any:
        is_small_png = tf.strings.regex_full_match(image, _SMALL_PNG)
        kinds = [(is_small_png, lambda: image), (tf.io.is_jpeg(image), lambda: of_jpeg(image))]
        return tf.case(kinds, default=lambda: of_others(image))

    return tf.function(looked_at, input_signature=[tf.TensorSpec((), tf.string)], autograph=False)
