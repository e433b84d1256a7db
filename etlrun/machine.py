"""Hardware available to this process: CPU cores, and GPUs as the NVIDIA driver lists them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import takewhile

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable that selects the GPUs visible to CUDA, and so to every backend."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU that the driver lists.

    Attributes:
        index: Index in the driver's order, which may differ from CUDA's.
        uuid: Unique identifier, which CUDA accepts, too.
        name: Product name, such as `Tesla T4`.
    """

    index: int
    uuid: str
    name: str


CORES = {"cores": 0, "cores-1": 1}
"""Values of a parallelism that depend on the machine, each with the number of cores that it leaves free."""


def cores() -> int:
    """Return the number of CPU cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def calls_here(word: str, cores: int) -> int:
    """Return the parallelism that `cores` or `cores-1` means with this number of cores; at least 1."""
    return max(1, cores - CORES[word])


def driver_gpus() -> list[Gpu]:
    """Return all GPUs of the driver, including those hidden from this process; empty without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        found = [(index, pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(pynvml.nvmlDeviceGetCount())]
        return [
            Gpu(index=index, uuid=pynvml.nvmlDeviceGetUUID(handle), name=pynvml.nvmlDeviceGetName(handle))
            for index, handle in found
        ]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def listed_ids() -> list[str] | None:
    """Return the entries of CUDA_VISIBLE_DEVICES up to the first that names no GPU, as CUDA does; None if unset."""
    if VISIBLE not in os.environ:
        return None
    words = (word.strip() for word in os.environ[VISIBLE].split(","))
    return list(takewhile(lambda word: word.isdecimal() or word.startswith(("GPU-", "MIG-")), words))


def visible_gpus() -> list[Gpu]:
    """Return the GPUs visible to this process; numbers in CUDA_VISIBLE_DEVICES are read as the driver's indices."""
    ids = listed_ids()
    return [
        gpu
        for gpu in driver_gpus()
        if ids is None or str(gpu.index) in ids or any(gpu.uuid.startswith(word) for word in ids)
    ]


def gpu_ids() -> list[str]:
    """Return the identifiers of the visible GPUs, as CUDA_VISIBLE_DEVICES takes them; empty without a driver."""
    gpus, ids = driver_gpus(), listed_ids()
    return [gpu.uuid for gpu in gpus] if ids is None or not gpus else ids
