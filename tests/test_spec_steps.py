"""The steps of a config: two lists of names, and parameters that both share."""

import pytest

from etlrun.stages.image import Decode, RandomFlip, Rescale, Resize
from tests.configs import refusal_of_spec, spec_of
from tests.test_spec import STEPS


def test_training_and_validation_have_their_own_steps_and_share_their_parameters() -> None:
    spec = spec_of(
        "transform.steps=[decode,random_flip,resize,rescale]",
        "transform.eval_steps=[decode,resize,rescale]",
        "++transform.rescale={scale: 0.5, offset: -1}",
    )
    resize = Resize(size=(64, 64), method="bilinear", antialias=False, dtype="uint8")
    rescale = Rescale(scale=0.5, offset=-1.0)
    assert spec.transform.steps == (Decode(), RandomFlip(), resize, rescale)
    assert spec.eval_transform.steps == (Decode(), resize, rescale)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["transform.steps=[decode,resize,resize]"],
            "transform.steps[2]: found resize again; expected each step once\n    -> remove one of the two",
        ),
        (
            ["transform.steps=[decode,rezise]", "transform.eval_steps=[3,null,decode,resize]"],
            (
                f"transform.steps[1]: found 'rezise'; expected one of {STEPS}\n    -> did you mean `resize`?\n"
                f"transform.eval_steps[0]: found 3; expected one of {STEPS}\n"
                "    -> a step of your own is a class in a package of yours, installed with pip: https://github.com/etlrun/etlrun/blob/main/docs/extending.md\n"
                f"transform.eval_steps[1]: found null; expected one of {STEPS}\n"
                "    -> a step of your own is a class in a package of yours, installed with pip: https://github.com/etlrun/etlrun/blob/main/docs/extending.md"
            ),
        ),
        (
            ["transform.steps=[decode]", "transform.eval_steps=[decode]", "++transform.resize.sighs=3"],
            (
                "transform.resize: found parameters of a step that is not used; expected `resize` in transform.steps "
                "or transform.eval_steps\n    -> add the step, or set transform.resize=null"
            ),
        ),
        (["transform.resize=64"], "transform.resize: found 64; expected a mapping of the step's parameters"),
        (
            ["transform.steps=[decode,rescale]"],
            (
                "transform.rescale.scale: found nothing; expected a finite number\n"
                "transform.rescale.offset: found nothing; expected a finite number"
            ),
        ),
    ],
)
def test_wrong_steps_are_told(overrides: list[str], message: str) -> None:
    assert refusal_of_spec(*overrides) == message


def test_parameters_of_an_unused_step_may_be_null() -> None:
    spec = spec_of("transform.steps=[decode]", "transform.eval_steps=[decode]", "transform.resize=null")
    assert spec.transform.steps == (Decode(),)
