import pytest

from tests.configs import refusal_of_plan, refusal_of_spec


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["model=emulated", "model.step_ms=-1"],
            "model.step_ms: found -1; expected a number from 0 to 86,400,000, which is a day",
        ),
        (["measure.au_min=1.5"], "measure.au_min: found 1.5; expected a number from 0 to 1, or null"),
        (["measure.au_min=-0.1"], "measure.au_min: found -0.1; expected a number from 0 to 1, or null"),
        (["measure.digest=1"], "measure.digest: found 1; expected true or false"),
        (
            ["profile=trace", "profile.windows=[]"],
            "profile.windows: found []; expected a list of windows [first step, end), for example [[10, 20]]",
        ),
        (
            ["profile=trace", "profile.windows=[[5,5]]"],
            (
                "profile.windows: found [[5, 5]]; expected windows [first step, end) of at least one step, ordered and "
                "disjoint\n    -> write them as [[10, 20], [100, 110]]"
            ),
        ),
        (
            ["profile=trace", "profile.windows=[[5,8],[7,9]]"],
            (
                "profile.windows: found [[5, 8], [7, 9]]; expected windows [first step, end) of at least one step, "
                "ordered and disjoint\n    -> write them as [[10, 20], [100, 110]]"
            ),
        ),
        (
            ["trainer=drain", "trainer.epochs=null"],
            (
                "trainer.seconds: found null, as is trainer.epochs; expected a limit\n"
                "    -> set trainer.seconds or trainer.epochs"
            ),
        ),
        (["trainer=drain", "trainer.seconds=0"], "trainer.seconds: found 0; expected a positive number, or null"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_measures_are_refused(overrides: list[str], message: str) -> None:
    assert refusal_of_spec(*overrides) == message


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["profile=trace", "trainer.steps_per_epoch=5", "trainer.epochs=4"],
            (
                "profile.windows: found [[20, 30]]; expected windows within the 20 steps of the run\n"
                "    -> end the last one at step 20 or earlier, or train longer"
            ),
        ),
        (
            ["trainer=drain", "profile=trace", "measure.au_min=0.9"],
            (
                "profile.name: found trace; expected none, since trainer.drain has no steps to profile\n"
                "    -> set profile=none\n"
                "measure.au_min: found 0.9; expected null, since trainer.drain uses no accelerator\n"
                "    -> set measure.au_min=null"
            ),
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_measures_that_do_not_fit_the_run_are_refused(overrides: list[str], message: str) -> None:
    assert refusal_of_plan(*overrides) == message
