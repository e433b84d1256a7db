"""The folder of all caches: who fills which, what is published, what is in use.

DIR/lock               held for moments: to open, publish or remove
DIR/KEY/               a published cache: cache.json, index.npz, part_*.bin
DIR/KEY.filling/       one that a run fills; worthless without its claim
DIR/KEY.gone.*         one that is being removed
DIR/KEY.claim          held by the run that fills it
DIR/KEY.in_use.*       held by a run that reads it, if it may write to DIR

A lock of the operating system ends with the process that holds it, however that ends, so no claim outlives its filler.
To look at what is there takes no lock. What else is in DIR is nobody's here.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock, Timeout

from etlrun.cache.entries import Entry
from etlrun.cache.folders import FILLING, GONE, PUBLISHED, discard, files_of, named, unusable
from etlrun.cache.locks import is_marked, mark, unmark
from etlrun.cache.parts import MANIFEST, BrokenError, Manifest, Reader
from etlrun.errors import WorldError
from etlrun.locks import alone, lock_of

Identity = list[list[Any]]

_claimed_here: set[Path] = set()
"""Claims of this process, for which it must not wait."""


def key_of(identity: Identity) -> str:
    """20 hex digits of a SHA-256 over the names and values of an identity."""
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:20]


def _is_writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _refuse_unwritable(folder: Path) -> None:
    if not _is_writable(folder):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


class Claim:
    """The right to fill one cache; whoever holds it may write into `folder`."""

    def __init__(self, lock: FileLock, folder: Path) -> None:
        self._lock, self.folder = lock, folder
        _claimed_here.add(folder)

    def release(self, *, keep: bool = False) -> None:
        """Give it back; what was filled goes, unless it was published (`keep`)."""
        if not keep:
            with contextlib.suppress(OSError):
                discard(self.folder)
        _claimed_here.discard(self.folder)
        self._lock.release()


class Opened:
    """A published cache in use, in a folder of that inode. `close` lets others remove it."""

    def __init__(self, reader: Reader, mark: FileLock | None, inode: int) -> None:
        self.reader, self._mark, self.inode = reader, mark, inode

    def close(self) -> None:
        """Use it no longer."""
        self.reader.close()
        if self._mark is not None:
            unmark(self._mark)


def folder_of(cache_dir: str | Path | None) -> Path:
    """Of all caches; the user's cache folder where `cache_dir` is None. `WorldError` for the home of nobody."""
    try:
        return Path(cache_dir).expanduser() if cache_dir else platformdirs.user_cache_path("etlrun")
    except RuntimeError as error:
        raise WorldError(
            where="cache.dir",
            found=f"{cache_dir}, in the home of a user who is not there",
            expected="a folder that can be written to",
            remedy="write the whole path",
        ) from error


