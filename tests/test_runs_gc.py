"""`etlrun runs gc`: what its rules remove, and what they keep."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli import main as cli
from etlrun.cli import runs
from etlrun.record.record import Record
from etlrun.results.removal import Removal, collectable
from etlrun.run.checkpoint import state_path
from etlrun.system.errors import WorldError
from tests.made import busy, made, saved, sweep


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """What the command names, without sizes."""
    cli.main(["runs", "gc", *words])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("freed" if "--yes" in words else "would free")
    return sorted(line.rpartition(", ")[0] if line.endswith(" MB") else line for line in lines[:-1])


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != "lock")


@pytest.fixture
def outputs(tmp_path: Path) -> Iterator[Path]:
    """Runs of each kind, the newest first in the order of their names; `7` is running."""
    folder = tmp_path / "outputs"
    saved(made(folder / "0", age_days=0))
    saved(made(folder / "1", age_days=1), has_model=False)
    made(folder / "2", "failed", epochs=0, age_days=2)
    saved(made(folder / "3", "interrupted", age_days=3), has_model=False)
    made(folder / "4", "running", epochs=0, age_days=4)
    sweep(folder / "5", "completed", "completed", age_days=5)
    sweep(folder / "6", "completed", "failed", age_days=6)
    made(folder / "7", "running", epochs=0, age_days=7)
    saved(made(folder / "8", "failed", age_days=8), has_model=False)
    (folder / "mine").mkdir()
    (folder / "mine" / "summary.json").write_text("{}")
    (folder / "mine" / "photo.jpg").touch()
    with busy(folder / "7"):
        yield folder


CHECKPOINTS = [f"checkpoints of outputs/{name}: completed, with model.keras" for name in ("0", "5/0", "5/1")]
EMPTY = [f"outputs/{name}: {status} before its first checkpoint" for name, status in (("2", "failed"), ("4", "killed"))]


def test_what_is_not_needed_is_named_and_removed_with_yes(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(outputs)
    assert said(capsys) == sorted(f"would remove {line}" for line in (*CHECKPOINTS, *EMPTY))
    assert files(outputs) == before
    assert said(capsys, "--yes") == sorted(f"removed {line}" for line in (*CHECKPOINTS, *EMPTY))
    gone = [path for path in before if path not in files(outputs)]
    assert {path.partition("/checkpoints")[0] for path in gone if "checkpoints" in path} == {"0", "5/0", "5/1"}
    assert {path.partition("/")[0] for path in gone if "checkpoints" not in path} == {"2", "4"}
    assert (outputs / "0" / "model.keras").stat().st_size == 40_000
    assert said(capsys, "--yes") == []


def test_a_run_that_was_killed_inside_its_first_epoch_can_be_resumed_and_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = state_path(made(tmp_path / "outputs" / "0", "interrupted", epochs=0), 0, 120)
    state.parent.mkdir()
    state.touch()
    assert said(capsys, "--yes") == []
    assert said(capsys, "--yes", "--failed") == ["removed outputs/0: interrupted"]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("", "0 1 3 5 6 7 8"),
        ("--failed", "0 1 5 6 7"),
        ("--keep 9", "0 1 3 5 6 7 8"),
        ("--keep 2", "0 1 6 7"),
        ("--keep 0", "6 7"),
        ("--older-than 5d", "0 1 3 6 7"),
        ("--older-than 60h", "0 1 6 7"),
        ("--older-than 1w", "0 1 3 5 6 7"),
        ("--keep 4 --older-than 1d", "0 1 3 5 6 7"),
        ("--keep 1 --older-than 5d", "0 1 3 6 7"),
    ],
)
def test_rules_remove_whole_runs(words: str, left: str, outputs: Path) -> None:
    cli.main(["runs", "gc", "--yes", *words.split()])
    assert sorted(path.name for path in outputs.iterdir()) == [*left.split(), "mine"]
    assert files(outputs / "mine") == ["photo.jpg", "summary.json"]
    assert (outputs / "6" / "0" / "checkpoints" / "epoch_0001.keras").exists()


def test_what_a_rule_would_remove_and_is_kept_is_named(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (outputs / "8" / "notes.txt").touch()
    named = said(capsys, "--keep", "0", "--yes")
    is_other = "is not etlrun's, or of a version that this one can't read"
    assert [line for line in named if line.startswith("kept")] == [
        "kept outputs/6: a sweep that has completed 1 of 2 jobs",
        "kept outputs/7: a run that is still running",
        "kept outputs/8: a run that has files that no run writes: notes.txt",
        f"kept outputs/mine: a run that has a summary.json that {is_other}",
    ]
    assert "removed outputs/5: not among the newest 0, 5 days old" in named


@pytest.mark.parametrize("name", ["{}/outputs/3", "outputs/3", "../../outputs/3", "3/."])
def test_a_run_that_another_one_resumes_is_kept(name: str, outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(outputs / "9", "interrupted", epochs=0, resumed_from=name.format(Path.cwd()))
    with busy(outputs / "9"):
        named = said(capsys, "--older-than", "3d")
    assert "kept outputs/3: a run that has the last checkpoint of outputs/9, which resumes it" in named


@pytest.mark.parametrize("status", ["completed", "interrupted"])
def test_a_run_that_another_one_has_resumed_is_not_needed_any_more(status: str, outputs: Path) -> None:
    made(outputs / "9", status, resumed_from="outputs/3")
    if status == "interrupted":
        saved(outputs / "9", has_model=False)
    cli.main(["runs", "gc", "--older-than", "3d", "--yes"])
    assert not (outputs / "3").exists()
    assert (outputs / "9").exists()


def test_checkpoints_that_a_run_of_another_folder_resumes_are_kept(
    outputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(made(tmp_path / "elsewhere" / "one"))
    assert said(capsys, "elsewhere") == ["would remove checkpoints of elsewhere/one: completed, with model.keras"]
    Record.create(outputs / "9", {"trainer": {"resume": "elsewhere/one"}}, [])
    assert said(capsys, "elsewhere") == []


def test_a_run_that_an_unfinished_sweep_is_to_resume_is_kept(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configs = outputs / "6" / "configs.jsonl"
    configs.write_text(configs.read_text().replace('"resume": null', '"resume": "outputs/3"'))
    assert "kept outputs/3: a run that has the last checkpoint of outputs/6, which resumes it" in said(
        capsys, "--older-than", "3d"
    )


def test_jobs_and_links_are_kept(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (outputs / "link").symlink_to("8")
    sweep_and_job = said(capsys, "outputs/5/0", "--keep", "0")
    assert sweep_and_job[0] == "kept outputs/5/0: a run that is a job of outputs/5, which needs it"
    cli.main(["runs", "gc", "--yes", "--keep", "0"])
    assert (outputs / "link").is_symlink()


def test_a_sweep_whose_job_another_run_resumes_is_kept(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(outputs / "9", "interrupted", epochs=0, resumed_from="outputs/5/1")
    named = said(capsys, "--keep", "0")
    assert "kept outputs/5: a sweep that has the last checkpoint of outputs/9, which resumes it" in named
    assert "would remove checkpoints of outputs/5/0: completed, with model.keras" in named
    assert "would remove checkpoints of outputs/5/1: completed, with model.keras" not in named


def test_the_only_copy_of_a_model_is_kept(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (outputs / "0" / "model.keras").write_bytes(b"")
    assert [line for line in said(capsys) if "outputs/0" in line] == []


def test_a_run_that_is_locked_after_it_was_chosen_is_kept(
    outputs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:

        def locking(*words: Any) -> Any:
            chosen = collectable(*words)
            stack.enter_context(busy(outputs / "2"))
            return chosen

        monkeypatch.setattr(runs, "collectable", locking)
        named = said(capsys, "--yes")
    assert "kept outputs/2: a run or a sweep that is still running" in named
    assert "removed outputs/4: killed before its first checkpoint" in named
    assert (outputs / "2" / "summary.json").exists()


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_run_that_has_just_been_locked_is_kept(tmp_path: Path, *, is_whole: bool) -> None:
    folder = saved(made(tmp_path / "run"))
    before = files(tmp_path)
    with busy(folder), pytest.raises(WorldError, match="found a run or a sweep that is still running"):
        Removal(folder=folder, reason="", bytes=0, is_whole=is_whole).carry_out()
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("--older-than 30", "argument --older-than: found 30; expected hours, days or weeks, such as 12h, 30d or 8w"),
        ("--keep -1", "argument --keep: found -1; expected a non-negative integer"),
    ],
)
def test_wrong_rules_are_refused(words: str, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        cli.main(["runs", "gc", *words.split()])
    assert fault in capsys.readouterr().err
