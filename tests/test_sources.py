"""What lies among configs and is none, or can't be read: told with its place, and in nobody's way."""

import os
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli.parsers import call
from etlrun.config.grid import of, resolve
from etlrun.config.request import Request, files_digest
from etlrun.planning import render
from etlrun.review.check import check as checked
from etlrun.review.folders import working_tree
from etlrun.stages import STAGES
from etlrun.system.errors import ConfigError
from tests.configs import raised
from tests.golden import Case, Golden, Says, cases
from tests.own_configs import faults, write
from tests.repository import OTHER, SMALL, TRANSFORM, Repository


@pytest.fixture
def mine(repository: Repository) -> Path:
    return repository.configs


def sweep(*overrides: str) -> list[str]:
    """The overrides of each job."""
    jobs = of(Request(overrides=list(overrides), config_dir="mine", multirun=True), STAGES).jobs
    return [" ".join(job.overrides) for job in jobs]


def test_what_editors_and_systems_leave_is_nobodys(mine: Path, told: Any, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_digest(Request(overrides=[], config_dir="mine"))
    (mine / "experiment" / ".#other.yaml").symlink_to("user@host.1:1")
    (mine / "experiment" / "._other.yaml").write_bytes(b"\x00\x05\x16\x07")
    (mine / "experiment" / "gone.yaml").symlink_to("nowhere")
    (mine / "experiment" / "self.yaml").symlink_to("self.yaml")
    (mine / "experiment" / "folder.yaml").mkdir()
    (mine / "again").symlink_to(".")
    os.mkfifo(mine / "experiment" / "pipe.yaml")
    write(mine / ".ipynb_checkpoints" / "other-checkpoint.yaml", "wrong: [")
    call("check", ["--config-dir", "mine"])
    assert capsys.readouterr().out.splitlines()[-1].startswith("checked 9 configs of 2 experiments")
    assert told("HEAD", "--config-dir", "mine").splitlines()[0] == "other, small: no difference"
    assert files_digest(Request(overrides=[], config_dir="mine")) == before
    assert len(sweep("experiment=glob('[os][tm]*')")) == 2
    with pytest.raises(ConfigError, match="found the unknown option 'pipe'; expected one of"):
        resolve(Request(overrides=["experiment=pipe"], config_dir="mine"), STAGES)


def test_folders_to_which_links_lead_hold_configs(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (mine / "transform").rename(mine.parent / "shared")
    (mine / "transform").symlink_to("../shared")
    assert "mine/transform/small_48.yaml" in working_tree("mine").files
    before = files_digest(Request(overrides=[], config_dir="mine"))
    write(mine.parent / "shared" / "small_48.yaml", TRANSFORM.replace("48,", "32,"))
    assert files_digest(Request(overrides=[], config_dir="mine")) != before
    call("check", ["--config-dir", "mine"])
    assert capsys.readouterr().out.splitlines()[-1].startswith("checked 9 configs of 2 experiments")


LAUGHS = b"# X.\na0: &a0 [x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (level, level, b", ".join([b"*a%d" % (level - 1)] * 8)) for level in range(1, 9)
)


WRONG = {
    "not UTF-8": b"# \xfe\nload: {prefetch: 1}\n",
    "no end": b"# X.\nload: {prefetch: [}\n",
    "a tab": b"# X.\nload:\n\tprefetch: 1\n",
    "a conflict": b"# X.\nload:\n<<<<<<< HEAD\n  prefetch: 1\n",
    "a key twice": b"# X.\na: 1\na: 2\n",
    "an alias": b"# X.\na: *b\n",
    "Python": b"# X.\na: !!python/name:os.system\n",
    "two documents": b"# X.\na: 1\n---\nb: 2\n",
    "digits": b"# X.\na: " + b"9" * 5000,
    "a list": b"# X.\n- a\n",
    "a value": b"# X.\n3\n",
    "depth": b"# X.\n" + b"[" * 600 + b"]" * 600,
    "bytes": b"# X.\n" * 1_000_000,
    "laughs": LAUGHS,
    "half a reference": b"# X.\na: ${\n",
    "a mark": b"\xef\xbb\xbf# X.\n# @package _global_\nload: {prefetch: 1}\n",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_can_not_be_loaded_is_told_once_and_all_others_are_checked(
    mine: Path, name: str, says: Says
) -> None:
    write(mine / "experiment" / "wrong.yaml", "")
    (mine / "experiment" / "wrong.yaml").write_bytes(WRONG[name])
    write(mine / "experiment" / "other.yaml", OTHER.replace("epochs: 3", "epochs: 0"))
    says(found := [text for text in faults() if "no comment" not in text])
    fault = str(mine) + found[0].removeprefix("mine").partition("; expected")[0]
    one = Request(overrides=["experiment=wrong"], config_dir="mine")
    assert raised(ConfigError, resolve, one, STAGES).startswith(fault)
    several = Request(overrides=["experiment=wrong,small"], config_dir="mine", multirun=True)
    assert raised(ConfigError, of, several, STAGES).startswith(fault)


def test_a_file_that_can_not_be_read_is_told(mine: Path) -> None:
    (mine / "load").mkdir()
    (mine / "load" / "wrong.yaml").symlink_to("/proc/self/mem")  # of which even root reads nothing
    wrong = "load/wrong.yaml: found Input/output error; expected a readable file or folder"
    assert raised(ConfigError, files_digest, Request(overrides=[], config_dir="mine")) == f"mine/{wrong}"
    assert (
        raised(ConfigError, resolve, Request(overrides=["load=wrong"], config_dir="mine"), STAGES) == f"{mine}/{wrong}"
    )


@pytest.mark.parametrize("hidden", ["", ".git"])
def test_a_review_shows_nothing_of_files_beside_the_repository(
    hidden: str, mine: Path, repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text("trainer: {password: 12345}\n")
    for name in ("experiment/linked.yaml", "etlrun-policy.yaml"):
        (mine / name).symlink_to(secret)
    (mine / "load").symlink_to(tmp_path)
    (mine / "model").symlink_to("../models")  # within the repository, as these are
    write(repository.folder / "models" / "beside.yaml", "defaults: [small_net]\n")
    if hidden:  # a project that is in no repository
        (repository.folder / hidden).rename(repository.folder / "git")
    inside = f"which leaves {repository.folder}; expected a link within that folder"
    names = ("experiment/linked.yaml", "load/secret.yaml", "etlrun-policy.yaml")
    expected = [
        f"mine/{name}: found a link to {secret}, {inside}\n    -> copy the file to which it leads" for name in names
    ]
    assert faults() == expected
    with pytest.raises(ConfigError) as caught:
        call("diff", ["HEAD", "experiment=small", "--config-dir", "mine"])
    assert [str(fault) for fault in caught.value.faults] == expected
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["../../secret", ".secret"])
def test_no_option_is_hidden_or_beside_its_folder(name: str, mine: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("trainer: {password: 12345}\n")
    (mine / "transform" / ".secret.yaml").symlink_to(tmp_path / "secret.yaml")
    text = SMALL.replace("small_48", f"../{name}" if name.startswith("..") else name)
    write(mine / "experiment" / "small.yaml", text)
    (fault,) = faults()
    assert fault.startswith("mine/experiment/small.yaml, in experiment=small: found In 'config': Could not find ")
    assert "12345" not in fault
    assert "password" not in fault


def test_a_name_that_can_not_be_printed_is_told(mine: Path, told: Any, says: Says) -> None:
    (mine / "experiment" / "a\nb.yaml").write_text(SMALL)
    Path(os.fsdecode(os.fsencode(mine) + b"/experiment/c\xff.yaml")).write_text(SMALL)
    says(faults())
    assert "mine/experiment/c\\udcff.yaml: added, reaches no experiment" in told("HEAD", "--config-dir", "mine")
    assert sweep("experiment=glob('[abcs]*')")[-1] == "experiment=small"
    assert files_digest(Request(overrides=[], config_dir="mine"))


def test_a_sweep_without_settings_is_refused(mine: Path, says: Says) -> None:
    write(mine / "experiment" / "wrong.yaml", "# @package _global_\n# X.\nsweep: null\n")
    says(raised(ConfigError, sweep, "experiment=wrong"))


def test_a_key_that_can_not_be_printed_and_a_long_name_are_in_nobodys_way(mine: Path, says: Says) -> None:
    write(
        mine / "experiment" / "wrong.yaml",
        f"# @package _global_\n# X.\n\"a\\nb\": 1\n'': 2\ndataset: {{name: {'x' * 5000}}}\n",
    )
    says(faults())


@pytest.mark.parametrize(
    ("name", "told_as"),
    [("öl", 'experiment="öl"'), ("2024", 'experiment="2024"'), ("a b$'\"", None), ("null", 'experiment="null"')],
)
def test_an_experiment_may_have_any_name_that_can_be_printed(
    mine: Path, name: str, told_as: str | None, told: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    write(mine / "experiment" / f"{name}.yaml", SMALL)
    write(mine / "experiment" / "third.yaml", SMALL.replace("epochs: 2", "epochs: 7"))
    call("check", ["--config-dir", "mine"])
    assert capsys.readouterr().out.splitlines()[-1].startswith("checked 11 configs of 4 experiments")
    assert f"\n{name}: is new\n" in f"\n{told('HEAD', '--config-dir', 'mine')}"
    own = working_tree("mine")
    if told_as is None:
        return
    text = render.text(resolve(Request(overrides=[told_as], config_dir="mine"), STAGES).plan)
    assert text == render.text(checked(own).plans[name])
    assert sweep(f"{told_as},third") == [told_as, "experiment=third"]


@pytest.mark.parametrize("case", cases("quoted_names"))
def test_a_name_that_needs_quotes_is_told_with_them(case: Case, golden: Golden, mine: Path) -> None:
    write(mine / "experiment" / "öl.yaml", SMALL)
    write(mine / "transform" / "48.yaml", TRANSFORM)
    golden(case, raised(ConfigError, resolve, Request(overrides=[case["word"]], config_dir="mine"), STAGES))
