"""Targets that no model predicts are refused in the plan; numbers are trained with a loss that a note names."""

import pytest

from tests.configs import plan_of, refusal_of_plan

OWN = ("dataset=tfds", "dataset.name=own", "+dataset.features={image: image}")
DRAINED = ("trainer=drain", "model=emulated")


def with_target(declared: str) -> tuple[str, ...]:
    return (*OWN, f"+dataset.target={{answer: {declared}}}")


WITHOUT_HEAD = {
    "image": ("encoded image", "images"),
    "text": ("text", "text"),
    "int64 40": ("int64 [40]", "several labels of one example"),
    "bool 3": ("bool [3]", "several labels of one example"),
    "bool": ("bool", "truth values"),
    "uint8 28x28": ("uint8 [28, 28]", "arrays of several dimensions"),
    "float32 8x8x1": ("float32 [8, 8, 1]", "arrays of several dimensions"),
}


@pytest.mark.parametrize("declared", WITHOUT_HEAD)
@pytest.mark.parametrize("model", ["mobilenet_v2", "keras_application"])
def test_a_target_without_a_head_is_refused_in_the_plan(model: str, declared: str) -> None:
    shown, kind = WITHOUT_HEAD[declared]
    assert refusal_of_plan(*with_target(declared), f"model={model}", "transform=imagenet_224") == (
        f"dataset.target: found answer: {shown}; expected a class, or numbers such as float32, since no model predicts "
        f"{kind}\n"
        "    -> predict another feature, or read the dataset without training a model: trainer=drain"
    )


@pytest.mark.parametrize("declared", WITHOUT_HEAD)
def test_it_is_read_where_no_model_learns(declared: str) -> None:
    assert plan_of(*with_target(declared), *DRAINED).train
    assert plan_of(*with_target(declared), "model=emulated").train


@pytest.mark.parametrize("declared", ["float32", "float32 4", "float64", "int64", "uint8"])
def test_numbers_are_trained_with_a_loss_that_a_note_names(declared: str) -> None:
    note = "answer is not a class: its loss is the mean squared error, and there is no metric."
    assert note in plan_of(*with_target(declared)).remarks
    assert note not in plan_of(*with_target("class")).remarks
    assert note not in plan_of(*with_target(declared), *DRAINED).remarks
