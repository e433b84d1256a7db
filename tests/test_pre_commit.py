"""The hook, run by pre-commit itself on real commits."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.configs import CONF
from tests.repository import Repository

pytestmark = [pytest.mark.needs("pre-commit"), pytest.mark.slow]

ROOT = CONF.parent


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """With the hook of a repository that has etlrun's alone, installed for its commits."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "home"))
    (tmp_path / "etlrun").mkdir()
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", tmp_path / "etlrun")
    hooks = Repository(tmp_path / "etlrun", ".")
    made = Repository.small(tmp_path / "repository")
    hook = {"id": "etlrun-check", "args": ["--config-dir", "mine"]}
    config = {"repos": [{"repo": str(hooks.folder), "rev": hooks.git("rev-parse", "HEAD"), "hooks": [hook]}]}
    (made.folder / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    made.commit("Hooks")
    subprocess.run([sys.executable, "-m", "pre_commit", "install"], cwd=made.folder, check=True, capture_output=True)
    return made


def refusal(repository: Repository) -> str:
    """What a commit of what is staged is refused with; empty if it is made."""
    try:
        repository.git("commit", "--message", "Change")
    except subprocess.CalledProcessError as error:
        return str(error.stderr)
    return ""


def test_a_commit_of_a_wrong_config_is_refused_with_its_file_and_line(repository: Repository) -> None:
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 0")
    repository.git("add", "--all")
    fault = "mine/experiment/other.yaml:5: trainer.epochs, in experiment=other: found 0; expected a positive integer"
    assert "- exit code: 2\n" in (said := refusal(repository))
    assert f"etlrun: 1 fault\n  {fault}\n" in said
    repository.replace("experiment/other.yaml", "epochs: 0", "epochs: 4")
    repository.git("add", "--all")
    repository.replace("experiment/other.yaml", "epochs: 4", "epochs: 0")  # not staged, and put aside
    assert refusal(repository) == ""
    assert "epochs: 0" in (repository.configs / "experiment" / "other.yaml").read_text(encoding="utf-8")


def test_a_commit_that_removes_a_config_of_another_one_is_refused(repository: Repository) -> None:
    repository.git("rm", "--quiet", "mine/transform/small_48.yaml")
    assert "Could not find 'transform/small_48'" in refusal(repository)
