from pathlib import Path

import pytest

from etlrun.cli.parsers import call
from etlrun.review.check import check as checked
from etlrun.review.folders import working_tree
from etlrun.stages import STAGES
from tests.configs import CONF, EXPERIMENTS, TRAINER_KEYS
from tests.own_configs import faults, write
from tests.repository import OTHER, TRANSFORM


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
                "mine/experiment/other.yaml: cache.at, in experiment=other: found transformed; expected a point before "
                "transform.random_flip, whose first result all later epochs would repeat\n    -> set cache.at=resize"
            ),
        ),
        (
            "experiment/other.yaml",
            OTHER + "defaults: [override /cash: none]\n",
            (
                "mine/experiment/other.yaml:6, in experiment=other: found Could not override 'cash'. No match in the "
                "defaults list.; expected a config that Hydra can compose\n    -> did you mean `cache`?"
            ),
        ),
        (
            "experiment/other.yaml",
            OTHER.replace("# @package _global_\n", ""),
            (
                "mine/experiment/other.yaml:1: experiment, in experiment=other: found an unknown key; expected one "
                "of the "
                "keys dataset, extract, transform, cache, load, model, trainer, profile, logger, measure\n"
                "    -> begin the file of the experiment with the line `# @package _global_`"
            ),
        ),
        (
            "experiment/other.yaml",
            OTHER + "load: {prefetch: [}\n",
            "mine/experiment/other.yaml:6: found no value while parsing a flow node; expected YAML",
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
                "mine/load/odd.yaml:2, in load=odd: found Invalid defaults list in 'load/odd', defaults must be a list "
                "(got int); expected a config that Hydra can compose"
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
