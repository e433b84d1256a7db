"""Augmentations agree with their published definitions: those of `tf.image`, Keras's layers, Pillow and torchvision."""

import inspect
import itertools
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageOps

from etlrun.run.backend import seed_all
from etlrun.stages.augment import Pad, crop_box, drawn, rotated
from etlrun.stages.colour import Normalize, augmented, brightened, contrasted, recoloured, saturated
from etlrun.stages.flow import Feature, UnfitError
from etlrun.stages.image import ScaleMinusOneOne
from tests.configs import plan_of
from tests.golden import Case, Golden, Says, cases
from tests.pipelines import as_bytes, passes_of, training_pipeline
from tests.programs import EPOCHS, of_tiny
from tests.runs import small
from tests.steps import RANDOM, VALUES, block_of, step_of

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


def test_normalized_pixels_are_those_of_keras_layer() -> None:
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    layer = keras.layers.Normalization(mean=mean, variance=np.square(std))
    expected = layer(FLOATS[np.newaxis] / 255)[0]
    np.testing.assert_allclose(Normalize.op(IMAGE_TENSOR, mean=mean, std=std), expected, atol=1e-5)


@pytest.mark.parametrize("fill_mode", ["constant", "reflect", "nearest"])
def test_a_turned_image_is_that_of_keras_layer(fill_mode: str) -> None:
    layer = keras.layers.RandomRotation((0.12, 0.12), fill_mode=fill_mode, interpolation="bilinear")
    expected = np.asarray(layer(FLOATS[np.newaxis], training=True)[0])
    found = rotated(tf.constant(FLOATS), 0.12 * 360, fill_mode)
    np.testing.assert_allclose(found, expected, atol=0.02)
    assert far(expected, FLOATS) > 10
    np.testing.assert_array_equal(rotated(IMAGE_TENSOR, 0.12 * 360, fill_mode), np.round(found))


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


def test_flat_images_are_neither_stretched_nor_equalized() -> None:
    flat = np.full((5, 4, 3), 77, np.uint8)
    for operation in (12, 13):
        np.testing.assert_array_equal(augmented(tf.constant(flat), tf.constant(operation), 9, tf.constant(1.0)), flat)


DRAWN_IMAGE = np.random.default_rng(0).integers(0, 256, (24, 30, 3), np.uint8)


def results(name: str, count: int = 200, image: Pixels = DRAWN_IMAGE, **values: Any) -> list[Pixels]:
    """What a step makes of an image with the seeds below `count`."""
    step = step_of(name, **values)
    one = tf.function(lambda seed: step.op(tf.constant(image), **step.arguments, seed=seed), autograph=False)
    return [one(tf.constant(seed, tf.int64)).numpy() for seed in range(count)]


@pytest.mark.parametrize("name", RANDOM)
def test_a_step_draws_other_numbers_for_each_seed_and_the_same_for_the_same(name: str) -> None:
    found = results(name, 20)
    again = results(name, 20)
    assert all(np.array_equal(*pair) for pair in zip(found, again, strict=True))
    assert len({image.tobytes() for image in found}) > 1
    assert {image.dtype for image in found} == {np.dtype(np.uint8)}


