"""What a run that ended between two of its files leaves can be gone on with, or is refused; never trained twice."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from etlrun.run import run
from etlrun.run.checkpoint import checkpoint_path, newest_checkpoint
from etlrun.system.errors import INTERRUPTED
from tests.configs import composed
from tests.runs import emulated, events_of, run_here, summary_of
from tests.seams import Seam, sent_at

QUICK = ("model.step_ms=0", "model.eval_step_ms=0", "dataset.eval_split=null")
START_NEW = "    -> start a new run without trainer.resume"


def frozen(folder: Path, data_dir: Path, epochs: int, *overrides: str) -> Path:
    words = emulated(data_dir, *QUICK, f"trainer.epochs={epochs}", *overrides)
    run.freeze(folder, composed(*words), words)
    return folder


def resumed(folder: Path, data_dir: Path, of: Path, epochs: int = 3) -> tuple[int, dict[str, Any], list[int]]:
    """Exit status and summary of the run in `folder` that goes on with that in `of`, and the epochs that it trained."""
    status, summary = run_here(folder, emulated(data_dir, *QUICK, f"trainer.epochs={epochs}", f"trainer.resume={of}"))
    return status, summary, [event["epoch"] for event in events_of(folder) if event["event"] == "epoch_began"]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Path:
    """A run of two epochs."""
    folder = tmp_path_factory.mktemp("runs") / "done"
    assert run.run(frozen(folder, tiny, 2)) == 0
    return folder


@pytest.fixture
def copied(done: Path, tmp_path: Path) -> Path:
    return shutil.copytree(done, tmp_path / "copied")


@pytest.mark.parametrize(
    ("seam", "begun"),
    [
        (Seam("os.rename", "epoch_0002.keras"), [2, 3]),
        (Seam("os.remove", "epoch_0001.keras"), [3]),
        (Seam("os.rename", "model.keras"), []),
    ],
)
def test_no_epoch_is_lost_or_trained_twice(seam: Seam, begun: list[int], tiny: Path, tmp_path: Path) -> None:
    assert sent_at(seam, signal.SIGKILL, frozen(tmp_path / "killed", tiny, 3))[0] == -signal.SIGKILL
    assert not (tmp_path / "killed" / "model.keras").exists()
    status, summary, trained = resumed(tmp_path / "resumed", tiny, tmp_path / "killed")
    assert (status, trained) == (0, begun)
    assert [epoch["epoch"] for epoch in summary["epochs"]] == [1, 2, 3]


@pytest.mark.parametrize("seam", [Seam("shutil.copyfile", "epoch_0002.keras"), Seam("os.rename", "epoch_0002.keras")])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_resume_that_ends_before_it_has_carried_all_over_names_the_run_to_resume(
    seam: Seam, number: signal.Signals, done: Path, tiny: Path, tmp_path: Path
) -> None:
    second = frozen(tmp_path / "second", tiny, 3, f"trainer.resume={done}")
    status, said = sent_at(seam, number, second)
    if number == signal.SIGINT:
        assert status == INTERRUPTED
        assert said.endswith(f"etlrun: interrupted; resume with: etlrun trainer.resume={done}\n")
    else:
        assert status == -signal.SIGKILL
    status, summary, _ = resumed(tmp_path / "third", tiny, second)
    assert status == 1
    assert summary["error"] == (
        f"trainer.resume={second}: found no checkpoint; expected the folder of a run with a checkpoint, as after "
        f"each epoch\n    -> resume the run that this one resumed: trainer.resume={done}"
    )


def test_a_resume_that_is_killed_in_its_first_epoch_can_be_resumed(done: Path, tiny: Path, tmp_path: Path) -> None:
    second = frozen(tmp_path / "second", tiny, 3, f"trainer.resume={done}")
    assert sent_at(Seam("os.rename", "epoch_0003.keras"), signal.SIGKILL, second)[0] == -signal.SIGKILL
    status, summary, trained = resumed(tmp_path / "third", tiny, second)
    assert (status, trained) == (0, [3])
    assert [epoch["epoch"] for epoch in summary["epochs"]] == [1, 2, 3]


def test_a_checkpoint_that_knows_more_epochs_than_its_summary_is_refused(
    copied: Path, tiny: Path, tmp_path: Path
) -> None:
    summary = summary_of(copied)
    (copied / "summary.json").write_text(json.dumps({**summary, "epochs": summary["epochs"][:1]}))
    status, summary, _ = resumed(tmp_path / "resumed", tiny, copied)
    assert status == 1
    assert summary["error"] == (
        f"trainer.resume={copied}: found a checkpoint of epoch 2, and 1 epochs in summary.json; expected all 2 epochs "
        "in summary.json, which a run writes before its checkpoint\n"
        "    -> copy the whole folder again after the run has ended, or start a new run without trainer.resume"
    )


def test_a_checkpoint_that_was_cut_is_named(copied: Path, tiny: Path, tmp_path: Path) -> None:
    checkpoint = copied / "checkpoints" / "epoch_0002.keras"
    os.truncate(checkpoint, checkpoint.stat().st_size // 2)
    status, summary, _ = resumed(tmp_path / "resumed", tiny, copied)
    assert status == 1
    assert summary["error"] == (
        f"{checkpoint}: found a file that Keras cannot load: BadZipFile: File is not a zip file; expected the "
        f"complete model that a run saves after an epoch\n{START_NEW}, or resume another folder"
    )


def test_a_run_that_lost_its_config_is_refused(copied: Path, tiny: Path, tmp_path: Path) -> None:
    (copied / "config.yaml").unlink()
    status, summary, _ = resumed(tmp_path / "resumed", tiny, copied)
    assert status == 1
    assert summary["error"] == (
        f"{copied / 'config.yaml'}: found [Errno 2] No such file or directory: '{copied / 'config.yaml'}'; expected "
        f"the config that the run was started with\n{START_NEW}"
    )


def test_a_file_of_another_name_is_no_checkpoint(copied: Path, tiny: Path, tmp_path: Path) -> None:
    (copied / "checkpoints" / "epoch_best.keras").touch()
    status, _, trained = resumed(tmp_path / "resumed", tiny, copied)
    assert (status, trained) == (0, [3])


def test_the_newest_checkpoint_is_that_of_the_last_epoch_whatever_its_digits(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    for epoch in (9999, 10000):
        checkpoint_path(tmp_path, epoch).touch()
    assert newest_checkpoint(tmp_path) == 10000
