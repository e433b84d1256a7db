"""Runs that are ended by signals, also between two of their files: what they leave can be gone on with."""

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from etlrun.record.record import Record
from etlrun.run import callbacks, run
from etlrun.run.checkpoint import checkpoint_path, checkpoints_in
from etlrun.system.errors import INTERRUPTED
from etlrun.system.loading import interrupts, raise_if_interrupted
from tests.configs import composed
from tests.golden import Case, Golden, Says, cases
from tests.networks import trained_here
from tests.runs import emulated, events_of, run_here, summary_of
from tests.seams import Seam, sent_at
from tests.trained import with_summary

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupt_that_is_swallowed_is_raised_again_by_the_loop(number: signal.Signals) -> None:
    with interrupts():
        raise_if_interrupted()
        with suppress(KeyboardInterrupt):
            signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt):
            raise_if_interrupted()
    raise_if_interrupted()


@pytest.mark.parametrize("number", SIGNALS)
def test_what_a_library_makes_of_an_interrupt_is_an_interrupt(number: signal.Signals) -> None:
    def cancelled() -> None:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt as error:
            raise RuntimeError("cancelled") from error

    with pytest.raises(KeyboardInterrupt), interrupts():
        cancelled()


def test_other_errors_stay_and_the_handlers_of_before_come_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(RuntimeError, match="broken"), interrupts():
        raise RuntimeError("broken")
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_an_epoch_that_was_printed_is_not_repeated(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its line follows its checkpoint, so that an interrupt after it costs nothing."""
    save = callbacks.save

    def interrupted(model: Any, path: Path, record: Any) -> None:
        if path.name == "epoch_0002.keras":
            signal.raise_signal(signal.SIGINT)
        save(model, path, record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(callbacks, "save", interrupted)
        assert trained_here(tmp_path / "left", tiny, "trainer.epochs=3", "cache=none")[0] == 130
    printed = [line.split()[1] for line in capsys.readouterr().err.splitlines() if line.startswith("epoch ")]
    assert printed == ["1/3"]
    words = ("trainer.epochs=3", "cache=none", f"trainer.resume={tmp_path / 'left'}")
    assert trained_here(tmp_path / "resumed", tiny, *words)[0] == 0
    printed = [line.split()[1] for line in capsys.readouterr().err.splitlines() if line.startswith("epoch ")]
    assert printed == ["2/3", "3/3"]


QUICK = ("model.step_ms=0", "model.eval_step_ms=0", "dataset.eval_split=null")


def frozen(folder: Path, data_dir: Path, epochs: int, *overrides: str) -> Path:
    words = emulated(data_dir, *QUICK, f"trainer.epochs={epochs}", *overrides)
    Record.create(folder, composed(*words), words)
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
    seam: Seam, number: signal.Signals, done: Path, tiny: Path, tmp_path: Path, says: Says
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
    says(summary["error"], DONE=done)


def test_a_resume_that_is_killed_in_its_first_epoch_can_be_resumed(done: Path, tiny: Path, tmp_path: Path) -> None:
    second = frozen(tmp_path / "second", tiny, 3, f"trainer.resume={done}")
    assert sent_at(Seam("os.rename", "epoch_0003.keras"), signal.SIGKILL, second)[0] == -signal.SIGKILL
    status, summary, trained = resumed(tmp_path / "third", tiny, second)
    assert (status, trained) == (0, [3])
    assert [epoch["epoch"] for epoch in summary["epochs"]] == [1, 2, 3]


def cut(folder: Path) -> None:
    checkpoint = folder / "checkpoints" / "epoch_0002.keras"
    os.truncate(checkpoint, checkpoint.stat().st_size // 2)


SPOILED: dict[str, Callable[[Path], object]] = {
    "an epoch of summary.json": lambda folder: with_summary(folder, epochs=summary_of(folder)["epochs"][:1]),
    "the end of a checkpoint": cut,
    "its config": lambda folder: (folder / "config.yaml").unlink(),
}


@pytest.mark.parametrize("case", cases("spoiled_runs"))
def test_a_folder_that_lacks_a_part_is_refused(
    case: Case, golden: Golden, copied: Path, tiny: Path, tmp_path: Path
) -> None:
    SPOILED[case["why"]](copied)
    status, summary, _ = resumed(tmp_path / "resumed", tiny, copied)
    assert status == 1
    golden(case, summary["error"].replace(str(copied), "RUN"))


def test_a_file_of_another_name_is_no_checkpoint(copied: Path, tiny: Path, tmp_path: Path) -> None:
    (copied / "checkpoints" / "epoch_best.keras").touch()
    status, _, trained = resumed(tmp_path / "resumed", tiny, copied)
    assert (status, trained) == (0, [3])


def test_the_newest_checkpoint_is_that_of_the_last_epoch_whatever_its_digits(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    for epoch in (9999, 10000):
        checkpoint_path(tmp_path, epoch).touch()
    assert max(checkpoints_in(tmp_path)) == 10000
