"""Free memory and disk space, within the limits of a container."""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil

MEMORY_SHARE, DISK_SHARE = 0.8, 0.95
"""Fractions of the free space that caches may take: the training needs memory, too."""

_ROW_BYTES = 64
"""Upper bound for the index of a cache on disk, per example."""

_ROOT = Path("/")


def free_memory_bytes(root: Path = _ROOT) -> int:
    """Return the memory available to this process: that of the machine, or of the tightest control group (v2 or v1).

    Memory that a group uses for inactive files counts as free, since the kernel reclaims it first.
    `root` is the folder of `proc` and `sys`.
    """
    return max(0, min([psutil.virtual_memory().available, *_group_rooms(root)]))


def free_disk_bytes(folder: Path) -> int:
    """Return the free space on the file system of `folder`, or of its nearest accessible parent."""
    while True:
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            if folder == folder.parent:
                raise
            folder = folder.parent


def kept_bytes(examples: int, each_bytes: float) -> int:
    """Return the size of a cache of this many examples, with its index."""
    return int(examples * (each_bytes + _ROW_BYTES))


def megabytes(size: float) -> str:
    """Return a size in bytes as text for a message."""
    return f"{size / 1e6:,.0f} MB"


def _group_rooms(root: Path) -> list[int]:
    rooms = []
    for mount, name, limit, usage in (
        (root / "sys/fs/cgroup", _group(root, ""), "memory.max", "memory.current"),
        (root / "sys/fs/cgroup/memory", _group(root, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        folder = mount / name.lstrip("/")
        for group in (folder, *folder.parents):
            if group == mount.parent:
                break
            most, used = _number(group / limit), _number(group / usage)
            if most is not None and used is not None:
                rooms.append(most - used + _inactive(group))
    return rooms


def _group(root: Path, controller: str) -> str:
    """Return the group of this process in the hierarchy of `controller`; that of version 2 has no name."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    return ""


def _number(path: Path) -> int | None:
    """Return the number in a file; None if there is no limit, or no such file."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _inactive(group: Path) -> int:
    try:
        lines = (group / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    stat = dict(line.split(maxsplit=1) for line in lines)
    return int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
