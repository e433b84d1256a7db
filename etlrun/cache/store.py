"""Store of all caches: a folder with claims, published caches, and marks of use.

DIR/lock               held briefly to open, publish or remove a cache
DIR/KEY/               a published cache: cache.json, index.npz, part_*.bin
DIR/KEY.filling/       a cache being filled; worthless without its claim
DIR/KEY.gone.*         a cache being removed
DIR/KEY.claim          held by the run that fills the cache
DIR/in_use/KEY.*       held by a run that reads the cache, if it may write to DIR

A lock of the operating system ends with the process that holds it in any case, so that no claim outlives its owner.
Listing the caches takes no lock. Other files and folders in DIR are foreign: they are neither read nor removed.
"""

import errno
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

import platformdirs

from etlrun.cache.parts import INDEX, MANIFEST, BrokenError, Manifest, PartReader, require_files
from etlrun.system.errors import WorldError
from etlrun.system.files import LONGEST_S, Lock, alone
from etlrun.system.values import frozen, sha256_of

_KEY = "[0-9a-f]{20}"
PUBLISHED, FILLING, GONE = (
    re.compile(_KEY),
    re.compile(rf"{_KEY}\.filling"),
    re.compile(rf"{_KEY}\.gone\.[0-9a-f]{{8}}"),
)
"""Names of folders: of a cache, of one being filled, of one being removed."""
_MARKS = "in_use"
"""Folder of marks apart from what they mark, so that the marks of one cache are found without listing all caches."""
_MARK = re.compile(r".+\.[0-9]+\.[0-9a-f]{8}")
_FILE = re.compile(rf"{re.escape(MANIFEST)}|{re.escape(INDEX)}|part_[0-9]{{5,}}\.bin")


def named(folder: Path, *names: re.Pattern[str]) -> list[Path]:
    """Return the sorted paths in `folder` with such names; none if the folder doesn't exist."""
    try:
        found = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    return [path for path in found if any(pattern.fullmatch(path.name) for pattern in names)]


def files_of(folder: Path) -> list[os.DirEntry[str]]:
    """Return the files of a cache; raise `FileNotFoundError` if it is missing, `FileExistsError` if it is no cache."""
    found = "a link"
    if not folder.is_symlink():
        try:
            with os.scandir(folder) as items:
                files = list(items)
        except NotADirectoryError:
            found = "a file"
        else:
            others = [of.name for of in files if not _FILE.fullmatch(of.name) or not of.is_file(follow_symlinks=False)]
            if not others:
                return files
            found = f"a folder that holds {os.fsencode(min(others)).decode(errors='backslashreplace')}"
    raise FileExistsError(errno.EEXIST, f"{found} has the name of a cache", str(folder))


def discard(folder: Path) -> None:
    """Remove a cache, if it exists; raise `OSError` if it can't be removed, or isn't a cache."""
    with suppress(FileNotFoundError):
        for file in files_of(folder):
            Path(file).unlink(missing_ok=True)
        folder.rmdir()


def strangers(folder: Path) -> list[tuple[str, str]]:
    """Return names of caches that belong to something else or can't be inspected, each with the reason."""
    found = []
    for path in named(folder, PUBLISHED, FILLING, GONE):
        try:
            files_of(path)
        except FileNotFoundError:  # removed by another process
            continue
        except OSError as error:
            found.append((path.name, error.strerror or str(error)))
    return found


def unusable(error: OSError, folder: Path, where: str, remedy: str) -> WorldError:
    """Return the error for a folder of caches that can't be used; `remedy` is for one that isn't writable."""
    found, expected = f"{error.filename or folder}: {error.strerror or error}", "a folder that can be written to"
    if isinstance(error, FileExistsError) and error.filename == str(folder):
        found = f"{folder}: a file or a broken link has this name"
    elif isinstance(error, TimeoutError):
        expected = "a lock that is held only briefly"
        remedy = f"`fuser {error.filename}` names the process: let it finish, or end it"
    return WorldError(where, found, expected, remedy)


