import io
import itertools
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
import pytest
from omegaconf import OmegaConf

from etlrun.config.composer import UNCOMPOSABLE, Composer, missing, plain
from etlrun.config.files import fast
from etlrun.config.folders import config_dir
from etlrun.config.request import VERSION_BASE, Request, composed, composer
from etlrun.planning.spec import leaves
from etlrun.system.errors import ConfigError
from tests.configs import EXPERIMENTS, yaml_files

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
    "+model.x={a: [1], b: null}",
    "~trainer.epochs",
    "~trainer.nonesuch",
    "~cache",
    "trainer={}",
    "+x=1",
    "experiment=null",
    "hydra.job.name=other",
    "load.batch_size=1,2",
]
"""Overrides that add, remove, or are refused."""
REFUSED = (*UNCOMPOSABLE, TypeError)  # Hydra raises that one for lists in a list of options
NUMBERS = ["1e3", "1e-3", "+1E5", "1.e5", ".5", ".5e+3", "1_0.5", "1__0", "1:30.5", "12:30:45", "0x1F", "017", "e3"]
SCALARS = [*NUMBERS, "2020-01-01", "yes", "on", ".inf", "-.INF", "null", "~", "'a'", '"b"', "'${a.b}'", "{a: 1}"]
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
            return plain(hydra.compose(name, overrides=[*words, *searched]))
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
        listed.layers(words)
        assert listed.values(words) == config, words
    assert () not in listed._by_hydra  # it is merged of its files


def test_a_key_that_hydra_does_not_know_is_refused_where_files_are_listed_too(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("defaults: [_self_]\nrate: 1\nhydra: {runs: 1}\n")
    files = composer(Request(overrides=[], config_dir=str(tmp_path), config_name="own"))
    assert files.layers([])
    assert by_composer(files, []) is None is by_hydra([], tmp_path, "own")


@pytest.mark.parametrize("text", ["a: {}\n", "a: [{}, b]\n", "b: {a: {}}\n", "a:\n  - {}\n  - b\n"])
def test_libyaml_gives_the_values_that_omegaconf_reads(text: str) -> None:
    for value in SCALARS:
        written = text.replace("{}", value)
        assert repr(fast(written.encode())) == repr(OmegaConf.load(io.StringIO(written))), written


@pytest.mark.parametrize(
    "text", ["a: 1\na: 2\n", "a: [b?]\n", "a:\tb\n", "a: >\n  b\n", "a: \xe4\n", "- a\n", "a: [\n"]
)
def test_what_libyaml_may_read_otherwise_is_left_to_omegaconf(text: str) -> None:
    assert fast(text.encode()) is None


def test_blocks_that_are_nested_deeply_are_left_to_omegaconf() -> None:
    assert [fast(f"a: {'[' * deep}{']' * deep}\n".encode()) for deep in (3_990, 100_000)] == [None, None]


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
        plain = [(key, by[name]._parsed[f"++{key}={text}"].value()) for key, text in last]
        assert by_composer(by[name], words, plain) == wanted, (words, last)


def test_values_that_are_set_leave_the_config_of_the_options_as_it_is() -> None:
    files = composer(Request(overrides=[]))
    before = json.dumps(files.values(["cache=disk"]))
    files.values(["cache=disk", "+load.x={y: 1}", "~trainer.epochs", "trainer.schedule=null"], [("load.x.z", 2)])
    assert json.dumps(files.values(["cache=disk"])) == before


def test_options_of_several_groups_are_composed_once_each() -> None:
    """Hydra lists the files of the default run alone, and composes nothing."""
    files = composer(Request(overrides=[]))
    apart = [f"{group}={option}" for group, option in OPTIONS if group != "experiment"]
    for pair in itertools.combinations(apart, 2):
        files.whole(pair)
    assert not files._by_hydra
    assert {words for words, layers in files._layers.items() if len(words) < 2 and layers} >= {()}


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
    assert missing(files.whole(["cache=elsewhere"])) == []


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
        assert composed(Request(overrides=[], config_dir=str(tmp_path), config_name="own")) == {"rate": rate}


def test_a_config_tells_its_files_in_the_order_in_which_they_count() -> None:
    layers = composer(Request(overrides=[])).layers(["experiment=parallel"])
    assert [(layer.path.relative_to(config_dir()).as_posix(), layer.package) for layer in layers][-5:] == [
        ("sweep/standard.yaml", "sweep"),
        ("tune/standard.yaml", "tune"),
        ("experiment/cats_vs_dogs.yaml", ""),
        ("experiment/parallel.yaml", ""),
        ("config.yaml", ""),
    ]


def test_layers_of_options_are_those_of_hydra() -> None:
    """Whether their own lists were asked for before or not."""
    files = composer(Request(overrides=[]))
    for words in WORDS:
        assert files.layers(words) == files._listed(tuple(words)), words


def test_a_primary_config_tells_its_groups_and_their_options() -> None:
    files = composer(Request(overrides=[]))
    groups = ("dataset", "extract", "transform", "cache", "load", "model", "trainer", "profile", "logger", "measure")
    assert files.groups() == [*groups, "sweep", "tune", "experiment"]
    assert files.options("experiment") == list(EXPERIMENTS)
