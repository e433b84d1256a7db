"""Servers of tf.data's service, started by the commands, and pipelines that read from them without a run."""

import os
import signal
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf

from etlrun.cluster.service import ServedPipeline
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from tests.configs import TENSORFLOW, plan_of
from tests.forked import Forked, forked
from tests.runs import small, wait_for

BATCHES = 38
"""Batches of a pass over the tiny dataset, each of one example."""
TRUSTED = "--trusted-network"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("localhost", 0))
        port: int = one.getsockname()[1]
        return port


def killed(server: Forked) -> None:
    os.kill(server.pid, signal.SIGKILL)
    server._process.join()


def is_served(server: Forked) -> bool:
    """Whether the command says that it serves; raises its message if it has ended."""
    said = (server._output / "2").read_text() if (server._output / "2").exists() else ""
    assert server.poll() is None, said
    return "without encryption" in said


class Cluster:
    """A dispatcher and its worker."""

    def __init__(self, folder: Path) -> None:
        self.port, self.worker_port, self._folder = free_port(), free_port(), folder
        self.address = f"localhost:{self.port}"
        self.dispatcher = forked(["service", "dispatcher", "--port", str(self.port), TRUSTED], folder)
        self.join()

    def join(self) -> None:
        wait_for(lambda: is_served(self.dispatcher))
        words = ["service", "worker", "--dispatcher", self.address, "--port", str(self.worker_port), TRUSTED]
        self.worker = forked(words, self._folder)
        wait_for(lambda: is_served(self.worker))

    def end(self) -> None:
        for server in (self.worker, self.dispatcher):
            killed(server)


@contextmanager
def clusters(folder: Path, count: int) -> Iterator[list[Cluster]]:
    """So many dispatchers, each with a worker, which write nothing into `folder`."""
    cwd = folder / "cwd"
    cwd.mkdir(exist_ok=True)
    found = [Cluster(cwd) for _ in range(count)]
    try:
        yield found
    finally:
        for cluster in found:
            cluster.end()


def at(found: Iterable[Cluster]) -> tuple[str, ...]:
    """Overrides of a run that reads from them."""
    addresses = ",".join(cluster.address for cluster in found)
    return ("load=service", f"load.service.address=[{addresses}]", "load.service.trusted_network=true")


def planned(data_dir: Path, *overrides: str) -> Any:
    """Plan of a run that holds little in advance, and decodes with either as the workers do."""
    given = {word.split("=")[0] for word in overrides}
    words = ("cache=none", "load.batch_size=1", "load.prefetch=1", TENSORFLOW)
    return plan_of(*small(data_dir, *(word for word in words if word.split("=")[0] not in given), *overrides))


@contextmanager
def served(plan: Any) -> Iterator[ServedPipeline]:
    """The training pipeline of a plan."""
    tf.random.set_seed(plan.spec.trainer.seed + 1)  # as a run does, whatever ran before
    pipeline = ServedPipeline("train", plan, contexts_of(plan, open_source(plan.spec.dataset))["train"])
    try:
        yield pipeline
    finally:
        pipeline.close()
