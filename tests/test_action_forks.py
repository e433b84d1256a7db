"""Comments on pull requests from forks, which another workflow writes of what a run has left."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.actions import BRANCH, ROOT, GitHub
from tests.repository import Repository

pytestmark = pytest.mark.slow

ACTION = "comment/action.yml"
WRITTEN = {"Comment": 0}


@pytest.fixture
def github(tmp_path: Path) -> GitHub:
    (tmp_path / "runner").mkdir()
    return GitHub(tmp_path / "runner", "9" * 40)


def left(folder: Path, **files: str) -> Path:
    """What a run has left: a folder with the folder of a use, with these files."""
    use = folder / "etlrun" / "Ab3dEf"
    use.mkdir(parents=True, exist_ok=True)
    for name, text in {"comment_md": "### etlrun: `a` → `b`\n", "name": "mine", "number": "7", **files}.items():
        (use / name.replace("_", ".")).write_text(text, encoding="utf-8")
    return use


def warning(reason: str) -> str:
    return f"::warning title=etlrun::no comment, since {reason}; the summary of the run has the review\n"


def test_what_a_run_without_a_token_leaves_is_commented_by_another(tmp_path: Path) -> None:
    repository = Repository.small(tmp_path / "repository")
    repository.replace("transform/small_48.yaml", "[48, 48]", "[32, 32]")
    (tmp_path / "runner").mkdir()
    github = GitHub(tmp_path / "runner", repository.pull_request("Smaller"))
    github.refuses = "gh: Resource not accessible by integration (HTTP 403)"
    assert [*github.run(repository.folder, config_dir="mine").values()] == [0, 0, 0, 0]
    assert github.steps["Comment"].stdout == warning(github.refuses)
    github.refuses = ""
    assert github.run(tmp_path / "runner", ACTION) == WRITTEN
    (body,) = github.bodies
    start = f"<!-- etlrun mine -->\n<!-- head {github.sha} run 100 -->\n"
    assert body == start + (tmp_path / "runner" / "summary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"number": "8;rm"}, "'8;rm' is not the number of a pull request"),
        ({"number": ""}, "'' is not the number of a pull request"),
        ({"number": "8"}, "pull request 8 is not of the branch of this run"),
    ],
)
def test_a_number_that_is_not_of_the_run_is_refused(
    github: GitHub, tmp_path: Path, files: dict[str, str], reason: str
) -> None:
    left(tmp_path, **files)
    github.numbers = {7: BRANCH, 8: "victim"}
    assert github.run(tmp_path, ACTION) == {"Comment": 1}
    assert (github.steps["Comment"].stdout, github.bodies) == (warning(reason), [])


def test_a_link_in_what_a_fork_has_left_is_not_read(github: GitHub, tmp_path: Path) -> None:
    use = left(tmp_path)
    (use / "comment.md").unlink()
    (use / "comment.md").symlink_to("/proc/self/environ")
    assert github.run(tmp_path, ACTION) == {"Comment": 1}
    reason = "comment.md is not a file in what the run has left"
    assert (github.steps["Comment"].stdout, github.bodies) == (warning(reason), [])


def test_a_name_that_a_fork_gives_ends_no_marker(github: GitHub, tmp_path: Path) -> None:
    left(tmp_path, name="mine --> ### Approved\n<!-- $(echo mark)")
    assert github.run(tmp_path, ACTION) == WRITTEN
    assert github.bodies[0].splitlines()[0] == (
        "<!-- etlrun mine -&#45;&#62; &#35;&#35;&#35; Approved&#10;&#60;&#33;-&#45; &#36;&#40;echo mark&#41; -->"
    )
    assert not (tmp_path / "mark").exists()


def test_each_name_has_a_comment_of_its_own(github: GitHub, tmp_path: Path) -> None:
    names = ["a+b", "ab", "a b", "a  b", "a--b"]
    for number, name in enumerate([*names, "a+b"]):
        folder = tmp_path / str(number)
        folder.mkdir()
        left(folder, name=name)
        assert github.run(folder, ACTION) == WRITTEN
    firsts = [body.splitlines()[0] for body in github.bodies]
    assert len({*firsts}) == len(firsts) == len(names)
    assert all("--" not in first.removeprefix("<!--").removesuffix("-->") for first in firsts)


def test_bytes_that_are_no_text_are_shown_as_such(github: GitHub, tmp_path: Path) -> None:
    (left(tmp_path) / "comment.md").write_bytes(b"### etlrun \xff\xfe")
    assert github.run(tmp_path, ACTION) == WRITTEN
    assert github.bodies[0].endswith("### etlrun ��")


def test_an_error_of_several_lines_is_one_warning(github: GitHub, tmp_path: Path) -> None:
    left(tmp_path)
    github.refuses = "100% refused\n::error::forged"
    assert github.run(tmp_path, ACTION) == {"Comment": 1}
    assert github.steps["Comment"].stdout == warning("100%25 refused%0A::error::forged")


def test_without_gh_a_comment_is_not_written(github: GitHub, tmp_path: Path) -> None:
    left(tmp_path)
    github.has_gh = False
    assert github.run(tmp_path, ACTION) == {"Comment": 1}
    assert github.steps["Comment"].stdout == warning("gh [Errno 2] No such file or directory: 'gh'")


def recipe(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / "docs" / "recipes" / name).read_text(encoding="utf-8"))
    return read


def test_the_recipes_use_what_there_is() -> None:
    review, comment = recipe("etlrun.yml"), recipe("etlrun-comment.yml")
    used = [step for job in review["jobs"].values() for step in job["steps"]]
    used += comment["jobs"]["comment"]["steps"]
    actions = {"OWNER/etlrun@REVISION": "action.yml", "OWNER/etlrun/comment@REVISION": ACTION}
    own = [step for step in used if step.get("uses", "").startswith("OWNER/")]
    assert [step["uses"] for step in own] == [*actions]
    for step in own:
        known = yaml.safe_load((ROOT / actions[step["uses"]]).read_text(encoding="utf-8"))
        assert step.get("with", {}).keys() <= known["inputs"].keys()
    triggers: dict[Any, Any] = comment
    assert triggers[True]["workflow_run"]["workflows"] == [review["name"]]  # YAML takes `on` for a truth value
    assert not [step for step in used if "${{" in step.get("run", "")]
