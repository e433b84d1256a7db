"""The servers of a run: its own processes, or those that others have started."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, cast

import tensorflow as tf

from etlrun.run.service.processes import Probe, Server, started
from etlrun.run.service.versions import workers_of
from etlrun.stages.service import Service
from etlrun.system.errors import WorldError, headline

_GONE = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
_FORGOTTEN = ("iteration client", "dataset id", "iteration id", "task")
"""What a dispatcher that was started again doesn't know."""
_NO_FILE = "no such file"
_BEFORE_CAUSE = re.compile(r".*(Failed to get element|ParallelMapV2): ")
"""What stands before the reason in an error of a worker: of the service, and of the map that reads a cache."""
_REQUESTS_EACH, _WORKERS = 2, 8
"""Batches that are requested from a worker ahead, and the workers that are assumed where others have started them."""
_NOTICED_S = 1.0
"""Time in which the end of a process is noticed after a connection to it broke."""


class Servers:
    """The servers from which the passes of a run are read.

    With `order: exact` there is a dispatcher with one worker for each lane, else one dispatcher with all workers.

    Attributes:
        stage: The stage of the plan.
        restarts: Number of processes that ended and were started again.
        say: Reports what happens to them, and to passes.
    """

    def __init__(self, stage: Service, say: Callable[[str], None]) -> None:
        """Start the processes, if they are those of the run.

        Raises:
            WorldError: A process does not start.
        """
        self.stage, self.restarts, self.say = stage, 0, say
        self._dispatchers: list[Server] = []
        self._workers: list[Server] = []
        try:
            self._start()
            self._say_open()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        for address in self.stage.addresses:
            if not workers_of(address, Service.key("address")):
                raise WorldError(
                    where=Service.key("address"),
                    found=f"no worker of the dispatcher {address}",
                    expected="at least one",
                    remedy=f"start it: etlrun service worker --dispatcher {address}",
                )
        if self.stage.workers is None:
            return
        if self.stage.is_exact:
            self._dispatchers += [started("cluster") for _ in range(self.stage.workers)]
            return
        self._dispatchers.append(started("dispatcher"))
        for _ in range(self.stage.workers):
            self._workers.append(started("worker", dispatcher=self._dispatchers[0].address))

    def _say_open(self) -> None:
        """Report ports that other machines may reach."""
        if any(server.is_open for server in (*self._dispatchers, *self._workers)):
            self.say(f"the ports of {Service.path} could not be bound to loopback: let a firewall close them")

    @property
    def workers(self) -> int:
        """Number of workers; an assumption if others have started them."""
        return self.stage.workers or _WORKERS

    def address(self, lane: int) -> str:
        """Return HOST:PORT of the dispatcher of a lane."""
        return self._dispatchers[lane].address if self._dispatchers else self.stage.addresses[lane]

    def distributed(self, dataset: tf.data.Dataset, lane: int) -> tf.data.Dataset:
        """Return `dataset`, computed by the workers of a lane."""
        policy = tf.data.experimental.service.ShardingPolicy
        distribute = tf.data.experimental.service.distribute(
            processing_mode=policy.OFF if self.stage.is_exact else policy.DYNAMIC,
            service=f"grpc://{self.address(lane)}",
            compression=None,
            max_outstanding_requests=_REQUESTS_EACH * (1 if self.stage.is_exact else self.workers),
        )
        return dataset.apply(distribute)

    def revived(self, lane: int) -> bool:
        """Start the server of an exact lane again if it has ended; return whether it has.

        Raises:
            WorldError: It does not start.
        """
        if not self._dispatchers or not self._dispatchers[lane].has_ended:
            return False
        self._dispatchers[lane] = self._again(f"worker {lane + 1}", "cluster", self._dispatchers[lane])
        return True

    def look(self) -> None:
        """Start workers of dynamic passes again that have ended, at the same ports.

        Raises:
            WorldError: The dispatcher has ended, which knows what is left of a pass; or a worker does not start.
        """
        if self._dispatchers and self._dispatchers[0].has_ended:
            raise WorldError(
                where=Service.path,
                found=f"the end of the dispatcher by {self._dispatchers[0].end}",
                expected="a dispatcher that serves to the end of a pass, since it alone knows what is left",
                remedy="run again, from a checkpoint with trainer.resume; or set load.service.order=exact",
            )
        for place, worker in enumerate(self._workers):
            if worker.has_ended:
                self._workers[place] = self._again(f"worker {place + 1}", "worker", worker)

    def _again(self, name: str, role: Any, ended: Server) -> Server:
        """Start a process again: a worker at the same port, where clients look for it; a cluster at another one."""
        dispatcher, port = (self._dispatchers[0].address, ended.port) if role == "worker" else ("", 0)
        ended.channel.close()
        server = started(role, dispatcher=dispatcher, port=port)
        self.restarts += 1
        self.say(f"{name} of load.service ended by {ended.end}, and was started again")
        return server

    def is_gone(self, error: tf.errors.OpError, lane: int) -> bool:
        """Return whether an error of a lane says that its server is gone or was started again, and nothing of data."""
        if self._dispatchers and self.stage.is_exact:
            until_s = time.monotonic() + _NOTICED_S
            while not self._dispatchers[lane].has_ended and time.monotonic() < until_s:
                time.sleep(_NOTICED_S / 20)
            return self._dispatchers[lane].has_ended
        is_unknown = isinstance(error, tf.errors.NotFoundError) and _is_forgotten(error.message)
        return isinstance(error, _GONE) or is_unknown

    def refused(self, error: tf.errors.OpError) -> Exception:
        """Return the error to raise for what a worker could not do."""
        if self._dispatchers or not isinstance(error, tf.errors.NotFoundError | tf.errors.PermissionDeniedError):
            return cast("Exception", error)
        if _is_forgotten(error.message.lower()):
            return WorldError(
                where=Service.key("address"),
                found=f"servers that do not know this pass: {headline(error)}",
                expected="the dispatcher and the workers with which it began",
                remedy="look whether one was started again, or shares its port with another, and run again",
            )
        return WorldError(
            where=Service.key("address"),
            found=f"a worker that can't read a file: {_BEFORE_CAUSE.sub('', headline(error))}",
            expected="workers that have the files of the dataset, and of a cache, at the same paths",
            remedy="mount the folder of the dataset, and cache.dir, on the machines of the workers, at the paths that "
            "they have here",
        )

    def models(self, dataset: tf.data.Dataset, seconds: float) -> list[list[bytes]]:
        """Return tf.data's models of `dataset` in each worker of the run, all of which read it at the same time."""
        workers = self._workers or self._dispatchers
        try:
            probe = Probe.of(dataset, seconds)
            for worker in workers:
                worker.channel.send(probe)
            return [worker.models(seconds) for worker in workers]
        except (OSError, EOFError) as error:
            self.say(f"the costs of stages are not known: a worker of {Service.path} does not answer ({error!r})")
            return []

    def overdue(self, lane: int) -> WorldError:
        """Return the error of a batch that did not come in time."""
        return WorldError(
            where=Service.key("timeout_s"),
            found=f"no batch in {self.stage.timeout_s:g} s from {self.address(lane)}",
            expected="workers that deliver",
            remedy="check that dispatcher and workers run and reach each other, or set a longer load.service.timeout_s",
        )

    def close(self) -> None:
        """End the processes of the run."""
        for server in (*self._workers, *self._dispatchers):
            server.stop()
        self._workers.clear()
        self._dispatchers.clear()


def _is_forgotten(message: str) -> bool:
    """Return whether a server does not know a part of a pass; the path of a missing file may have the same words."""
    return _NO_FILE not in message.lower() and any(of in message for of in _FORGOTTEN)
