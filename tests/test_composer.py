import io
import os
import random
from pathlib import Path
from typing import Any

import hydra
import pytest
from omegaconf import OmegaConf

from etlrun.config.composer import Composer, plain
from etlrun.config.folders import config_dir
from etlrun.config.libyaml import fast
from etlrun.config.refusals import UNCOMPOSABLE
from etlrun.config.request import VERSION_BASE, Request, composed, composer
from etlrun.planning.unused import leaves
from etlrun.system.errors import ConfigError
from tests.configs import EXPERIMENTS, yaml_files

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
VALUES = [
    "load.batch_size=7",
    "++cache.at=source",
    "+model.x={a: [1], b: null}",
    "~trainer.epochs",
    "cache.at=source",
    "dataset.split='${dataset.eval_split}'",
    "load.prefetch=null",
    "~cache",
    "trainer={}",
    "experiment=null",
]
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
        except UNCOMPOSABLE:
            return None


def by_composer(files: Composer, words: list[str]) -> dict[str, Any] | None:
    """Return what a composer makes of these overrides; None if it refuses."""
    try:
        return files.values(words)
    except ConfigError:
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
    assert () not in listed._composed  # it is merged of its files


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


def test_so_is_one_of_any_options_and_values() -> None:
    """For some draws of options, of several values, and of an experiment; many of them are refused by both."""
    drawn = random.Random(0)  # noqa: S311 - no secret
    files = composer(Request(overrides=[]))
    for _ in range(15):
        options = [f"{group}={option}" for group, option in drawn.sample(OPTIONS, drawn.randint(0, 4))]
        words = options + drawn.sample(VALUES, drawn.randint(0, 2))
        drawn.shuffle(words)
        assert by_composer(files, words) == by_hydra(words), words


def test_values_that_are_set_without_omegaconf_are_those_that_hydra_sets(tmp_path: Path) -> None:
    """For draws of options, keys and values; it is told of some only, never of what references lead to."""
    (tmp_path / "own.yaml").write_text(
        "defaults: [config, _self_]\nown: {of: '${load.batch_size}', in: ['${own.of}', {x: 1}], at: ???}\n"
    )
    drawn = random.Random(0)  # noqa: S311 - no secret
    files = composer(Request(overrides=[], config_dir=str(tmp_path)))
    own = composer(Request(overrides=[], config_dir=str(tmp_path), config_name="own"))
    plain = ["7", "0.5", "null", "true", "[1,[2]]", "word", "'a b'"]
    texts = [*plain, *plain, "???", "${load.prefetch}", "{a: 1}", "[x,'${cache.at}']"]
    told = 0
    for draw in range(32):
        words = [f"{group}={option}" for group, option in drawn.sample(OPTIONS, drawn.randint(0, 2))]
        name, by = ("config", files) if draw % 4 else ("own", own)
        base = by.settable(words)
        if base is None:
            continue
        keys = [key for key, _ in leaves("", by.values(words))] + ["own.at", "own.of", "load.nonesuch", "load", "x"]
        chosen = dict.fromkeys(drawn.sample(keys, drawn.randint(1, 3)), "")
        for key in chosen:
            chosen[key] = drawn.choice(texts)
        last = [f"++{key}={text}" for key, text in chosen.items()]
        values = {key: by._parsed(word).value() for key, word in zip(chosen, last, strict=True)}
        found = base.with_values(values)
        told += found is not None
        assert found in (None, by_hydra([*words, *last], tmp_path, name)), (words, last)
        assert base.with_values({}) == by.values(words)
    assert told > 8


def test_what_a_reference_leads_to_is_set_by_omegaconf(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("defaults: [config, _self_]\nown: {of: '${load.batch_size}', in: '${own.of}'}\n")
    base = composer(Request(overrides=[], config_dir=str(tmp_path), config_name="own")).settable([])
    assert base is not None
    assert base.with_values({"load.batch_size": 7}) is None
    assert base.with_values({"own.of": 7}) is None
    assert base.with_values({"own.in": 7, "load.prefetch": 3})


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
    assert files.missing(["cache=elsewhere"]) == []


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
