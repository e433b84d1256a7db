"""The report for an issue: what is in it, whatever is broken, and what is not."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli import doctor
from etlrun.cli.main import main
from tests.golden import Case, Golden, Says, cases
from tests.runs import finish, start

PARTS = ["Versions", "Machine", "Config", "Last run"]
SUMMARY: dict[str, Any] = {
    "status": "failed",
    "overrides": ["experiment=own", "dataset.dir=/mnt/acme"],
    "created_s": 1_790_000_000.0,
    "plan_fingerprint": "0123456789abcdef",
    "versions": {"python": "3.10.1", "keras": "2.0.0", "gone": "1"},
    "host": {"device": "Tesla T4 (GPU)", "cores": 8, "memory_bytes": 64e9, "driver_gpus": ["Tesla T4"]},
    "examples": 0,
    "error": "The run failed: OSError: /mnt/acme/a.jpg of store https://me:planted@a.b/c",
    "remarks": ["A note."],
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def reported(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, str]:
    """The parts of a report, by their titles."""
    main(["doctor", "--report", *words])
    out = capsys.readouterr().out
    assert out.startswith(
        "<!-- etlrun doctor --report: with home folders as ~, and URLs without user, password and query."
    )
    parts = re.findall(r"### ([^\n]*)\n\n(`{3,})text\n(.*?)\n\2\n", out, re.DOTALL)
    return {title: text for title, _, text in parts}


def left(folder: Path, **values: Any) -> Path:
    """A run that failed, in a folder."""
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(SUMMARY | values))
    (folder / "traceback.txt").write_text('File "/mnt/acme/steps.py"\n```\nOSError: planted?\n')
    (folder / "plan.txt").write_text("dataset\n     dir   /mnt/acme  data\n")
    return folder


def test_in_an_empty_folder_it_has_versions_and_the_machine(capsys: pytest.CaptureFixture[str], says: Says) -> None:
    parts = reported(capsys)
    assert [*parts] == PARTS
    says([line.split()[0] for line in parts["Versions"].splitlines()[:4]])
    assert [line.split()[0] for line in parts["Machine"].splitlines()[:5]] == (
        ["system", "processor", "cores", "memory", "disk"]
    )
    assert (parts["Config"], parts["Last run"]) == ("no overrides were given", "none in outputs")


def test_the_last_run_is_told_with_its_plan_and_its_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    os.utime(left(tmp_path / "outputs" / "old", error="Another.") / "summary.json", (1, 1))
    left(tmp_path / "outputs" / "sweep" / "1")
    parts = reported(capsys)
    assert [*parts] == [*PARTS, "Plan of the last run", "Traceback"]
    told, _, values = parts["Last run"].partition("{")
    says(told)
    keys = ("created_s", "overrides", "plan_fingerprint", "versions")
    host = {**SUMMARY["host"], "precision": "float32"}
    assert json.loads("{" + values) == {**{key: SUMMARY[key] for key in keys}, "host": host}
    assert parts["Plan of the last run"] == "dataset\n     dir   /mnt/acme  data"
    assert parts["Traceback"] == 'File "/mnt/acme/steps.py"\n```\nOSError: planted?'


def test_a_run_that_completed_is_told_without_the_traceback_of_an_earlier_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = left(tmp_path / "outputs" / "run")
    (folder / "summary.json").write_text(json.dumps({"status": "completed", "overrides": []}))
    parts = reported(capsys, "cache=none")
    assert [*parts] == [*PARTS, "Plan of the last run"]
    assert parts["Last run"].startswith("status    completed, 0 examples")


def test_a_run_that_can_not_be_read_hides_no_other_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left(tmp_path / "outputs" / "run")
    (tmp_path / "outputs" / "gone").mkdir()
    (tmp_path / "outputs" / "gone" / "summary.json").symlink_to("nothing")
    parts = reported(capsys)
    assert parts["Traceback"].endswith("planted?")
    assert parts["Runs that can't be read"] == "outputs/gone/summary.json: No such file or directory"


def test_a_damaged_summary_is_told_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = left(tmp_path / "outputs" / "run")
    (folder / "summary.json").write_text('{"status": "compl')
    parts = reported(capsys)
    first, second = parts["Last run"].splitlines()
    assert first == "folder  outputs/run"
    assert second == "summary.json is damaged: Unterminated string starting at: line 1 column 12 (char 11)"
    assert parts["Traceback"].endswith("planted?")


def test_the_plan_of_a_config_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    told = reported(capsys, "cache=none", "dataset.data_dir=/mnt/acme")["Config"]
    assert told.startswith("cache=none dataset.data_dir=/mnt/acme\n\ndataset\n")
    assert re.search(r"^ +data_dir +/mnt/acme +speed$", told, re.MULTILINE)
    assert re.search(r"^fingerprint [0-9a-f]{16}$", told, re.MULTILINE)


def test_a_broken_config_is_told_with_its_faults(capsys: pytest.CaptureFixture[str], says: Says) -> None:
    says(reported(capsys, "trainer.epochs=0", "load.prefetch=x", "--config-dir", "gone")["Config"])
    told = reported(capsys, "trainer.epochs=0", "load.prefetch=x")["Config"]
    assert told.startswith("trainer.epochs=0 load.prefetch=x\n\netlrun: 2 faults\n  ")


@pytest.mark.parametrize("case", cases("public_texts"))
def test_home_folders_and_what_urls_hold_of_credentials_are_left_out(
    case: Case, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/data/jane.doe")
    golden(case, doctor._public(case["text"]))


@pytest.mark.parametrize("home", ["/", "", "gone"])
def test_without_a_home_no_folder_is_left_out(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", home)
    assert doctor._public(f"/x in {Path.cwd()}") == f"/x in {Path.cwd()}"


def test_what_cannot_be_told_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    plan = left(tmp_path / "outputs" / "run") / "plan.txt"
    plan.unlink()
    assert "Plan of the last run" not in reported(capsys)
    plan.mkdir()
    says(reported(capsys)["Plan of the last run"])


def test_a_long_part_is_cut_in_its_middle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = "a" * 10_000 + "b" * 10_000
    (left(tmp_path / "outputs" / "run") / "traceback.txt").write_text(trace)
    half = 6_000
    expected = f"{'a' * half}\n… 8,000 characters are left out …\n{'b' * half}"
    assert reported(capsys)["Traceback"] == expected


def in_process(folder: Path, *words: str, **environment: str) -> str:
    """The report of a process of its own, which prints nothing else."""
    status, out, err = finish(start(["doctor", "--report", *words], folder, **environment))
    assert (status, err) == (0, "")
    return out


@pytest.mark.slow
def test_it_names_nothing_that_is_private(tmp_path: Path) -> None:
    planted = {"HOME": str(tmp_path / "home of jane"), "A_SECRET": "planted-secret/9", "PLAIN": "never-printed"}
    work = tmp_path / "home of jane" / "work"
    folder = left(
        work / "outputs" / "run",
        error=f"OSError: {work}/a.jpg",
        remarks=["s3://bucket/secret?sig=planted", str(work)],
        resumed_from=f"{work}/outputs/before",
    )
    (folder / "traceback.txt").write_text(f"{work}/x.py\n/home/jane/y.py\n")
    words = [f"dataset.data_dir='{work}/data'", "dataset.name=pets", "dataset=tfds", "dataset.download=false"]
    out = in_process(work, *words, **planted)
    assert "\nerror     OSError: ~/work/a.jpg\n" in out
    assert "note      s3://bucket/secret\n" in out
    assert "~/work/x.py\n~/y.py\n" in out
    assert "data_dir='~/work/data'" in out
    for private in ("planted", "jane", "never-printed", "home of"):
        assert private not in out, private
