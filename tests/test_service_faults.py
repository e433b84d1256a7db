"""Data that a worker of a service can't use: the run ends with the file and the record, as one without a service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from etlrun.sweep import process
from tests.pictures import bytes_feature, damaged, truncate, with_feature
from tests.runs import emulated, run_here


@pytest.fixture(scope="module", autouse=True)
def fork_server() -> None:
    """All processes of tests are forked from one server."""
    process._context()


@pytest.mark.parametrize("order", ["exact", "dynamic"])
@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (with_feature("image", bytes_feature(b"no picture")), "record 5: found an image that can't be decoded: "),
        (truncate, "record "),
    ],
    ids=["image", "file"],
)
def test_a_record_that_a_worker_can_not_use_is_named(
    damage: Callable[[Path], None], found: str, order: str, tiny: Path, tmp_path: Path
) -> None:
    shard = damaged(tiny, tmp_path / "data", damage)
    words = ["load=service", "cache=none", f"load.service.order={order}", "dataset.eval_split=null"]
    status, summary = run_here(tmp_path / "run", emulated(tmp_path / "data", *words))
    assert (status, summary["status"]) == (1, "failed")
    assert summary["error"].startswith(f"{shard}, {found}")
    assert summary["error"].endswith("or set dataset.on_corrupt=skip and load=shuffled to skip and count such records")
