"""Checks of all configs: faults, notes and golden plans."""

from collections.abc import Collection
from pathlib import Path

import pytest

from etlrun.cli.parsers import call
from etlrun.review.check import check as checked
from etlrun.review.check import fits
from etlrun.review.folders import working_tree
from etlrun.review.sides import Options
from tests.configs import CONF, EXPERIMENTS, refusal_of_request, yaml_files
from tests.golden import Case, Golden, Says, cases
from tests.own_configs import faults, write
from tests.pulls import transcript
from tests.repository import OTHER, Repository

Captured = pytest.CaptureFixture[str]
OURS = {name: (name.partition("/")[0], name.partition("/")[2]) for name in yaml_files() if "/" in name}


def derived(folder: Path, group: str, option: str, values: str = "") -> str:
    """Write an option of one's own that is one of the project's, with other values; return its name."""
    package = "# @package _global_\n" * (group == "experiment")
    write(folder / group / f"my_{option}", f"{package}defaults: [{option.removesuffix('.yaml')}, _self_]\n{values}")
    return f"{folder.name}/{group}/my_{option}"


@pytest.mark.parametrize("options", [*([of] for of in OURS.values()), dict(OURS.values()).items()])
def test_own_options_that_are_those_of_the_project_are_sound_alone_and_together(
    options: Collection[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    for group, option in options:
        derived(tmp_path / "mine", group, option)
    call("check", ["--config-dir", "mine"])
    told = capsys.readouterr().out
    assert told.endswith(" s: no fault\n")
    assert str(CONF) not in told


def test_columns_of_a_table_are_sound_beside_an_experiment_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    derived(tmp_path / "mine", "transform", "columns.yaml", "columns: {area: {of: area, steps: [log1p]}}\n")
    columns = "transform: {columns: {area: {of: area, steps: [log1p]}}}\n"
    values = f"dataset: {{files: houses.csv, target: {{price: number}}}}\n{columns}"
    write(tmp_path / "houses.csv", "area,price\n1,3\n2,5\n3,7\n4,8\n5,9\n")
    derived(tmp_path / "mine", "experiment", "table.yaml", values)
    options = Options(working_tree("mine"))
    assert fits(options, "transform=my_columns")
    assert [words for words in options.made if words[1:]] == [("experiment=my_table", "transform=my_columns")]
    call("check", ["--config-dir", "mine"])
    told = capsys.readouterr().out
    assert told.endswith(" s: no fault\n")


def test_the_configs_of_the_project_are_sound() -> None:
    found = checked(working_tree(None))
    assert list(found.faults) == []
    assert found.experiments == ["default", *EXPERIMENTS] == list(found.plans)
    files = {name for variant in found.configs.values() for name in variant.files}
    assert len(files) == len(list(CONF.rglob("*.yaml")))


@pytest.mark.smoke
def test_a_folder_in_which_nothing_is_checked_is_refused(mine: Path, says: Says) -> None:
    (mine / "notes").mkdir()
    (found,) = faults("--config-dir", "mine/notes")
    says(found)


@pytest.mark.parametrize("case", cases("own_configs"))
def test_what_is_told_of_own_configs(case: Case, golden: Golden, repository: Repository) -> None:
    golden(case, transcript(case, repository))


@pytest.mark.parametrize("case", cases("check"))
def test_a_fault_is_told_once_with_its_file_and_line(case: Case, golden: Golden, mine: Path) -> None:
    write(mine / case["file"], case["text"])
    golden(case, "\n".join(faults()).replace(str(CONF), "CONF"))


def test_what_hydra_refuses_is_told_of_a_run_as_by_check(mine: Path) -> None:
    write(mine / "experiment" / "other.yaml", "# @package _global_\ndefaults: [override /dataste: tfds]\n")
    (told,) = faults()
    assert refusal_of_request("experiment=other", config_dir=Path("mine")) == told.replace(", in experiment=other", "")


def test_golden_plans_are_written_compared_and_removed(
    mine: Path, tmp_path: Path, capsys: Captured, says: Says
) -> None:
    words = ["--golden", "golden"]
    says(faults(*words)[0])
    call("check", ["--config-dir", "mine", *words, "--update"])
    assert sorted(path.name for path in (tmp_path / "golden").iterdir()) == ["other.txt", "small.txt"]
    call("check", ["--config-dir", "mine", *words])
    write(mine / "experiment" / "other.yaml", OTHER.replace("epochs: 3", "epochs: 4"))
    (mine / "experiment" / "small.yaml").unlink()
    write(tmp_path / "golden" / "requirements.txt", "etlrun\n")
    found = faults(*words)
    line = (tmp_path / "golden" / "other.txt").read_text().splitlines().index(f"     {'epochs':<22}{3:<21}training") + 1
    assert [text.splitlines()[0] for text in found] == [
        f"golden/other.txt:{line}: found a different plan; expected the current plan",
        "golden/small.txt: found a golden plan; expected an experiment of that name",
    ]
    capsys.readouterr()
    call("check", ["--config-dir", "mine", *words, "--update"])
    assert capsys.readouterr().out.splitlines()[:2] == ["updated golden/other.txt", "updated golden/small.txt"]
    assert sorted(path.name for path in (tmp_path / "golden").iterdir()) == ["other.txt", "requirements.txt"]


@pytest.mark.usefixtures("mine")
def test_a_folder_that_can_hold_no_golden_plans_is_told(tmp_path: Path, says: Says) -> None:
    (tmp_path / "file").touch()
    says(faults("--golden", "file", "--update"))
    (tmp_path / "golden").mkdir()
    (tmp_path / "golden" / "small.txt").write_bytes(b"\xff")
    assert faults("--golden", "golden")[1].startswith("golden/small.txt:1: found a different plan; expected the cur")
