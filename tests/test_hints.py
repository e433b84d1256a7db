import pytest

from tests.configs import refusal_of_request, refusal_of_spec


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("prefetch=4", "did you mean `load.prefetch`?"),
        ("cycle_length=4", "did you mean `extract.cycle_length`?"),
        (
            "num_parallel_calls=4",
            "did you mean `load.num_parallel_calls` or `extract.num_parallel_calls` or `transform.num_parallel_calls`?",
        ),
        ("batch_size=64", "did you mean `load.batch_size`?"),
        ("epochs=3", "did you mean `trainer.epochs`?"),
        ("lr=0.01", "did you mean `trainer.learning_rate`?"),
        ("learning_rate=0.01", "did you mean `trainer.learning_rate`?"),
        ("size=[96,96]", "did you mean `transform.resize.size`?"),
        ("seed=1", "did you mean `trainer.seed`?"),
        ("optimiser=sgd", "did you mean `trainer.optimizer`?"),
        ("steps=[decode]", "did you mean `transform.steps`?"),
        ("patience=3", "did you mean `trainer.early_stopping.patience`?"),
        ("cache.target=disk", "did you mean cache=disk?"),
        ("cahce=disk", "did you mean `cache`?"),
        ("resize.size=[96,96]", "did you mean `transform.resize`?"),
        ("load.epochs=3", "did you mean `trainer.epochs`?"),
        ("load.learningrate=0.1", "did you mean `trainer.learning_rate`?"),
        ("load.prefech=3", "did you mean `load.prefetch`?"),
        ("transform.size=[96,96]", "did you mean `transform.resize.size`?"),
        ("transform.resise.size=[96,96]", "did you mean `transform.resize`?"),
        ("step_ms=5", "did you mean `model.step_ms` with model=emulated or `trainer.step_ms` with trainer=drain?"),
        ("model.step_ms=5", "choose model=emulated, which has it"),
        ("load.workers=2", "did you mean `load.service.workers`?"),
        ("repeats=3", "did you mean `sweep.repeats` with -m?"),
    ],
)
def test_an_unknown_key_is_told_with_the_one_that_was_meant(line: str, remedy: str) -> None:
    told = refusal_of_request(line).splitlines()
    key = line.split("=", maxsplit=1)[0].removesuffix(".size") if "res" in line else line.split("=", maxsplit=1)[0]
    assert told[0].startswith(f"{key}: found an unknown key; expected ")
    assert told[1:] == [f"    -> {remedy}"]


@pytest.mark.parametrize("line", ["x.y=1", "verbosity=3", "cache.size=3", "transform.target=decode", "load.threads=2"])
def test_no_key_is_named_that_has_nothing_to_do_with_it(line: str) -> None:
    (told,) = refusal_of_request(line).splitlines()
    assert told.startswith(f"{line.split('=', maxsplit=1)[0].removesuffix('.y')}: found an unknown key; expected ")


def test_a_key_of_a_step_is_meant_where_it_is_and_then_that_of_a_step_in_the_lists() -> None:
    remedies = {
        "transform.random_hue.max_dlta=0.1": "did you mean `transform.random_hue.max_delta`?",
        "transform.lower=0.1": "did you mean `transform.random_contrast.lower` or `transform.random_saturation.lower`?",
        "max_delta=0.1": "did you mean `transform.random_brightness.max_delta` or `transform.random_hue.max_delta`?",
        "length=8": "did you mean `transform.cutout.length` with `cutout` in transform.steps?",
    }
    for line, remedy in remedies.items():
        words = "transform=augmented_224", "cache=none", f"++{line}"
        assert refusal_of_spec(*words).splitlines()[1:] == [f"    -> {remedy}"]
