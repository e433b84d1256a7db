"""All image models of Keras: what plans know of them, and runs of one of them."""

from typing import Any

import keras
import numpy as np
import pytest

from benchmarks.applications import built, faults, module_of
from etlrun.planning.spec import told
from etlrun.review.difference import compare
from etlrun.stages.base import TRAINING
from etlrun.stages.flow import Feature
from etlrun.stages.model import APPLICATIONS, KerasApplication
from tests.configs import plan_of, spec_of
from tests.golden import Says
from tests.steps import step_of

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 5, 3), np.uint8)
IMAGE = Feature(dtype="uint8", shape=(6, 5, 3), low=0.0, high=255.0)
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
NORMALIZE = "++transform.normalize={mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}"


def steps(*names: str) -> tuple[str, str]:
    listed = ",".join(("decode", "resize", *names))
    return f"transform.steps=[{listed}]", f"transform.eval_steps=[{listed}]"


def of(application: str, *overrides: str) -> tuple[str, ...]:
    return "model=keras_application", f"model.name={application}", *overrides


def test_the_table_has_all_models_of_keras() -> None:
    every = {name for name in dir(keras.applications) if name[0].isupper()}
    assert set(APPLICATIONS) == {name for name in every if not name.startswith("EfficientNetB")}


@pytest.mark.filterwarnings("ignore:`input_shape` is undefined")
@pytest.mark.parametrize("name", ["MobileNet", "MobileNetV3Small", "VGG16"])
def test_the_table_is_that_of_keras(name: str) -> None:
    assert faults(name, built(name, APPLICATIONS[name].smallest)) == []


@pytest.mark.parametrize(
    ("application", "step", "values"),
    [
        ("ResNet50V2", "scale_minus_one_one", {}),
        ("DenseNet121", "normalize", IMAGENET),
        ("ResNet50", "zero_center_bgr", {}),
    ],
)
def test_a_step_is_the_preprocessing_of_keras(application: str, step: str, values: dict[str, Any]) -> None:
    made = step_of(step, **values)
    expected = module_of(application).preprocess_input(PIXELS.astype("float32"))
    np.testing.assert_allclose(made.op(PIXELS, **values), expected, atol=1e-4)
    assert APPLICATIONS[application].preprocessing.fits(made.gives(IMAGE))


@pytest.mark.parametrize(
    ("application", "words"),
    [
        ("EfficientNetV2B0", steps()),
        ("ConvNeXtTiny", (*steps(), "transform.resize.dtype=float32")),
        ("ResNet50V2", steps("scale_minus_one_one")),
        ("DenseNet121", (*steps("normalize"), NORMALIZE)),
        ("VGG19", steps("zero_center_bgr")),
        ("VGG19", (*steps("scale_zero_one"), "model.weights=null")),
        ("MobileNet", ("transform=cifar_32", "cache=none", "model.weights=some.weights.h5")),
        ("Xception", ("transform.resize.size=[71,75]",)),
    ],
)
def test_a_model_takes_its_own_images_and_without_imagenet_others(application: str, words: tuple[str, ...]) -> None:
    assert plan_of(*of(application, *words)).spec.model.features == APPLICATIONS[application].features


def test_another_model_by_its_name_leaves_values_that_it_does_not_have_unused(says: Says) -> None:
    spec = spec_of("model.name=EfficientNetV2B0")
    assert spec.model == KerasApplication(
        name="EfficientNetV2B0", weights=None, trainable=True, batch_norm_momentum=0.8
    )
    says([*told(spec.unused)])


@pytest.mark.parametrize(
    ("old", "new", "told_as"),
    [
        ("VGG16", "VGG19", ("model.name", "VGG16", "VGG19")),
        ("MobileNetV2", "", ("model", "MobileNetV2", "mobilenet_v2")),
    ],
)
def test_another_application_is_another_training(old: str, new: str, told_as: tuple[str, str, str]) -> None:
    plain = ("transform.steps=[decode,resize,zero_center_bgr]", "transform.eval_steps=[decode,resize,zero_center_bgr]")
    before = plan_of(*of(old, *(plain if new else ())))
    after = plan_of(*of(new, *plain)) if new else plan_of("model=mobilenet_v2")
    (first, *_) = compare(before, after).differences
    assert (first.path, first.old, first.new, first.kind) == (*told_as, TRAINING)


def test_imagenet_s_weights_on_other_pixels_are_noted(says: Says) -> None:
    """The exercise has MobileNetV2 so, which takes both ranges; `keras_application` refuses it."""
    for scaling, weights in (("zero", "imagenet"), ("minus_one", "imagenet"), ("zero", "null")):
        words = (*steps(f"scale_{scaling}_one"), f"model.weights={weights}")
        says([*plan_of("model=mobilenet_v2", "model.alpha=0.35", *words).remarks])
