"""The steps of the GitHub Action on real commits, and comments that another workflow writes for forks."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.actions import BRANCH, ROOT, GitHub
from tests.golden import Says
from tests.repository import Repository

pytestmark = pytest.mark.slow

ACTION = "comment/action.yml"
WRITTEN = {"Comment": 0}


@pytest.fixture
def fork(tmp_path: Path) -> GitHub:
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
    fork = GitHub(tmp_path / "runner", repository.pull_request("Smaller"))
    fork.refuses = "gh: Resource not accessible by integration (HTTP 403)"
    assert [*fork.run(repository.folder, config_dir="mine").values()] == [0, 0, 0, 0]
    assert fork.steps["Comment"].stdout == warning(fork.refuses)
    fork.refuses = ""
    assert fork.run(tmp_path / "runner", ACTION) == WRITTEN
    (body,) = fork.bodies
    start = f"<!-- etlrun mine -->\n<!-- head {fork.sha} run 100 -->\n"
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
    fork: GitHub, tmp_path: Path, files: dict[str, str], reason: str
) -> None:
    left(tmp_path, **files)
    fork.numbers = {7: BRANCH, 8: "victim"}
    assert fork.run(tmp_path, ACTION) == {"Comment": 1}
    assert (fork.steps["Comment"].stdout, fork.bodies) == (warning(reason), [])


def test_a_link_in_what_a_fork_has_left_is_not_read(fork: GitHub, tmp_path: Path) -> None:
    use = left(tmp_path)
    (use / "comment.md").unlink()
    (use / "comment.md").symlink_to("/proc/self/environ")
    assert fork.run(tmp_path, ACTION) == {"Comment": 1}
    reason = "comment.md is not a file in what the run has left"
    assert (fork.steps["Comment"].stdout, fork.bodies) == (warning(reason), [])


def test_a_name_that_a_fork_gives_ends_no_marker(fork: GitHub, tmp_path: Path, says: Says) -> None:
    left(tmp_path, name="mine --> ### Approved\n<!-- $(echo mark)")
    assert fork.run(tmp_path, ACTION) == WRITTEN
    says(fork.bodies[0].splitlines()[0])
    assert not (tmp_path / "mark").exists()


def test_each_name_has_a_comment_of_its_own(fork: GitHub, tmp_path: Path) -> None:
    names = ["a+b", "ab", "a b", "a  b", "a--b"]
    for number, name in enumerate([*names, "a+b"]):
        folder = tmp_path / str(number)
        folder.mkdir()
        left(folder, name=name)
        assert fork.run(folder, ACTION) == WRITTEN
    firsts = [body.splitlines()[0] for body in fork.bodies]
    assert len({*firsts}) == len(firsts) == len(names)
    assert all("--" not in first.removeprefix("<!--").removesuffix("-->") for first in firsts)


def test_bytes_that_are_no_text_are_shown_as_such(fork: GitHub, tmp_path: Path) -> None:
    (left(tmp_path) / "comment.md").write_bytes(b"### etlrun \xff\xfe")
    assert fork.run(tmp_path, ACTION) == WRITTEN
    assert fork.bodies[0].endswith("### etlrun ��")


def test_an_error_of_several_lines_is_one_warning(fork: GitHub, tmp_path: Path) -> None:
    left(tmp_path)
    fork.refuses = "100% refused\n::error::forged"
    assert fork.run(tmp_path, ACTION) == {"Comment": 1}
    assert fork.steps["Comment"].stdout == warning("100%25 refused%0A::error::forged")


def test_without_gh_a_comment_is_not_written(fork: GitHub, tmp_path: Path) -> None:
    left(tmp_path)
    fork.has_gh = False
    assert fork.run(tmp_path, ACTION) == {"Comment": 1}
    assert fork.steps["Comment"].stdout == warning("gh [Errno 2] No such file or directory: 'gh'")


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


PASSED = {"Diff": 0, "Comment": 0, "Check": 0, "Policy": 0}
READ_ONLY = "gh: Resource not accessible by integration (HTTP 403)"
STARTS = "<!-- etlrun mine -->\n<!-- head {} run {} -->\n"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.small(tmp_path / "repository")


@pytest.fixture
def github(repository: Repository, tmp_path: Path) -> GitHub:
    """A pull request that changes the data."""
    (tmp_path / "runner").mkdir()
    repository.replace("transform/small_48.yaml", "[48, 48]", "[32, 32]")
    return GitHub(tmp_path / "runner", repository.pull_request("Smaller"))


def test_the_action_comments_what_a_pull_request_changes_and_checks_it(
    repository: Repository, github: GitHub, says: Says
) -> None:
    assert github.run(repository.folder, config_dir="mine") == PASSED
    assert {answer.stderr for answer in github.steps.values()} == {""}
    base, own, head = (repository.git("rev-parse", "--short", of) for of in ("HEAD^1", "HEAD^2", "HEAD"))
    review = (github.scratch / "summary.md").read_text(encoding="utf-8")
    assert review.startswith(
        f"### etlrun: {base} → {head}\n\n`{head}` is the head {own} merged into {base}.\n\n"
        "**1 of 2 change: 1 the data**\n\n#### small: changes the data, from transform.resize on\n"
    )
    assert github.bodies == [STARTS.format(github.sha, 100) + review]
    says({key: value for key, value in github.outputs.items() if key != "matrix"})
    assert [of["experiment"] for of in json.loads(github.outputs["matrix"])["include"]] == ["small"]


def test_two_uses_renew_their_own_comments_alone(repository: Repository, github: GitHub, says: Says) -> None:
    github.comment("<!-- etlrun mine -->\nof someone else, who can't be overwritten", is_own=False)
    for number, more in enumerate(({}, {"name": "other use"}, {})):
        github.run_id = 100 + number
        assert github.run(repository.folder, config_dir="mine", **more)["Comment"] == 0
    starts = [body.partition("\n### ")[0] for body in github.bodies[1:]]
    says(starts, SHA=github.sha)


def test_a_run_of_an_old_head_says_so_and_leaves_the_comment_of_a_newer_run(
    repository: Repository, github: GitHub
) -> None:
    github.head = "1" * 40
    assert github.run(repository.folder, config_dir="mine") == PASSED
    (body,) = github.bodies
    note = f"This comment is of {github.sha[:7]}; the head is 1111111, whose run renews it.\n\n### etlrun: "
    assert body.startswith(STARTS.format(github.sha, 100) + note)
    github.run_id = 99
    assert github.run(repository.folder, config_dir="mine") == PASSED
    assert github.bodies == [body]
    assert github.steps["Comment"].stdout == "the comment is of a newer run, 100\n"


def test_one_comment_is_left_of_runs_that_had_begun_at_the_same_time(repository: Repository, github: GitHub) -> None:
    for run in (98, 99):
        github.comment(STARTS.format(github.sha, run))
    github.comment("<!-- etlrun other -->\n")
    assert github.run(repository.folder, config_dir="mine") == PASSED
    assert [body.partition("\n")[0] for body in github.bodies] == ["<!-- etlrun mine -->", "<!-- etlrun other -->"]
    assert github.bodies[0].startswith(STARTS.format(github.sha, 100))


def test_without_a_token_or_a_pull_request_there_is_no_comment(repository: Repository, github: GitHub) -> None:
    assert github.run(repository.folder, config_dir="mine", token="") == PASSED
    assert github.run_on({}, repository.folder, config_dir="mine") == PASSED
    assert github.bodies == []


@pytest.mark.parametrize("epochs", ["2", "0"])
def test_a_token_that_may_not_comment_hides_no_fault(
    repository: Repository, github: GitHub, epochs: str, says: Says
) -> None:
    repository.replace("experiment/small.yaml", "epochs: 2", f"epochs: {epochs}")
    repository.commit("Wrong or not")
    github.refuses = READ_ONLY
    assert github.run(repository.folder, config_dir="mine") == {**PASSED, "Check": 2 * (epochs == "0")}
    says(github.steps["Comment"].stdout)


ANSWERS = {
    "nothing": (b"", 0),
    "no JSON": (b"not json", 0),
    "an empty one": (b"{}", 0),
    "no repository": (b'{"data":{"repository":null}}', 0),
    "no pull request": (b'{"data":{"repository":{"pullRequest":null}}}', 0),
    "an error": (b'{"data":null,"errors":[{"message":"50%"}]}', 0),
    "no body": (b'{"data":{"repository":{"pullRequest":{"comments":{"nodes":[{"body":null}]}}}}}', 0),
    "no text": (b"\xff\xfe", 0),
    "no text of one that fails": (b"\xff\xfe", 1),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_is_no_pull_request_is_a_warning(
    name: str, repository: Repository, github: GitHub, says: Says
) -> None:
    github.answers = ANSWERS[name]
    assert github.run(repository.folder, config_dir="mine") == PASSED
    says(github.steps["Comment"].stdout)
    assert github.steps["Comment"].stderr == ""


def test_a_wrong_config_is_commented_and_fails_the_check(repository: Repository, github: GitHub) -> None:
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 0")
    repository.commit("Wrong")
    assert github.run(repository.folder, config_dir="mine") == {**PASSED, "Check": 2}
    assert "mine/experiment/other.yaml:5: trainer.epochs: found 0" in github.bodies[0]
    assert github.steps["Check"].stdout.startswith("::error file=mine/experiment/other.yaml,line=5,")
    assert github.outputs["failed"] == "true"


def test_a_base_that_is_not_there_is_commented_and_fails_at_the_end(repository: Repository, github: GitHub) -> None:
    assert github.run(repository.folder, config_dir="mine", base="<b>~9") == {**PASSED, "Policy": 2}
    found = "&lt;b&gt;~9: found no file, folder, git revision or run of that name"
    assert f"\n\n<pre>etlrun: 1 fault\n  {found}" in github.bodies[0]
    said = github.steps["Policy"].stdout
    assert said.startswith("::error title=etlrun::etlrun: 1 fault%0A  <b>~9: found no file")
    assert said.endswith("%0Afatal: Needed a single revision%0A    -> check out with `fetch-depth: 2`\n")


def test_kinds_that_fail_fail_at_the_end_and_labels_waive_what_the_policy_says(
    repository: Repository, github: GitHub
) -> None:
    assert github.run(repository.folder, config_dir="mine", fail_on="data") == {**PASSED, "Policy": 4}
    assert "#### policy: 1 rule broken\n" in github.bodies[0]
    assert github.steps["Policy"].stdout.startswith("::error title=etlrun::etlrun: 1 fault%0A")
    repository.git("checkout", "--quiet", "main")
    repository.write("etlrun-policy.yaml", "data: {label: the data may change}\n")
    repository.commit("Policy")
    repository.replace("transform/small_48.yaml", "[48, 48]", "[40, 40]")
    github.sha = repository.pull_request("Larger")
    assert github.run(repository.folder, config_dir="mine") == {**PASSED, "Policy": 4}
    github.labels = ("--help", "the data may change")
    assert github.run(repository.folder, config_dir="mine") == PASSED
    assert "#### policy: passed (" in github.bodies[0]


def test_a_base_that_cannot_be_composed_fails_at_the_end_unless_a_label_waives_it(
    repository: Repository, github: GitHub
) -> None:
    repository.git("checkout", "--quiet", "main")
    repository.write("etlrun-policy.yaml", "data: {label: the data may change}\n")
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 3\n  gone_since: 1")
    repository.commit("A key that the code does not have any more")
    repository.replace("experiment/other.yaml", "  gone_since: 1\n", "")
    github.sha = repository.pull_request("Mended")
    assert github.run(repository.folder, config_dir="mine", fail_on="data") == {**PASSED, "Policy": 4}
    assert "perhaps a change of the data in other (its old config cannot be" in github.steps["Policy"].stdout
    assert github.run(repository.folder, config_dir="mine") == {**PASSED, "Policy": 4}
    github.labels = ("the data may change",)
    assert github.run(repository.folder, config_dir="mine") == PASSED
    assert "#### policy: cannot judge other (" in github.bodies[0]


def test_what_others_name_reaches_no_shell(repository: Repository, github: GitHub) -> None:
    evil = "$(echo > mark) `echo > mark` '; echo > mark; \" #"
    github.labels = (evil,)
    repository.write(f"experiment/{evil}.yaml", "# @package _global_\nload: {prefetch: 1}\n")
    repository.commit("Evil")
    github.run(repository.folder, config_dir="mine", name=evil, fail_on=evil, base=evil)
    github.run(repository.folder, config_dir=evil, golden=evil)
    assert not [*repository.folder.rglob("mark")]


def test_labels_that_are_no_list_are_refused(repository: Repository, github: GitHub, says: Says) -> None:
    answers = github.run(repository.folder, config_dir="mine", labels="data-change-approved")
    assert answers == {"Diff": 2, "Check": 0, "Policy": 1}
    says(github.steps["Diff"].stdout)


def test_examples_of_both_sides_are_read_where_a_number_of_them_is_given(
    repository: Repository, github: GitHub, sample: Path
) -> None:
    repository.replace("experiment/small.yaml", "_self_\n", f"_self_\ndataset: {{data_dir: {sample}}}\n")
    repository.commit("Data")
    repository.replace("transform/small_48.yaml", "[32, 32]", "[40, 40]")
    repository.commit("Larger")
    answers = github.run(repository.folder, config_dir="mine", base="HEAD^1", fail_on="data", verify="20")
    assert answers == {**PASSED, "Policy": 4}
    assert " of 960 examples of train, all of which differ from transform.resize on" in github.bodies[0]
    assert github.steps["Policy"].stdout.startswith("::error title=etlrun::etlrun: 1 fault%0A")
