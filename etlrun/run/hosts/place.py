"""The place of a process among those of several hosts, as the environment of a launcher tells it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from etlrun.stages.trainer import Trainer
from etlrun.system.errors import WorldError

ADDRESS = "JAX_COORDINATOR_ADDRESS"
_COUNTED = (
    ("JAX_NUM_PROCESSES", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"),
    ("Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
)
"""For each launcher the variables with the number of its processes and that of this one, from 0; the first counts."""
_FIRST_PORT, _PORTS = 61_440, 4_096
"""Ports of jobs, from which JAX chooses by the number of a job, too."""
_LAST_PORT = 65_535


@dataclass(frozen=True, kw_only=True)
class Place:
    """A host among several.

    Attributes:
        number: Number of the host, from 0; host 0 leads.
        count: Number of hosts.
        address: `HOST:PORT` of JAX's coordinator, which host 0 serves; it listens on the port below, too.
    """

    number: int
    count: int
    address: str = ""

    @property
    def leads(self) -> bool:
        """Whether this is the host that writes the results."""
        return self.number == 0

    @property
    def host(self) -> str:
        """Name or IP address of host 0."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def is_loopback(self) -> bool:
        """Whether no other machine can reach host 0."""
        return self.host.lower() in {"localhost", "::1"} or self.host.startswith("127.")

    @property
    def port(self) -> int:
        """Port of JAX's coordinator."""
        return int(self.address.rpartition(":")[2])


ALONE = Place(number=0, count=1)


def place_of(trainer: Trainer, environment: Mapping[str, str] = os.environ) -> Place:
    """Return the place of this process; raise `WorldError` if the processes aren't those that `trainer` expects."""
    launcher, count, number = _counted(environment)
    if count != trainer.hosts:
        key, started = trainer.key("hosts"), "Start a process on each host with srun or mpirun"
        by = f", the number of processes that {launcher} counts" if launcher else ", since no launcher has started more"
        raise WorldError(
            where=key,
            found=str(trainer.hosts),
            expected=f"{count}{by}",
            remedy=f"set {key}={count}" if launcher else f"{started.lower()} (docs/training.md), or set {key}=1",
        )
    if count == 1:
        return ALONE
    if not 0 <= number < count:
        raise WorldError(
            where=next(of for name, _, of in _COUNTED if name == launcher),
            found=str(number),
            expected=f"a number from 0 to {count - 1}, another one on each host",
            remedy="start them all with the same launcher",
        )
    return Place(number=number, count=count, address=_address(environment))


def _counted(environment: Mapping[str, str]) -> tuple[str, int, int]:
    """Return the launcher, the number of its processes and that of this one; an empty name if there is none."""
    for launcher, count, number in _COUNTED:
        if environment.get(count, "").isdigit() and environment.get(number, "").isdigit():
            return launcher, int(environment[count]), int(environment[number])
    return "", 1, 0


def _address(environment: Mapping[str, str]) -> str:
    """Return the address of JAX's coordinator: the one that is set, or what JAX would make of the launcher's."""
    set_to = environment.get(ADDRESS)
    address = set_to or _of_open_mpi(environment) or _of_slurm(environment)
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 1 < int(port) <= _LAST_PORT:
        raise WorldError(
            where=ADDRESS,
            found=set_to or "nothing",
            expected="HOST:PORT of host 0, whose port and the one below are free there",
            remedy="set that environment variable for all processes",
        )
    return address


def _of_open_mpi(environment: Mapping[str, str]) -> str:
    uri = environment.get("OMPI_MCA_orte_hnp_uri", "")  # up to Open MPI 4, such as 1531576320.0;tcp://10.96.0.1:34911
    found = re.match(r"(\d+)\..*?(?:tcp://([^,:]+)|tcp6://\[([^],]+))", uri)
    if found is None:
        return ""
    job = int(found[1]) // 2**12
    return f"{found[2] or f'[{found[3]}]'}:{_FIRST_PORT + job % _PORTS}"


def _of_slurm(environment: Mapping[str, str]) -> str:
    nodes = re.match(r"([^,[]+)(?:\[(\d+))?", environment.get("SLURM_STEP_NODELIST", ""))  # node[001-004,007],other
    job = environment.get("SLURM_JOB_ID", "")
    if nodes is None or not job.isdigit():
        return ""
    return f"{nodes[1]}{nodes[2] or ''}:{_FIRST_PORT + int(job) % _PORTS}"
