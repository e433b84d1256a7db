"""Trainings: what they leave, and how those end whose loss or weights become no finite numbers."""

import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from etlrun.record.report import of_run
from etlrun.record.summary import Epoch, read_summary
from etlrun.report.render import RENDER
from etlrun.run.callbacks import EarlyStopping
from etlrun.stages.trainer import EarlyStopping as EarlyStoppingRule
from tests.commands import complaint
from tests.forked import forked_on_jax
from tests.golden import Case, Golden, Says, cases
from tests.networks import trained_here
from tests.present import present
from tests.quick import shallow
from tests.runs import are_equal, complete_here, events_of, finish, losses_of, run_here, small, summary_of, variables_of
from tests.trained import refused

DIVERGES = ("trainer.optimizer=sgd", "trainer.learning_rate=1.0e+38")
AT_ONCE = ("trainer.optimizer=sgd", "trainer.learning_rate=1.0e+300")
"""More than float32 holds: the first step makes all trained weights no numbers."""
WARN = "trainer.on_nan=warn"
REMEDY = "set a smaller trainer.learning_rate, or trainer.global_clipnorm=1; trainer.on_nan=warn trains on with a note"


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
    report = (tmp_path / "report.md").read_text()
    assert f"- note      {note}" in report
    assert summary["epochs"][0]["loss"] == "NaN"  # which JSON lacks
    assert next(event for event in events_of(tmp_path) if event["event"] == "epoch")["loss"] == "NaN"
    row = next(line for line in report.splitlines() if line.startswith("| 1 "))
    assert row.split(" | ")[4] == "nan"


@pytest.mark.parametrize("case", cases("diverged"))
def test_what_is_not_finite_ends_a_run(case: Case, golden: Golden, tiny: Path, tmp_path: Path) -> None:
    status, summary = trained_here(tmp_path, tiny, *case["overrides"])
    assert status == 1
    named = re.sub(r"conv2d(_\d+)?/", "conv2d/", error_of(summary))
    golden(case, re.sub(r"after a mean of [\d.e+-]+", "after a mean of #", named))
    assert not (tmp_path / "checkpoints").exists()


def test_a_run_whose_first_loss_is_not_finite_is_sent_to_its_data(tiny: Path, tmp_path: Path, says: Says) -> None:
    weights = tmp_path / "base.weights.h5"
    with pytest.MonkeyPatch.context() as patch:
        shallow(patch)
        network = keras.applications.MobileNetV2((32, 32, 3), alpha=0.35, include_top=False, weights=None)
    network.set_weights([np.full_like(of, np.nan) for of in network.get_weights()])
    network.save_weights(weights)
    status, summary = run_here(tmp_path / "run", small(tiny, f"model.weights={weights}", "cache=none"))
    assert status == 1
    says(error_of(summary))


LATER = (
    "trainer.epochs=null", "trainer.phases=[{epochs: 1}, {epochs: 2, learning_rate: 1.0e+38}]", "model.trainable=false",
    "trainer.optimizer=sgd", "load.batch_size=4", "cache=none",
)  # fmt: skip
"""The rate grows in the second epoch."""


@pytest.mark.slow
def test_a_run_that_failed_is_resumed_with_the_same_end_or_with_a_warning(tiny: Path, tmp_path: Path) -> None:
    failed, again, warned = (tmp_path / name for name in ("failed", "again", "warned"))
    status, summary = run_here(failed, small(tiny, *LATER))
    assert (status, len(summary["epochs"])) == (1, 1)
    assert error_of(summary).startswith("epoch 2, training step ")
    assert [path.name for path in (failed / "checkpoints").iterdir()] == ["epoch_0001.keras"]
    status, resumed = run_here(again, small(tiny, *LATER, f"trainer.resume={failed}"))
    assert (status, error_of(resumed)) == (1, summary["error"])
    status, resumed = run_here(warned, small(tiny, *LATER, WARN, f"trainer.resume={failed}"))
    assert (status, len(resumed["epochs"])) == (0, 3)
    assert resumed["epochs"][1]["loss"] == "Infinity"
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


