"""Steps that flip, turn, move or zoom an image: any range, same shape and dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from etlrun.stages.augment import drawn, require_pixels, rounded, with_value
from etlrun.stages.base import DATA, Fraction, Rate
from etlrun.stages.flow import Feature
from etlrun.stages.lazy import tf
from etlrun.stages.step import Step


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


def translated(image: tf.Tensor, down: tf.Tensor, right: tf.Tensor, fill_mode: str) -> tf.Tensor:
    """Move an image by these shares of its height and its width; same shape and dtype."""
    height, width = tf.unstack(tf.cast(tf.shape(image)[:2], tf.float32))
    return affine(image, [1.0, 0.0, -right * width, 0.0, 1.0, -down * height], fill_mode, "bilinear")


def zoomed(image: tf.Tensor, change: tf.Tensor, fill_mode: str) -> tf.Tensor:
    """Show 1 + `change` of the height and the width around the centre; same shape and dtype."""
    height, width = tf.unstack(tf.cast(tf.shape(image)[:2] - 1, tf.float32))
    side = 1 + change
    return affine(image, [side, 0.0, -change * width / 2, 0.0, side, -change * height / 2], fill_mode, "bilinear")


@dataclass(frozen=True, kw_only=True)
class RandomFlipUpDown(Step):
    """Flips half of the images vertically; a different half in each pass."""

    path = "transform.random_flip_up_down"
    random = True
    calls = (drawn,)

    def gives(self, incoming: Feature) -> Feature:
        require_pixels(incoming)
        return incoming

    @staticmethod
    def op(image: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        """Same shape, dtype and range."""
        is_flipped = 2 * drawn(image, seed, "random_flip_up_down", 1)[0] < 1
        return tf.cond(is_flipped, lambda: tf.reverse(image, [0]), lambda: image)


@dataclass(frozen=True, kw_only=True)
class _Moved(Step):
    """Base of the steps that interpolate bilinearly, and fill what comes from outside of the image.

    Attributes:
        fill_mode: `constant` fills with 0, `reflect` mirrors at the edge, `nearest` repeats the edge.
    """

    random = True

    fill_mode: Annotated[Literal["constant", "reflect", "nearest"], DATA]

    def gives(self, incoming: Feature) -> Feature:
        require_pixels(incoming)
        return with_value(incoming, 0.0) if self.fill_mode == "constant" else incoming


@dataclass(frozen=True, kw_only=True)
class RandomRotation(_Moved):
    """Turns an image around its centre, as `keras.layers.RandomRotation` does; bilinear.

    Attributes:
        degrees: Largest angle in both directions.
    """

    path = "transform.random_rotation"
    calls = (drawn, rounded, affine, rotated)

    degrees: Annotated[float, Field(ge=0, le=180), DATA]

    @staticmethod
    def op(image: tf.Tensor, *, fill_mode: str, degrees: float, seed: tf.Tensor) -> tf.Tensor:
        """Same shape and dtype; uint8 is rounded."""
        return rotated(image, degrees * (2 * drawn(image, seed, "random_rotation", 1)[0] - 1), fill_mode)


@dataclass(frozen=True, kw_only=True)
class RandomTranslation(_Moved):
    """Moves an image, as `keras.layers.RandomTranslation` does; bilinear.

    Attributes:
        height_factor: Largest move up or down, as a share of the height.
        width_factor: Largest move to the left or the right, as a share of the width.
    """

    path = "transform.random_translation"
    calls = (drawn, rounded, affine, translated)

    height_factor: Annotated[Fraction, DATA]
    width_factor: Annotated[Fraction, DATA]

    @staticmethod
    def op(
        image: tf.Tensor, *, fill_mode: str, height_factor: float, width_factor: float, seed: tf.Tensor
    ) -> tf.Tensor:
        """Same shape and dtype; uint8 is rounded."""
        down, right = tf.unstack(2 * drawn(image, seed, "random_translation", 2) - 1)
        return translated(image, height_factor * down, width_factor * right, fill_mode)


@dataclass(frozen=True, kw_only=True)
class RandomZoom(_Moved):
    """Zooms into or out of an image at its own aspect ratio, as `keras.layers.RandomZoom` does; bilinear.

    Attributes:
        factor: Largest change of the sides of the part that is shown: 0.2 shows 80 % to 120 % of them.
    """

    path = "transform.random_zoom"
    calls = (drawn, rounded, affine, zoomed)

    factor: Annotated[Rate, DATA]

    @staticmethod
    def op(image: tf.Tensor, *, fill_mode: str, factor: float, seed: tf.Tensor) -> tf.Tensor:
        """Same shape and dtype; uint8 is rounded."""
        return zoomed(image, factor * (2 * drawn(image, seed, "random_zoom", 1)[0] - 1), fill_mode)
