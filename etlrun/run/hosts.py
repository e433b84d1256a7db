"""Runs on several hosts: this process among them, its part of the data, and what all of them have in common."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec

import numpy as np

from etlrun.measure.digest import union
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import DOCS, WorldError
from etlrun.system.values import frozen

_JOIN_S = 300
"""Longest time between the start of the first host and that of the last one."""
_SILENT_S = 30
"""Time without a sign of a host after which JAX ends the processes of all others."""
_BYTES = 64
"""Bytes of a digest's text."""
_ADDRESS = "JAX_COORDINATOR_ADDRESS"
_COUNTED = (
    ("JAX_NUM_PROCESSES", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"),
    ("Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
)
"""For each launcher the variables with the number of its processes and that of this one, from 0; the first counts."""


@frozen
class HostPlace:
    """A host among several.

    Attributes:
        number: Number of the host, from 0; host 0 leads.
        count: Number of hosts.
    """

    number: int
    count: int

    @property
    def leads(self) -> bool:
        """Whether this is the host that writes the results."""
        return self.number == 0


ALONE = HostPlace(number=0, count=1)
_place = ALONE


def place_of(trainer: Trainer, environment: Mapping[str, str] = os.environ) -> HostPlace:
    """Return the place of this process; raise `WorldError` if the processes aren't those that `trainer` expects."""
    launcher, count, number = "", 1, 0
    for name, *variables in _COUNTED:
        values = [environment.get(variable, "") for variable in variables]
        if all(map(str.isdigit, values)) and not launcher:
            launcher, count, number = name, *map(int, values)
    if count != trainer.hosts:
        key, started = trainer.key("hosts"), "start a process on each host with srun or mpirun"
        by = f", the number of processes that {launcher} counts" if launcher else ", since no launcher has started more"
        raise WorldError(
            key,
            str(trainer.hosts),
            f"{count}{by}",
            f"set {key}={count}" if launcher else f"{started} ({DOCS}/training.md), or set {key}=1",
        )
    if not 0 <= number < count:
        raise WorldError(
            next(of for name, _, of in _COUNTED if name == launcher),
            str(number),
            f"a number from 0 to {count - 1}, another one on each host",
            "start them all with the same launcher",
        )
    return HostPlace(number=number, count=count)


def require_jax(trainer: Trainer) -> None:
    """Raise `WorldError` if `trainer` has several hosts, and JAX, whose processes they are, isn't installed."""
    if trainer.hosts > 1 and find_spec("jax") is None:
        raise WorldError(
            trainer.key("hosts"),
            f"{trainer.hosts}, without JAX",
            "the package jax, whose processes the hosts are",
            f"pip install 'etlrun[jax]', or set {trainer.key('hosts')}=1",
        )


def here() -> HostPlace:
    """Return the place of this process in the run; that of a single host before `join`."""
    return _place


def join_hosts(backend: str, trainer: Trainer) -> None:
    """Join the processes of the other hosts, before JAX looks for devices; nothing for a run on one host.

    JAX ends this process if it loses one of them, which a collective operation would wait for.

    Raises:
        WorldError: Keras's `backend` can't train on several hosts; the address of host 0 is unknown, or a host is
            missing.
    """
    global _place  # noqa: PLW0603 - as JAX's own state of a process
    if trainer.hosts == 1:
        return
    if backend != "jax":
        raise WorldError(
            trainer.key("hosts"),
            str(trainer.hosts),
            f"1 with Keras's {backend} backend, whose fit shares no batches with other hosts",
            f"set the environment variable KERAS_BACKEND=jax, or {trainer.key('hosts')}=1",
        )
    import jax

    place, address = place_of(trainer), os.environ.get(_ADDRESS, "")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", val=False)  # after whose notice of SIGTERM a run goes on
    initialize = partial(
        jax.distributed.initialize,
        num_processes=place.count,
        process_id=place.number,
        # A host has all of its devices, and not the one of its number, as JAX would have it with Slurm.
        local_device_ids=None if "JAX_LOCAL_DEVICE_IDS" in os.environ else [],
        initialization_timeout=2 * _JOIN_S,  # at its end, JAX ends the process without a word of what is missing
        heartbeat_timeout_seconds=_SILENT_S,
        coordinator_bind_address=address if address.startswith(("127.", "localhost:", "[::1]:")) else None,
    )
    try:
        ThreadPoolExecutor(1).submit(initialize).result(_JOIN_S)
    except TimeoutError as error:
        raise WorldError(
            trainer.key("hosts"),
            f"a host that is missing {_JOIN_S} s after the start of host {place.number}",
            f"{place.count} hosts, which reach {address or 'host 0'}",
            "see whether the others were started, and whether that port is open",
        ) from error
    except (ValueError, RuntimeError) as error:
        raise WorldError(
            _ADDRESS,
            f"{address or 'nothing'}: {error}",
            "HOST:PORT of host 0, a free port there",
            "set that environment variable for all processes",
        ) from error
    _place = place


def leave() -> None:
    """Wait for all hosts to come to the end of the run, and part from them."""
    global _place  # noqa: PLW0603
    if _place.count > 1:
        import jax

        jax.distributed.shutdown()
        _place = ALONE


def end_at_once(status: int) -> None:
    """End this process: at its usual end, JAX would wait for the hosts that it has not left."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def joint(digest: str) -> str:
    """Return the digest of what all hosts have read, of which this one has read `digest`; each host calls it."""
    if _place.count == 1:
        return digest
    return union(gathered(digest, _BYTES))


def gathered(text: str, size: int) -> list[str]:
    """Return what each host has as `text`, of at most `size` bytes in UTF-8, in their order; each host calls it."""
    from jax.experimental.multihost_utils import process_allgather

    own = np.frombuffer(text.encode().ljust(size), np.uint8)
    return [bytes(of).decode().strip() for of in np.asarray(process_allgather(own))]
