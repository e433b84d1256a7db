"""`etlrun init`: the files that it writes, and what it refuses without leaving anything."""

import os
import pty
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import etlrun
from etlrun.cli import commands, upkeep
from etlrun.cli import main as cli
from etlrun.cli.parsers import call
from etlrun.system.errors import EtlrunError
from tests.disks import fill, mounted
from tests.golden import Case, Golden, Says, cases
from tests.own import content

WRITTEN = {
    ".github/workflows/review.yml", ".github/workflows/tests.yml", ".gitignore", ".pre-commit-config.yaml", "AGENTS.md",
    "README.md",
    "conf/etlrun-policy.yaml",
    "conf/experiment/first.yaml", "conf/model/small_net.yaml", "conf/transform/grey_64.yaml", "pyproject.toml",
    "trees/__init__.py", "trees/models.py", "trees/steps.py", "tests/test_trees.py",
}  # fmt: skip


def made(*words: str) -> None:
    cli.main(["init", *words])


def refused(*words: str, status: int = 2) -> list[str]:
    """With which faults a project is refused."""
    with pytest.raises(EtlrunError) as caught:
        call("init", [*words])
    assert caught.value.status == status
    return [str(fault) for fault in caught.value.faults]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.smoke
def test_a_project_has_its_own_name_everywhere(here: Path, capsys: pytest.CaptureFixture[str], says: Says) -> None:
    made("trees")
    says(capsys.readouterr().out.splitlines())
    files = content(here / "trees")
    assert {*files} == WRITTEN
    assert not [name for name, text in files.items() if upkeep.PLACEHOLDER.encode() in text]
    assert b'trees_grey = "trees.steps:Grey"' in files["pyproject.toml"]
    assert [path.name for path in here.iterdir()] == ["trees"]
    subprocess.run(["git", "init", "--quiet"], cwd=here / "trees", check=True)  # as users do, whose umask counts
    assert (here / "trees").stat().st_mode == (here / "trees" / ".git").stat().st_mode


@pytest.mark.parametrize(
    ("words", "folder", "name"),
    [
        (("my-trees",), "my-trees", "my_trees"),
        (("a folder", "--name", "trees"), "a folder", "trees"),
        (("Übung", "--name", "trees"), "Übung", "trees"),
        (("below/trees",), "below/trees", "trees"),
        (("below/../trees",), "trees", "trees"),
        (("trees/",), "trees", "trees"),
    ],
)
def test_the_name_is_that_of_the_folder_unless_it_is_given(
    words: tuple[str, ...], folder: str, name: str, here: Path
) -> None:
    (here / "below").mkdir()
    made(*words)
    assert (here / folder / name / "steps.py").is_file()
    assert tomllib.loads((here / folder / "pyproject.toml").read_text())["project"]["name"] == name


@pytest.mark.parametrize("there", [[], [".git"]])
def test_an_empty_folder_or_one_of_git_alone_becomes_a_project(
    there: list[str], here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "trees").mkdir()
    if there:
        subprocess.run(["git", "init", "--quiet", "trees"], check=True)
    monkeypatch.chdir(here / "trees")
    made(".")
    assert "begin     pip install -e '.[test]'\n" in capsys.readouterr().out
    assert {name for name in content(here / "trees") if not name.startswith(".git/")} == WRITTEN
    assert [*(here / "trees").glob(".git")] == [here / "trees" / name for name in there]
    assert not [*(here / "trees").glob(".trees*")]


