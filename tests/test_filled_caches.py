"""What is known of a cache before it is filled: its bytes, whether there is space, and what a review says of it."""

import json
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from etlrun.config.request import Request, composer
from etlrun.record.record import Record
from etlrun.system import machine
from tests.golden import Says
from tests.pulls import CACHED, SMOOTH
from tests.repository import Repository
from tests.runs import complete_here, emulated, run_here, small

PICTURE = 32 * 32 * 3 + 8 + 64
"""Bytes of an example: pixels, label, and its row of an index."""


def test_the_forecast_is_close_to_what_is_held(tiny: Path, tmp_path: Path) -> None:
    for at in ("source", "decoded", "transformed"):
        words = emulated(tiny, "cache=memory", f"cache.at={at}")
        summary = complete_here(tmp_path / at, words)
        held = sum(pipeline["held_bytes"] for pipeline in summary["cache"]["pipelines"].values())
        assert summary["cache"]["forecast_bytes"] == pytest.approx(held + 48 * 64, rel=0.02)


def test_what_memory_can_not_hold_is_refused(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    size = 48 * (1024 * 1024 * 3 + 72)
    free = SimpleNamespace(available=100_000_000, total=200_000_000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    status, summary = run_here(tmp_path / "run", emulated(tiny, "cache=memory", "transform.resize.size=[1024,1024]"))
    assert status == 1
    assert size == 150_998_400
    says(summary["error"])


def test_what_the_disk_can_not_hold_is_refused_and_leaves_no_claim(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    caches = tmp_path / "caches"
    monkeypatch.setattr(machine, "free_disk_bytes", lambda _folder: 50_000)
    words = emulated(tiny, "cache=disk", "cache.at=resize", f"cache.dir={caches}")
    status, summary = run_here(tmp_path / "run", words)
    assert status == 1
    says(summary["error"])
    monkeypatch.undo()
    summary = complete_here(tmp_path / "again", words)
    assert summary["cache"]["pipelines"]["train"]["passes"] == ["filled"]
    assert summary["cache"]["forecast_bytes"] == 48 * PICTURE


def test_what_is_there_already_needs_no_space(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = emulated(tiny, "cache=disk", f"cache.dir={tmp_path / 'caches'}")
    assert run_here(tmp_path / "fills", words)[0] == 0
    monkeypatch.setattr(machine, "free_disk_bytes", lambda _folder: 0)
    summary = complete_here(tmp_path / "reads", words)
    assert summary["cache"]["forecast_bytes"] == 0


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
