"""Options of one's own, each derived from one of the project's: a pair that doesn't fit is no fault of a file."""

from pathlib import Path

import pytest

from etlrun.cli.parsers import call
from tests.configs import CONF, refusal_of_request, yaml_files
from tests.own_configs import faults, write

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


def test_an_option_that_nothing_fits_is_a_fault(mine: Path) -> None:
    write(mine / "transform" / "endless.yaml", "# Of all sizes.\ndefaults: [small_64, _self_]\nsteps: [decode]\n")
    assert faults() == [
        (
            "mine/transform/endless.yaml: model.mobilenet_v2, in transform=endless: found 32 x uint8 [?, ?, 3] in "
            "[0, 255], label before it; expected images of one size\n    -> add `resize` to the steps"
        )
    ]


OPTIONS = "augmented_224 cifar_32 columns cropped_224 imagenet_224 randaugment_224 small_48 small_64"
OF_HYDRA = {
    "# @package _global_\ndefaults: [override /transform: imagenet_22]\n": (
        f"2{{}}: found Could not find 'transform/imagenet_22' Available options in 'transform': {OPTIONS}",
        "did you mean `imagenet_224`?",
    ),
    "# Mine.\ndefaults:\n  - override /load: shuffled\n": (
        "3{}: found Could not override 'load@experiment.load'. Did you mean to override load?",
        "begin the file of the experiment with the line `# @package _global_`",
    ),
    "# @package _global_\ndefaults: [override /dataste: tfds]\n": (
        "2{}: found Could not override 'dataste'. No match in the defaults list.",
        "did you mean `dataset`?",
    ),
}


@pytest.mark.parametrize("text", OF_HYDRA)
def test_what_hydra_refuses_of_an_own_file_has_its_line(text: str, mine: Path) -> None:
    write(mine / "experiment" / "other.yaml", text)
    found, remedy = OF_HYDRA[text]
    told = f"mine/experiment/other.yaml:{found}; expected a config that Hydra can compose\n    -> {remedy}"
    assert faults() == [told.format(", in experiment=other")]
    assert refusal_of_request("experiment=other", config_dir=Path("mine")) == told.format("")


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
