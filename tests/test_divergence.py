"""Trainings whose loss or weights become no finite numbers: they fail, or are noted; their models predict nothing."""

import re
import shlex
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from etlrun.cli import main as cli
from tests.forked import forked_on_jax
from tests.networks import trained_here
from tests.quick import shallow
from tests.runs import finish, run_here, small, summary_of
from tests.trained import refused

DIVERGES = ("trainer.optimizer=sgd", "trainer.learning_rate=1.0e+38")
AT_ONCE = ("trainer.optimizer=sgd", "trainer.learning_rate=1.0e+300")
"""More than float32 holds: the first step makes all trained weights no numbers."""
WARN = "trainer.on_nan=warn"
REMEDY = "set a smaller trainer.learning_rate, or trainer.clipnorm=1; trainer.on_nan=warn trains on with a note"


def error_of(summary: dict[str, Any]) -> str:
    assert summary["status"] == "failed"
    return str(summary["error"])


def test_the_first_loss_that_is_not_finite_ends_a_run(
    tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, summary = trained_here(tmp_path, tiny, *DIVERGES)
    assert status == 1
    first, _, rest = error_of(summary).partition(", after a mean of ")
    assert first == "epoch 1, training step 2: found a loss of nan"
    mean, _, rest = rest.partition(";")
    assert 0.1 < float(mean) < 10.0
    assert rest == f" expected a finite loss\n    -> sgd took a learning rate of 1e+38; {REMEDY}"
    assert summary["epochs"] == []
    assert not (tmp_path / "model.keras").exists()
    assert not (tmp_path / "checkpoints").exists()
    assert f"etlrun: failed\n  {summary['error']}" in capfd.readouterr().err


def test_a_run_that_warns_goes_on_with_a_note(tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, summary = trained_here(tmp_path, tiny, *DIVERGES, WARN, "trainer.epochs=2")
    assert (status, summary["status"], len(summary["epochs"])) == (0, "completed", 2)
    (note,) = (text for text in summary["remarks"] if "diverged" in text)
    assert note.startswith("The training has diverged: a loss of nan, after a mean of ")
    assert note.endswith(", in epoch 1, training step 2 (trainer.on_nan=warn).")
    assert f"note  {note}" in capfd.readouterr().err
    assert f"- note      {note}" in (tmp_path / "report.md").read_text()


def test_a_loss_of_the_validation_that_is_not_finite_ends_a_run(tiny: Path, tmp_path: Path) -> None:
    status, summary = trained_here(tmp_path, tiny, *DIVERGES, "load.batch_size=64", "load.shuffle_buffer=64")
    assert status == 1
    assert error_of(summary) == (
        "epoch 1, validation step 1: found a loss of nan; expected a finite loss\n"
        f"    -> sgd took a learning rate of 1e+38; {REMEDY}"
    )


def test_weights_that_no_loss_has_seen_end_a_run(tiny: Path, tmp_path: Path) -> None:
    words = ("load.batch_size=64", "load.shuffle_buffer=64", "dataset.eval_split=null")
    status, summary = trained_here(tmp_path, tiny, *AT_ONCE, *words)
    assert status == 1
    assert re.sub(r"conv2d(_\d+)?/", "conv2d/", error_of(summary)) == (
        "epoch 1, at its end: found weights that are not finite in 4 of 4 variables: conv2d/kernel; "
        f"expected finite weights\n    -> sgd took a learning rate of inf; {REMEDY}"
    )
    assert not (tmp_path / "checkpoints").exists()


def test_clipping_that_is_on_is_no_remedy_and_float32_is_one(tiny: Path, tmp_path: Path) -> None:
    words = ("trainer.clipnorm=1.0e+38", "trainer.mixed_precision=mixed_bfloat16")
    _, summary = trained_here(tmp_path, tiny, *DIVERGES, *words)
    assert error_of(summary).endswith(
        "-> sgd took a learning rate of 1e+38; set a smaller trainer.learning_rate, or trainer.mixed_precision=null; "
        "trainer.on_nan=warn trains on with a note"
    )


def test_a_run_whose_first_loss_is_not_finite_is_sent_to_its_data(tiny: Path, tmp_path: Path) -> None:
    weights = tmp_path / "base.weights.h5"
    with pytest.MonkeyPatch.context() as patch:
        shallow(patch)
        network = keras.applications.MobileNetV2((32, 32, 3), alpha=0.35, include_top=False, weights=None)
    network.set_weights([np.full_like(of, np.nan) for of in network.get_weights()])
    network.save_weights(weights)
    status, summary = run_here(tmp_path / "run", small(tiny, f"model.weights={weights}", "cache=none"))
    assert status == 1
    assert error_of(summary) == (
        "epoch 1, training step 1: found a loss of nan; expected a finite loss\n"
        "    -> no step had changed the weights before: look at inputs and targets with `etlrun show`, and at "
        "model.weights; trainer.on_nan=warn trains on with a note"
    )


LATER = (
    *("trainer.epochs=3", "trainer.optimizer=sgd", "trainer.learning_rate=1.0", "load.batch_size=4"),
    *(
        "trainer.schedule.name=piecewise",
        "trainer.schedule.boundaries=[12]",
        "trainer.schedule.factors=[1.0e+38]",
        "cache=none",
    ),
)
"""The rate grows after 12 steps, in the second epoch."""


@pytest.mark.slow
def test_a_run_that_failed_is_resumed_with_the_same_end_or_with_a_warning(tiny: Path, tmp_path: Path) -> None:
    failed, again, warned = (tmp_path / name for name in ("failed", "again", "warned"))
    status, summary = trained_here(failed, tiny, *LATER)
    assert (status, len(summary["epochs"])) == (1, 1)
    assert error_of(summary).startswith("epoch 2, training step ")
    assert [path.name for path in (failed / "checkpoints").iterdir()] == ["epoch_0001.keras"]
    status, resumed = trained_here(again, tiny, *LATER, f"trainer.resume={failed}")
    assert (status, error_of(resumed)) == (1, summary["error"])
    status, resumed = trained_here(warned, tiny, *LATER, WARN, f"trainer.resume={failed}")
    assert (status, len(resumed["epochs"])) == (0, 3)
    assert [epoch["loss"] for epoch in resumed["epochs"]][1:] == ["NaN", "NaN"]
    assert sum("The training has diverged" in text for text in resumed["remarks"]) == 1


@pytest.mark.slow
@pytest.mark.needs("jax")
def test_jax_ends_a_run_in_the_same_step(tiny: Path, tmp_path: Path) -> None:
    words = [*small(tiny), *AT_ONCE, "cache=none", f"hydra.run.dir={tmp_path / 'run'}"]
    status, _, err = finish(forked_on_jax(words, tmp_path))
    assert (status, "Traceback" in err) == (1, False)
    error = error_of(summary_of(tmp_path / "run"))
    assert error.startswith("epoch 1, training step 2: found a loss of nan, after a mean of ")
    assert error.endswith(f"-> sgd took a learning rate of inf; {REMEDY}")


@pytest.fixture(scope="module")
def diverged(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("diverged") / "run"
    assert run_here(folder, small(tiny, *AT_ONCE, WARN, "cache=none"))[0] == 0
    return folder


@pytest.mark.parametrize("extra", [(), ("--format", "json")], ids=["text", "json"])
def test_a_model_of_no_numbers_has_no_accuracy(
    extra: tuple[str, ...], diverged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, remedy = refused(capsys, "evaluate", diverged, *extra)
    where, _, rest = found.strip().partition(": ")
    assert where == str(diverged / "model.keras")
    assert rest.startswith("found predictions that are not finite for 10 of 10 examples, the first of which is ")
    assert rest.endswith("; expected finite predictions")
    assert remedy.strip() == "-> train again with a smaller trainer.learning_rate: the training has diverged"
    assert not (diverged / "evaluations").exists()


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_model_of_no_numbers_predicts_nothing(
    form: str, diverged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows"
    with pytest.raises(SystemExit) as ended:
        cli.main(shlex.split(f"predict {diverged} dataset.split=train --format {form} --output {rows}"))
    assert ended.value.code == 1
    assert "found predictions that are not finite for 8 of 8 examples" in capsys.readouterr().err
    assert not rows.exists()