def test_numbers_differ_for_each_seed_and_image_and_salt() -> None:
    floats = DRAWN_IMAGE.astype(np.float32) / 256  # inside of (-1, 1)
    images = [DRAWN_IMAGE, DRAWN_IMAGE // 2, floats, floats / 2]
    keys = [
        *((image, 1, "a") for image in images),
        (DRAWN_IMAGE, 2, "a"),
        (DRAWN_IMAGE, 1, "b"),
        (DRAWN_IMAGE[::-1], 1, "a"),
    ]
    found = [
        tuple(drawn(tf.constant(image), tf.constant(seed, tf.int64), salt, 2).numpy()) for image, seed, salt in keys
    ]
    assert len(set(found)) == 6
    assert found[-1] == found[0]  # the sum of the pixels is the same


@pytest.mark.parametrize("image", [DRAWN_IMAGE, np.full((4000, 3000, 3), 255, np.uint8)], ids=["small", "above 2**32"])
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
    image = tf.constant(DRAWN_IMAGE)
    draw = tf.function(lambda seed: tf.concat([drawn(image, seed, salt, 2) for salt in salts], 0), autograph=False)
    columns = np.array([draw(tf.constant(seed, tf.int64)) for seed in range(100)])
    links = np.corrcoef(columns, rowvar=False) - np.eye(columns.shape[1])
    assert np.abs(links).max() < 0.5
    assert columns.min() >= 0
    assert columns.max() < 1
    np.testing.assert_allclose(columns.mean(), 0.5, atol=0.02)


def test_an_image_is_flipped_up_down_whether_or_not_it_is_flipped_left_right() -> None:
    sideways = [not np.array_equal(image, DRAWN_IMAGE) for image in results("random_flip")]
    down = [not np.array_equal(image, DRAWN_IMAGE) for image in results("random_flip_up_down")]
    pairs = list(zip(sideways, down, strict=True))
    assert {pair: 30 < count < 70 for pair, count in Counter(pairs).items()} == dict.fromkeys(
        itertools.product((True, False), repeat=2), True
    )
    assert {image.tobytes() for image in results("random_flip_up_down")} == {
        DRAWN_IMAGE.tobytes(),
        DRAWN_IMAGE[::-1].tobytes(),
    }


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
    photo = np.asarray(Image.fromarray(DRAWN_IMAGE).resize((80, 60), Image.Resampling.BICUBIC))
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


def test_rand_augment_draws_all_operations_and_both_directions() -> None:
    photo = (
        np.asarray(Image.fromarray(DRAWN_IMAGE).resize((32, 24), Image.Resampling.BICUBIC)) // 10 * 9
    )  # not all of [0, 255]
    assert len({image.tobytes() for image in results("rand_augment", 200, photo, num_layers=1)}) == 1 + 2 * 9 + 4
    assert len({image.tobytes() for image in results("rand_augment", 100, photo, num_layers=3)}) > 60


def test_without_strength_an_image_stays() -> None:
    assert all(np.array_equal(image, DRAWN_IMAGE) for image in results("random_rotation", 3, degrees=0.0))


CROPS = ["random_resized_crop", "pad", "random_crop"]
ALL = [*CROPS, *(name for name in RANDOM if name not in CROPS)]
LIST = f"transform.steps=[decode,{','.join(ALL)},normalize]"
EVERY = (
    LIST, "transform.eval_steps=[decode,resize,normalize]",
    *(block_of(name) for name in (*ALL, "normalize") if name in VALUES), "transform.random_resized_crop.size=[32,32]",
    "transform.random_crop.size=[32,32]", "transform.resize.size=[32,32]", "transform.rand_augment.num_layers=1",
    "cache=none",
)  # fmt: skip
"""A run with all random steps in one list."""
Passes = list[Counter[tuple[bytes, bytes]]]


def examples(data_dir: Path, *overrides: str) -> Passes:
    """The images and labels of two passes, in any order."""
    with training_pipeline(plan_of(*small(data_dir, *EVERY, *overrides))) as pipeline:
        return [
            Counter(
                (image.tobytes(), label.tobytes())
                for images, labels in pipeline.dataset.as_numpy_iterator()
                for image, label in zip(images, labels, strict=True)
            )
            for _ in range(2)
        ]


@pytest.fixture(scope="module")
def plain(tiny: Path) -> Passes:
    return examples(tiny)


def test_another_pass_differs(plain: Passes) -> None:
    assert not plain[0] & plain[1]
    assert [len(found) for found in plain] == [38, 38]


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ("transform.num_parallel_calls=null", "extract=sequential", "load.shuffle_buffer=0", "load.batch_size=5"),
        ("transform.num_parallel_calls=3", "transform.deterministic=false", "cache=memory", "cache.at=decoded"),
    ],
    ids=["serial", "parallel, after a cache"],
)
def test_a_pass_is_the_same_at_any_speed_and_in_any_order(
    overrides: tuple[str, ...], plain: Passes, tiny: Path
) -> None:
    assert examples(tiny, *overrides) == plain


