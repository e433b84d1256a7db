"""What is known of a cache before it is filled: its bytes, whether there is space, and what a review says of it."""

import json
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

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


@pytest.mark.usefixtures("repository")
def test_a_cache_that_is_filled_again_is_told_with_its_bytes(tiny: Path, lines: Any, says: Says) -> None:
    words = shlex.join(small(tiny, "dataset.eval_split=null", "cache=disk", "transform.resize.size=[256,256]"))
    says(lines(words, f"{words} transform.resize.antialias=true"))
    says(lines(words.replace("cache=disk", "cache=none"), words))
    assert lines(words, f"{words} load.prefetch=1") == ["cache of train: cache.disk at transformed stays valid"]


def test_a_document_has_the_caches(repository: Repository, told: Any) -> None:
    repository.write("experiment/cached.yaml", CACHED + SMOOTH)
    document = json.loads(told("HEAD", *BASE, "--format", "json"))
    (found,) = (of for of in document["experiments"] if of["name"] == "cached")
    assert [(of["pipeline"], of["state"], of["size_bytes"]) for of in found["caches"]] == [
        (name, "will be rebuilt", None) for name in ("train", "validation")
    ]
