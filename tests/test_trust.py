"""What SECURITY.md promises: commands that look at configs call nothing that Hydra's own block names; a run does."""

from pathlib import Path

import pytest

from etlrun.cli import doctor_report
from etlrun.cli.main import main
from tests.readers import logging_as_it_was
from tests.repository import Repository
from tests.runs import finish, start

HYDRA = """\
hydra:
  callbacks: {{x: {{_target_: os.mkdir, path: {marks}/callback}}}}
  job_logging: {{handlers: {{x: {{(): os.mkdir, path: {marks}/handler}}}}, root: {{handlers: [x]}}}}
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """An experiment whose block for Hydra makes folders when it is called, after a revision without it."""
    made = Repository.small(tmp_path / "repository")
    path = made.configs / "experiment" / "small.yaml"
    path.write_text(path.read_text(encoding="utf-8") + HYDRA.format(marks=tmp_path / "marks"), encoding="utf-8")
    (tmp_path / "marks").mkdir()
    monkeypatch.chdir(made.folder)
    monkeypatch.setattr(doctor_report, "_DEVICE_S", 0.01)
    return made


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "experiment=small"],
        ["plan", "-m", "experiment=small", "load.prefetch=0,1"],
        ["check"],
        ["diff", "main"],
        ["diff", "experiment=small", "experiment=other"],
        ["eject", "experiment=small"],
        ["doctor", "--report", "experiment=small"],
    ],
)
@pytest.mark.usefixtures("mine")
def test_a_command_that_looks_at_configs_calls_nothing(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with logging_as_it_was():
        main([*words, "--config-dir", "mine"])
    assert capsys.readouterr().out
    assert [*(tmp_path / "marks").iterdir()] == []


@pytest.mark.slow
def test_a_run_calls_it(mine: Repository, tmp_path: Path) -> None:
    finish(start(["experiment=small", "trainer=drain", "trainer.epochs=1", "--config-dir", "mine"], mine.folder))
    assert (tmp_path / "marks" / "callback").is_dir()
