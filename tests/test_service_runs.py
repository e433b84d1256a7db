"""Runs whose input comes from a service."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from etlrun.sweep import process
from tests.runs import emulated, events_of, run_here

SERVED = ("load=service", "cache=none", "load.prefetch=1")
SEEN = ("digest", "validation_digest")


def _kill_one(folder: Path, before: set[int | None]) -> None:
    """Kill a server of a run as soon as its second epoch has begun."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        events = events_of(folder) if (folder / "events.jsonl").exists() else []
        if sum(event["event"] == "epoch_began" for event in events) > 1:
            pids = [child.pid for child in multiprocessing.active_children() if child.pid not in before]
            os.kill(pids[0] or 0, signal.SIGKILL)
            return
        time.sleep(0.002)


@pytest.fixture(scope="module", autouse=True)
def fork_server() -> None:
    """All processes of tests are forked from one server."""
    process._context()


def test_a_run_whose_worker_is_killed_sees_what_a_run_without_servers_sees(tiny: Path, tmp_path: Path) -> None:
    words = ["cache=none", "load.batch_size=1", "model.step_ms=2", "trainer.epochs=2", "measure.digest=true"]
    _, local = run_here(tmp_path / "local", emulated(tiny, *words))
    before = {child.pid for child in multiprocessing.active_children()}
    killer = threading.Thread(target=_kill_one, args=(tmp_path / "served", before))
    killer.start()
    status, served = run_here(tmp_path / "served", emulated(tiny, *words, *SERVED))
    killer.join()
    assert (status, served["status"]) == (0, "completed")
    assert [[epoch[key] for key in SEEN] for epoch in served["epochs"]] == [
        [epoch[key] for key in SEEN] for epoch in local["epochs"]
    ]
    assert served["plan_fingerprint"] == local["plan_fingerprint"]
    assert served["service"]["lost"] == {"train": 0, "validation": 0}
    assert served["service"]["restarts"] == 1
    told = [event["text"] for event in events_of(tmp_path / "served") if event["event"] == "service"]
    assert len(told) == 1
    assert told[0].endswith(" of load.service ended by SIGKILL, and was started again")
    assert f"W{told[0][1:]}." in served["remarks"]
    assert [row["stage"] for row in served["stages"]][-2:] == ["load.batch", "load.service"]
    assert served["autotune"] == {}
    assert {child.pid for child in multiprocessing.active_children()} <= before


def test_a_drained_service_is_judged_by_the_costs_in_its_workers(tiny: Path, tmp_path: Path) -> None:
    words = ["load.batch_size=1", "trainer=drain", "trainer.epochs=1", "trainer.seconds=null"]
    overrides = [word for word in emulated(tiny, *SERVED, *words) if not word.startswith(("model", "load.drop"))]
    status, summary = run_here(tmp_path / "run", overrides)
    assert status == 0
    verdict = summary["verdict"]
    costs = {row["stage"]: row["cost_ms"] for row in summary["stages"]}
    assert list(costs)[-3:] == ["transform.map", "load.batch", "load.service"]  # the files may be read in a moment
    assert min(costs["transform.map"], costs["load.service"]) > 0
    assert verdict["kind"] == "input"
    assert verdict["because"].endswith(f"examples/s, limited by {verdict['stage']}")
    assert verdict["stage"] in costs


def test_the_step_that_slows_the_workers_is_named(sample: Path, tmp_path: Path) -> None:
    slow = ["transform.resize.size=[448,448]", "transform.resize.antialias=true", "load.batch_size=16"]
    words = ["dataset=sample", f"dataset.data_dir={sample}", "model=emulated", "model.step_ms=1", *slow]
    words += ["dataset.split='train[:30%]'", "dataset.eval_split=null", "trainer.epochs=2"]
    status, served = run_here(tmp_path, [*words, *SERVED, "load.service.workers=2"])
    assert status == 0
    assert served["verdict"]["stage"] == "transform.resize"
    assert " of each worker; a step takes " in served["verdict"]["because"]
    costs = {row["stage"]: row["cost_ms"] for row in served["stages"]}
    assert max(costs, key=lambda stage: costs[stage]) == "transform.map"
