"""Folders that no run can have, and such without a run."""

from pathlib import Path

import pytest

from etlrun.cli import main as cli
from tests.disks import fill, mounted
from tests.test_cli import etlrun

MADE = "a folder that can be created and written to\n    -> choose another hydra.run.dir, or free disk space"
LOCAL = "the path of a folder on this machine, without ~"


@pytest.mark.parametrize(
    ("word", "status", "fault"),
    [
        ("hydra.run.dir=/proc/x", 1, f"hydra.run.dir: found /proc/x: No such file or directory; expected {MADE}"),
        ("hydra.run.dir=file", 1, f"hydra.run.dir: found file: Not a directory; expected {MADE}"),
        ("hydra.run.dir=file/x/y", 1, f"hydra.run.dir: found file/x/y: Not a directory; expected {MADE}"),
        ("hydra.run.dir=gone", 1, f"hydra.run.dir: found gone: No such file or directory; expected {MADE}"),
        (f"hydra.run.dir={'x' * 300}", 1, f"hydra.run.dir: found {'x' * 300}: File name too long; expected {MADE}"),
        ("hydra.run.dir=", 2, f"hydra.run.dir: found nothing; expected {LOCAL}"),
        ("hydra.run.dir=gs://bucket/run", 2, f"hydra.run.dir: found 'gs://bucket/run'; expected {LOCAL}"),
        ("hydra.run.dir='~/run'", 2, f"hydra.run.dir: found '~/run'; expected {LOCAL}"),
        (
            "hydra.run.dir=${nowhere}",
            2,
            (
                "hydra.run.dir: found ${nowhere}, which the config does not have; expected a reference to a key of the "
                "config, such as ${trainer.epochs}"
            ),
        ),
        ("hydra.sweep.dir=gs://bucket", 2, f"hydra.sweep.dir: found 'gs://bucket'; expected {LOCAL}"),
        ("hydra.sweep.dir=", 2, f"hydra.sweep.dir: found nothing; expected {LOCAL}"),
    ],
)
def test_a_folder_that_no_run_can_have_is_refused(
    word: str,
    status: int,
    fault: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "gone").symlink_to("nowhere")
    with pytest.raises(SystemExit) as ended:
        cli.main([word, "-m"] if "sweep" in word else [word])
    assert (ended.value.code, capsys.readouterr().err) == (status, f"etlrun: 1 fault\n  {fault}\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "gone"]


def test_a_full_disk_is_refused_before_a_run_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with mounted(tmp_path / "full", "64k") as full:
        fill(full)
        with pytest.raises(SystemExit) as ended:
            cli.main([f"hydra.run.dir={full / 'run'}"])
    assert (ended.value.code, capsys.readouterr().err) == (
        1,
        f"etlrun: 1 fault\n  hydra.run.dir: found {full / 'run'}: No space left on device; expected {MADE}\n",
    )


def test_what_the_system_refuses_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["report", "x" * 300])
    assert (ended.value.code, capsys.readouterr().err) == (
        1,
        (
            f"etlrun: 1 fault\n  {'x' * 300}/sweep.json: found File name too long; expected a file that this user can "
            "access\n"
            "    -> check the permissions of the file and of its parent folders, and the free space on the disk\n"
        ),
    )


def test_a_report_of_a_missing_folder_fails(tmp_path: Path) -> None:
    folder = tmp_path / "nowhere"
    answer = etlrun("report", str(folder), cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == (
        f"etlrun: 1 fault\n  {folder}: found no such folder; expected a folder with a summary.json, or a folder "
        "of such folders\n    -> pass the folder that a run or a multirun prints at its end\n"
    )


def test_a_report_of_a_folder_without_runs_fails(tmp_path: Path) -> None:
    answer = etlrun("report", str(tmp_path), cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == (
        f"etlrun: 1 fault\n  {tmp_path}: found no run; expected a folder with a summary.json, or a folder "
        "of such folders\n    -> pass the folder that a run or a multirun prints at its end\n"
    )
