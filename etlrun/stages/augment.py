"""Random numbers, rounding, value types and checks that the augmentation steps share.

Each random step draws its numbers from the seed of the pass and the example, a checksum of the image, and its own name
as the salt, so that the order of the examples, the parallelism and a resume change nothing, copies of an image differ,
and two steps draw independent numbers. Two parameters of one step take different numbers of one draw.
"""

from __future__ import annotations

from typing import Annotated

from etlrun.stages.base import Expected, PositiveNumber, Share
from etlrun.stages.flow import Faults, Feature, UnfitError
from etlrun.stages.image import require_decoded
from etlrun.stages.lazy import tf

Ratios = Annotated[tuple[PositiveNumber, PositiveNumber], Expected("[lower, upper], two positive numbers")]
Shares = Annotated[tuple[Share, Share], Expected("[lower, upper], two numbers above 0, at most 1")]


def drawn(image: tf.Tensor, seed: tf.Tensor, salt: str, count: int) -> tf.Tensor:
    """Return float32 (count,), independent and uniform in [0, 1): other numbers for each seed, image and salt.

    The salt of a step is its name. The checksum is the sum of the pixels, or of the bits of floats; rows are added
    first, as int32, which takes less time.
    """
    is_float = image.dtype == tf.float32
    numbers = tf.bitcast(image, tf.int32) if is_float else tf.reduce_sum(tf.cast(image, tf.int32), axis=0)
    checksum = tf.reduce_sum(tf.cast(numbers, tf.int64))
    of_step = tf.strings.to_hash_bucket_fast(salt, 2**31 - 1)
    return tf.random.stateless_uniform((count,), tf.random.fold_in(tf.stack([seed, checksum]), of_step))


def rounded(pixels: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """float32 -> `dtype`; uint8 is rounded, and clipped to [0, 255]."""
    return tf.cast(tf.clip_by_value(tf.round(pixels), 0.0, 255.0) if dtype == tf.uint8 else pixels, dtype)


def clipped(pixels: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """float32 -> `dtype`, clipped to [0, 255]; uint8 is rounded."""
    pixels = tf.clip_by_value(pixels, 0.0, 255.0)
    return tf.cast(tf.round(pixels) if dtype == tf.uint8 else pixels, dtype)


def within(sides: tf.Tensor, start: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
    """Return bool (height, width, 1): whether a pixel is from `start` (row, column) to before `end`."""
    rows, columns = tf.range(sides[0]), tf.range(sides[1])
    is_row, is_column = (rows >= start[0]) & (rows < end[0]), (columns >= start[1]) & (columns < end[1])
    return (is_row[:, tf.newaxis] & is_column)[..., tf.newaxis]


def ordered(field: str, values: tuple[float, float]) -> Faults:
    """Yield the fault of a field [lower, upper] whose lower end is above the upper one."""
    if values[0] > values[1]:
        yield field, str(list(values)), "[lower, upper], the lower number first", "swap the two"


def require_pixels(incoming: Feature) -> None:
    """Raise `UnfitError` unless the feature is a decoded image of uint8 or float32."""
    require_decoded(incoming)
    if incoming.dtype not in ("uint8", "float32"):
        raise UnfitError("uint8 or float32 pixels", "put `resize` before it in the steps")


def require_colours(incoming: Feature) -> None:
    """Raise `UnfitError` unless the feature is a decoded image of three channels of uint8 or float32 in [0, 255]."""
    require_pixels(incoming)
    if incoming.shape[-1] != 3:  # noqa: PLR2004
        raise UnfitError("an image of three channels", "leave the step out")
    if (incoming.low, incoming.high) != (0.0, 255.0):
        raise UnfitError("pixels in [0, 255]", "put it before the scaling in the steps")


def with_value(incoming: Feature, value: float) -> Feature:
    """Return an image in which some pixels have `value`; raise `UnfitError` if its dtype can't hold that."""
    require_pixels(incoming)
    if incoming.dtype == "uint8" and value not in range(256):
        raise UnfitError(
            f"float32 pixels, since uint8 can't hold the value {value:g}",
            "set a whole value from 0 to 255, or put the step after the scaling",
        )
    if incoming.low is None or incoming.high is None:
        return incoming
    return incoming.replace(low=min(incoming.low, value), high=max(incoming.high, value))
