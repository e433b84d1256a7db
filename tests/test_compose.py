"""Overrides of a command line: how they are composed, what is refused, and what is proposed instead."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from etlrun.cli.main import main
from etlrun.config import grid
from etlrun.config.grid import Grid, resolve
from etlrun.config.overrides import parsed
from etlrun.config.request import Request
from etlrun.planning.hints import RENAMED
from etlrun.planning.schema import schema
from etlrun.stages import STAGES
from etlrun.system.errors import ConfigError
from tests.configs import (
    composed,
    plan_of,
    refusal_of_config,
    refusal_of_diff,
    refusal_of_request,
)
from tests.golden import Case, Golden, cases
from tests.own_configs import write

SAME = "quote the value, once for Hydra and once for the shell: "
REMEDIES = {
    "trainer.metrics=[accuracy,f1_of_bär]": """'trainer.metrics=[accuracy,"f1_of_bär"]'""",
    "trainer.metrics=[accuracy,'f1_of_bär]": """'trainer.metrics=[accuracy,"f1_of_bär"]'""",
    "load.service.address=[[::1]:5050,cpu1:5050]": """'load.service.address=["[::1]:5050",cpu1:5050]'""",
    "load.service.address=[::1]:5050": """'load.service.address="[::1]:5050"'""",
    "trainer.metrics=[f1,,f1_of_bär]": """'trainer.metrics="[f1,,f1_of_bär]"'""",
    "trainer.resume=a=b": """'trainer.resume="a=b"'""",
    "'trainer.resume=\"a=b\"'": """'trainer.resume="a=b"'""",
    "trainer.resume=it's": """'trainer.resume="it'"'"'s"'""",
    "'trainer.resume='": "write trainer.resume=VALUE",
}


@pytest.mark.parametrize("word", REMEDIES)
def test_the_remedy_of_an_unread_override_is_read(word: str) -> None:
    overrides, (fault,) = parsed([word], None)
    assert (overrides, fault.where) == ([], word)
    assert fault.remedy.removeprefix(SAME) == REMEDIES[word]
    if fault.remedy.startswith(SAME):
        assert not parsed(shlex.split(REMEDIES[word]), None)[1]


QUOTE = "quote the value for Hydra, within the argument and for the shell: "
ARGUMENTS = {
    'dataset.split="train[:60%]"': (QUOTE, """"'dataset.split=\\"train[:60%]\\"'\""""),
    'load.prefetch=1 dataset.split="train[:60%]"': (QUOTE, """"load.prefetch=1 'dataset.split=\\"train[:60%]\\"'\""""),
    "logger.run_name=a$b=c": (QUOTE, """''"'"'logger.run_name="a$b=c"'"'"''"""),
    "logger.run_name=a b": (QUOTE.replace("the value", "a value with spaces"), """"'logger.run_name=\\"a b\\"'\""""),
}


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_the_remedy_within_an_argument_is_read(argument: str) -> None:
    told, shown = ARGUMENTS[argument]
    assert refusal_of_diff("", argument).splitlines()[1] == f"    -> {told}{shown}"
    (read,) = shlex.split(shown)
    assert not parsed(shlex.split(read), None)[1]
    assert all("=" in word for word in shlex.split(read))


def test_an_old_key_leads_to_a_new_one_that_there_is() -> None:
    blocks = schema(STAGES)["definitions"]
    for old, new in RENAMED.items():
        block, _, name = new.rpartition(".")
        assert name in blocks[block]["properties"]
        assert old.rpartition(".")[2] not in blocks[block]["properties"]


def test_an_old_key_of_a_file_is_refused_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine/experiment/coarse.yaml", "# @package _global_\n# Coarse.\nlogger:\n  experiment: ours\n")
    with pytest.raises(SystemExit):
        main(["check", "--config-dir", "mine"])
    assert capsys.readouterr().err == (
        "etlrun: 1 fault\n"
        "  mine/experiment/coarse.yaml:4: logger.experiment, in experiment=coarse: found an unknown key; expected "
        "no key here\n    -> write `logger.experiment_name`, its name now\n"
    )


def test_a_dataset_of_a_package_that_is_not_installed_is_one_fault() -> None:
    config = {**composed(), "dataset": {"name": "lined", "file": "points.csv", "num_classes": 2}}
    fault, remedy = refusal_of_config(config).splitlines()
    known = "folder, tfrecord, table, arrays, python, text_folder"
    expected = f"one of {known}, or a dataset of TFDS with the keys of dataset=tfds"
    assert fault == f"dataset.name: found 'lined'; expected {expected}"
    assert (
        remedy
        == "    -> a dataset of your own is a class in a package of yours, installed with pip: https://github.com/etlrun/etlrun/blob/main/docs/extending.md"
    )


def grid_of(*overrides: str) -> Grid:
    return grid.of(Request(overrides=list(overrides), multirun=True), STAGES)


def jobs_of(*overrides: str) -> list[list[str]]:
    return [job.overrides for job in grid_of(*overrides).jobs]


