"""Configs as Hydra composes them, overrides of a command line: what is refused, and what is proposed instead."""

import itertools
import json
import os
import random
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
import pytest
from omegaconf import OmegaConf

from etlrun.cli.main import main
from etlrun.config import grid, request
from etlrun.config.composer import UNCOMPOSABLE, Composer, _with_referred, of_a_run, resolved
from etlrun.config.folders import config_dir
from etlrun.config.grid import Grid, resolve
from etlrun.config.overrides import parsed
from etlrun.config.request import VERSION_BASE, Request, composer
from etlrun.planning.hints import RENAMED
from etlrun.planning.schema import schema
from etlrun.planning.spec import leaves
from etlrun.stages import STAGES
from etlrun.system.errors import ConfigError
from tests.configs import (
    EXPERIMENTS,
    composed,
    refusal_of_config,
    refusal_of_diff,
    refusal_of_request,
    yaml_files,
)
from tests.golden import Case, Golden, Says, cases
from tests.own_configs import write

SAME = "quote the value: "
REMEDIES = {
    "trainer.metrics=[accuracy,'f1_bär]": "'trainer.metrics=[accuracy,f1_bär]'",
    "trainer.metrics=[f1,,f1_bär]": """'trainer.metrics="[f1,,f1_bär]"'""",
    "'trainer.resume=\"a=b\"'": "trainer.resume=a=b",
    "trainer.resume=int(it's": """'trainer.resume="int(it'"'"'s"'""",
    "'trainer.resume='": "write trainer.resume=VALUE",
}


@pytest.mark.parametrize("word", REMEDIES)
def test_the_remedy_of_an_unread_override_is_read(word: str) -> None:
    overrides, (fault,) = parsed([word], None)
    assert (overrides, fault.where) == ([], word)
    assert fault.remedy.removeprefix(SAME) == REMEDIES[word]
    if fault.remedy.startswith(SAME):
        assert not parsed(shlex.split(REMEDIES[word]), None)[1]


