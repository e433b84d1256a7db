"""What there is space for: memory and disk, where a container may allow less than the machine has."""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil

MEMORY_SHARE, DISK_SHARE = 0.8, 0.95
"""Of what is free, that caches may take: the training itself needs memory, too."""

_ROW_BYTES = 64
"""Of the index of a cache on disk for each example, at most."""

_ROOT = Path("/")


def free_memory_bytes(root: Path = _ROOT) -> int:
    """That this process can still take: of the machine, or of the tightest control group (version 2 or 1) around it.

    Memory that a group uses for files that are not active counts as free, since the kernel gives it back first.
    `root` is where `proc` and `sys` are.
    """
    return max(0, min([psutil.virtual_memory().available, *_group_rooms(root)]))


def free_disk_bytes(folder: Path) -> int:
    """On the file system of `folder`, or of the nearest folder above it that can be looked at."""
    while True:
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            if folder == folder.parent:
                raise
            folder = folder.parent


def kept_bytes(examples: int, each_bytes: float) -> int:
    """That a cache of so many examples takes, with its index."""
    return int(examples * (each_bytes + _ROW_BYTES))


def megabytes(size: float) -> str:
    """A size in bytes, for a message."""
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
    """This process's group in the hierarchy of `controller`; version 2 has one without a name."""
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
    """None where there is no limit, or no such file."""
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
