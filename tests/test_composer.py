import os
from pathlib import Path

import hydra
import pytest
from hydra._internal.config_repository import ConfigRepository
from omegaconf import OmegaConf

from etlrun.config.composer import plain
from etlrun.config.folders import config_dir
from etlrun.config.request import Request, by_hydra, composed, composer
from tests.configs import EXPERIMENTS, yaml_files

OPTIONS = [path.removesuffix(".yaml").split("/") for path in yaml_files() if "/" in path]
WORDS = [
    [],
    ["load.batch_size=7", "+transform.rescale={scale: 2.0, offset: 1.0}", "~trainer.epochs"],
    ["dataset.eval_split=${dataset.split}", "cache=disk", "experiment=naive"],
    ["cache=none", "load=service"],
    ["transform=cifar_32", "cache=none", "trainer=drain"],
    *([f"{group}={option}"] for group, option in OPTIONS),
]
OWN = """\
defaults: [config, override /hydra/job_logging: disabled, _self_]
dataset:
  name: of ${fresh.block.of}
  split: ???
load: {prefetch: null}
fresh: {block: {of: [values]}}
"""


def test_a_config_is_what_hydra_composes() -> None:
    with composer(Request(overrides=[])) as files:
        by_hydra = [(words, plain(hydra.compose("config", overrides=words))) for words in WORDS]
        for words, config in by_hydra + by_hydra[::-1]:
            assert files.values(words) == config, words


@pytest.mark.parametrize("words", [["experiment=parallel"], ["hydra/job_logging=none", "hydra.run.dir=${cache.at}"]])
def test_the_config_of_hydra_itself_is_what_hydra_composes_of_files_that_it_reads_again(words: list[str]) -> None:
    request = Request(overrides=words)
    with composer(request) as files:
        by_hydra(request, [*words, "load.shuffle_buffer=7", "hydra.job.name=other"])
        found = OmegaConf.to_container(by_hydra(request, words))
        files.loader.repository = ConfigRepository(files.loader.config_search_path)
        wanted = hydra.compose("config", overrides=words, return_hydra_config=True)
    assert found == OmegaConf.to_container(wanted)


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
    with composer(Request(overrides=[], config_dir=str(tmp_path), config_name="own")) as files:
        assert files.values([]) == plain(hydra.compose("own"))
        assert files.layers([])[-1].path == tmp_path / "own.yaml"
        assert files.groups()[:2] == ["dataset", "extract"]


def test_a_reference_in_a_defaults_list_resolves_as_hydra_resolves_it(tmp_path: Path) -> None:
    (tmp_path / "fresh").mkdir()
    (tmp_path / "fresh/disk_of_two.yaml").write_text("value: 2\n")
    (tmp_path / "own.yaml").write_text("defaults: [config, fresh: '${cache}_of_two', _self_]\n")
    with composer(Request(overrides=[], config_dir=str(tmp_path), config_name="own")) as files:
        for words in (["cache=disk"], ["cache=disk", "load.batch_size=7"]):
            assert files.values(words)["fresh"] == {"value": 2}
            assert files.values(words) == plain(hydra.compose("own", overrides=words))
            assert files.layers(words)[-2].path == tmp_path / "fresh/disk_of_two.yaml"


def test_options_with_a_package_or_a_list_of_their_own_are_placed_as_hydra_places_them(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/elsewhere.yaml").write_text("# @package load\nprefetch: 3\n")
    (tmp_path / "cache/of_disk.yaml").write_text("defaults: [disk, _self_]\nat: source\n")
    with composer(Request(overrides=[], config_dir=str(tmp_path))) as files:
        for words in (["cache=elsewhere"], ["cache=of_disk", "load=plain"], ["cache=none", "cache=disk"]):
            assert files.values(words) == plain(hydra.compose("config", overrides=words)), words
            assert files.missing(words) == []


def test_a_file_with_other_text_is_read_again_even_if_its_size_and_time_are_the_same(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    for rate in (0.1, 0.2):
        file.write_text(f"rate: {rate}\n")
        os.utime(file, (1, 1))
        assert composed(Request(overrides=[], config_dir=str(tmp_path), config_name="own")) == {"rate": rate}


def test_a_config_tells_its_files_in_the_order_in_which_they_count() -> None:
    with composer(Request(overrides=[])) as files:
        layers = files.layers(["experiment=parallel"])
    assert [(layer.path.relative_to(config_dir()).as_posix(), layer.package) for layer in layers][-5:] == [
        ("sweep/standard.yaml", "sweep"),
        ("tune/standard.yaml", "tune"),
        ("experiment/cats_vs_dogs.yaml", ""),
        ("experiment/parallel.yaml", ""),
        ("config.yaml", ""),
    ]


def test_a_primary_config_tells_its_groups_and_their_options() -> None:
    with composer(Request(overrides=[])) as files:
        assert files.groups() == [
            *(
                "dataset",
                "extract",
                "transform",
                "cache",
                "load",
                "model",
                "trainer",
                "profile",
                "logger",
                "measure",
                "sweep",
                "tune",
            ),
            "experiment",
        ]
        assert files.options("experiment") == list(EXPERIMENTS)
