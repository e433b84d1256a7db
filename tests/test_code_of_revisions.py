"""Reviews of a repository whose package adds steps, models and readers: each revision has its own code."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.golden import Says
from tests.pastes import fenced
from tests.projects import CHECKOUT, ENTRIES, Project

MINE = ("--config-dir", "conf")
GREY = "code of transform.trees_grey"
NET = "code of model.trees_net"


DATASET = """\
# Lines of two numbers and a class.
name: lined
file: points.csv
num_classes: 2
split: train[:80%]
eval_split: train[80%:]
on_corrupt: raise
"""
LINED = """\
# @package _global_
# Lines.
defaults:
  - override /dataset: lined
  - override /extract: sequential
  - override /transform: columns
  - override /model: tabular
  - _self_
transform: {steps: [], eval_steps: [], columns: null}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_changed_code_is_named_with_its_file_and_counts_as_what_it_is(project: Project, says: Says) -> None:
    project.replace("steps.py", "reduce_mean", "reduce_max")
    project.replace("models.py", "strides=2", "strides=1")
    project.repository.commit("Other code")
    diff = ("diff", "main", "HEAD", *MINE)
    text, broken, comment, told, same = project.say(
        ("diff", "main", *MINE),
        (*diff, "--fail-on", "data,training"),
        (*diff, "--format", "markdown"),
        (*diff, "--format", "json"),
        ("diff", "HEAD", "--fail-on", "data", *MINE),
    )
    head = "first: changes the data, from transform.trees_grey on, and the training"
    lines = text.out.splitlines()
    assert lines[0] == head
    assert [" ".join(line.split()[:3]) for line in lines[1:3]] == [GREY, NET]
    ends = [line.rpartition("  ")[2] for line in lines[1:3]]
    says(ends)
    says((broken.status, broken.out.splitlines()[-3:]))
    assert "Grey in trees/steps.py" in comment.out
    found = json.loads(told.out)
    assert (found["kinds"], found["changed"]) == (["data", "training"], True)
    assert found["matrix"]["include"][0]["kinds"] == ["data", "training"]
    old, new = found["experiments"][0]["fingerprints"]
    assert old != new
    assert (same.out, same.status) == ("first: no difference\npolicy: passed (HEAD:conf/etlrun-policy.yaml)\n", 0)


@pytest.mark.slow
def test_what_changed_code_reaches_is_named_and_what_is_beside_it_is_not(project: Project) -> None:
    begin = "from etlrun.stages.image import require_decoded as required"
    helper = f"{begin}\n\n\ndef checked(feature):\n    required(feature)\n"
    project.repository.write("../trees/checks.py", helper)
    project.replace("steps.py", "require_decoded(incoming)", "checked(incoming)")
    project.replace("steps.py", "from etlrun.stages.image import require_decoded\n", "")
    project.replace("steps.py", "step import Step\n", "step import Step\nfrom trees.checks import checked\n")
    project.repository.commit("A helper")
    project.repository.write("../trees/checks.py", helper.replace("    required(feature)", "    return"))
    project.repository.commit("Another helper")
    project.replace("steps.py", '"""Steps of', '"""The steps of')
    project.replace("models.py", "    units: Annotated", "    # Many.\n    units: Annotated")
    project.repository.write("../trees/beside.py", "BESIDE = 1\n")
    project.repository.write(
        "../trees/steps.py", (project.folder / "trees" / "steps.py").read_text() + "\n\nclass Other:\n    pass\n"
    )
    project.repository.commit("Comments, and what no experiment reaches")
    helped, beside = project.say(("diff", "HEAD~2", "HEAD~1", *MINE), ("diff", "HEAD~1", "--fail-on", "data", *MINE))
    head, line = helped.out.splitlines()[:2]
    assert head == "first: changes the data, from transform.trees_grey on"
    assert line.split("  ")[1:2] == [GREY]
    assert line.endswith(
        "data, from transform.trees_grey on, Grey uses trees/checks.py, in which something has changed"
    )
    assert (beside.out, beside.status) == ("first: no difference\npolicy: passed (HEAD~1:conf/etlrun-policy.yaml)\n", 0)


@pytest.mark.slow
def test_a_step_that_a_branch_adds_is_unknown_to_no_side(project: Project) -> None:
    text = (project.folder / "trees" / "steps.py").read_text()
    more = text[text.index("@dataclass") :].replace("Grey", "Greyer").replace("trees_grey", "trees_greyer")
    project.repository.write("../trees/steps.py", f"{text}\n\n{more}")
    project.repository.replace(
        "../pyproject.toml", 'steps:Grey"\n', 'steps:Grey"\ntrees_greyer = "trees.steps:Greyer"\n'
    )
    project.describe(ENTRIES.replace("steps:Grey\n", "steps:Grey\ntrees_greyer = trees.steps:Greyer\n"))
    project.repository.commit("One more")
    (said,) = project.say(("diff", "main", "HEAD", *MINE))
    assert (said.out, said.status) == ("first: no difference\npolicy: passed (main:conf/etlrun-policy.yaml)\n", 0)


