"""What a review says of caches on disk that a change fills: which ones, their bytes, and what filling one has taken."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from etlrun.config.request import Request, composer
from etlrun.record.record import Record
from tests.pulls import CACHED, SMOOTH
from tests.repository import Repository
from tests.runs import small

BASE = ("--config-dir", "mine")
STAYS = "what was there stays until etlrun cache gc removes it"
NOT_HERE = "(12,360 bytes per example; the dataset is not prepared here)"
REBUILT = (
    "cache of train and validation: cache.disk at transformed will be rebuilt, since the steps before it, "
    "transform.resize.antialias, transform.turbo.deterministic differ "
)
AGAIN = f"refills 2 caches on disk of unknown size; {STAYS}"


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With an experiment that has a cache on disk."""
    made = Repository.small(tmp_path_factory.mktemp("filled") / "repository")
    made.write("experiment/cached.yaml", CACHED)
    made.commit("Cached")
    return made.folder


@pytest.fixture
def repository(committed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A copy of that."""
    monkeypatch.chdir(shutil.copytree(committed, tmp_path / "repository"))
    return Repository(Path.cwd(), "mine")


@pytest.fixture
def lines(told: Any) -> Any:
    """The lines of a diff on caches."""

    def tell(*words: str, status: int = 0) -> list[str]:
        found = [line.strip() for line in told(*words, *BASE, status=status).splitlines()]
        return [line for line in found if line.startswith(("cache of", "fills", "refills"))]

    return tell


def ran(name: str, *words: str, filled_s: float | None = 2.5, **values: Any) -> None:
    """Write a completed run of the repository in the current folder, which has filled its caches."""
    config = composer(Request(overrides=[], config_dir="mine")).values([*words])
    held = {"train": {"filled_s": filled_s}, "validation": {}}
    cache = {"target": "cache.disk", "at": "transformed", "pipelines": held}
    known = {"status": "completed", "dataset": {"name": "sample", "examples": {"train": 960}}, "cache": cache}
    Record.create(Path("outputs", name), config, [*words]).update(**known | values)


@pytest.mark.usefixtures("repository")
def test_a_cache_that_is_filled_again_is_told_with_its_bytes(tiny: Path, lines: Any) -> None:
    words = shlex.join(small(tiny, "dataset.eval_split=null", "cache=disk", "transform.resize.size=[256,256]"))
    size = "(7 MB of 38 examples)"
    assert lines(words, f"{words} transform.resize.antialias=true") == [
        f"{REBUILT.replace(' and validation', '')}{size}",
        f"refills 7.5 MB in 1 cache on disk; {STAYS}",
    ]
    assert lines(words.replace("cache=disk", "cache=none"), words) == [
        f"cache of train: cache.disk at transformed will be built by the first run {size}",
        "fills 7.5 MB in 1 cache on disk",
    ]
    assert lines(words, f"{words} load.prefetch=1") == ["cache of train: cache.disk at transformed stays valid"]


def test_the_newest_run_that_has_filled_such_a_cache_says_what_it_took(repository: Repository, lines: Any) -> None:
    smooth = ("experiment=cached", "transform.resize.antialias=true")
    ran("old", *smooth, filled_s=99.0, created_s=1.0)
    ran("new", *smooth, "trainer.seed=7", "load.batch_size=8", "dataset.split='train[:50%]'", created_s=2.0)
    ran("other", "experiment=cached", created_s=3.0)
    ran("failed", *smooth, status="failed", created_s=4.0)
    ran("read", *smooth, filled_s=None, created_s=5.0)
    ran("gone", *smooth, created_s=6.0)
    Path("outputs/gone/config.yaml").write_text("transform: {steps: [gone]}\n")
    repository.write("experiment/cached.yaml", CACHED + SMOOTH)
    took = "the pass that filled one of 960 examples took 2.5 s in outputs/new"
    assert lines("HEAD") == [f"{REBUILT}{NOT_HERE}; {took}", AGAIN]
    shutil.rmtree("outputs/new")
    assert lines("HEAD")[0].endswith("took 99.0 s in outputs/old")


def test_a_document_has_the_caches(repository: Repository, told: Any) -> None:
    ran("run", "experiment=cached", "transform.resize.antialias=true")
    repository.write("experiment/cached.yaml", CACHED + SMOOTH)
    document = json.loads(told("HEAD", *BASE, "--format", "json"))
    (found,) = (of for of in document["experiments"] if of["name"] == "cached")
    assert "cost" not in found
    assert [(of["pipeline"], of["state"], of["size_bytes"], of["filled"]) for of in found["caches"]] == [
        (name, "will be rebuilt", None, "the pass that filled one of 960 examples took 2.5 s in outputs/run")
        for name in ("train", "validation")
    ]
