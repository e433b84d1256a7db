"""Random numbers, rounding, value types and checks that the augmentation steps share.

Each random step draws its numbers from the seed of the pass and the example, a checksum of the image, and its own name
as the salt, so that the order of the examples, the parallelism and a resume change nothing, copies of an image differ,
and two steps draw independent numbers. Two parameters of one step take different numbers of one draw.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from etlrun.stages.base import DATA, Data, Number, Positive, PositiveNumber, Share, Size, selectable
from etlrun.stages.flow import Faults, Feature, UnfitError
from etlrun.stages.image import require_decoded
from etlrun.stages.lazy import tf
from etlrun.stages.step import Step


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


def require_pixels(incoming: Feature) -> Feature:
    """Return the feature; raise `UnfitError` unless it is a decoded image of uint8 or float32."""
    if require_decoded(incoming).dtype not in ("uint8", "float32"):
        raise UnfitError("uint8 or float32 pixels", "put `resize` before it in the steps")
    return incoming


def require_colours(incoming: Feature) -> Feature:
    """Return the feature; raise `UnfitError` unless it has uint8 or float32 pixels of three channels in [0, 255]."""
    if require_pixels(incoming).shape[-1] != 3:  # noqa: PLR2004
        raise UnfitError("an image of three channels", "leave the step out")
    if (incoming.low, incoming.high) != (0.0, 255.0):
        raise UnfitError("pixels in [0, 255]", "put it before the scaling in the steps")
    return incoming


def with_value(incoming: Feature, value: float) -> Feature:
    """Return an image in which some pixels have `value`; raise `UnfitError` if its dtype can't hold that."""
    if require_pixels(incoming).dtype == "uint8" and value not in range(256):
        remedy = "set a whole value from 0 to 255, or put the step after the scaling"
        raise UnfitError(f"float32 pixels, since uint8 can't hold the value {value:g}", remedy)
    if incoming.low is None or incoming.high is None:
        return incoming
    return incoming.replace(low=min(incoming.low, value), high=max(incoming.high, value))


def affine(image: tf.Tensor, rows: list[tf.Tensor], fill_mode: str, interpolation: str) -> tf.Tensor:
    """Return the image whose pixel (x, y) is that of `image` at (a x + b y + c, d x + e y + f), where `rows` = [a … f].

    Pixels outside are 0 (`constant`), mirrored at the edge (`reflect`), or those of the edge (`nearest`).
    """
    pixels = image if interpolation == "nearest" else tf.cast(image, tf.float32)
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        images=pixels[tf.newaxis],
        transforms=tf.stack([*rows, 0.0, 0.0])[tf.newaxis],
        output_shape=tf.shape(image)[:2],
        fill_value=0.0,
        interpolation=interpolation.upper(),
        fill_mode=fill_mode.upper(),
    )
    moved = moved[0] if interpolation == "nearest" else rounded(moved[0], image.dtype)
    return tf.ensure_shape(moved, image.shape)


def rotated(image: tf.Tensor, degrees: tf.Tensor, fill_mode: str, interpolation: str = "bilinear") -> tf.Tensor:
    """Turn an image counter-clockwise around its centre; same shape and dtype."""
    height, width = tf.unstack(tf.cast(tf.shape(image)[:2] - 1, tf.float32))
    angle = degrees * 0.017453292519943295
    cosine, sine = tf.cos(angle), tf.sin(angle)
    right = (width - (cosine * width - sine * height)) / 2
    down = (height - (sine * width + cosine * height)) / 2
    return affine(image, [cosine, -sine, right, sine, cosine, down], fill_mode, interpolation)