@pytest.mark.parametrize(
    ("words", "answer", "is_created"),
    [
        ((), "\n", True),
        ((), "y\n", True),
        ((), "no\n", False),
        ((), "\x04", False),
        (("--git",), None, True),
        ((), None, False),
    ],
)
def test_a_repository_is_offered_on_a_terminal_and_created_with_git(
    words: tuple[str, ...],
    answer: str | None,
    *,
    is_created: bool,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if answer is not None:
        keyboard, screen = map(os.fdopen, pty.openpty())
        os.write(keyboard.fileno(), answer.encode())
        monkeypatch.setattr(sys, "stdin", screen)
    made("trees", *words)
    if answer is not None:
        keyboard.close()
        screen.close()
    said = capsys.readouterr().out
    assert said.count("Create a git repository in trees? [Y/n] ") == (answer is not None)
    assert ("git init && " in said) is not is_created
    assert (here / "trees" / ".git").is_dir() is is_created


def test_a_repository_that_is_there_is_used_and_a_missing_git_is_told(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    subprocess.run(["git", "init", "--quiet"], check=True)
    made("trees", "--git")
    assert "commit    pre-commit install && " in capsys.readouterr().out
    assert not (here / "trees" / ".git").exists()
    monkeypatch.setenv("PATH", "")
    says(refused("others", "--git", status=1))


@pytest.mark.smoke
def test_a_folder_with_files_is_refused_and_stays_as_it_is(here: Path, says: Says) -> None:
    (here / "trees").mkdir()
    (here / "trees" / "README.md").write_text("mine")
    (here / "trees" / "a.txt").touch()
    says(refused("trees"))
    (here / "trees" / "a.txt").unlink()
    says(refused("trees"))
    assert content(here) == {"trees/README.md": b"mine"}


def test_what_is_no_folder_is_refused(here: Path, says: Says) -> None:
    (here / "trees").touch()
    (here / "link").symlink_to("nowhere")
    for words in (["trees"], ["link"], ["", "--name", "trees"], ["far/away/trees"]):
        says(refused(*words))
    assert {path.name for path in here.iterdir()} == {"trees", "link"}


@pytest.mark.parametrize("case", cases("package_names"))
def test_a_name_that_no_package_can_have_is_refused(case: Case, golden: Golden, here: Path) -> None:
    name = case["name"]
    (fault,) = refused("trees", "--name", name)
    shown = re.sub(r"/\S+\.py", "PATH", fault)
    golden(case, shown)
    assert not [*here.iterdir()]
    if name and "." not in name:
        (fault,) = refused(name)
        expected = shown.replace("--name:", f"{name}:")
        assert re.sub(r"/\S+\.py", "PATH", fault) == expected.replace(
            "choose another name", "choose another folder, or name the package with --name"
        )
    assert not [*here.iterdir()]


def test_folder_and_name_are_refused_together(here: Path) -> None:
    (here / "class").touch()
    assert [fault.partition(":")[0] for fault in refused("class")] == ["class", "class"]
    assert len(refused("class", "--name", "a b")) == 2


def test_a_full_disk_and_one_that_is_only_read_leave_nothing(here: Path, says: Says) -> None:
    with mounted(here / "disk", "64k") as disk:
        fill(disk)
        says(refused("disk/trees", status=1))
        assert [path.name for path in disk.iterdir()] == ["filler"]
        (disk / "filler").unlink()
        made("disk/trees")
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        says(refused("disk/others", status=1))
        assert [path.name for path in disk.iterdir()] == ["trees"]


def test_the_template_asks_for_this_version() -> None:
    project = tomllib.loads((upkeep.TEMPLATE / "pyproject.toml").read_text())["project"]
    own = tomllib.loads((Path(etlrun.__file__).parents[1] / "pyproject.toml").read_text())["project"]
    (needed,) = map(Requirement, project["dependencies"])
    assert needed.specifier.contains(etlrun.__version__)
    assert project["requires-python"] == own["requires-python"]


def test_its_readme_names_commands_and_files_that_are_there(here: Path) -> None:
    made("trees")
    readme = (here / "trees" / "README.md").read_text()
    named = set(re.findall(r"^    etlrun (\w+)(?!=)\b", readme, re.MULTILINE))
    assert named == {"plan", "show", "diff"}
    assert named <= {*commands.COMMANDS}
    paths = {*re.findall(r"`([\w./-]+\.(?:py|yaml|yml))`", readme)}
    assert len(paths) >= 5
    assert not [path for path in paths if not [*(here / "trees").rglob(Path(path).name)]]