@pytest.mark.slow
def test_a_program_has_the_same_batches(tiny: Path, tmp_path: Path) -> None:
    plan, module = of_tiny(tiny, tmp_path, *EVERY)
    seed_all(plan.spec.trainer.seed)
    passes = passes_of(plan, EPOCHS)
    assert as_bytes(module.train_dataset()) == list(itertools.chain(*passes))


ANY = Feature(dtype="uint8", shape=(None, None, 3), low=0.0, high=255.0)
PORTRAIT = ANY.replace(shape=(80, 60, 3))
FLOAT_FEATURE = PORTRAIT.replace(dtype="float32")
SCALED = ScaleMinusOneOne().gives(PORTRAIT)
COLOUR_STEPS = ["random_brightness", "random_contrast", "random_saturation", "random_hue"]
STILL = [name for name in RANDOM if name not in ("random_crop", "random_resized_crop")]


@pytest.mark.parametrize("incoming", [ANY, PORTRAIT], ids=str)
@pytest.mark.parametrize("name", STILL)
def test_most_give_what_they_take(name: str, incoming: Feature) -> None:
    assert step_of(name).gives(incoming) == incoming


GIVEN: list[tuple[str, dict[str, Any], Feature]] = [
    *((name, {}, FLOAT_FEATURE) for name in COLOUR_STEPS),
    ("cutout", {}, FLOAT_FEATURE.replace(low=None, high=None)),
    ("pad", {}, ANY),
    ("pad", {"by": 4}, PORTRAIT),
    ("pad", {"value": -2.0}, SCALED),
    ("pad", {"mode": "reflect", "by": 59}, SCALED),
    ("random_crop", {}, ANY),
    ("random_crop", {"size": (80, 60)}, PORTRAIT),
    ("random_resized_crop", {}, PORTRAIT),
    ("random_resized_crop", {}, SCALED),
    ("cutout", {"value": 3.0}, SCALED),
    *(("random_rotation", {"fill_mode": mode}, SCALED.replace(low=0.5)) for mode in ("constant", "reflect")),
    ("normalize", {"mean": (0.5, 0.25, 0.0), "std": (0.25, 0.5, 1.0)}, PORTRAIT),
    ("normalize", {"mean": (0.5, 0.25, -1.0), "std": (0.25, 0.5, 0.5)}, FLOAT_FEATURE),
]


def test_what_a_step_gives(says: Says) -> None:
    found = ((step_of(name, **values).gives(of), name, values, of) for name, values, of in GIVEN)
    says([f"{name} {values}: {of} -> {new}, normalized: {new.is_normalized}" for new, name, values, of in found])


@pytest.mark.parametrize("case", cases("random_steps"))
def test_what_a_step_refuses(case: Case, golden: Golden) -> None:
    given = {"SCALED": SCALED, "PORTRAIT": PORTRAIT, "FLOAT_FEATURE": FLOAT_FEATURE}[case["incoming"]]
    values, replaced = (
        {name: tuple(of) if isinstance(of, list) else of for name, of in case.get(key, {}).items()}
        for key in ("values", "replace")
    )
    with pytest.raises(UnfitError) as caught:
        step_of(case["name"], **values).gives(given.replace(**replaced))
    golden(case, f"{caught.value.expected}\n    -> {caught.value.remedy}")


@pytest.mark.parametrize("name", [*RANDOM, *(VALUES.keys() - {"rescale"})])
def test_encoded_images_are_decoded_first(name: str) -> None:
    with pytest.raises(UnfitError) as caught:
        step_of(name).gives(Feature(dtype="string", format="image"))
    assert caught.value.remedy == "put `decode` before it in the steps"
