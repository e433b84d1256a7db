"""What this machine lends to a process: its cores, and its GPUs as NVIDIA's driver lists them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import takewhile

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable by which CUDA, and so every backend, leaves out GPUs."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One of the driver's.

    Attributes:
        index: In the driver's order, which need not be CUDA's.
        uuid: By which CUDA knows it, too.
        name: Such as `Tesla T4`.
    """

    index: int
    uuid: str
    name: str


CORES = {"cores": 0, "cores-1": 1}
"""How configs call a number of calls that follows the machine, with the cores that it leaves to others."""


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def calls_here(word: str, cores: int) -> int:
    """What `cores` or `cores-1` means on a machine of so many; 1 at least."""
    return max(1, cores - CORES[word])


def driver_gpus() -> list[Gpu]:
    """All that the driver lists, those that are hidden from this process too; empty without a driver."""
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
    """What CUDA_VISIBLE_DEVICES lists, up to the first word that names no GPU, as CUDA reads it; None where unset."""
    if VISIBLE not in os.environ:
        return None
    words = (word.strip() for word in os.environ[VISIBLE].split(","))
    return list(takewhile(lambda word: word.isdecimal() or word.startswith(("GPU-", "MIG-")), words))


def visible_gpus() -> list[Gpu]:
    """Those of the driver's that CUDA_VISIBLE_DEVICES leaves to this process; its numbers are taken as the driver's."""
    ids = listed_ids()
    return [
        gpu
        for gpu in driver_gpus()
        if ids is None or str(gpu.index) in ids or any(gpu.uuid.startswith(word) for word in ids)
    ]


def gpu_ids() -> list[str]:
    """The GPUs that this process may use, each as CUDA_VISIBLE_DEVICES takes it; empty without a driver."""
    gpus, ids = driver_gpus(), listed_ids()
    return [gpu.uuid for gpu in gpus] if ids is None or not gpus else ids
