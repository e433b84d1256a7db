"""Runs and sweeps as `etlrun runs ls` lists them, and a ledger that a person has edited."""

import json
import re
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from etlrun.cli import main as cli
from etlrun.cli.launch import multirun
from etlrun.config.request import Request
from etlrun.record.record import Record
from etlrun.results.listing import entries
from etlrun.sweep.engine import Engine
from etlrun.sweep.ledger import Ledger
from etlrun.sweep.runs import Runs
from etlrun.system.errors import EtlrunError, WorldError
from tests.configs import raised
from tests.golden import Case, Golden, Says, cases
from tests.made import busy, made, saved, sweep
from tests.sweeps import sweep_of


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    cli.main(["runs", "ls", *words])
    return capsys.readouterr().out


def du(folder: Path) -> int:
    return int(subprocess.run(["du", "-s", "-B1", folder], capture_output=True, check=True).stdout.split()[0])


@pytest.mark.smoke
def test_runs_and_sweeps_are_listed_the_newest_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    monkeypatch.chdir(tmp_path)
    verdict = {"kind": "input", "stage": "transform.decode", "because": "", "advice": None, "max_gain": 1.5}
    made(tmp_path / "2026-11-20" / "run", epochs=2, age_days=3, verdict=verdict)
    made(tmp_path / "2026-11-21" / "slow", age_days=2, au_min=0.9, au=0.5)
    sweep(tmp_path / "sweep", "completed", "failed", age_days=1)
    out = listed(capsys, ".")
    header, *rows, end = out.splitlines()
    assert header.split("  ")[0] == "folder"
    cells = [[cell.strip() for cell in row.split("  ") if cell.strip()] for row in rows]
    says([(row[0], row[2]) for row in cells])
    assert cells[0][3] == "1/2"
    assert cells[0][4:7] == ["-", "val_accuracy 0.6000", "6.0"]
    assert cells[2][3:8] == ["-", "transform.decode", "1.50", "val_accuracy 0.7000", "3.0"]
    assert cells[0][-1] == "load.prefetch=0,1"
    assert end.startswith("2 runs and 1 sweep in . (")


