from pathlib import Path

import pytest

from etlrun.cli import check
from etlrun.review.check import check as checked
from etlrun.review.folders import working_tree
from etlrun.stages import STAGES
from etlrun.system.errors import ConfigError
from tests.configs import CONF, EXPERIMENTS, TRAINER_KEYS
from tests.repository import OTHER, SMALL, TRANSFORM

SOUND = {"experiment/small.yaml": SMALL, "experiment/other.yaml": OTHER, "transform/small_48.yaml": TRANSFORM}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of sound configs of one's own, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name, text in SOUND.items():
        write(tmp_path / "mine" / name, text)
    return tmp_path / "mine"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def faults(*words: str) -> list[str]:
    """With which configs of one's own are refused."""
    with pytest.raises(ConfigError) as caught:
        check.main(["--config-dir", "mine", *words])
    return [str(fault) for fault in caught.value.faults]


def test_the_configs_of_the_project_are_sound() -> None:
    found = checked(working_tree(None))
    assert list(found.faults) == []
    assert found.experiments == ["default", *EXPERIMENTS] == list(found.plans)
    assert {("transform=augmented_224", "cache=disk"), ("trainer=drain", "profile=trace")} <= found.refused.keys()
    files = {name for variant in found.configs.values() for name in variant.files}
    assert len(files) == len(list(CONF.rglob("*.yaml")))


def test_own_configs_that_are_sound_are_told_so(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(mine / "mine.yaml", "# Mine.\ndefaults: [config, _self_]\ntrainer: {epochs: 9}\n")
    check.main(["--config-dir", "mine"])
    line = capsys.readouterr().out
    assert line.startswith("checked 10 configs of 2 experiments and of options in ")
    assert line.endswith(" s: no fault\n")


STEPS = "steps: [decode, resize, random_flip, scale_minus_one_one]\n"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "transform/small_48.yaml",
            TRANSFORM.replace("[48, 48]", "[48, 0]"),
            (
                "mine/transform/small_48.yaml:4: transform.resize.size, in experiment=small and 7 more: found [48, 0]; "
                "expected [height, width], two integers from 1 to 65,536"
            ),
        ),
        (
            "transform/small_48.yaml",
            TRANSFORM + "steps: [decode, resise]\n",
            (
                "mine/transform/small_48.yaml:5: transform.steps[1], in experiment=small and 7 more: found 'resise'; "
                f"expected one of {', '.join(STAGES['transform'])}\n"
                "    -> did you mean `resize`?"
            ),
        ),
        (
            "transform/small_48.yaml",
            TRANSFORM + "rescale: {scale: 2.0}\n",
            (
                "mine/transform/small_48.yaml:5: transform.rescale.scale, in experiment=small and 7 more: found a "
                "parameter of a step that is not used; expected `rescale` in transform.steps or "
                "transform.eval_steps\n    -> add the step, or leave it out"
            ),
        ),
        (
            "experiment/other.yaml",
            OTHER.replace("epochs: 3", "epoch: 3"),
            (
                "mine/experiment/other.yaml:5: trainer.epoch, in experiment=other: found an unknown key; expected "
                f"one of the keys {TRAINER_KEYS}\n    -> did you mean `trainer.epochs`?"
            ),
        ),
        (
            "experiment/other.yaml",
            OTHER.replace("trainer:\n  epochs: 3", "transform: {" + STEPS.strip() + "}"),
            (
                f"{CONF}/cache/memory.yaml:3: cache.at, in experiment=other: found transformed, which is after "
                "transform.random_flip; expected a point before the first random step, whose first result all later "
                "epochs would repeat\n    -> set cache.at=resize, or cache=none"
            ),
        ),
        (
            "experiment/other.yaml",
            OTHER + "defaults: [override /cash: none]\n",
            (
                "mine/experiment/other.yaml:6, in experiment=other: found Could not override 'cash'. No match in the "
                "defaults list.; expected a config that Hydra can compose"
            ),
        ),
        (
            "experiment/other.yaml",
            OTHER.replace("# @package _global_\n", ""),
            (
                "mine/experiment/other.yaml:1: experiment, in experiment=other: found an unknown key; expected one "
                "of the "
                "keys dataset, extract, transform, cache, load, model, trainer, profile, logger, measure"
            ),
        ),
        (
            "experiment/other.yaml",
            "# @package _global_\ntrainer: {epochs: 3}\n",
            (
                "mine/experiment/other.yaml:1: found no comment at the top; expected a comment with the purpose, the "
                "command and the cost of the experiment\n    -> add it below `# @package _global_`"
            ),
        ),
        (
            "experiment/other.yaml",
            OTHER + "load: {prefetch: [}\n",
            "mine/experiment/other.yaml:6: found did not find expected node content; expected YAML",
        ),
        (
            "transforms/small_96.yaml",
            TRANSFORM,
            (
                "mine/transforms/small_96.yaml: found a file that no config uses; expected an option of a group in a "
                "defaults list\n    -> move it to the folder of its group, or delete it"
            ),
        ),
        (
            "transform/small_96.yml",
            TRANSFORM,
            "mine/transform/small_96.yml: found the suffix .yml; expected .yaml, the only suffix that Hydra reads",
        ),
        (
            "transform/small_48.yaml",
            "# 48x48 pixels.\ndefaults: [_self_, small_64]\nresize: {size: [48, 48]}\n",
            (
                f"mine/transform/small_48.yaml:3: transform.resize.size: found a value that has no effect; expected "
                f"a value that {CONF}/transform/small_64.yaml:11 does not override in every config\n"
                "    -> remove it, or put `_self_` last in its defaults list"
            ),
        ),
        (
            "experiment/default.yaml",
            OTHER,
            (
                "mine/experiment/default.yaml: found default; expected another name: this one is reserved for the run "
                "without an experiment"
            ),
        ),
        (
            "dataset/sample.yaml",
            "# Mine.\nsplit: 5\n",
            (
                "mine/dataset/sample.yaml: found a file that Hydra never reads, since the project has a file of "
                "that name; expected a unique name\n    -> rename it; it may begin with `defaults: [NAME, _self_]`"
            ),
        ),
        (
            "sweep/many.yaml",
            "# Many.\ndefaults: [standard, _self_]\nrepeats: lots\n",
            (
                "mine/sweep/many.yaml:3: sweep.repeats, in sweep=many and 2 more: found 'lots'; "
                "expected an integer from 1 to 1,000"
            ),
        ),
        (
            "load/odd.yaml",
            "# Odd.\ndefaults: 3\n",
            (
                "load=odd, in load=odd: found Invalid defaults list in 'load/odd', defaults must be a list (got int); "
                "expected a config that Hydra can compose"
            ),
        ),
        (
            "mine.yaml",
            "# Mine.\ndefaults: [config, _self_]\nload: {batch_size: 0}\n",
            "mine/mine.yaml:3: load.batch_size, in --config-name=mine: found 0; expected a positive integer",
        ),
        (
            "experiment/other.yaml",
            OTHER + "measure: {silence: {serial: no}}\n",
            (
                "mine/experiment/other.yaml:6: measure.silence, in experiment=other: found {serial: false}; "
                "expected a mapping from names of checks to reasons"
            ),
        ),
        (
            "experiment/other.yaml",
            OTHER + "measure: {silence: {serial: no reason}}\n",
            (
                "mine/experiment/other.yaml:6: measure.silence.serial, in experiment=other: found an unknown check; "
                "expected one of serial_map, no_prefetch, cache_early, cache_unread, cache_above_memory, "
                "parallelism_above_cores\n    -> did you mean `serial_map`?"
            ),
        ),
        (
            "experiment/other.yaml",
            OTHER + "measure: {silence: {serial_map: ' '}}\n",
            (
                "mine/experiment/other.yaml:6: measure.silence.serial_map, in experiment=other: found no reason; "
                "expected "
                "the reason for silencing the check\n    -> state it in a few words"
            ),
        ),
    ],
)
def test_a_fault_is_told_once_with_its_file_and_line(mine: Path, name: str, text: str, expected: str) -> None:
    write(mine / name, text)
    assert faults() == [expected]


