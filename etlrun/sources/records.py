"""What is known of each file of a dataset, kept in the user's cache folder until the file changes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import platformdirs
import xxhash

from etlrun.system.files import as_unicode

_READERS = 16
"""Number of files read in parallel, since network storage has a high latency."""
SETTLED_NS = 2_000_000_000
"""Age of a change from which on the next one has another time, whatever the resolution of the file system."""
_BUSY_S = 10.0
Stamp = tuple[int, ...]
Read = Callable[[str], bytes | None]

_in_process: dict[tuple[str, str, Stamp], bytes | None] = {}


def digest(value: object) -> str:
    """Return the first 16 hex digits of a SHA-256 over a value in JSON, in which other types are text."""
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()[:16]


def stamp_of(path: str) -> Stamp:
    """Return what changes with a file: its device, inode, size, and times of modification and of change."""
    of = os.stat(path)  # noqa: PTH116 - of many files
    return of.st_dev, of.st_ino, of.st_size, of.st_mtime_ns, of.st_ctime_ns


def known(stamps: Mapping[str, Stamp], read: Read) -> dict[str, bytes | None]:
    """Return `read(path)` for each path; a file that has been read before, and has the same stamp, is not read again.

    What was read is kept for later processes, except of files that were changed a moment ago or gave None. Without a
    folder that can be written to, files are read by each process.
    """
    kind = read.__name__
    missing = {path: stamp for path, stamp in stamps.items() if (kind, path, stamp) not in _in_process}
    if missing:
        with _opened() as database:
            found = {} if database is None else _kept(database, kind, missing)
            unread = [path for path in missing if path not in found]
            with ThreadPoolExecutor(_READERS) as readers:
                made = dict(zip(unread, readers.map(read, unread), strict=True))
            if database is not None and made:
                _keep(database, kind, made, missing)
        found = found | made
        _in_process.update({(kind, path, stamp): found[path] for path, stamp in missing.items()})
    return {path: _in_process[kind, path, stamp] for path, stamp in stamps.items()}


def _place() -> Path:
    return platformdirs.user_cache_path("etlrun") / "records.sqlite"


@contextmanager
def _opened() -> Iterator[sqlite3.Connection | None]:
    """Open the database of all files; None where there can't be one."""
    path = _place()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(path, timeout=_BUSY_S)
    except (OSError, sqlite3.Error):
        yield None
        return
    with contextlib.closing(database):
        with _repaired(path):
            database.execute(
                "CREATE TABLE IF NOT EXISTS files"
                "(kind TEXT, path TEXT, stamp TEXT, value BLOB, checksum TEXT, PRIMARY KEY (kind, path)) WITHOUT ROWID"
            )
        yield database


@contextmanager
def _repaired(path: Path) -> Iterator[None]:
    """Go on without a database that is busy, read-only or full; remove a damaged one, which is made again."""
    try:
        yield
    except sqlite3.OperationalError:
        pass
    except sqlite3.DatabaseError:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _kept(database: sqlite3.Connection, kind: str, stamps: Mapping[str, Stamp]) -> dict[str, bytes | None]:
    asked = {(_absolute(path), _text(stamp)): path for path, stamp in stamps.items()}
    names = json.dumps([name for name, _ in asked])
    query = (
        "SELECT files.path, stamp, files.value, checksum FROM json_each(?) AS named "
        "CROSS JOIN files ON files.kind = ? AND files.path = named.value"  # in this order, so that its key is used
    )
    found = {}
    with _repaired(_place()):
        for name, stamp, value, checksum in database.execute(query, (names, kind)):
            if (name, stamp) in asked and value is not None and checksum == _checksum(value):
                found[asked[name, stamp]] = value
    return found


def _keep(
    database: sqlite3.Connection, kind: str, made: Mapping[str, bytes | None], stamps: Mapping[str, Stamp]
) -> None:
    settled_ns = time.time_ns() - SETTLED_NS
    rows = [
        (kind, _absolute(path), _text(stamps[path]), value, _checksum(value))
        for path, value in made.items()
        if value is not None and max(stamps[path][-2:]) < settled_ns and _is_unchanged(path, stamps[path])
    ]
    with _repaired(_place()), database:
        database.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", rows)


def _is_unchanged(path: str, stamp: Stamp) -> bool:
    try:
        return stamp_of(path) == stamp
    except OSError:
        return False


def _absolute(path: str) -> str:
    return as_unicode(os.path.abspath(path))  # noqa: PTH100 - of many files; SQLite's text is UTF-8


def _text(stamp: Stamp) -> str:
    return " ".join(map(str, stamp))


def _checksum(value: bytes | None) -> str:
    return xxhash.xxh3_64_hexdigest(value or b"")
