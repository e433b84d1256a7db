import json
import math
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from etlrun.record.outcome import outcome
from etlrun.record.report import of_run
from etlrun.record.summary import Epoch, Summary, read_summary
from etlrun.report.render import RENDER
from etlrun.run.callbacks import EarlyStopping
from etlrun.stages.trainer import EarlyStopping as EarlyStoppingRule
from tests.networks import trained_here
from tests.runs import are_equal, events_of, losses_of, run_here, small, variables_of


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("run")
    status, summary = trained_here(folder, tiny, "trainer.epochs=2", "logger=tensorboard")
    assert status == 0
    return folder, summary


def test_a_run_leaves_its_folder_complete(done: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = done
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoints",
        "config.yaml",
        "events.jsonl",
        "lock",
        "model.keras",
        "plan.json",
        "plan.txt",
        "report.html",
        "report.md",
        "summary.json",
        "tensorboard",
        "thumbnails.json",
    ]
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["epoch_0002.keras"]


def test_a_run_leaves_its_page_with_images_of_its_first_batch(done: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = done
    read = read_summary(folder)
    assert read is not None
    assert (folder / "report.html").read_text() == RENDER["html"](of_run(folder, read))
    images = json.loads((folder / "thumbnails.json").read_text())
    assert len(images) == 8
    assert {image["target"] for image in images} <= {*summary["dataset"]["classes"]}
    assert (folder / "report.html").read_text().count("<img src=") == 8
    usage = summary["usage"]
    assert len(usage["at_s"]) == len(usage["rss_bytes"]) == len(usage["cores"]) > 0
    assert max(usage["rss_bytes"]) < 1.01 * summary["resources"]["peak_rss_bytes"]
    assert "page_failed" not in (folder / "events.jsonl").read_text()


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
        "python",
        "etlrun",
        "tensorflow",
        "keras",
        "tensorflow-datasets",
        "hydra-core",
    }
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
    assert lines[2].startswith("- result    val accuracy ")
    assert lines[3].startswith("- kept      epoch ")
    assert lines[5] == "| epoch | seconds | input wait | examples/s | loss | accuracy | val loss | val accuracy |"
    assert [line.split(" | ")[0] for line in lines[7:9]] == ["| 1", "| 2"]
    assert next(line for line in lines if "status" in line).startswith("- status    completed, 76 examples at ")


def test_the_model_can_be_loaded_by_keras_alone(done: tuple[Path, dict[str, Any]]) -> None:
    model = keras.models.load_model(done[0] / "model.keras")
    probabilities = model.predict(np.zeros((3, 32, 32, 3), np.float32), verbose=0)
    assert probabilities.shape == (3, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)


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
    status, _ = run_here(tmp_path, words)
    assert status == 0
    _, scaling, base, top = keras.models.load_model(tmp_path / "model.keras").layers
    assert {layer.compute_dtype for layer in base.layers if layer.weights} == {"bfloat16"}
    assert scaling.compute_dtype == top.compute_dtype == "float32"
    assert keras.config.dtype_policy().name == "float32"


def test_numbers_that_json_lacks_are_named(tiny: Path, tmp_path: Path) -> None:
    _, summary = trained_here(
        tmp_path, tiny, "trainer.optimizer=sgd", "trainer.learning_rate=1.0e+38", "trainer.on_nan=warn"
    )
    assert summary["epochs"][0]["loss"] == "NaN"
    assert next(event for event in events_of(tmp_path) if event["event"] == "epoch")["loss"] == "NaN"
    row = next(line for line in (tmp_path / "report.md").read_text().splitlines() if line.startswith("| 1 "))
    assert row.split(" | ")[4] == "nan"


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


def test_an_accuracy_that_is_no_number_is_none_to_a_sweep(done: tuple[Path, dict[str, Any]]) -> None:
    *before, last = done[1]["epochs"]
    epochs = [*before, {**last, "val_accuracy": "NaN"}]
    assert outcome(Summary.model_validate({**done[1], "epochs": epochs})).val_accuracy is None
    assert outcome(Summary.model_validate(done[1])).val_accuracy == last["val_accuracy"]


def test_a_run_that_prepares_its_data_has_the_numbers_of_one_that_finds_it(tmp_path: Path) -> None:
    import tests.pictures  # noqa: F401 - registers the data set with TFDS

    runs = [trained_here(tmp_path / name, tmp_path / "data", "dataset.download=true") for name in ("prepares", "finds")]
    assert [status for status, _ in runs] == [0, 0]
    assert losses_of(runs[0][1]) == losses_of(runs[1][1])
