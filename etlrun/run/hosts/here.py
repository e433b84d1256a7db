"""This process among those of JAX: joining them, and what they compute together."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from etlrun.measure.digest import union
from etlrun.run.hosts.link import JOIN_S
from etlrun.run.hosts.place import ALONE, Place, place_of
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import WorldError

_BYTES = 64
"""Bytes of a digest's text."""
_REASONS = {"tensorflow": "on which Keras 3's fit does not train under tf.distribute.MultiWorkerMirroredStrategy"}
_place = ALONE
_is_whole = False


def here() -> Place:
    """Return the place of this process in the run; that of a single host before `join`."""
    return _place


def join(backend: str, trainer: Trainer) -> None:
    """Join the processes of the other hosts, before JAX looks for devices; nothing for a run on one host.

    Raises:
        WorldError: Keras's `backend` can't train on several hosts.
    """
    global _place  # noqa: PLW0603 - as JAX's own state of a process
    if trainer.hosts == 1:
        return
    if backend != "jax":
        raise WorldError(
            where=trainer.key("hosts"),
            found=str(trainer.hosts),
            expected=f"1 with Keras's {backend} backend, {_REASONS.get(backend, 'which shares no batches')}",
            remedy=f"set the environment variable KERAS_BACKEND=jax, or {trainer.key('hosts')}=1",
        )
    import jax

    place = place_of(trainer)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        coordinator_address=place.address,
        num_processes=place.count,
        process_id=place.number,
        # A host has all of its devices, and not the one of its number, as JAX would have it with Slurm.
        local_device_ids=None if "JAX_LOCAL_DEVICE_IDS" in os.environ else [],
        initialization_timeout=int(JOIN_S),
        coordinator_bind_address=place.address if place.is_loopback else None,
    )
    # JAX has taken SIGTERM for a notice of pre-emption, after which a run goes on.
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    _place = place


def leave() -> None:
    """Wait for all hosts to come to the end of the run, and part from them."""
    global _place  # noqa: PLW0603
    if _place.count > 1:
        import jax

        jax.distributed.shutdown()
        _place = ALONE


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


@contextmanager
def whole_batches() -> Iterator[None]:
    """Let each host have the whole of the batches that are read in the block, and not a part."""
    global _is_whole  # noqa: PLW0603
    _is_whole = True
    try:
        yield
    finally:
        _is_whole = False


def has_whole() -> bool:
    """Return whether each host has the whole of the batch that was read last."""
    return _is_whole


def counts() -> bool:
    """Return whether the batch that was read last is one of this host alone, or of all and this is the first."""
    return _place.leads or not _is_whole