def test_a_list_for_machines_has_exact_values(tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    folder = saved(made(tmp_path / "run"))
    (found,) = json.loads(listed(capsys, str(tmp_path), "--format", "json"))
    created_s = found.pop("created_s")
    assert abs(created_s - (folder / "config.yaml").stat().st_mtime) < 60
    assert found.pop("bytes") == du(folder)
    says(found)


def test_the_figure_of_a_run_is_that_of_the_epoch_that_is_kept(tmp_path: Path) -> None:
    kept = {"epoch": 1, "monitor": "val_loss", "value": 0.5}
    made(tmp_path / "run", epochs=3, kept=kept)
    made(tmp_path / "older", epochs=3, age_days=1)
    assert [one.best for one in entries(tmp_path)] == [{"val_accuracy": 0.6}, {"val_accuracy": 0.8}]


def test_sizes_are_those_of_du(tmp_path: Path) -> None:
    folder = saved(made(tmp_path / "run"))
    (folder / "logs").mkdir()
    (folder / "logs" / "again").hardlink_to(folder / "model.keras")
    (folder / "logs" / "link").symlink_to(folder / "model.keras")
    with (folder / "output.txt").open("wb") as sparse:
        sparse.truncate(10_000_000)
    ledger = sweep(tmp_path / "sweep", "completed", "completed")
    sizes = {one.folder: one.bytes for one in entries(tmp_path)}
    assert sizes == {folder: du(folder), ledger.folder: du(ledger.folder)}
    assert sizes[folder] < 1_000_000


def statuses(folder: Path) -> dict[str, str]:
    return {one.folder.name: one.status for one in entries(folder)}


def test_the_status_is_what_a_run_is_now(tmp_path: Path, says: Says) -> None:
    made(tmp_path / "killed", "running")
    made(tmp_path / "working", "running")
    made(tmp_path / "ending", "completed")
    Record.create(tmp_path / "starting", {}, [])
    Record.create(tmp_path / "never_started", {}, []).update(created_s=1.0)
    sweep(tmp_path / "done", "completed", "completed")
    sweep(tmp_path / "waiting", "completed")
    sweep(tmp_path / "swept", "completed", "completed")
    orphaned = sweep(tmp_path / "orphaned", "completed", "completed").folder / "1"
    with busy(tmp_path / "working"), busy(tmp_path / "ending"), busy(tmp_path / "swept"), busy(orphaned):
        says(statuses(tmp_path))


@pytest.mark.parametrize("text", ["{}", "[1]", '{"status": "done", "overrides": []}', ""])
def test_a_summary_of_something_else_and_a_broken_ledger_are_listed_as_unreadable(text: str, tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(text)
    assert statuses(tmp_path) == {tmp_path.name: "unreadable"}
    (tmp_path / "summary.json").unlink()
    ledger = sweep(tmp_path / "sweep", "completed", "completed")
    (ledger.folder / "configs.jsonl").unlink()
    assert statuses(tmp_path) == {"sweep": "unreadable"}


def test_links_and_hidden_folders_are_not_followed_and_runs_within_runs_are_found(tmp_path: Path) -> None:
    made(tmp_path / "away" / "run")
    made(tmp_path / "here" / ".hidden" / "run")
    made(tmp_path / "here" / "outer")
    made(tmp_path / "here" / "outer" / "inner")
    (tmp_path / "here" / "link").symlink_to(tmp_path / "away")
    (tmp_path / "here" / "dangling").symlink_to(tmp_path / "nowhere")
    assert sorted(statuses(tmp_path / "here")) == ["inner", "outer"]
    assert sorted(statuses(tmp_path / "here" / "link")) == ["run"]


def test_an_empty_folder_has_no_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(capsys, str(tmp_path)) == f"0 runs and 0 sweeps in {tmp_path} (0.0 MB)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a sweep of two configs."""
    return sweep_of(tmp_path, "load.prefetch=0,1").folder


def without_multirun(text: str) -> str:
    known = json.loads(text)
    del known["request"]["multirun"]
    return json.dumps(known)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("sweep.json", lambda _: "[]"),
        ("sweep.json", lambda _: "{}"),
        ("sweep.json", lambda _: "no"),
        ("sweep.json", without_multirun),
        ("sweep.json", lambda text: text.replace('"unfit": []', '"unfit": ["it"]')),
        ("configs.jsonl", lambda text: text.split("\n")[0]),
        ("configs.jsonl", lambda text: text[:-100]),
    ],
    ids=["a list", "no configs", "no JSON", "no multirun", "other rules", "a config less", "half a config"],
)
def test_damage_is_named(file: str, damage: Callable[[str], str], folder: Path, says: Says) -> None:
    (folder / file).write_text(damage((folder / file).read_text()))
    says(re.sub("line 2 column [0-9]+", "line 2 column N", refused_resume(folder)))


def test_a_path_without_a_sweep_is_refused(tmp_path: Path, says: Says) -> None:
    says(refused_resume(tmp_path))
    assert not list(tmp_path.iterdir())


def test_the_handlers_of_before_come_back_if_a_sweep_can_not_end_its_jobs(tmp_path: Path) -> None:
    class Broken(Engine):
        def end(self) -> None:
            raise OSError("full")

    ledger, numbers = sweep_of(tmp_path), (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    with pytest.raises(OSError, match="full"):
        Broken(Runs(ledger, {}, 1)).run()
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.mark.parametrize("name", ["it's", "a,b=c", "[my] sweep", "my sweep"])
def test_the_command_that_resumes_is_read_whatever_the_name_of_the_folder(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    etlrun, *words = shlex.split(Ledger(folder, sweep_of(tmp_path).sweep, [], {}).resume_command)
    with pytest.raises(WorldError) as caught:
        multirun(Request.of(words))
    assert etlrun == "etlrun"
    assert str(caught.value).startswith(f"{folder}: found no sweep (FileNotFoundError: ")


def refused_resume(folder: Path, *words: str) -> str:
    """The message when the sweep in `folder` is resumed."""
    return raised(EtlrunError, multirun, Request.of(["-m", f"sweep.resume={folder}", *words]))


@pytest.mark.parametrize("case", cases("resumed_sweeps"))
def test_what_a_sweep_began_with_stays(case: Case, golden: Golden, tmp_path: Path) -> None:
    ledger = sweep_of(tmp_path, *case["began"])
    golden(case, refused_resume(ledger.folder, *case["words"]).replace(str(tmp_path), "DIR"))


def test_an_empty_line_is_no_config(folder: Path) -> None:
    before, configs = Ledger.open(folder).configs, folder / "configs.jsonl"
    configs.write_text("\n" + configs.read_text().replace("\n", "\n\n"))
    assert Ledger.open(folder).configs == before
