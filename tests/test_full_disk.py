"""Disks that are full: runs and commands end with words, and no part of a file is left."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from etlrun.record.record import Record
from etlrun.run import run
from etlrun.system.files import appearing
from tests.configs import composed
from tests.disks import fill, mounted, said_on_full
from tests.golden import Says
from tests.pictures import jpeg
from tests.readers import ran
from tests.runs import emulated, run_here, summary_of
from tests.trained import refused

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
        Record.create(folder, composed(*words), words)
        fill(disk)
        assert run.run(folder, stages={}) == 1
        summary = summary_of(folder)
    unforeseen = "The run failed: KeyError: 'extract'"
    assert (summary["status"], summary["error"]) == ("failed", f"{unforeseen}\n{full(folder)}")
    err = capfd.readouterr().err
    assert "Traceback (most recent call last):" in err
    assert err.endswith(f"etlrun: failed\n  {unforeseen}\n  {full(folder)}\n")


BLOCK = "4K"
"""Size of a disk on which a small file can be written."""


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Images whose names take more than a block together, also where they are compressed."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(60):
        (folder / f"{hashlib.sha512(bytes([number])).hexdigest()}.jpg").write_bytes(jpeg(number))
    return folder


def full_at(option: str, path: Path) -> list[str]:
    return [
        f"  {option}: found {path}: No space left on device; expected a file that can be written",
        f"    -> choose another {option}, or free disk space",
    ]


@pytest.mark.parametrize("name", ["csv", "jsonl", "parquet"])
def test_predictions_that_do_not_fit_are_a_fault(
    name: str, run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mounted(tmp_path / "disk", BLOCK) as disk:
        path = disk / "rows"
        assert refused(capsys, "predict", run, photos, "--format", name, "--output", path) == full_at("--output", path)
        assert [*disk.iterdir()] == []


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_predictions_on_a_full_standard_output_are_a_fault(
    unbuffered: str, run: Path, photos: Path, says: Says
) -> None:
    says(said_on_full(["predict", run, photos], unbuffered, photos))


def test_what_is_shown_and_does_not_fit_is_a_fault(tiny: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", BLOCK) as disk:
        path = disk / "page.html"
        status, text = ran(["show", "--output", str(path), *emulated(tiny)], tmp_path)
        assert (status, text.splitlines()) == (1, ["etlrun: 1 fault", *full_at("--output", path)])
        assert [*disk.iterdir()] == []


def test_errors_of_other_files_are_theirs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone"), appearing(tmp_path / "page.html", "--output"):
        (tmp_path / "gone").read_bytes()
    assert [*tmp_path.iterdir()] == []


def test_a_link_is_followed_and_a_pipe_is_written_to(tmp_path: Path) -> None:
    link, page, pipe = (tmp_path / name for name in ("link.html", "page.html", "pipe"))
    link.symlink_to(page)
    with appearing(link, "--output") as file:
        file.write("a")
    assert (link.is_symlink(), page.read_text()) == (True, "a")
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as threads:
        read = threads.submit(pipe.read_text)
        with appearing(pipe, "--output") as file:
            file.write("b")
        assert read.result() == "b"
    assert pipe.is_fifo()
    assert {*tmp_path.iterdir()} == {link, page, pipe}
