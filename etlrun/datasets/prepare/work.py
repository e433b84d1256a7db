"""Folder in which a dataset is written, beside that in which it appears when it is complete."""

from __future__ import annotations

import errno
import math
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from etlrun.datasets.prepare.options import Options
from etlrun.datasets.prepare.source import Source
from etlrun.system.errors import WorldError
from etlrun.system.files import sync, write_atomically
from etlrun.system.locks import alone
from etlrun.system.machine import free_disk_bytes, rounded

_EXAMPLE_BYTES = 256
"""Size of a record without its image, and of the verdict on it, at most."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Folder of an unfinished preparation, `NAME/preparing.VERSION`.

    TFDS ignores its name, and etlrun does not remove it, as it does with what TFDS leaves.

    Attributes:
        folder: Folder of everything below.
        target: Folder of the version, which doesn't exist before the end.
    """

    folder: Path
    target: Path

    @property
    def version(self) -> Path:
        """Folder of what becomes the version: the shards and the metadata."""
        return self.folder / "version"

    @property
    def journal(self) -> Path:
        """Digests of the images that can be used."""
        return self.folder / "usable.txt"

    @property
    def unpacked(self) -> Path:
        """What is unpacked from an archive while the command runs."""
        return self.folder / "unpacked"

    def keep_only(self, fingerprint: str, files: Sequence[str]) -> None:
        """Remove all shards that don't belong to the plan with this fingerprint, and all that are not complete."""
        plan = self.folder / "plan"
        if not plan.exists() or plan.read_text(encoding="utf-8") != fingerprint:
            shutil.rmtree(self.version, ignore_errors=True)
            write_atomically(plan, fingerprint)
        self.version.mkdir(exist_ok=True)
        for path in self.version.iterdir():
            if path.name not in files:
                path.unlink()

    def require_space(self, source: Source) -> None:
        """Raise `WorldError` unless the disk has space for what is yet to write."""
        written = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        needed = sum(entry.size + _EXAMPLE_BYTES for entry in source.entries) + source.unpacked_bytes - written
        free = free_disk_bytes(self.folder)
        if needed > free:
            raise WorldError(
                where=str(self.target.parent),
                found=f"{rounded(free) if free else '0 bytes'} of free disk space",
                expected=f"{rounded(needed)} for {len(source.entries):,} images",
                remedy="free disk space, or choose another --data-dir",
            )

    def publish(self) -> None:
        """Make the version appear, complete and on disk."""
        for path in self.version.iterdir():
            sync(path)
        sync(self.version)
        self.version.rename(self.target)
        sync(self.target.parent)
        shutil.rmtree(self.folder)


@contextmanager
def working(options: Options) -> Iterator[Work]:
    """Yield the folder in which this process alone prepares a version; one that was killed has left its work there.

    Raises:
        WorldError: The version exists, or its folder can't be written to.
    """
    work = Work(folder=options.family / f"preparing.{options.version}", target=options.target)
    try:
        options.family.mkdir(parents=True, exist_ok=True)
        told = f"another command is preparing {options.name}; waiting for it"
        with alone(options.family / ".etlrun.lock", longest_s=math.inf, waiting=told):
            require_new(options)
            work.folder.mkdir(exist_ok=True)
            try:
                shutil.rmtree(work.unpacked, ignore_errors=True)
                yield work
            finally:
                shutil.rmtree(work.unpacked, ignore_errors=True)
    except OSError as error:
        raise _unwritable(options, error) from error


def require_new(options: Options) -> None:
    """Raise `WorldError` if the version exists."""
    if os.path.lexists(options.target):
        major, minor, patch = options.version.split(".")
        raise WorldError(
            where=str(options.target),
            found=f"version {options.version} of {options.name}, which is never overwritten",
            expected="a version that doesn't exist",
            remedy=f"choose another version, such as --version {major}.{minor}.{int(patch) + 1}",
        )


def _unwritable(options: Options, error: OSError) -> WorldError:
    is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    kept = "free disk space, and run the same command again: it goes on with what is complete"
    return WorldError(
        where=str(error.filename or options.family),
        found=error.strerror or str(error),
        expected="a folder that can be written to, with space for the images",
        remedy=kept if is_full else "choose another --data-dir",
    )
