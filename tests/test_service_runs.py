"""Runs whose input comes from a service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from etlrun.sweep import process
from tests.runs import emulated, run_here
from tests.service import Cluster, at, clusters

pytestmark = pytest.mark.slow

SEEN = ("digest", "validation_digest")


@pytest.fixture(scope="module", autouse=True)
def fork_server() -> None:
    """All processes of tests are forked from one server."""
    process._context()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Cluster]]:
    with clusters(tmp_path_factory.mktemp("servers"), 2) as found:
        yield found


def test_a_run_sees_what_a_run_without_a_service_sees(tiny: Path, tmp_path: Path, two: list[Cluster]) -> None:
    words = ["cache=none", "load.batch_size=1", "trainer.epochs=2", "measure.digest=true"]
    _, local = run_here(tmp_path / "local", emulated(tiny, *words))
    status, served = run_here(tmp_path / "served", emulated(tiny, *words, *at(two)))
    assert (status, served["status"]) == (0, "completed")
    assert [[epoch[key] for key in SEEN] for epoch in served["epochs"]] == [
        [epoch[key] for key in SEEN] for epoch in local["epochs"]
    ]
    assert served["plan_fingerprint"] == local["plan_fingerprint"]
    assert served["autotune"] == {}


def test_a_drained_service_is_what_limits_the_run(tiny: Path, tmp_path: Path, two: list[Cluster]) -> None:
    words = ["load.batch_size=1", "cache=none", "trainer=drain", "trainer.epochs=1", "trainer.seconds=null"]
    overrides = [word for word in emulated(tiny, *at(two), *words) if not word.startswith(("model", "load.drop"))]
    status, summary = run_here(tmp_path / "run", overrides)
    assert status == 0
    assert summary["verdict"]["kind"] == "input"
    assert summary["verdict"]["stage"] == "load.service"
    assert summary["verdict"]["advice"] == (
        "Start a dispatcher with a worker on another machine, and add it to load.service.address."
    )