@selectable
class RandomFlipUpDown(Step):
    """Flips half of the images vertically; a different half in each pass."""

    path = "transform.random_flip_up_down"
    random = True
    calls = (drawn,)

    def gives(self, incoming: Feature) -> Feature:
        return require_pixels(incoming)

    @staticmethod
    def op(image: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        """Same shape, dtype and range."""
        is_flipped = 2 * drawn(image, seed, "random_flip_up_down", 1)[0] < 1
        return tf.cond(is_flipped, lambda: tf.reverse(image, [0]), lambda: image)


@selectable
class RandomRotation(Step):
    """Turns an image around its centre, as `keras.layers.RandomRotation` does; bilinear.

    Attributes:
        fill_mode: `constant` fills with 0, `reflect` mirrors at the edge, `nearest` repeats the edge.
        degrees: Largest angle in both directions.
    """

    path = "transform.random_rotation"
    random = True
    calls = (drawn, rounded, affine, rotated)

    fill_mode: Data[Literal["constant", "reflect", "nearest"]]
    degrees: Annotated[float, Field(ge=0, le=180), DATA]

    def gives(self, incoming: Feature) -> Feature:
        return with_value(incoming, 0.0) if self.fill_mode == "constant" else require_pixels(incoming)

    @staticmethod
    def op(image: tf.Tensor, *, fill_mode: str, degrees: float, seed: tf.Tensor) -> tf.Tensor:
        """Same shape and dtype; uint8 is rounded."""
        return rotated(image, degrees * (2 * drawn(image, seed, "random_rotation", 1)[0] - 1), fill_mode)


def rectangles(sides: tf.Tensor, draws: tf.Tensor, scale: tuple[float, float], ratio: tuple[float, float]) -> tf.Tensor:
    """Return the sides of random rectangles, int32 (count, 2): height and width, or those of `sides`.

    An area is uniform in `scale`, a share of that of `sides`; a ratio of the second side to the first is uniform in
    `ratio` on a logarithmic scale. `draws` are (count, 2) in [0, 1).
    """
    area = tf.reduce_prod(tf.cast(sides, tf.float32)) * (scale[0] + (scale[1] - scale[0]) * draws[:, 0])
    lower, upper = tf.math.log(ratio[0]), tf.math.log(ratio[1])
    root = tf.exp((lower + (upper - lower) * draws[:, 1]) / 2)
    return tf.cast(tf.round(tf.sqrt(area)[:, tf.newaxis] * tf.stack([1 / root, root], axis=1)), tf.int32)


def placed(outer: tf.Tensor, inner: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
    """Return top and left, int32 (2,), of sides `inner` at a uniform place within `outer`; `draws` are in [0, 1)."""
    return tf.cast(draws * tf.cast(outer - inner + 1, tf.float32), tf.int32)


def crop_box(sides: tf.Tensor, draws: tf.Tensor, scale: tuple[float, float], ratio: tuple[float, float]) -> tf.Tensor:
    """Return top, left, height and width, int32 (4,), of the first rectangle that fits; `draws` are (count, 4).

    If none fits, it is the largest centred one whose ratio of width to height is in `ratio`, as in torchvision.
    """
    found = rectangles(sides, draws[:, :2], scale, ratio)
    fits = tf.reduce_all((found > 0) & (found <= sides), axis=1)
    first = tf.argmax(fits)
    inner = found[first]
    height, width = tf.unstack(tf.cast(sides, tf.float32))
    largest = tf.minimum(sides, tf.cast(tf.round(tf.stack([width / ratio[0], height * ratio[1]])), tf.int32))
    drawn_box = tf.concat([placed(sides, inner, draws[first, 2:]), inner], axis=0)
    return tf.where(fits[first], drawn_box, tf.concat([(sides - largest) // 2, largest], axis=0))


@selectable
class Pad(Step):
    """Adds a border to all four sides of an image; it is not random.

    Attributes:
        by: Width of the border in pixels.
        mode: `constant` fills with `value`, `reflect` mirrors the image without its outermost pixels.
        value: Value of the pixels of a constant border; 0 with `reflect`.
    """

    path = "transform.pad"

    by: Annotated[int, Field(ge=0, le=65_536), DATA]
    mode: Data[Literal["constant", "reflect"]]
    value: Data[Number]

    def rules(self) -> Faults:
        if self.mode == "reflect" and self.value:
            yield "value", self.value, "0 with mode=reflect, which uses no value", "set transform.pad.value=0"

    def gives(self, incoming: Feature) -> Feature:
        require_pixels(incoming)
        height, width, channels = incoming.shape
        if self.mode == "reflect" and any(side is not None and side <= self.by for side in (height, width)):
            raise UnfitError(
                f"images of at least {self.by + 1}x{self.by + 1} pixels for a mirrored border of {self.by}",
                "set a smaller transform.pad.by",
            )
        height, width = (None if side is None else side + 2 * self.by for side in (height, width))
        padded = with_value(incoming, self.value) if self.mode == "constant" else incoming
        return padded.replace(shape=(height, width, channels))

    @staticmethod
    def op(image: tf.Tensor, *, by: int, mode: str, value: float) -> tf.Tensor:
        """(height, width, channels) -> (height + 2 by, width + 2 by, channels), same dtype."""
        return tf.pad(image, [(by, by), (by, by), (0, 0)], mode.upper(), tf.cast(value, image.dtype))


@selectable
class RandomCrop(Step):
    """Crops a part of one size at a random place, as `tf.image.random_crop` does.

    Attributes:
        size: Height and width in pixels.
    """

    path = "transform.random_crop"
    random = True
    calls = (drawn, placed)

    size: Data[Size]

    def gives(self, incoming: Feature) -> Feature:
        require_pixels(incoming)
        *sides, channels = incoming.shape
        if any(side is not None and side < crop for side, crop in zip(sides, self.size, strict=True)):
            raise UnfitError(
                f"images of at least {'x'.join(map(str, self.size))} pixels",
                "set a smaller transform.random_crop.size, or put `pad` or a larger `resize` before it",
            )
        return incoming.replace(shape=(*self.size, channels))

    @staticmethod
    def op(image: tf.Tensor, *, size: tuple[int, int], seed: tf.Tensor) -> tf.Tensor:
        """(height, width, channels) -> (*size, channels), same dtype and range."""
        top, left = tf.unstack(placed(tf.shape(image)[:2], size, drawn(image, seed, "random_crop", 2)))
        return tf.image.crop_to_bounding_box(image, top, left, *size)


@selectable
class RandomResizedCrop(Step):
    """Crops a part of random size and aspect ratio, and resizes it, as `RandomResizedCrop` of torchvision does.

    The dtype stays: uint8 is rounded, as `resize` does. Source: Szegedy et al., "Going Deeper with Convolutions", 2014.

    Attributes:
        size: Height and width of the result in pixels.
        scale: Smallest and largest share of the image's area.
        ratio: Smallest and largest width divided by height.
        antialias: Whether to filter before downscaling.
    """

    path = "transform.random_resized_crop"
    random = True
    calls = (drawn, rounded, rectangles, placed, crop_box)

    size: Data[Size]
    scale: Data[tuple[Share, Share]]
    ratio: Data[tuple[PositiveNumber, PositiveNumber]]
    antialias: Data[bool]

    def faults(self) -> Faults:
        for field in ("scale", "ratio"):
            lower, upper = getattr(self, field)
            if lower > upper:
                yield field, f"[{lower}, {upper}]", "[lower, upper], the lower number first", "swap the two"

    def gives(self, incoming: Feature) -> Feature:
        return require_pixels(incoming).replace(shape=(*self.size, incoming.shape[-1]))

    @staticmethod
    def op(
        image: tf.Tensor,
        *,
        size: tuple[int, int],
        scale: tuple[float, float],
        ratio: tuple[float, float],
        antialias: bool,
        seed: tf.Tensor,
    ) -> tf.Tensor:
        """(height, width, channels) -> (*size, channels), same dtype and range; the first of ten parts that fits."""
        draws = tf.reshape(drawn(image, seed, "random_resized_crop", 40), (10, 4))
        top, left, height, width = tf.unstack(crop_box(tf.shape(image)[:2], draws, scale, ratio))
        part = image[top : top + height, left : left + width]
        return tf.ensure_shape(
            rounded(tf.image.resize(part, size, antialias=antialias), image.dtype), (*size, image.shape[-1])
        )


def erased(image: tf.Tensor, start: tf.Tensor, end: tf.Tensor, value: float) -> tf.Tensor:
    """Set the pixels from `start` (row, column) to before `end` to `value`; parts outside of the image are ignored."""
    return tf.where(within(tf.shape(image)[:2], start, end), tf.cast(value, image.dtype), image)


@selectable
class Cutout(Step):
    """Erases a square whose centre is a random pixel, so that a part of it may be outside of the image.

    Source: DeVries and Taylor, "Improved Regularization of Convolutional Neural Networks with Cutout", 2017.

    Attributes:
        value: Value of the erased pixels.
        length: Side of the square in pixels.
    """

    path = "transform.cutout"
    random = True
    calls = (drawn, placed, within, erased)

    value: Data[Number]
    length: Data[Positive]

    def gives(self, incoming: Feature) -> Feature:
        return with_value(incoming, self.value)

    @staticmethod
    def op(image: tf.Tensor, *, value: float, length: int, seed: tf.Tensor) -> tf.Tensor:
        """Same shape and dtype."""
        start = placed(tf.shape(image)[:2], 1, drawn(image, seed, "cutout", 2)) - length // 2
        return erased(image, start, start + length, value)
