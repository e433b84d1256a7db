"""A run whose own disk is full ends with words, and so does its summary."""

from pathlib import Path

import pytest

from etlrun.run import run
from tests.configs import composed
from tests.disks import fill, mounted
from tests.runs import emulated, run_here, summary_of

WORDS = ("model.step_ms=0", "dataset.eval_split=null", "trainer.epochs=3")


def full(folder: Path) -> str:
    return (
        f"{folder}: found [Errno 28] No space left on device; expected a folder that can be written to\n"
        "    -> choose another hydra.run.dir or hydra.sweep.dir, or free disk space"
    )


@pytest.mark.parametrize("size", ["12K", "16K", "24K", "36K", "48K", "56K"])
def test_wherever_the_space_ends_the_folder_is_named(
    size: str, tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with mounted(tmp_path / "disk", size) as disk:
        folder = disk / "run"
        status, summary = run_here(folder, emulated(tiny, *WORDS))
        assert (status, summary["status"], summary["error"]) == (1, "failed", full(folder))
        assert capfd.readouterr().err.endswith(f"etlrun: failed\n  {full(folder)}\n")
        assert not [path for path in folder.rglob(".*") if path.is_file()]


def test_an_error_that_nobody_foresaw_is_told_on_a_full_disk_too(
    tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = emulated(tiny, *WORDS)
    with mounted(tmp_path / "disk", "64K") as disk:
        folder = disk / "run"
        run.freeze(folder, composed(*words), words)
        fill(disk)
        assert run.run(folder, stages={}) == 1
        summary = summary_of(folder)
    unforeseen = "The run failed: KeyError: 'extract'"
    assert (summary["status"], summary["error"]) == ("failed", f"{unforeseen}\n{full(folder)}")
    err = capfd.readouterr().err
    assert "Traceback (most recent call last):" in err
    assert err.endswith(f"etlrun: failed\n  {unforeseen}\n  {full(folder)}\n")
