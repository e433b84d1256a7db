"""Steps that pad or crop an image to another size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from etlrun.stages.augment import Ratios, Shares, drawn, ordered, require_pixels, rounded, with_value
from etlrun.stages.base import DATA, Flag, Number, Size
from etlrun.stages.flow import Faults, Feature, UnfitError
from etlrun.stages.lazy import tf
from etlrun.stages.step import Step


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


@dataclass(frozen=True, kw_only=True)
class Pad(Step):
    """Adds a border to all four sides of an image; it is not random.

    Attributes:
        by: Width of the border in pixels.
        mode: `constant` fills with `value`, `reflect` mirrors the image without its outermost pixels.
        value: Value of the pixels of a constant border; 0 with `reflect`.
    """

    path = "transform.pad"

    by: Annotated[int, Field(ge=0, le=65_536), DATA]
    mode: Annotated[Literal["constant", "reflect"], DATA]
    value: Annotated[Number, DATA]

    def rules(self) -> Faults:
        if self.mode == "reflect" and self.value:
            yield "value", str(self.value), "0 with mode=reflect, which uses no value", "set transform.pad.value=0"

    def gives(self, incoming: Feature) -> Feature:
        require_pixels(incoming)
        height, width, channels = incoming.shape
        if self.mode == "reflect" and any(side is not None and side <= self.by for side in (height, width)):
            raise UnfitError(
                f"images of at least {self.by + 1}x{self.by + 1} pixels, which a border of {self.by} mirrors",
                "set a smaller transform.pad.by",
            )
        height, width = (None if side is None else side + 2 * self.by for side in (height, width))
        padded = with_value(incoming, self.value) if self.mode == "constant" else incoming
        return padded.replace(shape=(height, width, channels))

    @staticmethod
    def op(image: tf.Tensor, *, by: int, mode: str, value: float) -> tf.Tensor:
        """(height, width, channels) -> (height + 2 by, width + 2 by, channels), same dtype."""
        return tf.pad(image, [(by, by), (by, by), (0, 0)], mode.upper(), tf.cast(value, image.dtype))


@dataclass(frozen=True, kw_only=True)
class RandomCrop(Step):
    """Crops a part of one size at a random place, as `tf.image.random_crop` does.

    Attributes:
        size: Height and width in pixels.
    """

    path = "transform.random_crop"
    random = True
    calls = (drawn, placed)

    size: Annotated[Size, DATA]

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


@dataclass(frozen=True, kw_only=True)
class RandomResizedCrop(Step):
    """Crops a part of random size and aspect ratio, and resizes it, as `RandomResizedCrop` of torchvision does.

    The dtype stays: uint8 is rounded, as `resize` does. Source: Szegedy et al., "Going Deeper with Convolutions", 2014.

    Attributes:
        size: Height and width of the result in pixels.
        scale: Smallest and largest share of the area of the image that the part takes.
        ratio: Smallest and largest width of the part, divided by its height.
        antialias: Whether to filter before downscaling, as torchvision does.
    """

    path = "transform.random_resized_crop"
    random = True
    is_costly = True
    calls = (drawn, rounded, rectangles, placed, crop_box)

    size: Annotated[Size, DATA]
    scale: Annotated[Shares, DATA]
    ratio: Annotated[Ratios, DATA]
    antialias: Annotated[Flag, DATA]

    def faults(self) -> Faults:
        yield from (*ordered("scale", self.scale), *ordered("ratio", self.ratio))

    def gives(self, incoming: Feature) -> Feature:
        require_pixels(incoming)
        return incoming.replace(shape=(*self.size, incoming.shape[-1]))

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
