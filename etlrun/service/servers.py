"""The dispatchers from which a run reads its batches, and what their errors mean."""

from __future__ import annotations

import re
from typing import cast

import tensorflow as tf

from etlrun.stages.load import Service
from etlrun.system.errors import WorldError, headline

_GONE = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
_FORGOTTEN = ("iteration client", "dataset id", "iteration id", "task")
"""What a dispatcher that was started again doesn't know."""
_NO_FILE = "no such file"
_BEFORE_CAUSE = re.compile(r".*(Failed to get element|ParallelMapV2): ")
"""What stands before the reason in an error of a worker: of the service, and of the map that reads a cache."""
_REQUESTED = 2
"""Batches that are requested from a worker ahead."""


def distributed(dataset: tf.data.Dataset, address: str) -> tf.data.Dataset:
    """Return `dataset`, computed by the worker of the dispatcher at `address`."""
    distribute = tf.data.experimental.service.distribute(
        processing_mode=tf.data.experimental.service.ShardingPolicy.OFF,
        service=f"grpc://{address}",
        compression=None,
        max_outstanding_requests=_REQUESTED,
    )
    return dataset.apply(distribute)


def is_gone(error: tf.errors.OpError) -> bool:
    """Return whether an error says that a server is gone or was started again, and nothing of data."""
    is_unknown = isinstance(error, tf.errors.NotFoundError) and _is_forgotten(error.message)
    return isinstance(error, _GONE) or is_unknown


def refused(error: tf.errors.OpError) -> Exception:
    """Return the error to raise for what a worker could not do."""
    if not isinstance(error, tf.errors.NotFoundError | tf.errors.PermissionDeniedError):
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


def overdue(service: Service, address: str) -> WorldError:
    """Return the error of a batch that did not come in time."""
    return WorldError(
        where=Service.key("timeout_s"),
        found=f"no batch in {service.timeout_s:g} s from {address}",
        expected="a dispatcher with a worker, which reach each other",
        remedy=f"look whether they run (etlrun service worker --dispatcher {address} --trusted-network), or set a "
        "longer load.service.timeout_s",
    )


def other_plan(address: str) -> WorldError:
    """Return the error of a batch that was made for another run."""
    return WorldError(
        where=Service.key("address"),
        found=f"batches of another plan from {address}",
        expected="those of this run",
        remedy="look whether two workers share a port, give each its own --port, and run again",
    )


def _is_forgotten(message: str) -> bool:
    """Return whether a server does not know a part of a pass; the path of a missing file may have the same words."""
    return _NO_FILE not in message.lower() and any(of in message for of in _FORGOTTEN)