def test_all_faults_are_told_at_once(mine: Path) -> None:
    write(mine / "experiment" / "other.yaml", "trainer: {epochs: 0}\n")
    write(mine / "load" / "huge.yaml", "# Huge.\ndefaults: [shuffled, _self_]\nbatch_size: many\n")
    assert [text.split(": found")[0] for text in faults()] == [
        "mine/experiment/other.yaml:1: experiment, in experiment=other",
        "mine/load/huge.yaml:3: load.batch_size, in load=huge and 7 more",
        "mine/experiment/other.yaml:1",
    ]


def test_an_option_that_nothing_fits_is_a_fault(mine: Path) -> None:
    write(mine / "transform" / "endless.yaml", "# Of all sizes.\ndefaults: [small_64, _self_]\nsteps: [decode]\n")
    assert faults() == [
        (
            f"{CONF}/model/mobilenet_v2_small.yaml:1: model.mobilenet_v2, in transform=endless and 6 more: found 32 "
            f"x uint8 "
            "[?, ?, 3] in [0, 255], label before it; expected images of one size\n    -> add `resize` to the steps"
        )
    ]


def test_a_value_that_a_person_gives_is_no_fault(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(mine / "dataset" / "any.yaml", "# Any.\ndefaults: [tfds, _self_]\nsplit: ???\n")
    check.main(["--config-dir", "mine"])
    assert capsys.readouterr().out.endswith("no fault\n")


def test_golden_plans_are_written_compared_and_removed(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--golden", "golden"]
    assert faults(*words)[0] == (
        "golden/other.txt: found no golden plan; expected the current plan\n"
        "    -> run `etlrun check --update` and review the diff"
    )
    check.main(["--config-dir", "mine", *words, "--update"])
    assert sorted(path.name for path in (tmp_path / "golden").iterdir()) == ["other.txt", "small.txt"]
    check.main(["--config-dir", "mine", *words])
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
    check.main(["--config-dir", "mine", *words, "--update"])
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
