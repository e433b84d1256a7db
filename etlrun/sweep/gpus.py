"""Which GPU each job of a sweep computes on."""

from __future__ import annotations

import os
from dataclasses import dataclass

from etlrun.machine import VISIBLE, gpu_ids


@dataclass(frozen=True, kw_only=True)
class Seat:
    """What one of the jobs in flight has of the GPUs.

    Attributes:
        environment: What its process has set before a backend is there.
        jobs: That may compute on its GPU at a time.
    """

    environment: dict[str, str]
    jobs: int


def seats(in_flight: int) -> list[Seat]:
    """For each of so many jobs at a time a GPU of its own, or where there are fewer GPUs, one with as few as can be.

    A job that has the machine for itself sees all of its GPUs.
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
            environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # or one job of JAX takes three quarters of it
        found.append(Seat(environment=environment, jobs=jobs))
    return found
