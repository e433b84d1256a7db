"""Passes that other processes compute: in the order of a local run, whatever ends, or with a count of what is lost."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest
import tensorflow as tf

from etlrun.graph import parts
from etlrun.run.service import passes as served_passes
from etlrun.run.service.loopback import is_open
from etlrun.run.service.servers import Servers
from etlrun.sweep import process
from etlrun.system.errors import ConfigError, WorldError
from tests.pipelines import training_pipeline
from tests.service import BATCHES, as_bytes, planned, served, servers

RANDOM = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"
AGAIN = "worker {} of load.service ended by SIGKILL, and was started again"
FILES = "extract.shuffle_files=true"


@pytest.fixture(scope="module", autouse=True)
def fork_server() -> None:
    """All processes of tests are forked from one server."""
    process._context()


@pytest.fixture(scope="module")
def heard() -> list[str]:
    return []


@pytest.fixture(scope="module")
def exact(heard: list[str]) -> Iterator[Servers]:
    with servers(heard, workers=2) as found:
        yield found


@pytest.fixture(scope="module")
def dynamic(heard: list[str]) -> Iterator[Servers]:
    with servers(heard, workers=2, order="dynamic") as found:
        yield found


def killed(server: Any) -> None:
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.join()


@pytest.mark.parametrize(
    "overrides",
    [
        ("load.batch_size=5", RANDOM, FILES),
        ("load.batch_size=5", "load.drop_remainder=true", "transform.parse_batch=4", "load.mixup_alpha=0.2"),
        ("load.batch_size=5", "load.shuffle_buffer=0", "extract=sequential"),
    ],
    ids=" ".join,
)
def test_exact_passes_are_those_of_a_run_without_servers(
    overrides: tuple[str, ...], tiny: Path, exact: Servers
) -> None:
    plan = planned(tiny, *overrides)
    with training_pipeline(plan) as local:
        expected = [as_bytes(local.dataset) for _ in range(3)]
    with served(plan, exact) as pipeline:
        assert [as_bytes(pipeline.dataset) for _ in range(2)] == expected[:2]
    with served(plan, exact) as pipeline:
        pipeline.skip_passes(1)
        pipeline.skip_batches(4)
        endless = pipeline.endless()
        count = len(expected[0])
        assert as_bytes(islice(endless, 2 * count - 4)) == [*expected[1][4:], *expected[2]]


def test_a_worker_that_is_killed_in_an_exact_pass_is_started_again_where_it_was(
    tiny: Path, exact: Servers, heard: list[str]
) -> None:
    plan, before = planned(tiny, RANDOM), exact.restarts
    with training_pipeline(plan) as local:
        expected = as_bytes(local.dataset)
    heard.clear()
    with served(plan, exact) as pipeline:
        batches = iter(pipeline.dataset)
        found = as_bytes(islice(batches, 5))
        killed(exact._dispatchers[0])
        found += as_bytes(islice(batches, 15))
        killed(exact._dispatchers[1])
        killed(exact._dispatchers[0])
        found += as_bytes(batches)
    assert found == expected
    assert exact.restarts == before + len(heard) >= before + 2
    assert set(heard) == {
        f"worker {number} of load.service ended by SIGKILL, and was started again" for number in (1, 2)
    }


def test_other_machines_do_not_reach_the_ports_of_a_run(exact: Servers, dynamic: Servers) -> None:
    for server in (*exact._dispatchers, *dynamic._dispatchers, *dynamic._workers):
        opened = psutil.Process(server.process.pid).net_connections("tcp")
        listening = {of.laddr.ip for of in opened if of.status == psutil.CONN_LISTEN}
        assert listening <= {"127.0.0.1", "::ffff:127.0.0.1"}
        assert listening
        assert not server.is_open


def test_a_step_that_calls_python_is_refused() -> None:
    def apply(number: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(abs, [number], tf.int64)

    dataset = tf.data.Dataset.range(3).map(tf.autograph.experimental.do_not_convert(apply))
    with pytest.raises(ConfigError) as caught:
        parts.require_portable(dataset)
    assert str(caught.value) == (
        "load.service: found a step that calls Python (PyFunc); expected operations of TensorFlow, which another "
        "process can run\n    -> leave the step out, or set load=shuffled"
    )


def test_a_port_on_all_interfaces_is_seen() -> None:
    with socket.socket() as one:
        one.bind(("", 0))
        one.listen()
        assert is_open()


def test_a_worker_that_ends_again_and_again_is_given_up(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_passes, "_FRUITLESS", 0)
    with servers(workers=1) as one, served(planned(tiny, "load.service.workers=1"), one) as pipeline:
        batches = iter(pipeline.dataset)
        next(batches)
        killed(one._dispatchers[0])
        with pytest.raises(WorldError) as caught:
            list(batches)
    assert str(caught.value) == (
        "load.service: found worker 1, which ended 1 times without a batch between; expected workers that can compute "
        "a batch\n    -> the kernel kills processes that exhaust the memory; check its log, or set fewer workers"
    )


def test_dynamic_passes_have_each_example_once(tiny: Path, dynamic: Servers) -> None:
    plan = planned(tiny, "load.service.order=dynamic", "load.batch_size=5", FILES)
    with training_pipeline(planned(tiny, "load.batch_size=5")) as local:
        expected = sorted(label for _, labels in local.dataset for label in labels.numpy())
    with served(plan, dynamic) as pipeline:
        for _ in range(2):
            batches = [labels.numpy() for _, labels in pipeline.dataset]
            assert sorted(label for labels in batches for label in labels) == expected
            assert [len(labels) for labels in batches] == [5] * 7 + [3]
    with served(planned(tiny, *_DYNAMIC, "load.batch_size=5", "load.drop_remainder=true"), dynamic) as pipeline:
        assert [len(labels) for _, labels in pipeline.dataset] == [5] * 7


_DYNAMIC = ("load.service.order=dynamic",)


def test_what_workers_lose_in_a_dynamic_pass_is_counted(tiny: Path, dynamic: Servers, heard: list[str]) -> None:
    for on_loss in ("report", "fail"):
        heard.clear()
        dynamic.stage = replace(dynamic.stage, on_loss=on_loss)
        with served(planned(tiny, *_DYNAMIC), dynamic) as pipeline:
            batches = iter(pipeline.dataset)
            found = as_bytes(islice(batches, 3))
            for worker in dynamic._workers:  # one of them may have had nothing yet
                killed(worker)
            if on_loss == "report":
                found += as_bytes(batches)
                assert len(found) == BATCHES - pipeline.lost < BATCHES
                came = f"{len(found)} of 38 examples in pass 1 of train"
                assert heard[-1] == f"{came}: {pipeline.lost} were lost with a worker that ended"
            else:
                with pytest.raises(WorldError) as caught:
                    list(batches)
                assert str(caught.value).endswith(
                    "of 38 examples in pass 1 of train; expected each of them once: what a worker has when it ends is "
                    "lost with order=dynamic\n    -> run again, from a checkpoint with trainer.resume; set "
                    "load.service.order=exact, which loses none, or load.service.on_loss=report"
                )
        assert {*heard[:2]} == {AGAIN.format(1), AGAIN.format(2)}
    dynamic.stage = replace(dynamic.stage, on_loss="fail")


def test_a_dynamic_pass_does_not_wait_for_a_dispatcher_that_is_gone(tiny: Path) -> None:
    with servers(workers=1, order="dynamic") as own, served(planned(tiny, *_DYNAMIC), own) as pipeline:
        batches = iter(pipeline.dataset)
        next(batches)
        killed(own._dispatchers[0])
        with pytest.raises(WorldError) as caught:
            list(batches)
    assert str(caught.value) == (
        "load.service: found the end of the dispatcher by SIGKILL; expected a dispatcher that serves to the end of a "
        "pass, since it alone knows what is left\n    -> run again, from a checkpoint with trainer.resume; or set "
        "load.service.order=exact"
    )


def test_a_pass_does_not_wait_without_end_for_a_worker_that_stands_still(tiny: Path) -> None:
    with servers(workers=1, timeout_s=3.0) as own, served(planned(tiny, "load.service.workers=1"), own) as pipeline:
        batches = iter(pipeline.dataset)
        next(batches)
        address = own.address(0)
        os.kill(own._dispatchers[0].process.pid or 0, signal.SIGSTOP)
        with pytest.raises(WorldError) as caught:
            list(batches)
        os.kill(own._dispatchers[0].process.pid or 0, signal.SIGCONT)
    assert str(caught.value) == (
        f"load.service.timeout_s: found no batch in 3 s from {address}; expected workers that deliver\n"
        "    -> check that dispatcher and workers run and reach each other, or set a longer load.service.timeout_s"
    )
