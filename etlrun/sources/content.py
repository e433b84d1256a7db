"""Content of files, known in the user's cache folder until they change; and of the records of shards, by checksums."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import platformdirs
import xxhash

from etlrun.remote.objects import Object, Storage, changed
from etlrun.sources.framing import AROUND, around, framing, lengths, record_at
from etlrun.stages.lazy import np, npt
from etlrun.system.errors import WorldError
from etlrun.system.files import as_unicode
from etlrun.system.values import frozen, sha256_of

_READERS = 16
"""Number of files read in parallel, since network storage has a high latency."""
SETTLED_NS = 2_000_000_000
"""Age of a change from which on the next one has another time, whatever the resolution of the file system."""
Stamp = tuple[int, ...]
Read = Callable[[str], bytes | None]

_in_process: dict[tuple[str, str, Stamp], bytes | None] = {}


def digest(value: object) -> str:
    """Return the first 16 hex digits of a SHA-256 over a value in JSON, in which other types are text."""
    return sha256_of(json.dumps(value, default=str))


def stamp_of(path: str) -> Stamp:
    """Return what changes with a file: its device, inode, size, and times of modification and of change."""
    of = os.stat(path)  # noqa: PTH116 - of many files
    return of.st_dev, of.st_ino, of.st_size, of.st_mtime_ns, of.st_ctime_ns


def is_as(path: str, stamp: Stamp) -> bool:
    """Return whether a file is there, and has this stamp."""
    try:
        return stamp_of(path) == stamp
    except OSError:
        return False


def known(stamps: Mapping[str, Stamp], read: Read) -> dict[str, bytes | None]:
    """Return `read(path)` for each path; a file that has been read before, and has the same stamp, is not read again.

    What was read is kept for later processes, except of files that were changed a moment ago or gave None. Without a
    folder that can be written to, files are read by each process.
    """
    kind = read.__name__
    missing = {path: stamp for path, stamp in stamps.items() if (kind, path, stamp) not in _in_process}
    if missing:
        found = _tried(partial(_kept, kind, missing)) or {}
        unread = [path for path in missing if path not in found]
        with ThreadPoolExecutor(_READERS) as readers:
            made = dict(zip(unread, readers.map(read, unread), strict=True))
        if made:
            _tried(partial(_keep, kind, made, missing))
        found = found | made
        _in_process.update({(kind, path, stamp): found[path] for path, stamp in missing.items()})
    return {path: _in_process[kind, path, stamp] for path, stamp in stamps.items()}


_BUSY_S = 10.0
"""Seconds to wait for another process that writes to the database."""
_TABLE = (
    "CREATE TABLE IF NOT EXISTS files"
    "(kind TEXT, path TEXT, stamp TEXT, value BLOB, checksum TEXT, PRIMARY KEY (kind, path)) WITHOUT ROWID"
)


def _tried(work: Callable[[sqlite3.Connection], Any]) -> Any:
    """Return what is done with the database of all files; None if it is busy, read-only, full, damaged or nowhere."""
    path = platformdirs.user_cache_path("etlrun") / "records.sqlite"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(path, timeout=_BUSY_S)) as database, database:
            database.execute(_TABLE)
            return work(database)
    except (OSError, sqlite3.OperationalError):
        return None
    except sqlite3.DatabaseError:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    return None


def _key(path: str, stamp: Stamp) -> tuple[str, str]:
    return as_unicode(os.path.abspath(path)), " ".join(map(str, stamp))  # noqa: PTH100 - of many files


def _kept(kind: str, stamps: Mapping[str, Stamp], database: sqlite3.Connection) -> dict[str, bytes | None]:
    asked = {_key(path, stamp): path for path, stamp in stamps.items()}
    names = json.dumps([name for name, _ in asked])
    query = (
        "SELECT files.path, stamp, files.value, checksum FROM json_each(?) AS named "
        "CROSS JOIN files ON files.kind = ? AND files.path = named.value"  # in this order, so that its key is used
    )
    return {
        asked[name, stamp]: value
        for name, stamp, value, checksum in database.execute(query, (names, kind))
        if (name, stamp) in asked and value is not None and checksum == xxhash.xxh3_64_hexdigest(value)
    }


def _keep(
    kind: str, made: Mapping[str, bytes | None], stamps: Mapping[str, Stamp], database: sqlite3.Connection
) -> None:
    settled_ns = time.time_ns() - SETTLED_NS
    rows = [
        (kind, *_key(path, stamps[path]), value, xxhash.xxh3_64_hexdigest(value))
        for path, value in made.items()
        if value is not None and max(stamps[path][-2:]) < settled_ns and is_as(path, stamps[path])
    ]
    database.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", rows)


@frozen
class Shard:
    """A part of one file.

    Attributes:
        path: Of the TFRecord file.
        skip: Records to leave out at the start.
        take: Records to read after that.
    """

    path: str
    skip: int
    take: int

    @property
    def name(self) -> str:
        """Name of the file, without its folders."""
        return os.path.basename(self.path)  # noqa: PTH119 - of many files

    @property
    def end(self) -> int:
        """Number in the file of the record behind the last one."""
        return self.skip + self.take


def whole(counts: Mapping[str, int]) -> list[Shard]:
    """Return whole files with these numbers of records, by path."""
    return [Shard(path=path, skip=0, take=count) for path, count in counts.items()]


def cut(shards: Sequence[Shard], start: int, stop: int) -> Iterator[Shard]:
    """Yield the shards of the examples from `start` on and before `stop`, counted over all of them."""
    first = 0
    for shard in shards:
        left_out = max(0, start - first)
        take = min(shard.take, stop - first) - left_out
        if take > 0:
            yield replace(shard, skip=shard.skip + left_out, take=take)
        first += shard.take


class RecordsRead:
    """Comparison of the records that a pass reads with the checksums in their files, in the order of each file.

    Attributes:
        differing: Path of a file that had another record at its place; None if there is none.
    """

    def __init__(self, shards: Sequence[Shard], framings: Sequence[bytes | None]) -> None:
        """Begin a pass over shards whose files have this framing; None where it is not known."""
        self._shards, self._framings = shards, framings
        self._next, self._counts = [shard.skip for shard in shards], [0 for _ in shards]
        self.differing: str | None = None

    @property
    def unseen(self) -> list[str]:
        """Paths of the files of which a record has not been compared."""
        return [shard.path for shard, count in zip(self._shards, self._counts, strict=True) if count < shard.take]

    def add(self, number: int, record: bytes) -> None:
        """Compare the next record of the shard of that number; those behind the one before it were skipped."""
        shard, held = self._shards[number], self._framings[number] or b""
        found = around(record)
        for place in range(self._next[number], shard.end):
            if held[place * AROUND : (place + 1) * AROUND] == found:
                self._next[number] = place + 1
                self._counts[number] += 1
                return
        if held:
            self.differing = shard.path


class Content:
    """Content of some shards at the time of construction: a file that is modified later counts as changed.

    A record whose data have changed but whose checksum has not can't be read, so that checksums identify records.
    They differ if TFDS prepares the same examples twice, since it writes their features in a different order.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards
        self._stamps = {shard.path: stamp_of(shard.path) for shard in shards}
        self._folders = {folder: stamp_of(folder) for folder in {str(Path(path).parent) for path in self._stamps}}
        self._found: dict[tuple[Shard, bool], str | None] = {}
        self._read: RecordsRead | None = None

    @cached_property
    def digest(self) -> str | None:
        """First 16 hex digits of a SHA-256 over the records that are read: file names, positions and checksums.

        None if a file is not a TFRecord, is damaged or can't be read: no whole file is read for the digest.
        """
        try:
            found = self._digested(self._shards, whole=False)
        except OSError:  # reading the examples reports it
            return None
        places = [[of.name, of.skip, of.take, found[of]] for of in self._shards]
        return None if None in found.values() else digest(places)

    def files(self, *, whole: bool) -> list[list[object]]:
        """Return for each shard its file name and the records that are read, with a hash over their checksums.

        The hash is over the whole file if that is requested, or if its records can't be separated.

        Raises:
            WorldError: A file can't be read.
        """
        try:
            found = self._digested(self._shards, whole=whole)
            found |= self._digested([shard for shard, of in found.items() if of is None], whole=True)
        except OSError as error:
            where, remedy = error.filename or Path(self._shards[0].path).parent, "check the file and its permissions"
            raise WorldError(where, str(error.strerror or error), "a shard that can be read", remedy) from error
        return [[of.name, [of.skip, of.take, found[of]]] for of in self._shards]

    def changed(self) -> str | None:
        """Return the path of a file whose records differ from those that were hashed; None if there is none.

        A copy, a link or other permissions of a file are no change, unless records of it were to be compared and could
        not be: it may have been another file for a while.
        """
        if self._read is not None:
            unseen = self._read.unseen
            suspects = [*unseen, *dict.fromkeys(str(Path(path).parent) for path in unseen)]
            if (path := self._read.differing or next(filter(self._is_touched, suspects), None)) is not None:
                return path
        for (shard, whole), before in self._found.items():
            try:
                stamp = stamp_of(shard.path)
                if stamp != self._stamps[shard.path] and _digests([shard], {shard.path: stamp}, whole)[shard] != before:
                    return shard.path
            except OSError:
                return shard.path
        return None

    def compared(self) -> Callable[[int, bytes], None]:
        """Return what compares the records of a pass with those that were hashed, of which `changed` takes notice."""
        held = known(self._stamps, framing)
        framings = [None if self._is_touched(shard.path) else held[shard.path] for shard in self._shards]
        self._read = RecordsRead(self._shards, framings)
        return self._read.add

    def _is_touched(self, path: str) -> bool:
        """Return whether a file, or a folder of files, is another one or may have been."""
        return not is_as(path, (self._stamps | self._folders)[path])

    def _digested(self, shards: Sequence[Shard], *, whole: bool) -> dict[Shard, str | None]:
        found = _digests(shards, self._stamps, whole)
        self._found |= {(shard, whole): of for shard, of in found.items()}
        return found


