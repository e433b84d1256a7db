"""What random augmentations draw: the published distributions, independent of one another, and the same for a seed."""

import inspect
import itertools
import math
import re
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from PIL import Image

from etlrun.stages.augment import crop_box, drawn
from tests.steps import RANDOM, VALUES, step_of

Pixels = npt.NDArray[Any]

IMAGE = np.random.default_rng(0).integers(0, 256, (24, 30, 3), np.uint8)


def results(name: str, count: int = 200, image: Pixels = IMAGE, **values: Any) -> list[Pixels]:
    """What a step makes of an image with the seeds below `count`."""
    step = step_of(name, **values)
    one = tf.function(lambda seed: step.op(tf.constant(image), **step.values, seed=seed), autograph=False)
    return [one(tf.constant(seed, tf.int64)).numpy() for seed in range(count)]


@pytest.mark.parametrize("name", RANDOM)
def test_a_step_draws_other_numbers_for_each_seed_and_the_same_for_the_same(name: str) -> None:
    found = results(name, 20)
    again = results(name, 20)
    assert all(np.array_equal(*pair) for pair in zip(found, again, strict=True))
    assert len({image.tobytes() for image in found}) > 1
    assert {image.dtype for image in found} == {np.dtype(np.uint8)}


def test_numbers_differ_for_each_seed_and_image_and_salt() -> None:
    floats = IMAGE.astype(np.float32) / 256  # inside of (-1, 1)
    images = [IMAGE, IMAGE // 2, floats, floats / 2]
    keys = [*((image, 1, "a") for image in images), (IMAGE, 2, "a"), (IMAGE, 1, "b"), (IMAGE[::-1], 1, "a")]
    found = [
        tuple(drawn(tf.constant(image), tf.constant(seed, tf.int64), salt, 2).numpy()) for image, seed, salt in keys
    ]
    assert len(set(found)) == 6
    assert found[-1] == found[0]  # the sum of the pixels is the same


@pytest.mark.parametrize("image", [IMAGE, np.full((4000, 3000, 3), 255, np.uint8)], ids=["small", "above 2**32"])
def test_numbers_follow_from_the_exact_sum_of_the_pixels(image: Pixels) -> None:
    seed, salt = 5, tf.strings.to_hash_bucket_fast("a", 2**31 - 1)
    key = tf.random.fold_in(tf.constant([seed, image.sum(dtype=np.int64)]), salt)
    found = drawn(tf.constant(image), tf.constant(seed, tf.int64), "a", 2)
    np.testing.assert_array_equal(found, tf.random.stateless_uniform((2,), key))


@pytest.mark.parametrize("name", sorted({*RANDOM} - {"random_flip"}))
def test_the_salt_of_a_step_is_its_name(name: str) -> None:
    salts = re.findall(r'drawn\(image, seed, "(\w+)", ', inspect.getsource(step_of(name).op))
    assert salts == [name]


def test_steps_and_parameters_draw_independent_numbers() -> None:
    salts = [name for name in RANDOM if name != "random_flip"]
    image = tf.constant(IMAGE)
    draw = tf.function(lambda seed: tf.concat([drawn(image, seed, salt, 2) for salt in salts], 0), autograph=False)
    columns = np.array([draw(tf.constant(seed, tf.int64)) for seed in range(100)])
    links = np.corrcoef(columns, rowvar=False) - np.eye(columns.shape[1])
    assert np.abs(links).max() < 0.5
    assert columns.min() >= 0
    assert columns.max() < 1
    np.testing.assert_allclose(columns.mean(), 0.5, atol=0.02)


def test_an_image_is_flipped_up_down_whether_or_not_it_is_flipped_left_right() -> None:
    sideways = [not np.array_equal(image, IMAGE) for image in results("random_flip")]
    down = [not np.array_equal(image, IMAGE) for image in results("random_flip_up_down")]
    pairs = list(zip(sideways, down, strict=True))
    assert {pair: 30 < count < 70 for pair, count in Counter(pairs).items()} == dict.fromkeys(
        itertools.product((True, False), repeat=2), True
    )
    assert {image.tobytes() for image in results("random_flip_up_down")} == {IMAGE.tobytes(), IMAGE[::-1].tobytes()}


def test_brightness_is_uniform_up_and_down() -> None:
    flat = np.full((4, 4, 3), 100, np.float32)
    changes = np.array([image[0, 0, 0] - 100 for image in results("random_brightness", 300, flat, max_delta=0.2)]) / 255
    np.testing.assert_allclose((changes.min(), changes.max()), (-0.2, 0.2), atol=0.01)
    np.testing.assert_allclose(np.quantile(changes, [0.25, 0.5, 0.75]), [-0.1, 0, 0.1], atol=0.035)


def test_a_factor_is_uniform_between_both_ends() -> None:
    image = np.tile(np.array([100.0, 120.0], np.float32)[:, None, None], (1, 2, 3))
    contrasts = [(found[1, 0, 0] - found[0, 0, 0]) / 20 for found in results("random_contrast", 300, image)]
    np.testing.assert_allclose((min(contrasts), max(contrasts)), (0.5, 2), atol=0.03)
    fixed = results("random_contrast", 5, image, lower=1.25, upper=1.25)
    np.testing.assert_allclose([(found[1, 0, 0] - found[0, 0, 0]) / 20 for found in fixed], 1.25, rtol=1e-5)


def test_grey_images_are_as_many_as_the_probability_says() -> None:
    grey = [bool((image == image[..., :1]).all()) for image in results("random_grey", probability=0.3)]
    assert 40 < sum(grey) < 80


def test_every_window_is_cropped_as_often() -> None:
    image = np.arange(5 * 6 * 3, dtype=np.uint8).reshape(5, 6, 3)
    places = [divmod(int(found[0, 0, 0]) // 3, 6) for found in results("random_crop", 600, image, size=(3, 4))]
    counts = {place: places.count(place) for place in itertools.product(range(3), range(3))}
    assert sum(counts.values()) == 600
    assert 40 < min(counts.values()) <= max(counts.values()) < 100


def test_an_image_that_is_smaller_than_its_crop_is_an_error() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        results("random_crop", 1, size=(25, 4))


def box_of_torchvision(
    height: int, width: int, draws: Pixels, scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[int, int, int, int]:
    """`RandomResizedCrop.get_params` of torchvision, with given numbers: top, left, height and width."""
    for area_at, ratio_at, top_at, left_at in draws:
        area = height * width * (scale[0] + (scale[1] - scale[0]) * area_at)
        lower, upper = math.log(ratio[0]), math.log(ratio[1])
        aspect = math.exp(lower + (upper - lower) * ratio_at)
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return int(top_at * (height - h + 1)), int(left_at * (width - w + 1)), h, w
    in_ratio = width / height
    w = round(height * max(ratio)) if in_ratio > max(ratio) else width
    h = round(width / min(ratio)) if in_ratio < min(ratio) else height
    return (height - h) // 2, (width - w) // 2, h, w


@pytest.mark.parametrize(
    ("sides", "scale", "ratio"),
    [
        ((90, 120), (0.08, 1.0), (3 / 4, 4 / 3)),
        ((90, 120), (0.9, 1.0), (0.2, 5.0)),
        ((10, 200), (0.5, 1.0), (3 / 4, 4 / 3)),
        ((200, 10), (0.5, 1.0), (3 / 4, 4 / 3)),
        ((20, 30), (1.0, 1.0), (1.0, 2.0)),
    ],
)
def test_a_crop_is_that_of_torchvision(
    sides: tuple[int, int], scale: tuple[float, float], ratio: tuple[float, float]
) -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        draws = rng.random((10, 4), np.float32)
        found = crop_box(tf.constant(sides), tf.constant(draws), scale, ratio).numpy()
        np.testing.assert_allclose(found, box_of_torchvision(*sides, draws, scale, ratio), atol=1)  # float32


def test_a_crop_is_resized_as_pillow_does() -> None:
    photo = np.asarray(Image.fromarray(IMAGE).resize((80, 60), Image.Resampling.BICUBIC))
    values: dict[str, Any] = {"scale": (0.2, 0.9), "ratio": (0.5, 2.0)}
    for seed, found in enumerate(results("random_resized_crop", 10, photo, size=(16, 20), antialias=True, **values)):
        numbers = drawn(tf.constant(photo), tf.constant(seed, tf.int64), "random_resized_crop", 40)
        draws = tf.reshape(numbers, (10, 4))
        top, left, height, width = crop_box(tf.constant((60, 80)), draws, *values.values()).numpy()
        box = Image.fromarray(photo).crop((left, top, left + width, top + height))
        expected = np.asarray(box.resize((20, 16), Image.Resampling.BILINEAR)).astype(int)
        np.testing.assert_allclose(found, expected, atol=1)


def differing(found: Pixels) -> tuple[int, int, int, int]:
    """Top, left, height and width of the rectangle of zeros in a white image; all of it must be zero."""
    rows, columns = np.nonzero(found[..., 0] == 0)
    if not rows.size:
        return 0, 0, 0, 0
    top, left, bottom, right = rows.min(), columns.min(), rows.max() + 1, columns.max() + 1
    assert not found[top:bottom, left:right].any()
    assert found.sum() == 255 * (found.size - 3 * (bottom - top) * (right - left))
    return top, left, bottom - top, right - left


def test_cutout_is_that_of_its_authors() -> None:
    white = np.full((10, 12, 3), 255, np.uint8)
    found = {differing(image) for image in results("cutout", 400, white, length=4)}

    def mask(y: int, x: int) -> tuple[int, int, int, int]:  # uoguelph-mlrg/Cutout, util/cutout.py
        y1, y2, x1, x2 = *np.clip((y - 2, y + 2), 0, 10), *np.clip((x - 2, x + 2), 0, 12)
        return int(y1), int(x1), int(y2 - y1), int(x2 - x1)

    assert found <= {mask(y, x) for y, x in itertools.product(range(10), range(12))}
    assert {(0, 0, 2, 2), (8, 9, 2, 3)} & found
    assert len(found) > 100
    odd = [differing(image) for image in results("cutout", 50, white, length=3)]
    assert (3, 3) in {box[2:] for box in odd}


def test_random_erasing_is_that_of_torchvision() -> None:
    white = np.full((40, 50, 3), 255, np.uint8)
    values: dict[str, Any] = {"scale": (0.1, 0.4), "ratio": (0.5, 3.0)}
    found = [differing(image) for image in results("random_erasing", 300, white, probability=0.5, **values)]
    erased = [box for box in found if box[2]]
    assert 110 < len(erased) < 190
    shares = [height * width / 2000 for _, _, height, width in erased]
    np.testing.assert_allclose((min(shares), max(shares)), (0.1, 0.4), atol=0.03)
    ratios = [height / width for _, _, height, width in erased]
    np.testing.assert_allclose((min(ratios), max(ratios)), (0.5, 3), rtol=0.15)
    assert all(height < 40 and width < 50 for _, _, height, width in erased)
    large: dict[str, Any] = {"scale": (1.0, 1.0), "ratio": (1.0, 1.0)}
    assert all(image.all() for image in results("random_erasing", 5, white, probability=1.0, **large))


def test_rand_augment_draws_all_operations_and_both_directions() -> None:
    photo = (
        np.asarray(Image.fromarray(IMAGE).resize((32, 24), Image.Resampling.BICUBIC)) // 10 * 9
    )  # not all of [0, 255]
    assert len({image.tobytes() for image in results("rand_augment", 200, photo, num_layers=1)}) == 1 + 2 * 9 + 4
    assert len({image.tobytes() for image in results("rand_augment", 100, photo, num_layers=3)}) > 60


@pytest.mark.parametrize("name", ["random_rotation", "random_translation", "random_zoom"])
def test_without_strength_an_image_stays(name: str) -> None:
    still: dict[str, Any] = {field: 0.0 for field in VALUES[name] if field != "fill_mode"}
    assert all(np.array_equal(image, IMAGE) for image in results(name, 3, **still))