def mark(path: Path) -> Lock:
    """Mark what the name of `path` begins with as in use by this process, until `unmark`."""
    lock = Lock(path.parent / _MARKS / f"{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    lock.path.parent.mkdir(exist_ok=True)
    with suppress(PermissionError):  # another user has made it
        shutil.copymode(path.parent, lock.path.parent)  # who may write there marks here, whatever the umask
    lock.acquire(timeout_s=LONGEST_S)
    return lock


def unmark(lock: Lock) -> None:
    """Remove the mark."""
    lock.release()
    with suppress(OSError):
        lock.path.unlink()


def marks_of(path: Path) -> list[Path]:
    """Return the marks that processes hold, and remove those of dead ones; one that can't be inspected counts as held.

    With any of them it is in use.
    """
    held = []
    for found in named(path.parent / _MARKS, _MARK):
        if found.name.rsplit(".", 2)[0] != path.name:
            continue
        lock = Lock(found)
        try:
            lock.acquire()
        except OSError:  # includes `TimeoutError`
            held.append(found)
        else:
            with suppress(OSError):  # before it is released: a process that is about to hold it creates it again
                found.unlink()
            lock.release()
    return held


Identity = list[list[Any]]
"""Names with their values."""


@frozen
class CacheEntry:
    """A published cache.

    Attributes:
        key: Key of its identity.
        manifest: Manifest; None if it can't be read.
        bytes: Size of all its files.
        used_s: Time of the last use, in seconds since 1970.
        in_use: Whether a run is reading it.
    """

    key: str
    manifest: Manifest | None
    bytes: int
    used_s: float
    in_use: bool


BROKEN, IN_USE, READY = "broken: will be rebuilt", "in use", "ready"
"""States of what is listed."""


@frozen
class ListedBeside:
    """What is listed beside caches: kept columns, or all that is fetched.

    Attributes:
        key: What it is called.
        title: What it is of.
        elements: What it has, in words.
        count: Number of rows; None if it has none.
        bytes: Size of all its files.
        made_s: Time at which it was written, in seconds since 1970; None if that is not one time.
        used_s: Time of the last use, in seconds since 1970.
        state: Whether it is complete and in use, in words.
        in_use: Whether processes use all of it, so that nothing can be removed.
    """

    key: str
    title: str = "?"
    elements: str
    count: int | None = None
    bytes: int
    made_s: float | None = None
    used_s: float
    state: str
    in_use: bool


def first_difference(wanted: Identity, there: Identity) -> tuple[str, Any, Any] | None:
    """Return the first name whose values differ, with both values; None if there is no difference."""
    own, other = dict(map(tuple, wanted)), dict(map(tuple, there))
    names = (of for of in own | other if (of in own, own.get(of)) != (of in other, other.get(of)))
    return next(((name, own.get(name), other.get(name)) for name in names), None)


def nearest(wanted: Identity, entries: Sequence[CacheEntry]) -> CacheEntry | None:
    """Return the entry that has most in common with `wanted`; of several, the one used last."""
    readable = [entry for entry in entries if entry.manifest is not None]
    pairs = {json.dumps(pair) for pair in wanted}
    return max(
        readable,
        key=lambda entry: (len(pairs & {json.dumps(p) for p in entry.manifest.identity}), entry.used_s),  # type: ignore[union-attr]
        default=None,
    )


_claimed_here: set[Path] = set()
"""Claims held by this process, for which it must not wait."""


def key_of(identity: Identity) -> str:
    """Return the first 20 hex digits of a SHA-256 over the names and values of an identity."""
    return sha256_of(json.dumps(identity, sort_keys=True), 20)


def _is_writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _refuse_unwritable(folder: Path) -> None:
    if not _is_writable(folder):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


class Claim:
    """The right to fill a cache, and to write into `folder`."""

    def __init__(self, lock: Lock, folder: Path) -> None:
        self._lock, self.folder = lock, folder
        _claimed_here.add(folder)

    def release(self, *, keep: bool = False) -> None:
        """Release the claim; discard the folder unless it was published (`keep`)."""
        if not keep:
            with suppress(OSError):
                discard(self.folder)
        _claimed_here.discard(self.folder)
        self._lock.release()


class Opened(PartReader):
    """A published cache in use, in the folder with that inode. After `close` others may remove it."""

    def __init__(self, folder: Path, manifest: Manifest, inode: int, *, marks: bool) -> None:
        super().__init__(folder, manifest)
        self.inode, self._mark = inode, mark(folder) if marks else None

    def close(self) -> None:
        """Close the cache, and end its use."""
        super().close()
        if self._mark is not None:
            unmark(self._mark)


def folder_of(cache_dir: str | Path | None) -> Path:
    """Return the folder of all caches, by default the user's cache folder; raise `WorldError` for an unknown home."""
    try:
        return Path(cache_dir).expanduser() if cache_dir else platformdirs.user_cache_path("etlrun")
    except RuntimeError as error:
        found, expected = f"{cache_dir}, in the home of an unknown user", "a folder that can be written to"
        raise WorldError("cache.dir", found, expected, "give the full path") from error


class CacheStore:
    """Caches in a folder, which only `make` creates.

    Attributes:
        folder: The folder.
    """

    def __init__(self, cache_dir: str | Path | None) -> None:
        self.folder = folder_of(cache_dir)

    def make(self) -> None:
        """Create the folder if it doesn't exist; raise `WorldError` if that fails, or it isn't writable."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._alone():
                _refuse_unwritable(self.folder)
        except OSError as error:
            remedy = "set cache.dir to another folder, or cache=none"
            raise unusable(error, self.folder, "cache.dir", remedy) from error

    def has(self, key: str) -> bool:
        """Return whether there is something with the name of that cache."""
        return os.path.lexists(self.folder / key)

    def _alone(self) -> AbstractContextManager[None]:
        """Return the lock that keeps other processes from opening, publishing or removing; it may raise `OSError`."""
        return alone(self.folder / "lock")

    def open(self, key: str) -> Opened | None:
        """Return the published cache of `key`, now in use, or None. Without write access it is read without a mark.

        Raises:
            BrokenError: The cache is broken.
            FileExistsError: Something else has its name.
        """
        marks = _is_writable(self.folder)
        with self._alone() if marks else nullcontext():
            return self._opened(key, marks=marks)

    def _opened(self, key: str, *, marks: bool) -> Opened | None:
        folder = self.folder / key
        try:
            files_of(folder)
        except FileNotFoundError:
            return None
        inode = folder.stat().st_ino
        try:
            opened = Opened(folder, self._manifest(folder), inode, marks=marks)
        except BrokenError as error:
            error.inode = inode
            raise
        with suppress(OSError):  # another user's cache keeps its time
            os.utime(folder / MANIFEST)
        return opened

    def _manifest(self, folder: Path) -> Manifest:
        path = folder / MANIFEST
        if not path.is_file():
            raise BrokenError(path, "no manifest", "that of a complete cache")
        manifest = Manifest.read(path)
        if key_of(manifest.identity) != folder.name:
            raise BrokenError(path, "the manifest of another cache", f"that of {folder.name}")
        return manifest

    def claim(self, key: str) -> Claim | None:
        """Return the claim of the cache of `key`, with an empty folder; None while another run holds it.

        Raises:
            FileExistsError: Something else has the name of that folder.
        """
        lock, folder = Lock(self.folder / f"{key}.claim"), self.folder / f"{key}.filling"
        try:
            lock.acquire()
        except TimeoutError:
            return None
        try:
            discard(folder)  # left by a run that was killed
            folder.mkdir()
        except OSError:
            lock.release()
            raise
        return Claim(lock, folder)

    def is_claimed_here(self, key: str) -> bool:
        """Return whether this process is filling it."""
        return self.folder / f"{key}.filling" in _claimed_here

    def publish(self, key: str, claim: Claim, manifest: Manifest) -> Opened | None:
        """Publish a filled cache atomically, and return it in use."""
        (claim.folder / MANIFEST).write_text(manifest.text(), encoding="utf-8")
        with self._alone():
            claim.folder.rename(self.folder / key)
            opened = self._opened(key, marks=True)
        claim.release(keep=True)
        return opened

    def entries(self) -> list[CacheEntry]:
        """Return all published caches, most recently used first."""
        found = []
        for folder in named(self.folder, PUBLISHED):
            with suppress(OSError):  # removed meanwhile, or reported by `strangers`
                files, path, manifest = files_of(folder), folder / MANIFEST, None
                with suppress(OSError):
                    held = self._manifest(folder)
                    require_files(folder, held)
                    manifest = held
                entry = CacheEntry(
                    key=folder.name,
                    manifest=manifest,
                    bytes=sum(file.stat().st_size for file in files),
                    used_s=(path if path.exists() else folder).stat().st_mtime,
                    in_use=bool(marks_of(folder)),
                )
                found.append(entry)
        return sorted(found, key=lambda entry: -entry.used_s)

    def remove(self, key: str, *, broken: int | None = None) -> bool:
        """Remove a published cache, if it exists; return False if it is in use.

        `broken` is the inode of a folder to remove even if it is in use, but only if it is still the same folder.

        Raises:
            PermissionError: The cache belongs to another user.
            FileExistsError: It isn't a cache.
        """
        folder = self.folder / key
        with self._alone():
            try:
                files_of(folder)
            except FileNotFoundError:
                return True
            if broken is not None and folder.stat().st_ino != broken:
                return True
            if broken is None and marks_of(folder):
                return False
            _refuse_unwritable(folder)
            gone = self.folder / f"{key}.gone.{uuid.uuid4().hex[:8]}"
            folder.rename(gone)
        discard(gone)
        return True

    def leftovers(self) -> Iterator[tuple[Path, str]]:
        """Remove what dead runs have left, and yield each path with the reason if that fails."""
        for folder in named(self.folder, FILLING, GONE):
            reason = ""
            try:
                if GONE.fullmatch(folder.name):
                    discard(folder)
                elif folder in _claimed_here or (claim := self.claim(folder.stem)) is None:
                    continue
                else:
                    claim.release()
            except FileExistsError:  # reported by `strangers`
                continue
            except OSError as error:
                reason = error.strerror or str(error)
            yield folder, reason
