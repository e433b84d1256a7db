""""""

from __future__ import annotations

from pathlib import Path

import pytest

from etlrun.cli.parsers import call
from etlrun.review.check import check as checked
from etlrun.review.folders import working_tree
from tests.configs import CONF, EXPERIMENTS, refusal_of_request, yaml_files
from tests.golden import Case, Golden, cases
from tests.own_configs import faults, write
from tests.repository import OTHER

OURS = {name: (name.partition("/")[0], name.partition("/")[2]) for name in yaml_files() if "/" in name}


def derived(folder: Path, group: str, option: str, values: str = "") -> str:
    """Write an option of one's own that is one of the project's, with other values; return its name."""
    package = "# @package _global_\n" * (group == "experiment")
    write(folder / group / f"my_{option}", f"{package}defaults: [{option.removesuffix('.yaml')}, _self_]\n{values}")
    return f"{folder.name}/{group}/my_{option}"


@pytest.mark.parametrize("name", OURS)
def test_an_own_option_that_is_one_of_the_projects_is_sound(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    derived(tmp_path / "mine", *OURS[name])
    call("check", ["--config-dir", "mine"])
    told = capsys.readouterr().out
    assert told.endswith(" s: no fault\n")
    assert str(CONF) not in told


def test_own_options_of_every_group_are_sound_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for group, option in dict(OURS.values()).items():
        derived(tmp_path / "mine", group, option)
    call("check", ["--config-dir", "mine"])
    told = capsys.readouterr().out
    assert told.endswith(" s: no fault\n")
    assert str(CONF) not in told


ALONE = "does not fit the defaults of the other groups"


def test_columns_of_a_table_are_sound_beside_an_experiment_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    derived(tmp_path / "mine", "transform", "columns.yaml", "columns: {area: {of: area, steps: [log1p]}}\n")
    columns = "transform: {columns: {area: {of: area, steps: [log1p]}}}\n"
    values = f"dataset: {{files: houses.csv, target: {{price: number}}}}\n{columns}"
    write(tmp_path / "houses.csv", "area,price\n1,3\n2,5\n3,7\n4,8\n5,9\n")
    derived(tmp_path / "mine", "experiment", "table.yaml", values)
    call("check", ["--config-dir", "mine"])
    told = capsys.readouterr().out
    where = "mine/transform/my_columns.yaml:2: transform.columns.area.of is area"
    assert f"note: transform=my_columns {ALONE}: {where}" in told
    assert told.endswith(" s: no fault\n")


@pytest.mark.parametrize(
    ("name", "values", "unfit"),
    [
        (
            "dataset/folder.yaml",
            "dir: photos\n",
            ["dataset=my_folder does not fit extract=tfds: {}: extract.name is tfds"],
        ),
        (
            "dataset/tfrecord.yaml",
            "files: 'old/*.tfrecord'\nnum_classes: 3\n",
            ["dataset=my_tfrecord does not fit extract=tfds: {}: extract.name is tfds"],
        ),
        (
            "transform/small_64.yaml",
            "steps: [decode, resize, random_flip, scale_minus_one_one]\n",
            [f"transform=my_small_64 {ALONE}: {{}}: cache.at is transformed"],
        ),
        (
            "trainer/fine_tune.yaml",
            "phases: [{epochs: 1}]\n",
            [
                f"trainer=my_fine_tune {ALONE}: {{}}: model.trainable is true",
                "model=emulated does not fit trainer=my_fine_tune: {}:2: trainer.phases is [{{epochs: 1}}]",
                "model=linear does not fit trainer=my_fine_tune: {}:2: trainer.phases is [{{epochs: 1}}]",
                "model=tabular does not fit trainer=my_fine_tune: {}:2: trainer.phases is [{{epochs: 1}}]",
                "model=text does not fit trainer=my_fine_tune: {}:2: trainer.phases is [{{epochs: 1}}]",
            ],
        ),
        ("model/keras_application.yaml", "name: MobileNet\n", []),
    ],
)
def test_a_pair_that_does_not_fit_is_no_fault_of_a_file_that_fits_elsewhere(
    name: str, values: str, unfit: list[str], mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = derived(mine, *OURS[name], values)
    call("check", ["--config-dir", "mine"])
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("note")] == [f"note: {line.format(file)}" for line in unfit]
    assert last.endswith(" s: no fault")


def test_an_option_fits_with_two_others(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = "# Numbers.\ndefaults: [tfds, _self_]\nname: iris\nfeatures: {features: float32 4}\n"
    write(mine / "dataset" / "iris.yaml", numbers)
    assert len(faults()) == 3
    write(mine / "transform" / "none.yaml", "# Nothing.\ndefaults: [small_64, _self_]\nsteps: []\neval_steps: []\n")
    call("check", ["--config-dir", "mine"])
    assert capsys.readouterr().out.endswith("no fault\n")


def test_a_file_that_nothing_uses_is_told_beside_other_faults(mine: Path) -> None:
    write(mine / "other" / "lone.yaml", "a: 1\n")
    write(mine / "other" / "named.yaml", "a: 1\n")
    write(mine / "load" / "broken.yaml", "defaults: [/other/named]\nprefetch: [\n")
    assert [fault.partition("; ")[0] for fault in faults()] == [
        "mine/load/broken.yaml:2: found no value while parsing a flow node",
        "mine/other/lone.yaml: found a file that no config uses",
    ]


def test_a_value_that_a_person_gives_is_no_fault(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(mine / "dataset" / "any.yaml", "# Any.\ndefaults: [tfds, _self_]\nsplit: ???\n")
    call("check", ["--config-dir", "mine"])
    assert capsys.readouterr().out.endswith("no fault\n")


def test_the_configs_of_the_project_are_sound() -> None:
    found = checked(working_tree(None))
    assert list(found.faults) == []
    assert found.experiments == ["default", *EXPERIMENTS] == list(found.plans)
    assert {("transform=augmented_224",), ("trainer=drain", "profile=trace")} <= found.refused.keys()
    files = {name for variant in found.configs.values() for name in variant.files}
    assert len(files) == len(list(CONF.rglob("*.yaml")))


def test_own_configs_that_are_sound_are_told_so(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(mine / "mine.yaml", "# Mine.\ndefaults: [config, _self_]\ntrainer: {epochs: 9}\n")
    call("check", ["--config-dir", "mine"])
    line = capsys.readouterr().out
    assert line.startswith("checked 10 configs of 2 experiments and of options in ")
    assert line.endswith(" s: no fault\n")


def test_a_folder_in_which_nothing_is_checked_is_refused(mine: Path) -> None:
    (mine / "notes").mkdir()
    (found,) = faults("--config-dir", "mine/notes")
    assert found == (
        f"--config-dir: found no experiment and no option of a group in {mine}/notes; expected a folder of configs, "
        "such as experiment/NAME.yaml in it\n    -> name the folder that holds the folders of groups"
    )


@pytest.mark.parametrize("case", cases("check"))
def test_a_fault_is_told_once_with_its_file_and_line(case: Case, golden: Golden, mine: Path) -> None:
    write(mine / case["file"], case["text"])
    golden(case, "\n".join(faults()).replace(str(CONF), "CONF"))


def test_what_hydra_refuses_is_told_of_a_run_as_by_check(mine: Path) -> None:
    write(mine / "experiment" / "other.yaml", "# @package _global_\ndefaults: [override /dataste: tfds]\n")
    (told,) = faults()
    assert refusal_of_request("experiment=other", config_dir=Path("mine")) == told.replace(", in experiment=other", "")


def test_all_faults_are_told_at_once(mine: Path) -> None:
    write(mine / "experiment" / "other.yaml", "trainer: {epochs: 0}\n")
    write(mine / "load" / "huge.yaml", "# Huge.\ndefaults: [shuffled, _self_]\nbatch_size: many\n")
    assert [text.split(": found")[0] for text in faults()] == [
        "mine/experiment/other.yaml:1: experiment, in experiment=other",
        "mine/load/huge.yaml:3: load.batch_size, in load=huge and 10 more",
    ]
    assert [text.split(": found")[0] for text in faults("--strict")][2:] == ["mine/experiment/other.yaml:1"]


def test_advice_has_its_override_on_a_line_of_its_own(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(mine / "experiment" / "other.yaml", f"{OTHER}load: {{prefetch: 0}}\n")
    call("check", ["--config-dir", "mine"])
    assert capsys.readouterr().out.splitlines()[:2] == [
        "other: no_prefetch: load.prefetch=0: the model waits while the next batch is prepared",
        "    -> try load.prefetch=autotune",
    ]


def test_a_missing_comment_is_a_fault_of_a_strict_check_alone(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(mine / "experiment" / "other.yaml", "# @package _global_\ntrainer: {epochs: 3}\n")
    text = (
        "found no comment at the top; expected a comment with the purpose, the command and the cost of the experiment"
    )
    assert faults("--strict") == [f"mine/experiment/other.yaml:1: {text}\n    -> add it below `# @package _global_`"]
    capsys.readouterr()
    call("check", ["--config-dir", "mine"])
    assert capsys.readouterr().out.splitlines()[0] == f"mine/experiment/other.yaml:1: {text} (a fault with --strict)"


def test_golden_plans_are_written_compared_and_removed(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--golden", "golden"]
    assert faults(*words)[0] == (
        "golden/other.txt: found no golden plan; expected the current plan\n"
        "    -> repeat the command with --update, and review the diff"
    )
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
    assert capsys.readouterr().out.splitlines()[:2] == ["updated golden/small.txt", "updated golden/other.txt"]
    assert sorted(path.name for path in (tmp_path / "golden").iterdir()) == ["other.txt", "requirements.txt"]


@pytest.mark.usefixtures("mine")
def test_a_folder_that_can_hold_no_golden_plans_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert faults("--golden", "file", "--update") == [
        "file: found File exists; expected a folder for golden plans that can be read and written"
    ]
    (tmp_path / "golden").mkdir()
    (tmp_path / "golden" / "small.txt").write_bytes(b"\xff")
    assert faults("--golden", "golden")[1].startswith("golden/small.txt:1: found a different plan; expected the cur")
