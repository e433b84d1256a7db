"""The folder of a run of version 0.1, in tests/golden/run: later versions read it, as docs/compatibility.md says."""

import json
import shutil
from pathlib import Path

import pytest

import etlrun
from etlrun.cli.main import main
from etlrun.record.summary import read_summary
from tests.configs import CONF

GOLDEN = CONF.parent / "tests" / "golden" / "run"


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder, in the current one."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(GOLDEN, tmp_path / "old"))


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints that has no fault and nothing to warn of."""
    main(words)
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_the_summary_has_what_it_had(old: Path) -> None:
    summary = read_summary(old)
    assert summary is not None
    assert (summary.status, summary.overrides, summary.versions["etlrun"]) == (
        "completed",
        ["trainer.epochs=1"],
        "0.1.0",
    )
    assert [epoch.val_accuracy for epoch in summary.epochs] == [0.5208333134651184]
    assert summary.verdict is not None
    assert summary.verdict.kind == "model"


def test_a_field_of_a_later_version_is_left_out(old: Path) -> None:
    known = read_summary(old)
    summary = json.loads((old / "summary.json").read_text())
    (old / "summary.json").write_text(json.dumps({**summary, "from_0_9": [1]}))
    assert read_summary(old) == known


def test_it_is_reported(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.split(maxsplit=1) for line in printed(capsys, "report", "old").splitlines() if line]
    told = dict(line for line in lines if len(line) == 2)
    assert told["status"].startswith("completed")
    assert told["result"].startswith("val accuracy 0.52083, ")
    assert told["verdict"].startswith("the input is not the bottleneck of ")
    assert told["report"] == "old/report.html"
    assert (old / "report.html").is_file()


@pytest.mark.usefixtures("old")
def test_it_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = json.loads(printed(capsys, "runs", "ls", "--format", "json", "."))
    assert (run["folder"], run["status"], run["overrides"]) == ("old", "completed", ["trainer.epochs=1"])


@pytest.mark.usefixtures("old")
def test_it_is_compared_with_what_its_overrides_compose_now(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "diff", "old").startswith("old -> the config of its overrides now\n")
    assert printed(capsys, "diff", "old", "old").startswith("old -> old\nchanges nothing\n")


@pytest.mark.usefixtures("old")
def test_it_is_resumed_by_a_plan_of_its_overrides(capsys: pytest.CaptureFixture[str]) -> None:
    fingerprint = printed(capsys, "plan", "trainer.resume=old").split("\nfingerprint ")[1]
    assert fingerprint == printed(capsys, "plan", "trainer.epochs=1").split("\nfingerprint ")[1]


def test_python_loads_it(old: Path) -> None:
    run = etlrun.load(old)
    assert isinstance(run, etlrun.Run)
    assert run.summary.status == "completed"


def test_an_old_key_of_its_config_is_refused_with_the_new_one(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = old / "config.yaml"
    path.write_text(path.read_text().replace("fast:", "scaled:"))
    with pytest.raises(SystemExit):
        main(["diff", "old"])
    assert capsys.readouterr().err == (
        "etlrun: 1 fault\n"
        "  old: transform.decode.scaled: found an unknown key; expected one of the keys library, fast\n"
        "    -> write `transform.decode.fast`, its name now\n"
    )


def test_a_key_that_is_gone_is_refused_unless_it_did_nothing(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = old / "config.yaml"
    path.write_text(path.read_text().replace("steps_per_execution: 1", "steps_per_execution: auto"))
    with pytest.raises(SystemExit):
        main(["diff", "old"])
    lines = capsys.readouterr().err.splitlines()
    assert lines[1].startswith("  old: trainer.steps_per_execution: found an unknown key; expected one of the keys ")
    assert lines[2] == "    -> remove it: batches of several steps would be read where no wait is measured"


@pytest.mark.usefixtures("old")
def test_what_needs_its_model_says_that_it_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["evaluate", "old"])
    assert capsys.readouterr().err == (
        "etlrun: 1 fault\n  old/model.keras: found no such file; expected the trained model\n"
        "    -> restore it, or save it again: etlrun trainer.resume=old\n"
    )
