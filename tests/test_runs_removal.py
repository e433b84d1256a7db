"""`etlrun runs rm` and `gc`: what they remove, and what they never do."""

import io
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli import main as cli
from etlrun.record.record import Record
from etlrun.results.runs import entries
from tests.made import busy, made, saved, sweep


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    cli.main(["runs", *map(str, words)])
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The faults of a command with status 1, without their head."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["runs", *map(str, words)])
    assert ended.value.code == 1
    return capsys.readouterr().err.partition("\n  ")[2]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def lines(text: str) -> list[str]:
    """Without sizes and the folder of the test."""
    here = f"{Path.cwd()}/"
    return [line.replace(here, "").rpartition(", ")[0] for line in text.splitlines()[:-1]]


def test_a_run_and_a_sweep_are_removed_after_they_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, other = made(tmp_path / "run", "failed"), made(tmp_path / "other")
    ledger = sweep(tmp_path / "sweep", "completed")
    out = said(capsys, "rm", run, "sweep/", f"{run}/../run", "sweep/0", "--yes")
    assert lines(out) == ["removes run: a run, failed", "removes sweep: a sweep of 2 jobs, 1 completed"]
    assert out.splitlines()[-1].startswith("removed 2 folders, ")
    assert names(tmp_path) == ["other"]
    assert not ledger.folder.exists()
    assert (other / "summary.json").exists()


@pytest.mark.parametrize(
    ("answer", "left"), [("y\n", []), ("yes\n", []), ("n\n", ["run"]), ("\n", ["run"]), ("", ["run"])]
)
def test_a_person_is_asked_on_a_terminal(
    answer: str, left: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "run")
    terminal = io.StringIO(answer)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    if left:
        with pytest.raises(SystemExit, match=r"^1$"):
            cli.main(["runs", "rm", "run"])
    else:
        cli.main(["runs", "rm", "run"])
    out = capsys.readouterr().out
    assert "\nremove 1 folder, " in out
    assert ("removed nothing" in out) == bool(left)
    assert names(tmp_path) == left


def test_nothing_is_removed_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "run")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(SystemExit, match=r"^2$"):
        cli.main(["runs", "rm", "run"])
    assert capsys.readouterr().err == (
        "etlrun: 1 fault\n  runs rm: found no terminal to ask on; expected --yes, or an answer\n"
        "    -> add --yes to remove it\n"
    )
    assert names(tmp_path) == ["run"]


LISTING = "expected the folder of a run or a sweep\n    -> list them with: etlrun runs ls ."


def test_all_that_can_not_be_removed_is_named_at_once_and_nothing_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path / "fine")
    busy_one = made(tmp_path / "busy", "running")
    (tmp_path / "link").symlink_to("fine")
    (tmp_path / "photos").mkdir()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "summary.json").write_text('{"accuracy": 0.9}')
    (made(tmp_path / "mine") / "notes.txt").touch()
    sweep(tmp_path / "sweep", "completed")
    words = ["fine", "busy", "link", "photos", "nowhere", "results", "mine", "sweep/0"]
    before = sorted(tmp_path.rglob("*"))
    with busy(busy_one):
        told = refused(capsys, "rm", *words, "--yes").replace(f"{tmp_path}", ".")
    assert (
        told
        == f"""\
./link: found a symbolic link; {LISTING}
  ./photos: found no run and no sweep; {LISTING}
  ./nowhere: found no such folder; {LISTING}
  ./busy: found a run that is still running; expected one that has ended
    -> wait for it to end, or stop it
  ./results: found a run that has a summary.json that is not etlrun's, or of a version that this one can't read; \
expected a run or a sweep
    -> look at it, and remove the folder yourself
  ./mine: found a run that has files that no run writes: notes.txt; expected files of a run alone
    -> move them elsewhere
  ./sweep/0: found a run that is a job of ./sweep, which needs it; expected a job of a completed sweep
    -> complete the sweep with: etlrun -m sweep.resume=./sweep
"""
    )
    assert [path for path in sorted(tmp_path.rglob("*")) if path.name != "lock"] == [
        path for path in before if path.name != "lock"
    ]


def test_jobs_of_a_completed_sweep_and_attempts_may_be_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = sweep(tmp_path / "sweep", "completed", "completed")
    made(ledger.folder / "attempts" / "0-1", "failed")
    said(capsys, "rm", "sweep/1", "sweep/attempts/0-1", "--yes")
    assert names(ledger.folder) == ["0", "attempts", "configs.jsonl", "lock", "sweep.json"]
    assert names(ledger.folder / "attempts") == []


@pytest.mark.parametrize(
    "place", ["0/notes.txt", "attempts/notes.txt", "attempts/0-1/notes.txt", "0x", "2024/photo.jpg"]
)
def test_a_file_of_a_person_in_a_sweep_keeps_it(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = sweep(tmp_path / "sweep", "completed", "completed")
    made(ledger.folder / "attempts" / "0-1", "failed")
    (ledger.folder / place).parent.mkdir(exist_ok=True)
    (ledger.folder / place).touch()
    assert f"has files that no run writes: {place}; " in refused(capsys, "rm", "sweep", "--yes")


def test_a_project_that_is_the_folder_of_a_run_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path, "failed", epochs=0)
    (tmp_path / "src").mkdir()
    (tmp_path / "README.md").touch()
    assert "no run writes: README.md, src; " in refused(capsys, "rm", ".", "--yes")
    assert "kept .: found" not in said(capsys, "gc", ".", "--yes")
    assert "README.md" in names(tmp_path)


class _KilledError(BaseException):
    pass


