"""Folder in which a dataset is written, beside that in which it appears when it is complete."""

from __future__ import annotations

import errno
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from etlrun.datasets.prepare.options import LARGEST_SHARD_BYTES, Options
from etlrun.datasets.prepare.source import Source
from etlrun.remote.put import there
from etlrun.system.errors import WorldError
from etlrun.system.files import sync
from etlrun.system.locks import alone
from etlrun.system.machine import cores, free_disk_bytes, rounded

INFO = "dataset_info.json"
"""The file without which TFDS reads no version."""
_EXAMPLE_BYTES = 256
"""Size of a record without its image, at most."""


def require_space(options: Options, source: Source) -> None:
    """Raise `WorldError` unless the disk has space for what is to be written."""
    needed = sum(entry.size + _EXAMPLE_BYTES for entry in source.entries)
    if options.url is not None:  # the shards that are written at once
        needed = min(needed, cores() * (needed // options.shards if options.shards else LARGEST_SHARD_BYTES))
    needed += source.unpacked_bytes
    free = free_disk_bytes(options.family)
    if needed > free:
        raise WorldError(
            str(options.family),
            f"{rounded(free) if free else '0 bytes'} of free disk space",
            f"{rounded(needed)} for {len(source.entries):,} images",
            "free disk space, or choose another --data-dir",
        )


def publish(version: Path, target: Path) -> None:
    """Make a version appear at `target`, complete and on disk."""
    for path in version.iterdir():
        sync(path)
    sync(version)
    version.rename(target)
    sync(target.parent)


@contextmanager
def working(options: Options) -> Iterator[Path]:
    """Yield an empty folder in which this process alone prepares a version: `NAME/preparing.VERSION`.

    What one that was killed left there is removed. TFDS ignores its name, and what removes TFDS's leftovers leaves it.
    For a store it is in the user's cache folder.

    Raises:
        WorldError: The version exists, or its folder can't be written to.
    """
    folder = options.family / f"preparing.{options.version}"
    try:
        options.family.mkdir(parents=True, exist_ok=True)
        told = f"another command is preparing {options.name}; waiting for it"
        with alone(options.family / ".etlrun.lock", longest_s=math.inf, waiting=told):
            require_new(options)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise _unwritable(options, error) from error


def require_new(options: Options) -> None:
    """Raise `WorldError` if the version exists."""
    if f"{options.place}/{INFO}" in there(options.place, {}) if options.url else os.path.lexists(options.target):
        major, minor, patch = options.version.split(".")
        raise WorldError(
            options.place,
            f"version {options.version} of {options.name}, which is never overwritten",
            "a version that doesn't exist",
            f"choose another version, such as --version {major}.{minor}.{int(patch) + 1}",
        )


def _unwritable(options: Options, error: OSError) -> WorldError:
    is_full = error.errno in {errno.ENOSPC, errno.EDQUOT} or options.url is not None
    return WorldError(
        str(error.filename or options.family),
        error.strerror or str(error),
        "a folder that can be written to, with space for the images",
        "free disk space, and run the same command again" if is_full else "choose another --data-dir",
    )
