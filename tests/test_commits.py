"""The commit that a run begins at: what git says of real repositories, and of what is none, and where it is shown."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from etlrun.cli import main as cli
from etlrun.record.commit import Commit
from etlrun.run import commit as reading
from etlrun.run.commit import begun
from tests.configs import plan_of
from tests.golden import Says
from tests.made import made
from tests.own import image, write_photos
from tests.projects import Project
from tests.repository import SMALL, Repository
from tests.runs import complete_here, emulated
from tests.test_code_of_revisions import MINE


def read(config_dir: Path | None = None) -> Commit:
    return begun(plan_of(), None if config_dir is None else str(config_dir)).result()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Repository.small(folder)


def test_a_clean_tree_is_its_commit_and_its_branch(repository: Repository) -> None:
    revision = repository.git("rev-parse", "HEAD")
    clean = Commit(revision=revision, branch="main", is_clean=True, changed=0, changes=None, plugins={})
    assert read() == clean
    assert (clean.short, clean.told) == (revision[:7], f"{revision[:12]} on main, clean")
    repository.git("checkout", "--quiet", "--detach")
    assert read() == clean.with_values(branch=None)
    repository.write("../.gitignore", "*.log\n")
    repository.commit("What is ignored")
    repository.write("../a.log", "ignored")
    assert read().is_clean


def test_what_differs_counts_by_its_content_however_git_holds_it(repository: Repository) -> None:
    repository.write("experiment/small.yaml", "{}\n")
    changed = read()
    assert (changed.is_clean, changed.changed, changed.short[-1]) == (False, 1, "*")
    assert re.fullmatch(r"[0-9a-f]{12} on main, 1 file changed or new \(digest [0-9a-f]{16}\)", changed.told)
    repository.git("add", "--all")
    assert read() == changed
    repository.write("experiment/small.yaml", "{a: 1}\n")
    other = read()
    assert other.changes not in {changed.changes, None}
    repository.write("experiment/small.yaml", "{}\n")
    assert read() == changed
    (repository.configs / "experiment" / "other.yaml").unlink()
    assert read().changed == 2
    repository.write("experiment/new.yaml", "{}\n")
    new = read()
    assert new.changed == 3
    repository.write("experiment/new.yaml", "{a: 1}\n")
    assert read().changes != new.changes
    assert "{a: 1}" not in json.dumps(read().written)


def test_folders_of_runs_and_sweeps_are_no_change(repository: Repository) -> None:
    made(repository.folder / "outputs" / "a" / "b")
    for name in ("multirun/1/sweep.json", "multirun/1/0/output.txt", "multirun/2/multirun.yaml", "search/tune.json"):
        repository.write(f"../{name}", "{}")
    assert read().is_clean
    repository.write("../summary.json", "{}")
    assert read().changed == 1


def test_large_files_count_by_size_and_time(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    path = repository.folder / "data.bin"
    path.write_bytes(bytes(2_000_000))
    content = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda of: pytest.fail("it was read") if of == path else content(of))
    before = read()
    assert before.changed == 1
    os.utime(path, ns=(1, 1))
    assert read().changes != before.changes


def test_links_and_what_is_no_file_are_not_followed(repository: Repository) -> None:
    (repository.folder / "link").symlink_to("/nowhere")
    os.mkfifo(repository.folder / "pipe")  # which git doesn't list
    before = read()
    assert before.changed == 1
    (repository.folder / "link").unlink()
    (repository.folder / "link").symlink_to("/elsewhere")
    assert read().changes not in {before.changes, None}


def test_a_changed_submodule_is_a_change(repository: Repository) -> None:
    (repository.folder / "inner").mkdir()
    inner = Repository(repository.folder / "inner", "conf")
    repository.commit("A submodule")
    assert read().is_clean
    inner.commit("Later")
    later = read()
    assert later.changed == 1
    inner.commit("Last")
    assert read().changes != later.changes


def test_a_worktree_has_its_own_branch(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.git("worktree", "add", "--quiet", "-b", "other", str(tmp_path / "worktree"))
    monkeypatch.chdir(tmp_path / "worktree")
    assert (read().branch, read().is_clean) == ("other", True)


def test_the_repository_is_that_of_the_configs_or_else_of_the_current_folder(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "second" / "mine").mkdir(parents=True)
    second = Repository(tmp_path / "second", "mine")
    assert read(tmp_path / "second" / "mine").revision == second.git("rev-parse", "HEAD")
    (tmp_path / "none").mkdir()
    assert read(tmp_path / "none").revision == repository.git("rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "second" / ".git"))  # as in a hook
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "nothing"))
    assert (read().revision, read().is_clean) == (read(tmp_path / "none").revision, True)


def script(folder: Path, text: str) -> str:
    """A program `git` in a folder, which is returned for PATH."""
    folder.mkdir()
    path = folder / "git"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(folder)


def test_where_git_says_nothing_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Repository, says: Says
) -> None:
    told = []
    with monkeypatch.context() as patch:
        patch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        told.append(read().told)
    for name, text in {"nothing": "exit 1", "refused": "echo 'fatal: no' >&2; exit 128"}.items():
        with monkeypatch.context() as patch:
            patch.setenv("PATH", script(tmp_path / name, text), prepend=os.pathsep)
            told.append(read().told)
    monkeypatch.setattr(reading, "_LONGEST_S", 0.25)
    path = os.environ["PATH"]
    with monkeypatch.context() as patch:
        patch.setenv("PATH", script(tmp_path / "hanging", "exec sleep 60"), prepend=os.pathsep)
        told.append(read().told)
    whole = shutil.which("git", path=path)
    slow = script(tmp_path / "slow", f'case "$*" in *status*) exec sleep 60;; esac; exec {whole} "$@"')
    with monkeypatch.context() as patch:
        patch.setenv("PATH", slow, prepend=os.pathsep)
        found = read()
    revision = repository.git("rev-parse", "HEAD")
    assert (found.revision, found.is_clean, found.short) == (revision, None, f"{revision[:7]}?")
    told.append(found.told.removeprefix(revision[:12]))
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path / "no folder"))
        told.append(read().told)
    (repository.folder / ".git" / "HEAD").write_text("nothing")
    told.append(read().told)
    shutil.rmtree(repository.folder / ".git")
    told.append(read().told)
    repository.git("init", "--quiet")
    told.append(read().told)
    repository.git("init", "--quiet", "--bare", str(tmp_path / "bare"))
    monkeypatch.chdir(tmp_path / "bare")
    told.append(read().told)
    says(told)


def test_a_run_keeps_its_commit_and_shows_it(
    repository: Repository, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = repository.folder / "outputs" / "run"
    commit = complete_here(folder, emulated(tiny))["commit"]
    revision = repository.git("rev-parse", "HEAD")
    assert commit == {
        "revision": revision,
        "branch": "main",
        "is_clean": True,
        "changed": 0,
        "changes": None,
        "plugins": {},
    }
    repository.write("experiment/small.yaml", "{}\n")
    second = complete_here(repository.folder / "outputs" / "second", emulated(tiny))["commit"]
    capsys.readouterr()
    cli.main(["runs", "ls"])
    head, *rows = capsys.readouterr().out.splitlines()[:3]
    place = head.index("commit")
    assert [row[place : place + 8] for row in rows] == [f"{revision[:7]}*", f"{revision[:7]} "]
    cli.main(["runs", "ls", "--format", "json"])
    assert [of["commit"] for of in json.loads(capsys.readouterr().out)] == [f"{revision[:7]}*", revision[:7]]
    line = f"{revision[:12]} on main, 1 file changed or new (digest {second['changes']})"
    report, page = (
        (repository.folder / "outputs" / "second" / name).read_text() for name in ("report.md", "report.html")
    )
    assert f"- commit    {line}\n" in report
    assert line in page
    cli.main(["diff", "outputs/run", "outputs/second"])
    out = capsys.readouterr().out
    assert f"  commit: {revision[:12]} on main, clean -> {line}\n" in out


def test_a_run_that_goes_on_at_another_commit_says_so(repository: Repository, tiny: Path) -> None:
    first, folder = repository.git("rev-parse", "HEAD"), repository.folder / "outputs"
    words = emulated(tiny, "trainer.epochs=1")
    complete_here(folder / "first", words)
    more = [*words[:-1], "trainer.epochs=2", f"trainer.resume={folder / 'first'}"]
    assert not [of for of in complete_here(folder / "same", more)["remarks"] if " ran at " in of]
    repository.write("experiment/small.yaml", "{}\n")
    complete_here(folder / "dirty", more)
    repository.write("experiment/small.yaml", "{a: 1}\n")
    remarks = complete_here(folder / "second", [*more[:-2], "trainer.epochs=3", f"trainer.resume={folder / 'dirty'}"])[
        "remarks"
    ]
    assert f"{folder / 'dirty'} ran at {first[:7]}*, this run at {first[:7]}* with other files." in remarks
    second = repository.commit("Meanwhile")
    remarks = complete_here(folder / "third", more)["remarks"]
    assert f"{folder / 'first'} ran at {first[:7]}, this run at {second[:7]}." in remarks


def ran(project: Project) -> str:
    """The folder of a run of the project, from its folder."""
    words = (
        "experiment=first", "model=emulated", "model.step_ms=0", "trainer.epochs=1", "dataset.split='train[:64]'",
        "dataset.eval_split=null", "hydra.run.dir=outputs/run",
    )  # fmt: skip
    command = [sys.executable, "-P", "-m", "etlrun", *MINE, *words]
    done = subprocess.run(
        command, cwd=project.folder, env=project.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return "outputs/run"


def test_a_run_beside_a_revision_is_compared_with_its_overrides_there(tmp_path: Path, says: Says) -> None:
    project = Project(tmp_path)
    run, revision = ran(project), project.repository.git("rev-parse", "HEAD")[:12]
    project.repository.replace("experiment/first.yaml", "epochs: 6", "epochs: 7")
    project.repository.replace("experiment/first.yaml", "batch_size: 32", "batch_size: 16")
    project.repository.write("../trees/checks.py", "def checked(of):\n    pass\n")
    project.replace("steps.py", "require_decoded(incoming)", "checked(incoming)")
    project.replace("steps.py", "step import Step\n", "step import Step\nfrom trees.checks import checked\n")
    project.repository.commit("Another batch, and other code")
    project.repository.git("rm", "--quiet", "conf/experiment/first.yaml")
    project.repository.commit("No experiment")
    same, other, back, now, gone = project.say(
        ("diff", run, "main"), ("diff", run, "HEAD~1"), ("diff", "HEAD~1", run), ("diff", run), ("diff", run, "HEAD")
    )
    known = {"COMMIT": revision}
    says(same.out, **known)
    says(re.sub("sources [0-9a-f]{16}", "sources DIGEST", other.out), **known)
    assert (back.out.count("\n"), back.out.splitlines()[0]) == (8, other.out.splitlines()[1])
    assert gone.status == 2
    says(gone.err)
    assert "the commit of" not in now.out + now.err
    summary = project.folder / run / "summary.json"
    held = json.loads(summary.read_text())
    for commit in (
        {**held["commit"], "is_clean": False, "changed": 2, "changes": "0" * 16},
        {"unknown": "no git"},
        None,
    ):
        summary.write_text(json.dumps({**held, "commit": commit}))
        (told,) = project.say(("diff", run, "main", "--format", "json"))
        says(json.loads(told.out)["notes"], **known)


def test_data_files_of_git_that_changed_since_a_run_are_a_difference(
    of_photos: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "dataset=folder", "dataset.dir=photos", "dataset.split='train[:50%]'", "dataset.eval_split=null",
        "model=emulated", "model.step_ms=0", "cache=none", "load.batch_size=2", "transform.resize.size=[8,8]",
    ]  # fmt: skip
    complete_here(of_photos.folder / "outputs" / "run", words)
    next((of_photos.folder / "photos").rglob("*.jpg")).with_name("more.jpg").write_bytes(image(9))
    of_photos.commit("One more")
    capsys.readouterr()
    for other in ((), ("HEAD",)):
        cli.main(["diff", "outputs/run", *other, "--config-dir", "conf"])
        lines = capsys.readouterr().out.splitlines()
        what = "the config of its overrides now" if not other else "HEAD"
        note = f"data, from the dataset on, differs between outputs/run and {what}"
        assert lines[-1] == f"  dataset.dir  photos -> photos  {note}"
    cli.main(["diff", "outputs/run", "HEAD~1", "--config-dir", "conf"])
    assert capsys.readouterr().out.splitlines()[-1] == "no difference"


@pytest.fixture
def of_photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    write_photos(tmp_path / "repository" / "photos", 8)
    monkeypatch.chdir(tmp_path / "repository")
    (tmp_path / "repository" / ".gitignore").write_text("outputs\n")
    made_here = Repository(tmp_path / "repository", "conf")
    made_here.write("experiment/small.yaml", SMALL)
    made_here.commit("Configs")
    return made_here