def killed_at(number: int, patch: pytest.MonkeyPatch) -> None:
    """The process ends as it is about to make the change of this number, from 0, in the file system."""
    left = iter(range(number))

    def ending(change: Any) -> Any:
        def changed(*words: Any, **options: Any) -> Any:
            if next(left, None) is None:
                raise _KilledError
            return change(*words, **options)

        return changed

    for owner, name in ((Path, "rename"), (Path, "unlink"), (Path, "rmdir"), (shutil, "rmtree")):
        patch.setattr(owner, name, ending(getattr(owner, name)))


def is_killed(number: int, *words: str) -> bool:
    """Whether the command has come to the change of this number, and no further."""
    with pytest.MonkeyPatch.context() as patch:
        killed_at(number, patch)
        try:
            cli.main(["runs", *words])
        except _KilledError:
            return True
    return False


@pytest.mark.parametrize("again", ["rm one", "gc ."])
@pytest.mark.parametrize("kind", ["run", "sweep"])
def test_a_removal_that_was_killed_is_completed(kind: str, again: str, tmp_path: Path) -> None:
    for number in range(100):
        if kind == "run":
            saved(made(tmp_path / "one"))
        else:
            sweep(tmp_path / "one", "completed", "completed")
        if not is_killed(number, "rm", "one", "--yes"):
            break
        (found,) = entries(tmp_path)
        assert (found.folder.name, found.status) == ((".one.removed", "removed") if number else ("one", "completed"))
        cli.main(["runs", *(again if number else "rm one").split(), "--yes"])
        assert names(tmp_path) == [], number
    assert number > 5
    assert names(tmp_path) == []


def test_a_run_in_the_place_of_one_whose_removal_was_killed_is_removed(tmp_path: Path) -> None:
    made(tmp_path / "one").rename(tmp_path / ".one.removed")
    made(tmp_path / "one")
    cli.main(["runs", "rm", "one", "--yes"])
    assert names(tmp_path) == []


def test_files_that_a_killed_process_has_left_are_those_of_a_run(tmp_path: Path) -> None:
    for name in (".12.model.keras", ".hparams.34", "etlrun.log", "output.txt"):
        (tmp_path / "run").is_dir() or made(tmp_path / "run")
        (tmp_path / "run" / name).touch()
    (sweep(tmp_path / "sweep", "completed", "completed").folder / "1").rename(tmp_path / "sweep" / ".1.removed")
    made(tmp_path / "sweep" / "attempts" / ".0-1.removed")
    cli.main(["runs", "rm", "run", "sweep", "--yes"])
    assert names(tmp_path) == []


def test_a_run_with_exports_is_kept_but_not_for_what_a_killed_one_has_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, export in (("with", "exports/keras"), ("without", "exports/.12.keras")):
        (made(tmp_path / name) / export).mkdir(parents=True)
    assert refused(capsys, "rm", tmp_path / "with", "--yes") == (
        f"{tmp_path}/with: found a run that has files that no run writes: exports/keras; expected files of a run "
        "alone\n"
        "    -> move them elsewhere\n"
    )
    said(capsys, "rm", "without", "--yes")
    assert names(tmp_path) == ["with"]


def test_a_hidden_folder_of_a_person_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".photos.removed").mkdir()
    (tmp_path / ".photos.removed" / "photo.jpg").touch()
    assert "found no such folder" in refused(capsys, "rm", "photos", "--yes")
    assert "freed 0.0 MB" in said(capsys, "gc", ".", "--yes")
    assert names(tmp_path) == [".photos.removed"]


def test_what_is_behind_a_link_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "kept").touch()
    (made(tmp_path / "run") / "checkpoints").symlink_to(tmp_path / "disk")
    (sweep(tmp_path / "sweep").folder / "2").symlink_to(tmp_path / "disk")
    cli.main(["runs", "rm", "run", "sweep", "--yes"])
    assert names(tmp_path / "disk") == ["kept"]
    (tmp_path / "disk" / "summary.json").symlink_to(made(tmp_path / "other") / "summary.json")
    assert "found no run and no sweep" in refused(capsys, "rm", "disk", "--yes")
    cli.main(["runs", "rm", "other", "--yes"])
    shutil.rmtree(tmp_path / "disk")
    assert names(tmp_path) == []


def test_a_run_that_another_one_has_to_resume_is_kept_unless_both_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(made(tmp_path / "outputs" / "one", "interrupted"), has_model=False)
    made(tmp_path / "outputs" / "two", "interrupted", epochs=0, resumed_from="outputs/one")
    assert refused(capsys, "rm", "outputs/one", "--yes").replace(f"{tmp_path}/", "") == (
        "outputs/one: found a run that has the last checkpoint of outputs/two, which resumes it; "
        "expected a run that no other one needs\n    -> resume that one first, or remove both\n"
    )
    made(tmp_path / "outputs" / "again", "interrupted", epochs=0, resumed_from="outputs/one")
    for other in ("again", "two"):
        assert "has the last checkpoint of" in refused(capsys, "rm", "outputs/one", f"outputs/{other}", "--yes")
    said(capsys, "rm", "outputs/one", "outputs/two", "outputs/again", "--yes")
    assert names(tmp_path / "outputs") == []


def test_a_run_that_has_just_begun_to_resume_another_one_keeps_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = saved(made(tmp_path / "one", "interrupted"), has_model=False)
    Record.create(tmp_path / "two", {"trainer": {"resume": str(one)}}, [])
    assert "has the last checkpoint of" in refused(capsys, "rm", "one", "--yes")
    (tmp_path / "outputs" / "today").mkdir(parents=True)
    (tmp_path / "two").rename(tmp_path / "outputs" / "today" / "two")
    assert "has the last checkpoint of" in refused(capsys, "rm", "one", "--yes")
