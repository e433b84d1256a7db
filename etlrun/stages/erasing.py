"""Steps that erase a rectangle of an image: same shape and dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from etlrun.stages.augment import Ratios, Shares, drawn, ordered, with_value, within
from etlrun.stages.base import DATA, Number, Positive, Share
from etlrun.stages.crops import placed, rectangles
from etlrun.stages.flow import Faults, Feature
from etlrun.stages.lazy import tf
from etlrun.stages.step import Step


def erased(image: tf.Tensor, start: tf.Tensor, end: tf.Tensor, value: float) -> tf.Tensor:
    """Set the pixels from `start` (row, column) to before `end` to `value`; parts outside of the image are ignored."""
    return tf.where(within(tf.shape(image)[:2], start, end), tf.cast(value, image.dtype), image)


@dataclass(frozen=True, kw_only=True)
class _Erasing(Step):
    """Base of both steps.

    Attributes:
        value: Value of the erased pixels.
    """

    random = True

    value: Annotated[Number, DATA]

    def gives(self, incoming: Feature) -> Feature:
        return with_value(incoming, self.value)


@dataclass(frozen=True, kw_only=True)
class Cutout(_Erasing):
    """Erases a square whose centre is a random pixel, so that a part of it may be outside of the image.

    Source: DeVries and Taylor, "Improved Regularization of Convolutional Neural Networks with Cutout", 2017.

    Attributes:
        length: Side of the square in pixels.
    """

    path = "transform.cutout"
    calls = (drawn, placed, within, erased)

    length: Annotated[Positive, DATA]

    @staticmethod
    def op(image: tf.Tensor, *, value: float, length: int, seed: tf.Tensor) -> tf.Tensor:
        """Same shape and dtype."""
        start = placed(tf.shape(image)[:2], 1, drawn(image, seed, "cutout", 2)) - length // 2
        return erased(image, start, start + length, value)


@dataclass(frozen=True, kw_only=True)
class RandomErasing(_Erasing):
    """Erases a random rectangle of some images, as `RandomErasing` of torchvision does with one value.

    The first of ten rectangles that is smaller than the image in both directions is erased; if none is, nothing is.
    Source: Zhong et al., "Random Erasing Data Augmentation", AAAI 2020.

    Attributes:
        probability: Probability that an image is changed.
        scale: Smallest and largest share of the area of the image that the rectangle takes.
        ratio: Smallest and largest height of the rectangle, divided by its width.
    """

    path = "transform.random_erasing"
    calls = (drawn, rectangles, placed, within, erased)

    probability: Annotated[Share, DATA]
    scale: Annotated[Shares, DATA]
    ratio: Annotated[Ratios, DATA]

    def faults(self) -> Faults:
        yield from (*ordered("scale", self.scale), *ordered("ratio", self.ratio))

    @staticmethod
    def op(
        image: tf.Tensor,
        *,
        value: float,
        probability: float,
        scale: tuple[float, float],
        ratio: tuple[float, float],
        seed: tf.Tensor,
    ) -> tf.Tensor:
        """Same shape and dtype."""
        numbers, sides = drawn(image, seed, "random_erasing", 41), tf.shape(image)[:2]
        draws = tf.reshape(numbers[1:], (10, 4))
        found = tf.reverse(rectangles(sides, draws[:, :2], scale, ratio), [1])
        fits = tf.reduce_all(found < sides, axis=1)
        first = tf.argmax(fits)
        start = placed(sides, found[first], draws[first, 2:])
        is_erased = (numbers[0] < probability) & fits[first]
        return tf.cond(is_erased, lambda: erased(image, start, start + found[first], value), lambda: image)
