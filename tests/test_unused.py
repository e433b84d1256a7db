"""What a config says to an option that is not chosen: a note, unless it is what somebody has just asked for."""

from pathlib import Path

import pytest

from tests.configs import plan_of, refusal_of_request, refusal_of_spec, spec_of
from tests.forked import forked
from tests.runs import finish, small, summary_of
from tests.sweeps import Sweep, results_of
from tests.test_compose import grid_of, jobs_of

FIT = "trainer=fit has it, trainer.drain does not"
INTERLEAVE = "extract=interleave has it, extract.sequential does not"

KEYS_OF_DRAIN = "seconds, epochs, seed, step_ms, step_cores"


def test_an_option_chosen_over_that_of_an_experiment_leaves_a_note() -> None:
    spec = spec_of("trainer=drain", "experiment=cats_vs_dogs")
    assert [(value.key, value.value) for value in spec.unused] == [
        ("trainer.learning_rate", 0.001),
        ("trainer.keep", "last"),
    ]
    without = ("~trainer.learning_rate", "~trainer.keep")
    assert spec == spec_of("trainer=drain", "experiment=cats_vs_dogs", *without)
    noted, plain = (plan_of("trainer=drain", "experiment=cats_vs_dogs", *more) for more in ((), without))
    assert noted.fingerprint == plain.fingerprint
    assert (noted.remarks, plain.remarks) == ((f"trainer.learning_rate, trainer.keep are unused: {FIT}.",), ())


def test_what_goes_unused_for_one_reason_is_one_note() -> None:
    steps = ("transform.steps=[decode]", "transform.eval_steps=[decode]", "trainer=drain", "load.batch_size=1")
    assert [value.key for value in spec_of(*steps).unused] == [
        f"transform.resize.{name}" for name in ("size", "method", "antialias", "dtype")
    ]
    spec = spec_of("trainer=drain", "++trainer.early_stopping={patience: 3, monitor: loss}", "++trainer.device=cpu")
    assert [value.key for value in spec.unused] == [
        "trainer.early_stopping.patience",
        "trainer.early_stopping.monitor",
        "trainer.device",
    ]
    plan = plan_of("trainer=drain", "++trainer.early_stopping={patience: 3, monitor: loss}", "++trainer.device=cpu")
    keys = "trainer.early_stopping.patience, trainer.early_stopping.monitor, trainer.device"
    assert plan.remarks[0] == f"{keys} are unused: {FIT}."


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "++trainer.learning_rat=3",
            f"trainer.learning_rat: found an unknown key; expected one of the keys {KEYS_OF_DRAIN}",
        ),
        (
            "++trainer.early_stopping={patient: 3, monitor: loss}",
            (
                f"trainer.early_stopping: found an unknown key; expected one of the keys {KEYS_OF_DRAIN}\n"
                "    -> choose trainer=fit, which has it"
            ),
        ),
        (
            "++transform.rescale={scael: 3}",
            (
                "transform.rescale: found parameters of a step that is not used; expected `rescale` in transform.steps "
                "or transform.eval_steps\n    -> add the step, or set transform.rescale=null"
            ),
        ),
    ],
)
def test_what_no_option_has_stays_a_fault(override: str, message: str) -> None:
    assert refusal_of_spec("trainer=drain", override) == message


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["trainer=drain", "trainer.learning_rate=0.1"],
            (
                f"trainer.learning_rate: found an unknown key; expected one of the keys {KEYS_OF_DRAIN}\n"
                "    -> choose trainer=fit, which has it"
            ),
        ),
        (
            ["extract=sequential,tfds", "extract.cycle_length=1,4", "load.prefetch=-1"],
            (
                "extract.cycle_length: found an unknown key; expected one of the keys shuffle_files\n"
                "    -> choose extract=interleave, which has it\n"
                "load.prefetch: found -1; expected an integer from 0 to 1,000,000, or autotune"
            ),
        ),
        (
            ["+transform.rescale.scale=3.0"],
            (
                "transform.rescale.scale: found a parameter of a step that is not used; expected "
                "`rescale` in transform.steps or transform.eval_steps\n    -> add the step, or leave it out"
            ),
        ),
    ],
)
def test_what_is_asked_for_and_used_nowhere_is_a_fault(overrides: list[str], message: str) -> None:
    assert refusal_of_request(*overrides) == message


@pytest.mark.needs("hydra-optuna-sweeper")
def test_a_search_refuses_a_key_that_some_of_its_options_lack() -> None:
    words = ["hydra/sweeper=optuna", "extract=choice(sequential,interleave)", "extract.cycle_length=choice(1,4)"]
    assert refusal_of_request(*words) == (
        "extract.cycle_length: found an unknown key; expected one of the keys shuffle_files\n"
        "    -> choose extract=interleave, which has it"
    )


def test_a_key_counts_where_an_option_has_it() -> None:
    wanted = [["extract=interleave", "extract.cycle_length=1"], ["extract=interleave", "extract.cycle_length=4"]]
    for extracts in ("sequential,interleave", "interleave,sequential"):
        jobs = jobs_of(f"extract={extracts}", "extract.cycle_length=1,4")
        assert [words for words in jobs if "extract=interleave" in words] == wanted
        assert [words for words in jobs if "extract=interleave" not in words] == [["extract=sequential"]] * 2
    jobs_of_naive = grid_of("experiment=naive,parallel", "extract.cycle_length=1,4").jobs[:2]
    assert [job.used["extract"] for job in jobs_of_naive] == [{"name": "tfds", "decode": True}] * 2


def test_values_that_go_unused_make_no_run_of_their_own(
    sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("extract=sequential,interleave", "extract.cycle_length=1,4", "cache=none") == 0
    captured, results = capsys.readouterr(), results_of(tmp_path)
    assert captured.err.splitlines()[0] == "etlrun: 4 combinations, 3 distinct configs"
    assert {config["number"]: config["own"] for config in results["configs"]} == {
        0: ["extract=sequential"],
        1: ["extract=interleave", "extract.cycle_length=1"],
        2: ["extract=interleave", "extract.cycle_length=4"],
    }
    assert f"note      configs 0: extract.cycle_length is unused: {INTERLEAVE}\n" in captured.out


def test_a_run_of_an_experiment_with_another_trainer_says_what_goes_unused(tiny: Path, tmp_path: Path) -> None:
    own = tmp_path / "mine" / "experiment" / "mine.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("# @package _global_\n# Mine.\ntrainer: {learning_rate: 0.01}\nload: {prefetch: 1}\n")
    words = [word for word in small(tiny, "trainer=drain", "experiment=mine") if "model" not in word]
    words += [f"hydra.run.dir={tmp_path / 'run'}", "--config-dir", str(tmp_path / "mine")]
    status, out, err = finish(forked(words, tmp_path))
    assert status == 0, err
    assert summary_of(tmp_path / "run")["remarks"][0] == f"trainer.learning_rate is unused: {FIT}."
    assert f"note      trainer.learning_rate is unused: {FIT}.\n" in out