class Store:
    """The caches below a folder, which is made only by `make`."""

    def __init__(self, cache_dir: str | Path | None) -> None:
        self.folder = folder_of(cache_dir)

    def make(self) -> None:
        """The folder, where it is not there; `WorldError` where it can't be, or can't be written to."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._alone():
                _refuse_unwritable(self.folder)
        except OSError as error:
            remedy = "set cache.dir to another folder, or cache=memory"
            raise unusable(error, self.folder, "cache.dir", remedy) from error

    def has(self, key: str) -> bool:
        """Whether there is something under the name of that cache."""
        return os.path.lexists(self.folder / key)

    def _alone(self) -> AbstractContextManager[None]:
        """No other process opens, publishes or removes meanwhile; `OSError` where that can't be had."""
        return alone(self.folder / "lock")

    def open(self, key: str) -> Opened | None:
        """The published cache of `key`, in use from now on, or None; `BrokenError` where it is broken.

        `FileExistsError` where something else has its name. Who may not write to the folder reads without a mark.
        """
        if not _is_writable(self.folder):
            return self._opened(key, marks=False)
        with self._alone():
            return self._opened(key)

    def _opened(self, key: str, *, marks: bool = True) -> Opened | None:
        folder = self.folder / key
        try:
            files_of(folder)
        except FileNotFoundError:
            return None
        inode = folder.stat().st_ino
        try:
            reader = Reader(folder, self._manifest(folder))
        except BrokenError as error:
            error.inode = inode
            raise
        with contextlib.suppress(OSError):  # of another user's cache the time stays
            os.utime(folder / MANIFEST)
        return Opened(reader, mark(folder) if marks else None, inode)

    def _manifest(self, folder: Path) -> Manifest:
        path = folder / MANIFEST
        if not path.is_file():
            raise BrokenError(path, "no manifest", "the one that a complete cache has")
        manifest = Manifest.read(path)
        if key_of(manifest.identity) != folder.name:
            raise BrokenError(path, "another cache's manifest", f"that of {folder.name}")
        return manifest

    def claim(self, key: str) -> Claim | None:
        """The right to fill the cache of `key`, with an empty folder; None while another run holds it.

        `FileExistsError` where something else has the name of that folder.
        """
        lock, folder = lock_of(self.folder / f"{key}.claim"), self.folder / f"{key}.filling"
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return None
        try:
            discard(folder)  # of a run that was killed
            folder.mkdir()
        except OSError:
            lock.release()
            raise
        return Claim(lock, folder)

    def is_claimed_here(self, key: str) -> bool:
        """Whether this very process fills it."""
        return self.folder / f"{key}.filling" in _claimed_here

    def wait(self, key: str, seconds: float) -> None:
        """Until whoever fills the cache of `key` is done or dead, or `seconds` have passed."""
        lock = lock_of(self.folder / f"{key}.claim")
        try:
            lock.acquire(timeout=seconds)
        except Timeout:
            return
        lock.release()

    def publish(self, key: str, claim: Claim, manifest: Manifest) -> Opened | None:
        """Make what was filled a cache that others trust, in one step; it is in use from then on."""
        (claim.folder / MANIFEST).write_text(manifest.text(), encoding="utf-8")
        with self._alone():
            claim.folder.rename(self.folder / key)
            opened = self._opened(key)
        claim.release(keep=True)
        return opened

    def entries(self) -> list[Entry]:
        """All published caches, the one that was used last first."""
        found = []
        for folder in named(self.folder, PUBLISHED):
            with contextlib.suppress(OSError):  # removed meanwhile, or one of which `strangers` tells
                found.append(self._entry(folder))
        return sorted(found, key=lambda entry: -entry.used_s)

    def _entry(self, folder: Path) -> Entry:
        files = files_of(folder)
        path = folder / MANIFEST
        try:
            manifest = self._manifest(folder)
        except OSError:
            manifest = None
        return Entry(
            key=folder.name,
            manifest=manifest,
            bytes=sum(file.stat().st_size for file in files),
            used_s=(path if path.exists() else folder).stat().st_mtime,
            in_use=is_marked(folder),
        )

    def remove(self, key: str, *, broken: int | None = None) -> bool:
        """Remove a published cache; False where it is in use. One that is gone already is no fault.

        `PermissionError` where it is another user's, `FileExistsError` where it is no cache.
        `broken` is the inode of a folder that is to go even if it is in use, and only if it is still that folder.
        """
        folder = self.folder / key
        with self._alone():
            try:
                files_of(folder)
            except FileNotFoundError:
                return True
            if broken is not None and folder.stat().st_ino != broken:
                return True
            if broken is None and is_marked(folder):
                return False
            _refuse_unwritable(folder)
            gone = self.folder / f"{key}.gone.{uuid.uuid4().hex[:8]}"
            folder.rename(gone)
        discard(gone)
        return True

    def leftovers(self) -> Iterator[tuple[Path, str]]:
        """What dead runs have left, removed one by one; with the reason where that is not possible."""
        for folder in named(self.folder, FILLING, GONE):
            try:
                if not self._is_cleared(folder):
                    continue
            except FileExistsError:  # of these, `strangers` tells
                continue
            except OSError as error:
                yield folder, error.strerror or str(error)
            else:
                yield folder, ""

    def _is_cleared(self, folder: Path) -> bool:
        """Whether it was left by a dead run, and is gone now."""
        if GONE.fullmatch(folder.name):
            discard(folder)
            return True
        claim = None if folder in _claimed_here else self.claim(folder.stem)
        if claim is not None:
            claim.release()
        return claim is not None
