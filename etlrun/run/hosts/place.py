"""The place of a process among those of several hosts, as the environment of a launcher tells it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from etlrun.stages.trainer import Trainer
from etlrun.system.errors import WorldError

_COUNTED = (
    ("JAX_NUM_PROCESSES", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"),
    ("Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
)
"""For each launcher the variables with the number of its processes and that of this one, from 0; the first counts."""


@dataclass(frozen=True, kw_only=True)
class Place:
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


ALONE = Place(number=0, count=1)


def place_of(trainer: Trainer, environment: Mapping[str, str] = os.environ) -> Place:
    """Return the place of this process; raise `WorldError` if the processes aren't those that `trainer` expects."""
    launcher, count, number = _counted(environment)
    if count != trainer.hosts:
        key, started = trainer.key("hosts"), "start a process on each host with srun or mpirun"
        by = f", the number of processes that {launcher} counts" if launcher else ", since no launcher has started more"
        raise WorldError(
            where=key,
            found=str(trainer.hosts),
            expected=f"{count}{by}",
            remedy=f"set {key}={count}" if launcher else f"{started} (docs/training.md), or set {key}=1",
        )
    if not 0 <= number < count:
        raise WorldError(
            where=next(of for name, _, of in _COUNTED if name == launcher),
            found=str(number),
            expected=f"a number from 0 to {count - 1}, another one on each host",
            remedy="start them all with the same launcher",
        )
    return Place(number=number, count=count)


def require_jax(trainer: Trainer) -> None:
    """Raise `WorldError` if `trainer` has several hosts, and JAX, whose processes they are, isn't installed."""
    if trainer.hosts > 1 and find_spec("jax") is None:
        raise WorldError(
            where=trainer.key("hosts"),
            found=f"{trainer.hosts}, without JAX",
            expected="the package jax, whose processes the hosts are",
            remedy=f"pip install 'etlrun[jax]', or set {trainer.key('hosts')}=1",
        )


def _counted(environment: Mapping[str, str]) -> tuple[str, int, int]:
    """Return the launcher, the number of its processes and that of this one; an empty name if there is none."""
    for launcher, count, number in _COUNTED:
        if environment.get(count, "").isdigit() and environment.get(number, "").isdigit():
            return launcher, int(environment[count]), int(environment[number])
    return "", 1, 0
