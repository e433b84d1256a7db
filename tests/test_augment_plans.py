"""What augmentation steps accept and give, as configs and plans know it."""

from typing import Any

import pytest

from etlrun.stages.flow import Feature, UnfitError
from etlrun.stages.image import ScaleMinusOneOne
from tests.configs import plan_of
from tests.steps import RANDOM, VALUES, step_of, words_with

ANY = Feature(dtype="uint8", shape=(None, None, 3), low=0.0, high=255.0)
PORTRAIT = ANY.replace(shape=(80, 60, 3))
FLOATS = PORTRAIT.replace(dtype="float32")
SCALED = ScaleMinusOneOne().gives(PORTRAIT)
COLOURS = ["random_brightness", "random_contrast", "random_saturation", "random_hue", "random_grey"]
STILL = [name for name in RANDOM if name not in ("random_crop", "random_resized_crop")]


@pytest.mark.parametrize("incoming", [ANY, PORTRAIT], ids=str)
@pytest.mark.parametrize("name", STILL)
def test_most_give_what_they_take(name: str, incoming: Feature) -> None:
    assert step_of(name).gives(incoming) == incoming


@pytest.mark.parametrize("name", COLOURS)
def test_colours_of_floats_stay_floats(name: str) -> None:
    assert step_of(name).gives(FLOATS) == FLOATS


@pytest.mark.parametrize(
    ("name", "values", "incoming", "outgoing"),
    [
        ("pad", {}, ANY, ANY),
        ("pad", {"by": 4}, PORTRAIT, PORTRAIT.replace(shape=(88, 68, 3))),
        ("pad", {"value": -2.0}, SCALED, SCALED.replace(shape=(84, 64, 3), low=-2.0)),
        ("pad", {"mode": "reflect", "by": 59}, SCALED, SCALED.replace(shape=(198, 178, 3))),
        ("random_crop", {}, ANY, ANY.replace(shape=(20, 24, 3))),
        ("random_crop", {"size": (80, 60)}, PORTRAIT, PORTRAIT),
        ("random_resized_crop", {}, PORTRAIT, PORTRAIT.replace(shape=(24, 20, 3))),
        ("random_resized_crop", {}, SCALED, SCALED.replace(shape=(24, 20, 3))),
        ("cutout", {"value": 3.0}, SCALED, SCALED.replace(high=3.0)),
        ("random_erasing", {"value": 0.5}, SCALED, SCALED),
        ("random_rotation", {"fill_mode": "constant"}, SCALED.replace(low=0.5), SCALED.replace(low=0.0)),
        ("random_rotation", {"fill_mode": "reflect"}, SCALED.replace(low=0.5), SCALED.replace(low=0.5)),
        ("random_zoom", {"fill_mode": "constant"}, SCALED.replace(high=-0.5), SCALED.replace(high=0.0)),
        (
            "normalize",
            {"mean": (0.5, 0.25, 0.0), "std": (0.25, 0.5, 1.0)},
            PORTRAIT,
            FLOATS.replace(low=-2.0, high=2.0, is_normalized=True),
        ),
        (
            "normalize",
            {"mean": (0.5, 0.25, -1.0), "std": (0.25, 0.5, 0.5)},
            FLOATS,
            FLOATS.replace(low=-2.0, high=4.0, is_normalized=True),
        ),
    ],
)
def test_what_a_step_gives(name: str, values: dict[str, Any], incoming: Feature, outgoing: Feature) -> None:
    assert step_of(name, **values).gives(incoming) == outgoing


def test_a_range_that_is_not_known_stays_so() -> None:
    unknown = FLOATS.replace(low=None, high=None)
    assert step_of("cutout").gives(unknown) == unknown


@pytest.mark.parametrize(
    ("name", "values", "incoming", "expected", "remedy"),
    [
        *(
            (name, {}, SCALED, "pixels in [0, 255]", "put it before the scaling in the steps")
            for name in (*COLOURS, "normalize", "rand_augment")
        ),
        ("rand_augment", {}, FLOATS, "uint8 pixels", "put it behind `decode`, or set transform.resize.dtype=uint8"),
        ("random_hue", {}, PORTRAIT.replace(shape=(80, 60, 1)), "an image of three channels", "leave the step out"),
        (
            "random_zoom",
            {},
            PORTRAIT.replace(dtype="int32"),
            "uint8 or float32 pixels",
            "put `resize` before it in the steps",
        ),
        (
            "random_crop",
            {"size": (80, 61)},
            PORTRAIT,
            "images of at least 80x61 pixels",
            "set a smaller transform.random_crop.size, or put `pad` or a larger `resize` before it",
        ),
        (
            "pad",
            {"by": 60, "mode": "reflect"},
            PORTRAIT,
            "images of at least 61x61 pixels, which a border of 60 mirrors",
            "set a smaller transform.pad.by",
        ),
        *(
            (
                name,
                {"value": value},
                PORTRAIT,
                f"float32 pixels, since uint8 can't hold the value {value:g}",
                "set a whole value from 0 to 255, or put the step after the scaling",
            )
            for name, value in (("pad", 0.5), ("cutout", -1.0), ("random_erasing", 256.0))
        ),
    ],
)
def test_what_a_step_refuses(name: str, values: dict[str, Any], incoming: Feature, expected: str, remedy: str) -> None:
    with pytest.raises(UnfitError) as caught:
        step_of(name, **values).gives(incoming)
    assert (caught.value.expected, caught.value.remedy) == (expected, remedy)


@pytest.mark.parametrize("name", [*RANDOM, *(VALUES.keys() - {"rescale"})])
def test_encoded_images_are_decoded_first(name: str) -> None:
    with pytest.raises(UnfitError) as caught:
        step_of(name).gives(Feature(dtype="string", format="image"))
    assert caught.value.remedy == "put `decode` before it in the steps"


def test_grey_of_all_images_is_cached_and_validated_on() -> None:
    listed = "[decode,random_grey,resize,scale_minus_one_one]"
    words = [*words_with("random_grey"), f"transform.eval_steps={listed}", "transform.random_grey.probability=1"]
    assert plan_of(*words, f"transform.steps={listed}", "cache=memory").evaluation


def test_mobilenet_takes_normalized_images() -> None:
    assert plan_of("transform=cifar_32", "cache=none").train[-1].gives.feature("image").is_normalized