def test_the_last_key_changes_fastest() -> None:
    assert jobs_of("cache=none,memory", "load.prefetch=0,1") == [
        ["cache=none", "load.prefetch=0"],
        ["cache=none", "load.prefetch=1"],
        ["cache=memory", "load.prefetch=0"],
        ["cache=memory", "load.prefetch=1"],
    ]


def test_a_job_is_what_it_would_be_alone() -> None:
    words = ["cache=disk", "load.prefetch=3", "+transform.rescale.scale=0.007843137254901961", "~load.drop_remainder"]
    words += ["+load.drop_remainder=true", "transform.steps=[decode,resize,rescale]", "hydra.sweep.dir=x"]
    words += ["transform.eval_steps=[decode,resize,rescale]", "+transform.rescale.offset=-1.0"]
    alone = grid.resolve(Request(overrides=words), STAGES).plan
    swept = grid_of(*words, "load.batch_size=8,16").jobs[1]
    assert swept.plan.spec.load.batch_size == 16
    assert swept.plan.decisive == {**alone.decisive, **{
        key: value for key, value in swept.plan.decisive.items() if key.endswith("batch_size")
    }}  # fmt: skip
    assert swept.plan.spec.cache == alone.spec.cache


def test_references_follow_what_is_swept() -> None:
    jobs = grid_of("load.batch_size=8,16", "load.shuffle_buffer=${load.batch_size}").jobs
    assert [job.config["load"]["shuffle_buffer"] for job in jobs] == [8, 16]


def test_a_mapping_holds_nothing_of_the_job_before() -> None:
    jobs = grid_of("trainer.early_stopping={patience:3},{min_delta:0.5}", "load.prefetch=0,1").jobs
    stopping = [job.plan.spec.trainer.early_stopping for job in jobs]  # type: ignore[union-attr] # none is a drain
    assert [(item.patience, item.min_delta) for item in stopping] == [(3, 0.0), (3, 0.0), (None, 0.5), (None, 0.5)]


def test_how_a_sweep_goes_is_no_part_of_its_jobs() -> None:
    found = grid_of("load.prefetch=0,1", "sweep.repeats=5", "sweep.timeout_s=3.5")
    assert (found.sweep.repeats, found.sweep.timeout_s) == (5, 3.5)
    assert all("sweep" not in job.config for job in found.jobs)
    assert [job.overrides for job in found.jobs] == [["load.prefetch=0"], ["load.prefetch=1"]]


def test_zipped_keys_go_together_at_the_place_of_the_first() -> None:
    zipped = "sweep.zip=[[load.prefetch,load.batch_size]]"
    assert jobs_of("load.prefetch=0,1", "cache=none,memory", "load.batch_size=8,16", zipped) == [
        ["load.prefetch=0", "cache=none", "load.batch_size=8"],
        ["load.prefetch=0", "cache=memory", "load.batch_size=8"],
        ["load.prefetch=1", "cache=none", "load.batch_size=16"],
        ["load.prefetch=1", "cache=memory", "load.batch_size=16"],
    ]  # fmt: skip


def test_a_key_can_be_tried_only_where_it_means_something() -> None:
    rule = "sweep.exclude=['cache!=disk cache.dir!=null']"
    assert jobs_of("cache=none,disk", "cache.dir=null,mine", rule) == [
        ["cache=none", "cache.dir=null"],
        ["cache=disk", "cache.dir=null"],
        ["cache=disk", "cache.dir=mine"],
    ]  # fmt: skip


def test_a_rule_takes_several_values() -> None:
    assert jobs_of("load.prefetch=0,1,2,autotune", "sweep.exclude=['load.prefetch=0|2']") == [
        ["load.prefetch=1"],
        ["load.prefetch=autotune"],
    ]


def test_what_a_rule_leaves_out_may_be_wrong() -> None:
    rule = "sweep.exclude=['transform=augmented_224 cache=memory']"
    assert len(jobs_of("transform=small_64,augmented_224", "cache=none,memory", rule)) == 3


def test_the_grid_may_stand_in_a_config(tmp_path: Path) -> None:
    text = "# Mine.\ndefaults: [config, _self_]\nhydra: {sweeper: {params: {load.prefetch: '0,1'}}}\n"
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    request = Request(overrides=["cache=none"], config_dir=str(tmp_path), config_name="mine", multirun=True)
    assert [job.overrides for job in grid.of(request, STAGES).jobs] == [
        ["load.prefetch=0", "cache=none"],
        ["load.prefetch=1", "cache=none"],
    ]


@pytest.mark.needs("hydra-optuna-sweeper")
def test_a_search_is_checked_value_by_value() -> None:
    words = ["hydra/sweeper=optuna", "load.prefetch=choice(0,1,2)", "load.batch_size=int(interval(8,64))"]
    assert jobs_of(*words) == [
        ["load.prefetch=0", "load.batch_size=8"],
        ["load.prefetch=1", "load.batch_size=8"],
        ["load.prefetch=2", "load.batch_size=8"],
        ["load.prefetch=0", "load.batch_size=64"],
    ]
    assert refusal_of_request(*words, "trainer.epochs=choice(1,0)") == (
        "trainer.epochs: found 0; expected a positive integer"
    )


