"""Augmentations agree with their published definitions: those of `tf.image`, Keras's layers, Pillow and torchvision."""

import itertools
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from etlrun.stages.augment import Pad, rotated, translated, zoomed
from etlrun.stages.colour import Normalize, RandomGrey, augmented, brightened, contrasted, recoloured, saturated

Pixels = npt.NDArray[Any]

RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (20, 26, 3), np.uint8)
FLOATS = IMAGE.astype(np.float32)
PHOTO = np.asarray(Image.fromarray(IMAGE).resize((64, 48), Image.Resampling.BICUBIC))
"""Smooth, so that a pixel that is rounded to its neighbour is not far off."""


def far(found: Pixels, expected: Pixels) -> float:
    """The largest distance of two images."""
    return float(np.max(np.abs(np.asarray(found, np.float64) - np.asarray(expected, np.float64))))


COLOURS = {
    "brighter": (brightened, tf.image.adjust_brightness, 0.2),
    "darker": (brightened, tf.image.adjust_brightness, -0.3),
    "more contrast": (contrasted, tf.image.adjust_contrast, 1.5),
    "less contrast": (contrasted, tf.image.adjust_contrast, 0.75),
    "saturated": (saturated, tf.image.adjust_saturation, 1.5),
    "paler": (saturated, tf.image.adjust_saturation, 0.4),
    "turned": (recoloured, tf.image.adjust_hue, 0.15),
    "turned back": (recoloured, tf.image.adjust_hue, -0.5),
}


@pytest.mark.parametrize("name", COLOURS)
def test_a_colour_is_that_of_tf_image(name: str) -> None:
    change, published, strength = COLOURS[name]
    found, expected = change(IMAGE_TENSOR, strength), published(IMAGE_TENSOR, strength)
    assert found.dtype == tf.uint8
    assert far(found, expected) <= 1  # tf.image truncates what is rounded here
    assert far(found, IMAGE) > 10
    floats = change(tf.constant(FLOATS), strength)
    assert floats.dtype == tf.float32
    exact = np.clip(published(tf.constant(FLOATS) / 255, strength) * 255, 0, 255)
    np.testing.assert_allclose(floats, exact, atol=2e-3)
    np.testing.assert_array_equal(found, np.round(floats))


IMAGE_TENSOR = tf.constant(IMAGE)


def test_grey_is_that_of_tf_image_and_of_pillow() -> None:
    found = RandomGrey.op(IMAGE_TENSOR, probability=1.0).numpy()
    assert found.dtype == np.uint8
    assert (found == found[..., :1]).all()
    assert far(found[..., :1], tf.image.rgb_to_grayscale(IMAGE_TENSOR)) <= 1
    assert far(found[..., 0], np.asarray(Image.fromarray(IMAGE).convert("L"))) <= 1


def test_normalized_pixels_are_those_of_keras_layer() -> None:
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    layer = keras.layers.Normalization(mean=mean, variance=np.square(std))
    expected = layer(FLOATS[np.newaxis] / 255)[0]
    np.testing.assert_allclose(Normalize.op(IMAGE_TENSOR, mean=mean, std=std), expected, atol=1e-5)


def by_keras(layer: keras.Layer) -> Pixels:
    return np.asarray(layer(FLOATS[np.newaxis], training=True)[0])


@pytest.mark.parametrize("fill_mode", ["constant", "reflect", "nearest"])
@pytest.mark.parametrize("kind", ["rotation", "translation", "zoom"])
def test_a_moved_image_is_that_of_keras_layer(kind: str, fill_mode: str) -> None:
    pair = (0.12, 0.12)
    layers: dict[str, tuple[Any, tuple[float, ...], tuple[Any, ...]]] = {
        "rotation": (rotated, (0.12 * 360,), (pair,)),
        "translation": (translated, (0.12, -0.2), (pair, (-0.2, -0.2))),
        "zoom": (zoomed, (0.12,), (pair,)),
    }
    move, strengths, factors = layers[kind]
    name = f"Random{kind.title()}"
    expected = by_keras(getattr(keras.layers, name)(*factors, fill_mode=fill_mode, interpolation="bilinear"))
    found = move(tf.constant(FLOATS), *strengths, fill_mode)
    np.testing.assert_allclose(found, expected, atol=0.02)
    assert far(expected, FLOATS) > 10
    np.testing.assert_array_equal(move(IMAGE_TENSOR, *strengths, fill_mode), np.round(found))