@pytest.mark.slow
def test_code_that_cannot_be_imported_is_told_and_breaks_rules(project: Project) -> None:
    project.replace("steps.py", "from typing import", "import nowhere_at_all\nfrom typing import")
    project.repository.commit("Broken")
    project.replace("steps.py", "import nowhere_at_all\n", "")
    project.repository.commit("Mended")
    mended, broken = project.say(
        ("diff", "HEAD~1", "HEAD", "--fail-on", "training", *MINE), ("diff", "HEAD", "HEAD~1", *MINE)
    )
    assert "first: cannot be compared\n" in mended.out
    assert (
        "its entry point trees_grey in etlrun.stages: found ModuleNotFoundError: No module named 'nowhere_at_all'"
        in mended.out
    )
    assert "--fail-on: found perhaps a change of the training in first" in mended.out
    assert (mended.status, broken.status) == (2, 2)


@pytest.mark.slow
def test_what_pip_has_copied_is_of_the_repository_too(project: Project) -> None:
    shutil.copytree(project.folder / "trees", project.site / "trees")
    project.replace("models.py", "strides=2", "strides=1")
    project.repository.commit("Other code")
    environment = {**project.environment(), "PYTHONPATH": f"{project.site}:{CHECKOUT}"}
    told, same = project.say(("diff", "main", "HEAD", *MINE), ("diff", "main", *MINE), environment=environment)
    assert told.out.splitlines()[0] == "first: changes the training"
    # A run of the working tree has what is installed.
    assert same.out == "first: no difference\npolicy: passed (main:conf/etlrun-policy.yaml)\n"


@pytest.mark.slow
def test_another_reader_is_other_data(project: Project) -> None:
    lined = fenced("extending.md", "class Lined").replace('"lined:', '"trees.lined:')
    project.repository.write("../trees/lined.py", lined)
    project.repository.write("dataset/lined.yaml", DATASET)
    project.repository.write("experiment/first.yaml", LINED)
    project.describe(ENTRIES.replace("steps:Grey\n", "steps:Grey\nlined = trees.lined:Lined\n"))
    project.repository.write(
        "../pyproject.toml", '[project]\nname = "trees"\nversion = "0.2.0"\ndynamic = ["entry-points"]\n'
    )
    project.repository.write("../points.csv", "".join(f"{number},{number + 1},{number % 2}\n" for number in range(20)))
    project.repository.commit("Lines")
    project.replace("lined.py", "tf.stack(numbers,", "tf.stack(numbers[::-1],")
    project.repository.commit("Others")
    (said,) = project.say(("verify", "HEAD~1", "HEAD", *MINE))
    lines = said.out.splitlines()
    assert lines[0] == "first: changes the data, from the dataset on"
    assert lines[1].startswith("  code of the dataset lined  trees 0.")
    assert lines[1].endswith("  data, from the dataset on, Lined uses trees/lined.py, in which something has changed")
    assert lines[2].startswith("  read: 16 examples of train, all of which differ from the dataset on (")


@pytest.mark.slow
def test_both_sides_are_read_with_their_own_code(project: Project) -> None:
    project.replace("steps.py", "reduce_mean", "reduce_max")
    project.repository.commit("Other code")
    words = ("main", "HEAD", "--examples", "4", *MINE)
    read, shown = project.say(("verify", *words), ("diff", "main", "HEAD", "--show", "images", *MINE))
    whole = " of which differ from transform.trees_grey on "
    assert [line.partition(" (")[0] for line in read.out.splitlines() if line.startswith("  read: ")] == [
        f"  read: 4 of {count} examples of {name}, all{whole.rstrip()}"
        for count, name in ((960, "train"), (240, "validation"))
    ]
    assert "  images: 4 examples of train before and after, images/first.html" in shown.out


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_review_that_is_ended_leaves_nothing(number: int, project: Project) -> None:
    project.repository.git("checkout", "--quiet", "main")
    begun, ended = project.scratch / "begun", project.scratch / "ended"
    for pipe in (begun, ended):
        os.mkfifo(pipe)
    waits = f"import os\n\nopen({str(begun)!r}, 'w').write(str(os.getpid()))\nopen({str(ended)!r}).readline()\n"
    project.repository.write("../trees/__init__.py", waits)
    project.repository.commit("Waits")
    project.repository.git("checkout", "--quiet", "change")
    command = [sys.executable, "-P", "-m", "etlrun", "diff", "main", *MINE]
    review = subprocess.Popen(command, cwd=project.folder, env=project.environment(), stderr=subprocess.DEVNULL)
    reader = psutil.Process(int(begun.read_text()))
    assert len([*project.scratch.glob("etlrun-*")]) == 2  # the configs of the revision, and its files
    removers = [of for of in psutil.Process(review.pid).children() if of.name() == "sh"]
    assert project.repository.git("worktree", "list").count("\n") == 0
    review.send_signal(number)
    review.wait()
    descriptor = os.open(ended, os.O_RDWR)  # which waits for no reader: it may be gone
    os.write(descriptor, b"\n")
    psutil.wait_procs([reader, *removers], timeout=60)
    os.close(descriptor)
    assert not reader.is_running()
    assert project.left() == []