OWN_TRANSFORM = """\
# 96x96 pixels.
defaults:
  - small_64
  - _self_
resize:
  size: [96, 96]
"""


def plan_refusal(request: Request) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(request, STAGES)
    return str(caught.value)


@pytest.fixture
def own_configs(tmp_path: Path) -> Path:
    """A person's own folder of configs, with one option of the group `transform`."""
    (tmp_path / "transform").mkdir()
    (tmp_path / "transform" / "small_96.yaml").write_text(OWN_TRANSFORM, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("case", cases("overrides"))
def test_overrides_are_refused_with_their_whole_message(case: Case, golden: Golden) -> None:
    golden(case, refusal_of_request(*case["overrides"]))


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("9" * 5000, "Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits"),
        ("[" * 500 + "]" * 500, "maximum recursion depth exceeded"),
    ],
)
def test_a_value_that_nobody_can_read_is_told(value: str, found: str) -> None:
    assert refusal_of_request(f"load.batch_size={value}").startswith(f"load.batch_size={value}: found {found}")


def test_references_are_resolved() -> None:
    assert plan_of("dataset.eval_split=${dataset.split}").spec.dataset.eval_split == "train[:80%]"


@pytest.mark.parametrize(
    "override", ["trainer.epochs=1,2", "trainer.epochs=range(1,4)", "cache=none,disk,memory", "cache=glob(*)"]
)
def test_a_sweep_of_right_jobs_passes(override: str) -> None:
    grid.of(Request(overrides=[override], multirun=True), STAGES)


def test_a_plan_is_of_one_config() -> None:
    assert plan_refusal(Request(overrides=["cache=none,disk", "trainer.epochs=1,2,3"])) == (
        "overrides: found a sweep; expected one config\n"
        "    -> give each key one value, or run the sweep with: etlrun -m"
    )


def test_an_own_option_of_a_group_is_found(own_configs: Path) -> None:
    plan = resolve(Request(overrides=["transform=small_96"], config_dir=str(own_configs)), STAGES).plan
    assert str(plan.train[-1].gives) == "32 x uint8 [96, 96, 3] in [0, 255], label"


def test_an_own_option_of_a_group_is_among_the_known_ones(own_configs: Path) -> None:
    assert refusal_of_request("transform=small_9", config_dir=own_configs) == (
        "transform: found the unknown option 'small_9'; expected one of augmented_224, cifar_32, columns, "
        "cropped_224, imagenet_224, randaugment_224, small_64, small_96\n    -> did you mean transform=small_96?"
    )


def test_own_configs_are_forgotten_by_the_next_request(own_configs: Path) -> None:
    grid.of(Request(overrides=["transform=small_96"], config_dir=str(own_configs)), STAGES)
    assert refusal_of_request("transform=small_96").splitlines()[0] == (
        "transform: found the unknown option 'small_96'; expected one of augmented_224, cifar_32, columns, "
        "cropped_224, imagenet_224, randaugment_224, small_64"
    )


def test_an_own_primary_config_is_taken(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("# Mine.\ndefaults: [config, _self_]\ntrainer: {epochs: 9}\n", encoding="utf-8")
    request = Request(overrides=[], config_dir=str(tmp_path), config_name="mine")
    assert resolve(request, STAGES).plan.spec.trainer.epochs == 9


def test_a_folder_of_own_configs_must_exist(tmp_path: Path) -> None:
    assert refusal_of_request(config_dir=tmp_path / "nowhere") == (
        f"--config-dir: found no folder {tmp_path / 'nowhere'}; expected a folder of configs\n"
        "    -> pass the path of an existing folder"
    )


def test_hydras_own_word_for_a_multirun_is_one() -> None:
    assert Request.of(["hydra.mode=MULTIRUN", "cache=none,disk"]).multirun


@pytest.mark.parametrize(
    "arguments",
    [
        ["--config-dir", "mine", "-cn", "base", "cache=none", "--multirun", "+x=1", "~y"],
        ["-m", "cache=none", "-cd", "mine", "+x=1", "--config-name=base", "~y"],
        ["cache=none", "+x=1", "~y", "--config-dir=mine", "--config-name", "base"],
    ],
)
def test_a_request_is_found_among_the_options_of_hydra(arguments: list[str]) -> None:
    assert Request.of(arguments) == Request(
        overrides=["cache=none", "+x=1", "~y"],
        config_dir="mine",
        config_name="base",
        multirun="-m" in arguments or "--multirun" in arguments,
    )


def test_a_dataset_with_a_name_is_planned() -> None:
    grid.of(Request(overrides=["dataset=tfds", "dataset.name=tf_flowers"]), STAGES)
