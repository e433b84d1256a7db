"""The runs, sweeps and searches that `latest` and parts of names stand for."""

import shutil
import subprocess
from pathlib import Path

import pytest

import etlrun
from etlrun.cli.launch import multirun
from etlrun.config.request import Request
from etlrun.record.folders import LATEST, found_by, named
from etlrun.sweep.sides import sides_of
from etlrun.system.errors import EtlrunError, WorldError
from tests.commands import complaint
from tests.configs import raised
from tests.golden import Says
from tests.made import made, sweep

OLD, NEW, OWN = "2026-11-20/10-00-00-000000", "2026-11-27/09-30-00-000000", "tries/lr"


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of two days, one with a name of its own, which is older than both, and a sweep between them."""
    monkeypatch.chdir(tmp_path)
    for name in (NEW, OLD, OWN):
        made(tmp_path / "outputs" / name)
    sweep(tmp_path / "outputs" / "2026-11-26" / "11-00-00-000000", "completed", "completed")
    subprocess.run(["touch", "-d", "2026-11-01", tmp_path / "outputs" / OWN / "config.yaml"], check=True)
    return Path("outputs")


def test_a_word_names_the_run_that_exists_is_newest_or_has_it_in_its_name(
    outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [str(of.relative_to(outputs)) for of in named(LATEST, "run")]
    assert names == [NEW]
    assert [of.name for of in named(LATEST, "sweep")] == ["11-00-00-000000"]
    assert found_by("11-20/10", "RUN ", "run") == outputs / OLD
    assert found_by("lr", "RUN ", "run") == found_by(f"outputs/{OWN[:-1]}", "RUN ", "run") == outputs / OWN
    made(outputs / "tries" / "lr2")
    assert found_by("lr", "RUN ", "run") == outputs / OWN  # a whole name, before parts of others
    capsys.readouterr()
    assert found_by(LATEST, "RUN ", "run") == outputs / "tries" / "lr2"
    assert capsys.readouterr().err == "etlrun: latest is outputs/tries/lr2\n"
    Path(LATEST).mkdir()
    assert found_by(LATEST, "RUN ", "run") == Path(LATEST)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("word", ["2026", "missing", LATEST])
def test_a_word_that_names_no_run_or_several_is_refused(
    word: str, outputs: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    for day in range(20, 25):
        made(outputs / f"2026-10-{day}" / "08-00-00-000000")
    if word == LATEST:
        shutil.rmtree(outputs)
    commands = (["report", word], ["evaluate", word], ["predict", word, "x"], ["export", word, "--format", "keras"])
    says([complaint(capsys, *command) for command in (*commands, ["config", "freeze", word])])
    says([raised(WorldError, Request(overrides=[f"trainer.resume={word}"]).resuming)])
    says([raised(WorldError, multirun, Request.of(["-m", "sweep.resume=none"])), raised(WorldError, etlrun.load, word)])


def test_runs_that_are_resumed_and_loaded_are_named_by_their_folders(outputs: Path) -> None:
    for word, name in (("latest", NEW), ("9", NEW), ("lr", OWN)):
        words = [f"trainer.resume={word}", "load.prefetch=2"]
        assert Request(overrides=words).resuming().overrides == [f"trainer.resume={outputs / name}", "load.prefetch=2"]
    loaded = etlrun.load("11-20/10")
    assert isinstance(loaded, etlrun.Run)
    assert loaded.folder == (outputs / OLD).absolute()


def test_a_side_is_a_path_a_revision_or_a_run(outputs: Path, says: Says) -> None:
    for name in ("v1", "main-lr"):
        made(outputs / name)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", "init", "-q", "-b", "main"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    subprocess.run(["git", "tag", "v1"], check=True)
    words = ("v1", "main", "2026", "missing", "11-20/10")  # main is a part of a name; the last is a run
    says([raised(EtlrunError, sides_of, word, "experiment=naive").splitlines()[:2] for word in words])