@pytest.mark.parametrize("value", [0, 7])
def test_a_border_is_that_of_pillow_or_of_numpy(value: int) -> None:
    framed = ImageOps.expand(Image.fromarray(IMAGE), border=4, fill=(value,) * 3)
    np.testing.assert_array_equal(Pad.op(IMAGE_TENSOR, by=4, mode="constant", value=float(value)), framed)
    mirrored = np.pad(FLOATS, [(4, 4), (4, 4), (0, 0)], mode="reflect")
    np.testing.assert_array_equal(Pad.op(tf.constant(FLOATS), by=4, mode="reflect", value=0.0), mirrored)


def by_pillow(image: Image.Image, operation: int, strength: float, sign: int) -> Image.Image:
    """As `RandAugment` of torchvision, with Pillow's own functions."""
    width, height = image.size
    signed = sign * strength

    def affine(*rows: float) -> Image.Image:
        return image.transform(image.size, Image.Transform.AFFINE, rows, Image.Resampling.NEAREST)

    found = [
        lambda: image,
        lambda: affine(1, 0.3 * signed, 0, 0, 1, 0),
        lambda: affine(1, 0, 0, 0.3 * signed, 1, 0),
        lambda: affine(1, 0, int(150 / 331 * signed * width), 0, 1, 0),
        lambda: affine(1, 0, 0, 0, 1, int(150 / 331 * signed * height)),
        lambda: image.rotate(30 * signed, Image.Resampling.NEAREST),
        lambda: ImageEnhance.Brightness(image).enhance(1 + 0.9 * signed),
        lambda: ImageEnhance.Color(image).enhance(1 + 0.9 * signed),
        lambda: ImageEnhance.Contrast(image).enhance(1 + 0.9 * signed),
        lambda: ImageEnhance.Sharpness(image).enhance(1 + 0.9 * signed),
        lambda: ImageOps.posterize(image, 8 - round(4 * strength)),
        lambda: ImageOps.solarize(image, 255 * (1 - strength)),  # type: ignore[arg-type] # as torchvision does
        lambda: ImageOps.autocontrast(image),
        lambda: ImageOps.equalize(image),
    ]
    return found[operation]()


@pytest.mark.parametrize("magnitude", [0, 1, 9, 17, 30])
@pytest.mark.parametrize("operation", range(14))
def test_an_operation_of_rand_augment_is_that_of_pillow(operation: int, magnitude: int) -> None:
    for pixels, sign in itertools.product((PHOTO, PHOTO // 2 + 30), (1, -1)):
        expected = np.asarray(by_pillow(Image.fromarray(pixels), operation, magnitude / 30, sign)).astype(int)
        found = augmented(tf.constant(pixels), tf.constant(operation), magnitude, tf.constant(float(sign))).numpy()
        assert found.dtype == np.uint8
        is_far = (found != expected).any(axis=-1)
        # Pillow computes the places of a rotation in fixed point, so that a pixel of its neighbour may be taken.
        assert is_far.mean() <= (0.02 if operation == 5 else 0), (is_far.mean(), np.abs(found - expected).max())


def test_the_blur_of_sharpness_is_pillows_filter() -> None:
    from etlrun.stages.colour import smoothed

    expected = np.asarray(Image.fromarray(PHOTO).filter(ImageFilter.SMOOTH))
    assert far(smoothed(tf.constant(PHOTO)), expected) <= 1


def test_flat_images_are_neither_stretched_nor_equalized() -> None:
    flat = np.full((5, 4, 3), 77, np.uint8)
    for operation in (12, 13):
        np.testing.assert_array_equal(augmented(tf.constant(flat), tf.constant(operation), 9, tf.constant(1.0)), flat)
