"""Assignment of GPUs to the jobs of a sweep."""

from __future__ import annotations

import os
from dataclasses import dataclass

from etlrun.system.machine import VISIBLE, gpu_ids


@dataclass(frozen=True, kw_only=True)
class Seat:
    """GPU of one of the jobs in flight.

    Attributes:
        environment: Environment variables of the job's process, set before a backend is imported.
        jobs: Number of jobs that may use the GPU at a time.
    """

    environment: dict[str, str]
    jobs: int


def seats(in_flight: int) -> list[Seat]:
    """Return a seat for each of `in_flight` concurrent jobs: a GPU each, or GPUs shared as evenly as possible.

    A job that runs alone sees all GPUs.
    """
    ids = gpu_ids()
    if in_flight == 1 or not ids:
        return [Seat(environment={}, jobs=1)] * in_flight
    found = []
    for seat in range(in_flight):
        own = seat % len(ids)
        jobs = len(range(own, in_flight, len(ids)))
        environment = {VISIBLE: ids[own]}
        if jobs > 1 and "XLA_PYTHON_CLIENT_PREALLOCATE" not in os.environ:
            environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # a JAX job would take three quarters of the memory
        found.append(Seat(environment=environment, jobs=jobs))
    return found