QUOTE = "quote the value, within the argument and for the shell: "
ARGUMENTS = {
    "load.prefetch=1 logger.run_name=int(b": (QUOTE, """"load.prefetch=1 'logger.run_name=\\"int(b\\"'\""""),
    "logger.run_name=int($b": (QUOTE, """''"'"'logger.run_name="int($b"'"'"''"""),
    "logger.run_name=a b": (QUOTE.replace("the value", "a value with spaces"), """"'logger.run_name=a b'\""""),
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
        block, _, name = new.partition("=")[0].rpartition(".")
        assert name in blocks[block]["properties"]
        assert old.rpartition(".")[2] not in blocks[block]["properties"]


def test_an_old_key_of_a_file_is_refused_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine/experiment/coarse.yaml", "# @package _global_\n# Coarse.\nlogger:\n  experiment: ours\n")
    with pytest.raises(SystemExit):
        main(["check", "--config-dir", "mine"])
    says(capsys.readouterr().err)


def test_a_dataset_of_a_package_that_is_not_installed_is_one_fault(says: Says) -> None:
    config = {**composed(), "dataset": {"name": "lined", "file": "points.csv", "num_classes": 2}}
    fault, remedy = refusal_of_config(config).splitlines()
    known = "folder, tfrecord, table, arrays, python, text_folder"
    expected = f"one of {known}, or a dataset of TFDS with the keys of dataset=tfds"
    assert fault == f"dataset.name: found 'lined'; expected {expected}"
    says(remedy)


def grid_of(*overrides: str) -> Grid:
    return grid.of(Request(overrides=list(overrides), multirun=True), STAGES)


def jobs_of(*overrides: str) -> list[list[str]]:
    return [job.overrides for job in grid_of(*overrides).jobs]


@pytest.mark.parametrize("case", cases("grids"))
def test_a_sweep_has_these_jobs(case: Case, golden: Golden) -> None:
    golden(case, "".join(f"{' '.join(job)}\n" for job in jobs_of(*case["overrides"])))


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


@pytest.mark.smoke
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


def test_the_grid_may_stand_in_a_config(tmp_path: Path, says: Says) -> None:
    text = "# Mine.\ndefaults: [config, _self_]\nhydra: {sweeper: {params: {load.prefetch: '0,1'}}}\n"
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    own = Request(overrides=["cache=none"], config_dir=str(tmp_path), config_name="mine", multirun=True)
    says([job.overrides for job in grid.of(own, STAGES).jobs])


@pytest.mark.needs("hydra-optuna-sweeper")
def test_a_search_is_checked_value_by_value(says: Says) -> None:
    words = ["hydra/sweeper=optuna", "load.prefetch=choice(0,1,2)", "load.batch_size=int(interval(8,64))"]
    says([" ".join(job) for job in jobs_of(*words)])
    says(refusal_of_request(*words, "trainer.epochs=choice(1,0)"))


OWN_TRANSFORM = """\
# 96x96 pixels.
defaults:
  - small_64
  - _self_
resize:
  size: [96, 96]
"""


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


@pytest.mark.smoke
def test_an_own_option_of_a_group_is_found(own_configs: Path) -> None:
    plan = resolve(Request(overrides=["transform=small_96"], config_dir=str(own_configs)), STAGES).plan
    assert str(plan.train[-1].gives) == "32 x uint8 [96, 96, 3] in [0, 255], label"


def test_an_own_option_of_a_group_is_among_the_known_ones(own_configs: Path, says: Says) -> None:
    says(refusal_of_request("transform=small_9", config_dir=own_configs))


def test_own_configs_are_forgotten_by_the_next_request(own_configs: Path, says: Says) -> None:
    grid.of(Request(overrides=["transform=small_96"], config_dir=str(own_configs)), STAGES)
    says(refusal_of_request("transform=small_96").splitlines()[0])


def test_an_own_primary_config_is_taken(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("# Mine.\ndefaults: [config, _self_]\ntrainer: {epochs: 9}\n", encoding="utf-8")
    own = Request(overrides=[], config_dir=str(tmp_path), config_name="mine")
    assert resolve(own, STAGES).plan.spec.trainer.epochs == 9


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


DRAWS = int(os.environ.get("ETLRUN_DRAWS", "40"))
OPTIONS = [path.removesuffix(".yaml").split("/") for path in yaml_files() if "/" in path]
WORDS = [
    [],
    ["load.batch_size=7", "+transform.rescale={scale: 2.0, offset: 1.0}", "~trainer.epochs"],
    ["dataset.eval_split=${dataset.split}", "cache=disk", "experiment=naive"],
    ["cache=none", "load=service"],
    ["transform=cifar_32", "cache=none", "trainer=drain"],
    ["load=service", "transform=augmented_224", "trainer=fine_tune", "cache=disk", "+cache.x=1", "experiment=parallel"],
    ["load=plain", "~cache.at", "cache=disk", "~trainer"],
]
VALUES = ["7", "0.5", "null", "true", "[1,[2]]", "word", "'a b'", "{a: 1}", "{}", "'${load.prefetch}'", "'???'"]
OTHERS = [
    "+model.x={a: [1], b: null}", "~trainer.epochs", "~trainer.nonesuch", "~cache", "trainer={}", "+x=1",
    "experiment=null", "hydra.job.name=other", "load.batch_size=1,2",
]  # fmt: skip
"""Overrides that add, remove, or are refused."""
REFUSED = (*UNCOMPOSABLE, TypeError)  # Hydra raises that one for lists in a list of options
OWN = """\
defaults: [config, override /hydra/job_logging: disabled, _self_]
dataset:
  name: of ${fresh.block.of}
  split: ???
load: {prefetch: null}
fresh: {block: {of: [values]}}
"""


def by_hydra(words: list[str], own: Path | None = None, name: str = "config") -> dict[str, Any] | None:
    """Return what Hydra composes by itself of files that it reads again; None if it refuses."""
    folders = (
        [config_dir()]
        if own is None
        else [own, config_dir()]
        if (own / f"{name}.yaml").exists()
        else [config_dir(), own]
    )
    searched = [f"hydra.searchpath=[{','.join(f'file://{folder}' for folder in folders[1:])}]"]
    with hydra.initialize_config_dir(str(folders[0]), version_base=VERSION_BASE):
        try:
            return of_a_run(resolved(hydra.compose(name, overrides=[*words, *searched])))
        except REFUSED:
            return None


def by_composer(files: Composer, words: list[str], last: Sequence[tuple[str, Any]] = ()) -> dict[str, Any] | None:
    """Return what a composer makes of these overrides; None if it refuses."""
    try:
        return files.values(words, last)
    except (ConfigError, TypeError):
        return None


def test_a_config_is_what_hydra_composes() -> None:
    files = composer(Request(overrides=[]))
    wanted = [(words, by_hydra(words)) for words in WORDS]
    for words, config in wanted + wanted[::-1]:
        assert files.values(words) == config, words
    listed = composer(Request(overrides=[]))
    for words, config in wanted:
        assert listed.layers(words) == listed._listed_by_hydra(tuple(words)), words
        assert listed.values(words) == config, words
    assert () not in listed._by_hydra  # it is merged of its files


_EXPERIMENT = "# @package _global_\ndefaults: [{override /cache: none}, _self_]\n"
ALIKE = {
    "first": f"{_EXPERIMENT}load: {{batch_size: 8}}\n",
    "second": f"{_EXPERIMENT}load: {{batch_size: 16}}\n",
    "in_its_group": "defaults: [{override /cache: none}, _self_]\nload: {batch_size: 16}\n",
    "before_its_list": "# @package _global_\ndefaults: [_self_, {override /cache: none}]\n",
    "of_first": "# @package _global_\ndefaults: [first, _self_]\n",
    "of_first_too": "# @package _global_\ndefaults: [first, _self_]\ntrainer: {seed: 4}\n",
    "of_itself": "# @package _global_\ndefaults: [of_itself, _self_]\n",
    "of_that": "# @package _global_\ndefaults: [of_itself, _self_]\n",
    "around": "# @package _global_\ndefaults: [back, _self_]\n",
    "back": "# @package _global_\ndefaults: [around, _self_]\n",
    "to_back": "# @package _global_\ndefaults: [around, _self_]\n",
    "by_name": "# @package _global_\ndefaults: [{override /cache: '${load.of}'}, _self_]\n",
    "of_no_option": "# @package _global_\ndefaults: [{override /cache: nonesuch}, _self_]\n",
}
"""Experiments, some of which have the same defaults list, and must not be taken for each other."""


@pytest.mark.parametrize("seed", range(3))
def test_options_with_the_same_defaults_list_are_what_hydra_composes(seed: int, tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    for name, text in ALIKE.items():
        (tmp_path / "experiment" / f"{name}.yaml").write_text(text)
    files = composer(Request(overrides=[], config_dir=str(tmp_path)))
    for name in random.Random(seed).sample(sorted(ALIKE), len(ALIKE)):  # noqa: S311 - no secret
        words = [f"experiment={name}"]
        assert by_composer(files, words) == by_hydra(words, tmp_path), name
        assert files.layers(words) == files._listed_by_hydra(tuple(words)), name


def test_a_defaults_list_that_refers_to_an_option_is_what_hydra_composes(tmp_path: Path) -> None:
    primary = Path("conf/config.yaml").read_text().replace("  - _self_\n", "  - of: ${load}\n  - _self_\n", 1)
    (tmp_path / "own.yaml").write_text(primary)
    (tmp_path / "of").mkdir()
    for load in ("shuffled", "padded", "plain"):
        (tmp_path / "of" / f"{load}.yaml").write_text(f"# @package _global_\ntrainer: {{seed: {len(load)}}}\n")
    files = composer(Request(overrides=[], config_dir=str(tmp_path), config_name="own"))
    seeds = [files.values([f"load={load}"])["trainer"]["seed"] for load in ("shuffled", "padded", "plain")]
    assert seeds == [8, 6, 5]


@pytest.mark.parametrize("count", [3, 12])
def test_hydra_lists_the_files_of_experiments_once_for_each_defaults_list(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "experiment").mkdir()
    for number in range(count):
        (tmp_path / "experiment" / f"e{number}.yaml").write_text(f"{_EXPERIMENT}trainer: {{seed: {number}}}\n")
    files = composer(Request(overrides=[], config_dir=str(tmp_path)))
    listed, list_by_hydra = list[Sequence[str]](), files.loader.compute_defaults_list

    def counted(name: str, words: list[str], *others: Any) -> Any:
        listed.append(words)
        return list_by_hydra(name, words, *others)

    monkeypatch.setattr(files.loader, "compute_defaults_list", counted)
    seeds = [files.values([f"experiment=e{number}"])["trainer"]["seed"] for number in range(count)]
    assert seeds == [*range(count)]
    assert listed == [["experiment=e0"]]


def test_a_key_that_hydra_does_not_know_is_refused_where_files_are_listed_too(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("defaults: [_self_]\nrate: 1\nhydra: {runs: 1}\n")
    files = composer(Request(overrides=[], config_dir=str(tmp_path), config_name="own"))
    assert files.layers([])
    assert by_composer(files, []) is None is by_hydra([], tmp_path, "own")


def test_what_is_set_on_options_is_what_hydra_composes(tmp_path: Path) -> None:
    """For draws of options and values, in files with references, too; many of them are refused by both."""
    (tmp_path / "own.yaml").write_text(
        "defaults: [config, _self_]\nown: {of: '${load.batch_size}', in: ['${own.of}', {x: 1}], at: '???'}\n"
    )
    drawn = random.Random(0)  # noqa: S311 - no secret
    by = {
        name: composer(Request(overrides=[], config_dir=str(tmp_path), config_name=name)) for name in ("config", "own")
    }
    made = {name: files.values([]) for name, files in by.items()}
    for draw in range(DRAWS):
        name = "config" if draw % 4 else "own"
        keys = [*dict(leaves("", made[name])), "own.at", "own.of", "load.nonesuch", "load", "load.service", "cache.at"]
        words = [f"{group}={option}" for group, option in drawn.sample(OPTIONS, drawn.randint(0, 2))]
        chosen = [(drawn.choice(keys), drawn.choice(VALUES)) for _ in range(drawn.randint(0, 2))]
        words += [f"{drawn.choice(['', '', '+', '++'])}{key}={text}" for key, text in chosen]
        words += drawn.sample(OTHERS, drawn.randint(0, 4) // 4)
        drawn.shuffle(words)
        inner = [key for key in keys if "." in key]
        last = [(drawn.choice(inner), drawn.choice(VALUES)) for _ in range(drawn.randint(0, 4) // 2)]
        wanted = by_hydra([*words, *(f"++{key}={text}" for key, text in last)], tmp_path, name)
        plain = [(key, by[name]._parsed(f"++{key}={text}").value()) for key, text in last]
        assert by_composer(by[name], words, plain) == wanted, (words, last)


def test_values_that_are_set_leave_the_config_of_the_options_as_it_is() -> None:
    files = composer(Request(overrides=[]))
    before = json.dumps(files.values(["cache=disk"]))
    files.values(["cache=disk", "+load.x={y: 1}", "~trainer.epochs", "trainer.schedule=null"], [("load.x.z", 2)])
    assert json.dumps(files.values(["cache=disk"])) == before


def test_references_are_resolved_in_the_order_of_the_config() -> None:
    values = {name: {"of": f"${{{name}.is}}", "is": 1} for name in "hgfedcba"}
    assert [*_with_referred({**values, "of_none": {}})] == [*values]


def test_jobs_share_the_blocks_that_are_the_same() -> None:
    files = composer(Request(overrides=[]))
    one, other = (files.values(["cache=disk"], [("load.batch_size", size)]) for size in (8, 16))
    assert [group for group in one if one[group] is not other[group] and isinstance(one[group], dict)] == ["load"]


def test_options_of_several_groups_are_composed_once_each() -> None:
    """Hydra lists the files of the default run alone, and composes nothing."""
    files = composer(Request(overrides=[]))
    apart = [f"{group}={option}" for group, option in OPTIONS if group != "experiment"]
    for pair in itertools.combinations(apart, 2):
        files.whole(pair)
    assert not files._by_hydra


@pytest.mark.parametrize("words", [["experiment=parallel"], ["hydra/job_logging=none", "hydra.run.dir=${cache.at}"]])
def test_the_config_of_hydra_itself_is_what_hydra_composes_of_files_that_it_reads_again(words: list[str]) -> None:
    files = composer(Request(overrides=words))
    files.with_hydra([*words, "load.shuffle_buffer=7", "hydra.job.name=other"])
    found: Any = OmegaConf.to_container(files.with_hydra(words))
    with hydra.initialize_config_dir(str(config_dir()), job_name="etlrun", version_base=VERSION_BASE):
        wanted: Any = OmegaConf.to_container(hydra.compose("config", overrides=words, return_hydra_config=True))
    sources = [config["hydra"]["runtime"].pop("config_sources") for config in (found, wanted)]
    assert found == wanted
    assert [[source["provider"] for source in of] for of in sources] == [["hydra", "main", "schema"]] * 2


@pytest.mark.parametrize(
    "text",
    [
        OWN,
        OWN.replace("job_logging: disabled", "launcher: basic"),
        OWN.replace("override /hydra/job_logging: disabled, ", ""),
    ],
)
def test_so_is_one_that_needs_the_config_of_hydra_itself(text: str, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(text)
    files = composer(Request(overrides=[], config_dir=str(tmp_path), config_name="own"))
    for words in ([], ["load=plain"]):
        assert files.values(words) == by_hydra(words, tmp_path, "own")
    assert files.layers([])[-1].path == tmp_path / "own.yaml"
    assert files.groups()[:2] == ["dataset", "extract"]


def test_a_reference_in_a_defaults_list_resolves_as_hydra_resolves_it(tmp_path: Path) -> None:
    (tmp_path / "fresh").mkdir()
    (tmp_path / "fresh/disk_of_two.yaml").write_text("value: 2\n")
    (tmp_path / "own.yaml").write_text("defaults: [config, fresh: '${cache}_of_two', _self_]\n")
    files = composer(Request(overrides=[], config_dir=str(tmp_path), config_name="own"))
    for words in (["cache=disk"], ["cache=disk", "load.batch_size=7"], ["load=plain", "cache=disk"]):
        assert files.values(words)["fresh"] == {"value": 2}
        assert files.values(words) == by_hydra(words, tmp_path, "own")
        assert files.layers(words)[-2].path == tmp_path / "fresh/disk_of_two.yaml"


def test_options_with_a_package_or_a_list_of_their_own_are_placed_as_hydra_places_them(tmp_path: Path) -> None:
    for name, text in {
        "cache/elsewhere": "# @package load\nprefetch: 3\n",
        "cache/of_disk": "defaults: [disk, _self_]\nat: source\n",
        "cache/of_load": "# @package _global_\ndefaults: [override /load: plain, _self_]\ncache: {at: source}\n",
        "cache/two": "defaults: [disk, /load@beside: plain]\n",
        "cache/of_any": "defaults: [/load@beside: '${load}', _self_]\nat: source\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.yaml").write_text(text)
    files = composer(Request(overrides=[], config_dir=str(tmp_path)))
    caches = ("elsewhere", "of_disk", "of_load", "two", "of_any")
    pairs = [[f"cache={cache}", f"load={load}"] for cache in caches for load in ("plain", "service")]
    for words in (["cache=elsewhere"], ["cache=none", "cache=disk"], *pairs):
        assert files.values(words) == by_hydra(words, tmp_path), words
        assert files.layers(words) == files._listed(tuple(words))
    assert "???" not in repr(files.whole(["cache=elsewhere"]))


def test_an_option_that_sets_where_hydra_searches_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "far.yaml").write_text("# @package _global_\nhydra: {searchpath: [file:///far]}\n")
    files = composer(Request(overrides=[], config_dir=str(tmp_path)))
    assert files.values([])
    assert by_composer(files, ["cache=far"]) is None is by_hydra(["cache=far"], tmp_path)


def test_a_file_with_other_text_is_read_again_even_if_its_size_and_time_are_the_same(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    for rate in (0.1, 0.2):
        file.write_text(f"rate: {rate}\n")
        os.utime(file, (1, 1))
        assert request.composed(Request(overrides=[], config_dir=str(tmp_path), config_name="own")) == {"rate": rate}


def test_a_config_tells_its_files_in_the_order_in_which_they_count(says: Says) -> None:
    layers = composer(Request(overrides=[])).layers(["experiment=parallel"])
    says([(layer.path.relative_to(config_dir()).as_posix(), layer.package) for layer in layers][-5:])


def test_a_primary_config_tells_its_groups_and_their_options() -> None:
    files = composer(Request(overrides=[]))
    groups = ("dataset", "extract", "transform", "cache", "load", "model", "trainer", "profile", "logger", "measure")
    assert files.groups() == [*groups, "sweep", "tune", "experiment"]
    assert files.options("experiment") == list(EXPERIMENTS)
