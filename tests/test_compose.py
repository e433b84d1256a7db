from pathlib import Path

import pytest

from etlrun.config import grid
from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.stages import STAGES
from etlrun.system.errors import ConfigError
from tests.configs import TRAINER_KEYS, plan_of, refusal_of_request

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


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "extract=interleeve",
            (
                "extract: found the unknown option 'interleeve'; expected one of interleave, sequential, tfds\n"
                "    -> did you mean extract=interleave?"
            ),
        ),
        ("cache=xyz", "cache: found the unknown option 'xyz'; expected one of disk, memory, none"),
        (
            "model=EfficientNetV2B0",
            (
                "model: found the unknown option 'EfficientNetV2B0'; expected one of emulated, keras_application, "
                "linear, mobilenet_v2, mobilenet_v2_small, tabular, text\n"
                "    -> did you mean model=keras_application model.name=EfficientNetV2B0?"
            ),
        ),
        (
            "model=resnet_50",
            (
                "model: found the unknown option 'resnet_50'; expected one of emulated, keras_application, "
                "linear, mobilenet_v2, mobilenet_v2_small, tabular, text\n"
                "    -> did you mean model=keras_application model.name=ResNet50?"
            ),
        ),
        ("hydra/output=xyz", "hydra/output: found the unknown option 'xyz'; expected one of default"),
    ],
)
def test_an_unknown_option_of_a_group_is_told_with_the_known_ones(override: str, message: str) -> None:
    assert refusal_of_request(override) == message


def test_faults_of_groups_and_of_keys_are_told_together() -> None:
    assert refusal_of_request("trainer.epoch=3", "cache=disc", "load.batch_size=0", "model=mobilenet", "x.y=1") == (
        "cache: found the unknown option 'disc'; expected one of disk, memory, none\n"
        "    -> did you mean cache=disk?\n"
        "model: found the unknown option 'mobilenet'; expected one of emulated, keras_application, linear, "
        "mobilenet_v2, mobilenet_v2_small, tabular, text\n"
        "    -> did you mean model=mobilenet_v2?\n"
        "x: found an unknown key; expected one of the keys dataset, extract, transform, cache, load, model, trainer, "
        "profile, logger, measure\n"
        "load.batch_size: found 0; expected a positive integer\n"
        f"trainer.epoch: found an unknown key; expected one of the keys {TRAINER_KEYS}\n"
        "    -> did you mean `trainer.epochs`?"
    )


def test_adding_a_key_that_is_there_is_refused() -> None:
    assert refusal_of_request("+trainer.epochs=2") == (
        "config: found Could not append to config. An item is already at 'trainer.epochs'. Either remove + prefix: "
        "'trainer.epochs=2' Or add a second + to add or override 'trainer.epochs': '++trainer.epochs=2'; expected a "
        "config that Hydra can compose"
    )


@pytest.mark.parametrize("prefix", ["", "+", "++"])
def test_adding_an_unknown_key_is_refused(prefix: str) -> None:
    assert refusal_of_request(f"{prefix}load.timeout_s=2") == (
        "load.timeout_s: found an unknown key; expected one of the keys shuffle_buffer, batch_size, drop_remainder, "
        "prefetch, shuffle_at, shuffle, num_parallel_calls, sample, class_weights, mixup_alpha, cutmix_alpha, "
        "boundaries, batch_sizes, tokens_per_batch, drop_long, service\n"
        "    -> did you mean `load.service.timeout_s`?"
    )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("~cache", "cache: found nothing; expected one of none, memory, disk\n    -> choose cache=…"),
        ("~trainer.epochs", "trainer.epochs: found nothing; expected a positive integer"),
    ],
)
def test_what_is_removed_is_missing(override: str, message: str) -> None:
    assert refusal_of_request(override) == message


