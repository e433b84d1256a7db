"""Logs of services: MLflow in a folder, on a dead and on a silent port; Weights & Biases offline and without a key."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etlrun.record.record import Record
from etlrun.run import loggers, run
from etlrun.run.loggers import MlflowWriter, Opening
from tests.configs import composed
from tests.runs import complete_here, emulated, start, summary_of, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.needs("mlflow-skinny", "wandb")]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No account or server of this machine's user, and MLflow's folders, which take no seconds to create."""
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'mlruns'}"


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def runs_of(store: str) -> list[Any]:
    import mlflow

    client = mlflow.MlflowClient(store)
    return list(client.search_runs([client.get_experiment_by_name("etlrun").experiment_id]))


def history_of(store: str, run_id: str, metric: str) -> list[tuple[int, float]]:
    import mlflow

    return [(of.step, of.value) for of in mlflow.MlflowClient(store).get_metric_history(run_id, metric)]


def test_the_metric_of_a_class_has_a_name_that_mlflow_takes(store: str, tmp_path: Path) -> None:
    writer, options = MlflowWriter(), {"tracking_uri": store, "experiment_name": "etlrun"}
    opening = Opening(options=options, folder=str(tmp_path), name="a", group=None, parameters={}, texts={}, began_s=0.0)
    run_id = writer.open(opening)
    writer.epoch(1, 1.0, {"recall_of_a+b (ü)": 0.5, "val_loss": 0.25})
    assert history_of(store, run_id, "recall_of_a_b _ü_") == [(1, 0.5)]
    assert history_of(store, run_id, "val_loss") == [(1, 0.25)]


def test_a_killed_run_is_continued_in_mlflow_by_the_run_that_resumes_it(tiny: Path, tmp_path: Path, store: str) -> None:
    words = emulated(tiny, "logger=mlflow", f"logger.tracking_uri={store}", "model.step_ms=30", "trainer.epochs=40")
    first, then = tmp_path / "first", tmp_path / "then"
    process = start([*words, f"hydra.run.dir={first}"], tmp_path)
    wait_for(lambda: (first / "log.json").exists() and '"epochs": 2' in (first / "log.json").read_text())
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    done = len(summary_of(first)["epochs"])
    summary = complete_here(then, [*words[:-1], f"trainer.epochs={done + 1}", f"trainer.resume={first}"])
    (logged,) = runs_of(store)
    assert logged.info.status == "FINISHED"
    assert logged.info.run_name == "/".join(first.parts[-2:])
    found = history_of(store, logged.info.run_id, "examples_per_s")
    assert [step for step, _ in found] == [epoch["epoch"] for epoch in summary["epochs"]]
    assert found[-1] == (done + 1, summary["epochs"][-1]["examples_per_s"])
    assert logged.data.metrics["run/au"] == summary["au"]
    assert logged.data.params["model.step_ms"] == "30"
    assert logged.data.tags["fingerprint"] == summary["plan_fingerprint"]
    assert logged.data.tags["dataset/train"] == summary["dataset"]["digest"]["train"]
    assert logged.data.tags["verdict/kind"] == summary["verdict"]["kind"]


@pytest.mark.parametrize("logger", ["mlflow", "wandb"])
def test_a_job_is_logged_in_the_group_of_its_sweep(tiny: Path, tmp_path: Path, store: str, logger: str) -> None:
    options = {"mlflow": f"logger.tracking_uri={store}", "wandb": "logger.mode=offline"}
    words, folder = emulated(tiny, f"logger={logger}", options[logger]), tmp_path / "pets" / "3"
    Record.create(folder, composed(*words), words, in_flight=1)  # as a sweep does it
    assert run.run(folder) == 0
    summary = summary_of(folder)
    assert not [remark for remark in summary["remarks"] if "logger" in remark]
    if logger == "mlflow":
        (logged,) = runs_of(store)
        assert logged.data.tags["sweep"] == "pets"
        assert logged.info.run_name == "pets/3"
    else:
        (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
        content = file.read_bytes()
        assert b"\x04pets" in content  # a string of four characters, the group
        for text in ("pets/3", "examples_per_s", "run/au", summary["plan_fingerprint"], "dataset/train"):
            assert text.encode() in content


def note_of(logger: str, why: str, remedy: str) -> str:
    return (
        f"logger={logger} has stopped, and its log is incomplete: {why}. To repair it: {remedy}. "
        "summary.json in the run's folder has all figures."
    )


SERVER = "check that the server of logger.tracking_uri runs and can be reached, and MLflow's credentials"


def noted(server: str, folder: Path, tiny: Path) -> list[str]:
    """The notes on the log of a completed run that goes to this server."""
    summary = complete_here(folder, emulated(tiny, "logger=mlflow", f"logger.tracking_uri={server}"))
    return [remark for remark in summary["remarks"] if "logger" in remark]


def test_a_server_that_is_down_is_noted_once(tiny: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    (note,) = noted(f"http://127.0.0.1:{port}", tmp_path, tiny)
    start = "logger=mlflow has stopped, and its log is incomplete: API request to http://127.0.0.1:"
    assert note.startswith(start)
    assert note.endswith(f"…. To repair it: {SERVER}. summary.json in the run's folder has all figures.")


def test_a_server_that_never_answers_holds_up_no_run(
    tiny: Path, tmp_path: Path, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loggers, "PATIENCE_S", 1.0)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1000")  # MLflow itself gives up later than any run ends
    assert noted(silent, tmp_path, tiny) == [note_of("mlflow", "no answer within 1 s", SERVER)]


def test_weights_and_biases_without_a_key_is_noted_with_what_to_do(tiny: Path, tmp_path: Path) -> None:
    summary = complete_here(tmp_path / "run", emulated(tiny, "logger=wandb"))
    remedy = (
        "run `wandb login` or set WANDB_API_KEY, check the network, or set logger.mode=offline and `wandb sync` later"
    )
    why = "No API key configured. Use `wandb login` to log in"
    assert [remark for remark in summary["remarks"] if "logger" in remark] == [note_of("wandb", why, remedy)]
