"""What a cache will take is known, and refused where there is no space, before it is filled."""

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from etlrun.system import machine
from tests.runs import emulated, run_here

PICTURE = 32 * 32 * 3 + 8 + 64
"""Bytes of an example: pixels, label, and its row of an index."""
SERVED = ("load=service", "load.service.address=localhost:5050", "load.service.trusted_network=true")


def test_the_forecast_is_close_to_what_is_held(tiny: Path, tmp_path: Path) -> None:
    for at in ("source", "decoded", "transformed"):
        words = emulated(tiny, "cache=memory", f"cache.at={at}")
        status, summary = run_here(tmp_path / at, words)
        assert status == 0
        held = sum(pipeline["held_bytes"] for pipeline in summary["cache"]["pipelines"].values())
        assert summary["cache"]["forecast_bytes"] == pytest.approx(held + 48 * 64, rel=0.02)


def test_what_memory_can_not_hold_is_refused_with_what_fits(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 48 * (1024 * 1024 * 3 + 72)
    free = SimpleNamespace(available=100_000_000, total=200_000_000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    monkeypatch.setattr(machine, "free_disk_bytes", lambda _folder: 2_000_000_000)
    status, summary = run_here(tmp_path / "run", emulated(tiny, "cache=memory", "transform.resize.size=[1024,1024]"))
    assert status == 1
    assert size == 150_998_400
    assert summary["error"] == (
        "cache.memory at transformed: found 151 MB to cache, with 100 MB free in memory; expected at most 80% (the "
        "training needs memory, too) of the free space\n"
        "    -> these fit: cache=memory cache.at=source (0 MB of 100 MB free); cache=memory cache.at=decoded (0 MB of "
        "100 MB free); cache=disk cache.at=transformed (151 MB of 2,000 MB free); cache=disk cache.at=source (0 MB of "
        "2,000 MB free); cache=disk cache.at=decoded (0 MB of 2,000 MB free)"
    )


@pytest.mark.parametrize("own", [(), SERVED], ids=["of the run", "of a service"])
def test_what_the_disk_can_not_hold_is_refused_and_leaves_no_claim(
    own: tuple[str, ...], tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is advised that the run can't have: memory is too small, or workers of a service share none."""
    caches = tmp_path / "caches"
    monkeypatch.setattr(machine, "free_disk_bytes", lambda _folder: 50_000)
    monkeypatch.setattr(machine, "free_memory_bytes", lambda: 50_000)
    words = emulated(tiny, "cache=disk", "cache.at=resize", f"cache.dir={caches}", *own)
    status, summary = run_here(tmp_path / "run", words)
    assert status == 1
    assert summary["error"] == (
        f"cache.disk at resize: found 0 MB to cache, with 0 MB free in {caches}; expected at most 95% of the free "
        "space\n    -> set cache=none"
    )
    if own:
        return
    monkeypatch.undo()
    status, summary = run_here(tmp_path / "again", words)
    assert status == 0
    assert summary["cache"]["pipelines"]["train"]["passes"] == ["filled"]
    assert summary["cache"]["forecast_bytes"] == 48 * PICTURE


def test_what_is_there_already_needs_no_space(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = emulated(tiny, "cache=disk", f"cache.dir={tmp_path / 'caches'}")
    assert run_here(tmp_path / "fills", words)[0] == 0
    monkeypatch.setattr(machine, "free_disk_bytes", lambda _folder: 0)
    status, summary = run_here(tmp_path / "reads", words)
    assert status == 0
    assert summary["cache"]["forecast_bytes"] == 0