@pytest.mark.parametrize(
    ("override", "found", "quoted"),
    [
        (
            "dataset.split=train]",
            "Error parsing override 'dataset.split=train]' extraneous input ']' expecting <EOF>",
            'dataset.split="train]"',
        ),
        ("dataset.split=train[:80%]", "mismatched input '[' expecting <EOF>", 'dataset.split="train[:80%]"'),
    ],
)
def test_an_override_that_hydra_can_not_read_is_told_in_its_words(override: str, found: str, quoted: str) -> None:
    assert refusal_of_request(override) == (
        f"{override}: found {found}; expected KEY=VALUE in Hydra's grammar\n"
        f"    -> quote the value, once for Hydra and once for the shell: '{quoted}'"
    )


@pytest.mark.parametrize(
    "words",
    [
        ("dataset.dir=~/x", "dataset=folder"),
        ("dataset=a(b", "dataset.dir=x"),
        ("experiment=öl", "dataset.dir=x"),
        ("load.shuffle=a(b", "load.sample=uniform_by_class"),
    ],
)
def test_what_follows_from_an_unread_override_is_not_told(words: tuple[str, str]) -> None:
    key, _, value = words[0].partition("=")
    first, remedy = refusal_of_request(*words).splitlines()
    assert first.startswith(f"{words[0]}: found ")
    assert remedy == f"""    -> quote the value, once for Hydra and once for the shell: '{key}="{value}"'"""


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("9" * 5000, "Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits"),
        ("[" * 500 + "]" * 500, "maximum recursion depth exceeded"),
    ],
)
def test_a_value_that_nobody_can_read_is_told(value: str, found: str) -> None:
    assert refusal_of_request(f"load.batch_size={value}").startswith(f"load.batch_size={value}: found {found}")


def test_all_overrides_that_hydra_can_not_read_are_told() -> None:
    faults = refusal_of_request("a=[", "trainer.epochs=0", "b=]").splitlines()[::2]
    assert [fault.split(": found ")[0] for fault in faults] == ["a=[", "b=]", "trainer.epochs"]


def test_references_are_resolved() -> None:
    assert plan_of("dataset.eval_split=${dataset.split}").spec.dataset.eval_split == "train[:80%]"


def test_each_job_of_a_sweep_is_checked_and_each_fault_told_once() -> None:
    assert refusal_of_request("trainer.epochs=1,0,-1", "cache=none,memory,disc", "load.batch_size=8,16") == (
        "cache: found the unknown option 'disc'; expected one of disk, memory, none\n"
        "    -> did you mean cache=disk?\n"
        "trainer.epochs: found 0; expected a positive integer\n"
        "trainer.epochs: found -1; expected a positive integer"
    )


def test_a_sweep_is_checked_in_its_combinations() -> None:
    assert refusal_of_request("transform=small_64,augmented_224", "cache=none,memory", "sweep.unfit=refuse") == (
        "cache.at: found transformed; expected a point before transform.random_flip, whose first result all later "
        "epochs would repeat\n    -> set cache.at=resize"
    )


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


def test_a_dataset_without_a_name_is_refused() -> None:
    assert refusal_of_request("dataset=tfds") == "dataset.name: found nothing; expected a string"


def test_a_key_that_hydra_would_refuse_is_refused_with_the_plus_that_it_needs() -> None:
    steps = ("transform.steps=[decode,resize,rescale]", "transform.eval_steps=[decode,resize,rescale]")
    assert refusal_of_request(*steps, "+transform.rescale.scale=0.0078", "transform.rescale.offset=-1.0") == (
        "transform.rescale.offset: found a key that no file of this config sets; expected an existing key\n"
        "    -> write +transform.rescale.offset=-1.0 to add it"
    )


@pytest.mark.parametrize("value", ["", "null"])
def test_an_option_without_a_name_is_refused(value: str) -> None:
    assert refusal_of_request(f"cache={value}") == (
        f"cache: found the unknown option '{value}'; expected one of disk, memory, none"
    )