def test_a_model_of_no_numbers_has_no_accuracy(diverged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, remedy = refused(capsys, "evaluate", diverged)
    where, _, rest = found.strip().partition(": ")
    assert where == str(diverged / "model.keras")
    assert rest.startswith("found predictions that are not finite for 10 of 10 examples (first: ")
    assert rest.endswith("; expected finite predictions")
    assert remedy.strip() == "-> train again with a smaller trainer.learning_rate: the training has diverged"
    assert not (diverged / "evaluations").exists()


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_model_of_no_numbers_predicts_nothing(
    form: str, diverged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows"
    words = shlex.split(f"predict {diverged} dataset.split=train --format {form} --output {rows}")
    assert "found predictions that are not finite for 8 of 8 examples" in complaint(capsys, *words)
    assert not rows.exists()


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("run")
    status, summary = trained_here(folder, tiny, "trainer.epochs=2", "logger=tensorboard")
    assert status == 0
    return folder, summary


@pytest.mark.smoke
def test_a_run_leaves_its_folder_complete(done: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = done
    assert sorted(path.name for path in folder.iterdir()) == [
        "baseline.json", "checkpoints", "config.yaml", "data.json", "events.jsonl", "lock", "model.keras", "plan.json",
        "plan.txt", "report.html", "report.md", "summary.json", "tensorboard",
    ]  # fmt: skip
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["epoch_0002.keras"]


def test_a_run_leaves_its_page(done: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = done
    read = present(read_summary(folder))
    assert (folder / "report.html").read_text() == RENDER["html"](of_run(folder, read))
    assert "page_failed" not in (folder / "events.jsonl").read_text()


@pytest.mark.smoke
def test_the_summary_says_what_was_trained(done: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = done
    assert summary["status"] == "completed"
    assert summary["examples"] == 76
    assert [(epoch["epoch"], epoch["steps"], epoch["examples"]) for epoch in summary["epochs"]] == [
        (1, 5, 38),
        (2, 5, 38),
    ]
    assert summary["dataset"]["name"] == "tiny_pictures/1.2.0"
    assert summary["dataset"]["examples"] == {"train": 38, "validation": 10}
    assert summary["plan_fingerprint"] == json.loads((folder / "plan.json").read_text())["fingerprint"]
    assert summary["versions"].keys() >= {
        "python", "etlrun", "tensorflow", "keras", "tensorflow-datasets", "hydra-core",
    }  # fmt: skip
    assert summary["host"]["cores"] >= 1
    assert summary["examples_per_s"] > 0
    assert summary["wall_s"] > sum(epoch["wall_s"] for epoch in summary["epochs"])
    assert "error" not in summary


def test_events_tell_the_run_in_order(done: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = done
    epoch = ["epoch_began", "epoch", "checkpoint"]
    events = [event for event in events_of(folder) if event["event"] != "stages"]
    assert [event["event"] for event in events] == ["planned", "started", "dataset", *epoch, *epoch, "ended"]
    times = [event["elapsed_s"] for event in events]
    assert times == sorted(times)


def test_the_report_begins_with_the_result_and_has_a_row_an_epoch(done: tuple[Path, dict[str, Any]]) -> None:
    lines = (done[0] / "report.md").read_text().splitlines()
    assert lines[2].startswith("val accuracy ")
    assert lines[4].startswith("- kept      epoch ")
    assert lines[5].startswith("- baseline  val accuracy ")
    assert lines[7] == "| epoch | seconds | input wait | examples/s | loss | accuracy | val loss | val accuracy |"
    assert [line.split(" | ")[0] for line in lines[9:11]] == ["| 1", "| 2"]
    assert next(line for line in lines if "status" in line).startswith("- status    completed, 76 examples at ")


def test_the_same_config_and_seed_give_the_same_numbers_whatever_the_speed(
    done: tuple[Path, dict[str, Any]], tiny: Path, tmp_path: Path
) -> None:
    faster = ("cache=none", "load.prefetch=0", "transform.num_parallel_calls=2", "extract.num_parallel_calls=null")
    _, summary = trained_here(tmp_path, tiny, "trainer.epochs=2", *faster)
    assert losses_of(summary) == losses_of(done[1])
    assert summary["plan_fingerprint"] == done[1]["plan_fingerprint"]
    assert are_equal(variables_of(done[0]), variables_of(tmp_path))


def test_another_seed_gives_other_numbers(done: tuple[Path, dict[str, Any]], tiny: Path, tmp_path: Path) -> None:
    _, summary = trained_here(tmp_path, tiny, "trainer.seed=1")
    (first,) = losses_of(summary)
    assert first != losses_of(done[1])[0]


def test_steps_per_epoch_go_on_through_the_passes(tiny: Path, tmp_path: Path) -> None:
    words = ("trainer.epochs=3", "trainer.steps_per_epoch=3", "dataset.eval_split=null")
    status, summary = trained_here(tmp_path, tiny, *words)
    assert status == 0
    # Passes of 8, 8, 8, 8 and 6 examples, cut into epochs of three steps.
    assert [epoch["examples"] for epoch in summary["epochs"]] == [24, 22, 24]
    assert all("val_loss" not in epoch for epoch in summary["epochs"])


def test_early_stopping_ends_a_training_that_does_not_improve(tiny: Path, tmp_path: Path) -> None:
    rule = ("trainer.early_stopping.patience=1", "trainer.early_stopping.min_delta=1000.0")
    _, summary = trained_here(tmp_path, tiny, "trainer.epochs=5", "trainer.early_stopping.monitor=loss", *rule)
    assert summary["status"] == "completed"
    assert len(summary["epochs"]) == 2


def test_mixed_precision_and_a_trainable_base_train(tiny: Path, tmp_path: Path) -> None:
    words = small(tiny, "trainer.mixed_precision=mixed_bfloat16", "model.trainable=true", "trainer.optimizer=sgd")
    complete_here(tmp_path, words)
    _, scaling, base, top = keras.models.load_model(tmp_path / "model.keras").layers
    assert {layer.compute_dtype for layer in base.layers if layer.weights} == {"bfloat16"}
    assert scaling.compute_dtype == top.compute_dtype == "float32"
    assert keras.config.dtype_policy().name == "float32"


LOSSES = (math.inf, 5.0, math.nan, 4.0, -math.inf, 3.0, 2.0, 1.0)


def stopping(done: list[dict[str, Any]]) -> EarlyStopping:
    """With a patience of 2, at the begin of a training that goes on after the epochs `done`."""
    rule = EarlyStoppingRule(monitor="loss", patience=2, min_delta=0.0)
    callback = EarlyStopping(rule, [Epoch.model_validate(epoch) for epoch in done])
    callback.set_model(keras.Sequential())
    callback.model.stop_training = False
    callback.on_train_begin()
    return callback


@pytest.mark.parametrize("done", range(1, len(LOSSES)))
def test_early_stopping_goes_on_as_if_undisturbed_whatever_the_losses(done: int) -> None:
    undisturbed = stopping([])
    for epoch, loss in enumerate(LOSSES[:done]):
        undisturbed.on_epoch_end(epoch, {"loss": loss})
    kept = json.loads(json.dumps([Epoch(epoch=epoch, loss=loss).written for epoch, loss in enumerate(LOSSES, 1)]))
    resumed = stopping(kept[:done])
    assert (resumed.best, resumed.wait) == (undisturbed.best, undisturbed.wait)
    assert resumed.model.stop_training == undisturbed.model.stop_training


def test_epochs_without_the_monitored_measure_stop_nothing() -> None:
    assert not stopping([{"epoch": epoch} for epoch in range(1, 5)]).model.stop_training


def test_a_run_that_prepares_its_data_has_the_numbers_of_one_that_finds_it(tmp_path: Path) -> None:
    import tests.pictures  # noqa: F401 - registers the data set with TFDS

    runs = [trained_here(tmp_path / name, tmp_path / "data", "dataset.download=true") for name in ("prepares", "finds")]
    assert [status for status, _ in runs] == [0, 0]
    assert losses_of(runs[0][1]) == losses_of(runs[1][1])
