"""Hardware available to this process: CPU cores, memory, disks, and GPUs as the NVIDIA driver lists them."""

import os
import platform
import re
import resource
import shutil
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

from etlrun.system.values import frozen

_T = TypeVar("_T")

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable that selects the GPUs visible to CUDA, and so to every backend."""


Version = tuple[int, int]
"""First and second number of a version."""


@frozen
class Gpu:
    """A GPU that the driver lists.

    Attributes:
        uuid: Unique identifier, which CUDA accepts, too.
        name: Product name, such as `Tesla T4`.
        capability: Compute capability, such as (7, 5).
    """

    uuid: str
    name: str
    capability: Version


CORES = {"cores": 0, "cores-1": 1}
"""Values of a parallelism that depend on the machine, each with the number of cores that it leaves free."""


def cores() -> int:
    """Return the number of CPU cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """Return the model of the CPU, or its architecture where the system doesn't say more."""
    model = re.search(r"^model name[ \t]*:[ \t]*(\S.*)", _text(_ROOT / "proc/cpuinfo"), re.MULTILINE)
    return model[1].strip() if model else platform.processor() or platform.machine()


def memory_bytes() -> int:
    """Return the memory of the machine."""
    import psutil  # no plan asks

    return int(psutil.virtual_memory().total)


def calls_here(word: str, cores: int) -> int:
    """Return the parallelism that `cores` or `cores-1` means with this number of cores; at least 1."""
    return max(1, cores - CORES[word])


def driver_gpus() -> list[Gpu]:
    """Return all GPUs of the driver, including those hidden from this process; empty without a driver."""
    return _of_driver(
        lambda nvml: [
            Gpu(
                uuid=nvml.nvmlDeviceGetUUID(handle),
                name=nvml.nvmlDeviceGetName(handle),
                capability=tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
            )
            for index in range(nvml.nvmlDeviceGetCount())
            for handle in [nvml.nvmlDeviceGetHandleByIndex(index)]
        ],
        [],
    )


def driver_version() -> str:
    """Return the version of NVIDIA's driver, such as `580.65.06`; empty without one."""
    return _of_driver(lambda nvml: str(nvml.nvmlSystemGetDriverVersion()), "")


def _of_driver(read: Callable[[Any], _T], otherwise: _T) -> _T:
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            return read(pynvml)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return otherwise


def listed_ids() -> list[str] | None:
    """Return the entries of CUDA_VISIBLE_DEVICES up to the first that names no GPU, as CUDA does; None if unset."""
    if VISIBLE not in os.environ:
        return None
    words = map(str.strip, os.environ[VISIBLE].split(","))
    return [*takewhile(lambda word: word.isdecimal() or word.startswith(("GPU-", "MIG-")), words)]


def gpu_ids() -> list[str]:
    """Return the identifiers of the visible GPUs, as CUDA_VISIBLE_DEVICES takes them; empty without a driver."""
    gpus, ids = driver_gpus(), listed_ids()
    return [gpu.uuid for gpu in gpus] if ids is None or not gpus else ids


_ROOT = Path("/")
"""Folder of `proc` and `sys`."""


def free_memory_bytes() -> int:
    """Return the memory available to this process: the least that the machine, a control group or a limit leaves.

    Control groups are those of version 2 and 1; the memory that one uses for inactive files counts as free, since the
    kernel reclaims it first. Limits are those of the process (`ulimit -v`, `ulimit -d`).
    """
    import psutil

    rooms = [psutil.virtual_memory().available]
    groups = [(group, "memory.max", "memory.current") for group in _groups("")]
    groups += [(group, "memory.limit_in_bytes", "memory.usage_in_bytes") for group in _groups("memory")]
    for group, limit, usage in groups:
        most, used = _number(group / limit), _number(group / usage)
        if most is not None and used is not None:
            stat = dict(line.split(maxsplit=1) for line in _text(group / "memory.stat").splitlines())
            rooms.append(most - used + int(stat.get("total_inactive_file", stat.get("inactive_file", 0))))
    memory = psutil.Process().memory_info()
    for resource_limit, used in ((resource.RLIMIT_AS, memory.vms), (resource.RLIMIT_DATA, getattr(memory, "data", 0))):
        most, _ = resource.getrlimit(resource_limit)
        rooms += [] if most == resource.RLIM_INFINITY else [most - used]
    return max(0, min(rooms))


def free_disk_bytes(folder: Path) -> int:
    """Return the free space on the file system of `folder`, or of its nearest accessible parent."""
    while True:
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            if folder == folder.parent:
                raise
            folder = folder.parent


def megabytes(size: float) -> str:
    """Return a size in bytes as text for a message."""
    return f"{size / 1e6:,.0f} MB"


def rounded(size: float) -> str:
    """Format a number of bytes in the largest unit of which it holds at least one: `35 MB`."""
    units = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "bytes"))
    unit, name = next(((unit, name) for unit, name in units if size >= unit), units[-1])
    digits = 1 if unit > 1 and round(size / unit, 1) < 10 else 0  # noqa: PLR2004 - `1.5 GB`, and not `2 GB`
    return f"{size / unit:,.{digits}f} {name}"


def _groups(controller: str) -> Iterator[Path]:
    """Yield the folder of the group of this process for `controller`, unnamed in version 2, and those around it."""
    mount = _ROOT / "sys/fs/cgroup" / controller
    lines = (line.split(":", 2) for line in _text(_ROOT / "proc/self/cgroup").splitlines())
    name = next((path for _, controllers, path in lines if controller in controllers.split(",")), "")
    folder = mount / name.lstrip("/")
    yield from takewhile(lambda group: group != mount.parent, (folder, *folder.parents))


def _number(path: Path) -> int | None:
    """Return the number in a file; None if there is no limit, or no such file."""
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    """Return the text of a file; empty if it can't be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
