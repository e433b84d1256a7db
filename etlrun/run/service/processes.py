"""Processes with the servers of tf.data's service. They are forked from a server that has imported TensorFlow."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Literal

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops

from etlrun.graph.parts import graph_of
from etlrun.measure.elsewhere import models_of
from etlrun.run.forks import fork_server
from etlrun.run.loading import native_messages_kept
from etlrun.run.service.loopback import bind_to_loopback, is_open
from etlrun.stages.service import Service
from etlrun.system.ends import end_with_parent, how_ended
from etlrun.system.errors import WorldError

Role = Literal["cluster", "dispatcher", "worker"]
"""What a process serves: a `cluster` is a dispatcher with its one worker."""

_START_S, _END_S = 60.0, 5.0
"""Longest time in which a process starts to serve, and in which one that is killed ends."""
_ITERATION_UNUSED_MS, _CHECKED_EACH_MS = 5_000, 1_000
"""Time after which a dispatcher forgets a pass that nobody reads, and the interval of these checks."""


@dataclass(frozen=True)
class Probe:
    """A question for the costs of the stages of a dataset.

    Attributes:
        graph: The dataset, as tf.data writes it.
        elements: What it yields.
        seconds: How long it is read.
    """

    graph: bytes
    elements: Any
    seconds: float

    @classmethod
    def of(cls, dataset: tf.data.Dataset, seconds: float) -> Probe:
        """Return the question for the costs of `dataset`, which rests on nothing in this process."""
        return cls(graph_of(dataset), dataset.element_spec, seconds)

    def models(self) -> list[bytes]:
        """Return tf.data's models of the dataset in this process; none if it can't be read."""
        with suppress(tf.errors.OpError), tf.device("/CPU:0"):
            variant = tf.raw_ops.DatasetFromGraph(graph_def=self.graph)
            return models_of(dataset_ops._VariantDataset(variant, self.elements), self.seconds)  # noqa: SLF001 - it has no other
        return []


@dataclass(frozen=True)
class Server:
    """A process that serves.

    Attributes:
        process: The process.
        port: Port of its dispatcher, or of its worker if it has none.
        is_open: Whether other machines may reach its ports.
        channel: Connection over which it is asked for the costs of stages.
    """

    process: BaseProcess
    port: int
    is_open: bool
    channel: Connection

    @property
    def address(self) -> str:
        """HOST:PORT of the server."""
        return f"localhost:{self.port}"

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, by itself or by a signal."""
        return self.process.exitcode is not None

    @property
    def end(self) -> str:
        """How it ended: the name of a signal, or an exit status."""
        return how_ended(self.process.exitcode or 0)

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join(_END_S)
        self.channel.close()

    def models(self, seconds: float) -> list[bytes]:
        """Return what it answers to `Probe`; raise `OSError` or `EOFError` if it does not."""
        if not self.channel.poll(seconds + _START_S):
            raise TimeoutError
        found: list[bytes] = self.channel.recv()
        return found


def started(role: Role, *, dispatcher: str = "", port: int = 0) -> Server:
    """Start a process that ends with this one; a worker serves the `dispatcher` HOST:PORT, at any free port if it is 0.

    Raises:
        WorldError: It does not start.
    """
    context = fork_server()
    channel, answer = context.Pipe()
    process = context.Process(target=_serve, args=(role, dispatcher, port, answer), daemon=True)
    process.start()
    answer.close()
    try:
        found = channel.recv() if channel.poll(_START_S) else f"no answer after {_START_S:g} s"
    except EOFError:
        found = "the end of its process"
    if isinstance(found, tuple):
        return Server(process, found[0], is_open=found[1], channel=channel)
    channel.close()
    process.kill()
    raise WorldError(
        where=Service.path,
        found=f"a {role} that does not start: {found}",
        expected="a process that serves",
        remedy="check the memory of the machine and its free ports",
    )


def dispatch_server(port: int) -> Any:
    """Return a running dispatcher at `port`, or at a free one if it is 0."""
    config = tf.data.experimental.service.DispatcherConfig(
        port=port, job_gc_check_interval_ms=_CHECKED_EACH_MS, job_gc_timeout_ms=_ITERATION_UNUSED_MS
    )
    return tf.data.experimental.service.DispatchServer(config)


def worker_server(dispatcher: str, port: int, host: str = "localhost") -> Any:
    """Return a running worker of the `dispatcher` HOST:PORT, which clients reach at `host`."""
    config = tf.data.experimental.service.WorkerConfig(
        dispatcher_address=dispatcher,
        worker_address=f"{host}:%port%",
        port=port,
        heartbeat_interval_ms=_CHECKED_EACH_MS,
    )
    return tf.data.experimental.service.WorkerServer(config)


def port_of(server: Any) -> int:
    """Return the port at which a dispatcher or a worker serves."""
    return int(server._address.rpartition(":")[2])  # noqa: SLF001 - a worker has no public one


def _serve(role: Role, dispatcher: str, port: int, answer: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the run, which ends its servers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the GPUs are the model's
    threading.Thread(target=end_with_parent, daemon=True).start()
    bind_to_loopback()
    try:
        servers = [] if role == "worker" else [dispatch_server(port)]
        of = dispatcher or f"localhost:{port_of(servers[0])}"
        servers += [] if role == "dispatcher" else [worker_server(of, 0 if role == "cluster" else port)]
        answer.send((port_of(servers[0]), is_open()))
    except tf.errors.OpError as error:
        answer.send(error.message)
        return
    with suppress(EOFError):  # nobody asks any more
        while True:
            probe = answer.recv()
            with native_messages_kept():  # TensorFlow looks for CUDA's drivers
                found = probe.models()
            answer.send(found)
    servers[-1].join()