def _digests(shards: Sequence[Shard], stamps: Mapping[str, Stamp], whole: bool) -> dict[Shard, str | None]:  # noqa: FBT001 - see `Content.files`
    """Return the digests of shards, as they were at `stamps`; None where records can't be separated."""
    held = known({shard.path: stamps[shard.path] for shard in shards}, sha256_of_all if whole else framing)
    found = dict[Shard, str | None]()
    for shard in shards:
        data = held[shard.path]
        if data is not None and not whole:
            wanted = data[AROUND * shard.skip : AROUND * shard.end]
            found[shard] = None if len(wanted) < AROUND * shard.take else hashlib.sha256(wanted).hexdigest()[:16]
        else:
            found[shard] = data.hex() if data else None
    return found


def sha256_of_all(path: str) -> bytes:
    """Return the first 8 bytes of a SHA-256 over the whole file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()[:8]


class Numbered:
    """Records of shards by number, from 0 for the first record of the first shard.

    It holds 8 bytes a record in memory. Its functions may be called by several threads at once.

    Attributes:
        count: Number of records.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        """Locate all records; `ValueError` if those of a shard can't be told apart, `OSError` for unreadable files."""
        self._paths = [shard.path for shard in shards]
        self._firsts = np.cumsum([0, *(shard.take for shard in shards)])
        self._starts = np.concatenate(starts_of(shards))
        self.count = int(self._firsts[-1])

    def read(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return the data of these records; raise `ValueError` if one is damaged, `OSError` if it can't be read."""
        return np.array([self.one(int(number)) for number in numbers], dtype=object)

    def one(self, number: int) -> bytes:
        """Return the data of a record; raises as `read` does."""
        shard = int(np.searchsorted(self._firsts, number, side="right")) - 1
        path, place = self._paths[shard], int(self._starts[number + shard])
        return record_at(path, place, int(self._starts[number + shard + 1]) - place)


def starts_of(shards: Sequence[Shard]) -> list[npt.NDArray[np.int64]]:
    """Return the place in its file of each record that is read, and of the end of the last one, for each shard.

    Raises:
        ValueError: The records of a file can't be separated, or there are too few.
        OSError: A file can't be read.
    """
    held = known({shard.path: stamp_of(shard.path) for shard in shards}, framing)
    found = []
    for shard in shards:
        sizes = lengths(held[shard.path] or b"")[: shard.end] + AROUND
        if shard.take and len(sizes) < shard.end:
            raise ValueError(f"{shard.path} is truncated or damaged")
        found.append(np.concatenate([[0], np.cumsum(sizes)])[shard.skip :])
    return found


class VersionedContent:
    """Content of shards by the versions of their objects, which can't change without those.

    Copies are compared with their objects when they are fetched.
    """

    compared = None

    def __init__(self, shards: Sequence[tuple[Shard, Object]], storage: Storage) -> None:
        self._shards, self._storage = shards, storage

    @property
    def digest(self) -> str | None:
        """First 16 hex digits of a SHA-256 over what is read: file names, positions and versions."""
        return digest(self.files(whole=False))

    def files(self, *, whole: bool) -> list[list[object]]:
        """Return for each shard its file name, the records that are read, and the version of the object."""
        return [[of.name, [shard.skip, shard.take, of.bytes, of.version]] for shard, of in self._shards]

    def changed(self) -> str | None:
        """Return the URL of an object that has another version now, or is gone; None if there is none."""
        objects = [*dict.fromkeys(of for _, of in self._shards)]
        return next((error.faults[0].where for error in changed(objects, self._storage)), None)
