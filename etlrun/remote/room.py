"""Room for copies on disk: which of them processes use, and which are removed for others.

DIR/fetched/lock               held briefly to mark copies as in use, and to remove others
DIR/fetched/in_use/copies.*    keys and sizes of the copies that a process uses or fetches; held by it
"""

import atexit
import errno
import json
import os
import re
import shutil
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any
from weakref import WeakSet

from etlrun.cache.store import IN_USE, READY, ListedBeside, mark, marks_of, named, unmark
from etlrun.remote.objects import Object
from etlrun.system.errors import WorldError, counted
from etlrun.system.files import Lock, alone
from etlrun.system.machine import rounded

FETCHED = "fetched"
"""Name of the folder of copies in a folder of caches."""
PART = ".part"
"""Name of what has arrived of an object."""
_KEY = re.compile("[0-9a-f]{20}")
_MARK = "copies"


def unwritable(error: OSError, folder: Path, needed_bytes: int, what: str) -> WorldError:
    """Return the error for a folder in which `what` can't be written."""
    remedy = "choose another folder for the copies"
    if error.errno == errno.ENOSPC:
        makes_room = "set dataset.keep to a size, such as 20GB, with which files that were read make room for others"
        remedy = f"free disk space, {makes_room}, or {remedy}"
    return WorldError(
        str(error.filename or folder),
        error.strerror or str(error),
        f"a folder with space for {rounded(needed_bytes)} of {what}",
        remedy,
    )


class Room:
    """The copies in a folder `fetched`, and those that this process uses.

    Attributes:
        readers: Their readers in this process: `Ahead` of `copies`, which is above.
    """

    def __init__(self, folder: Path) -> None:
        self.readers: WeakSet[Any] = WeakSet()
        self._folder = folder
        self._here = threading.Lock()
        self._uses: Counter[str] = Counter()
        self._bytes: dict[str, int] = {}
        self._mark: Lock | None = None
        self._process = os.getpid()
        atexit.register(self._forget)

    def used(self) -> dict[str, int]:
        """Return the sizes of the copies that this process uses or fetches, by their keys."""
        with self._here:
            return dict(self._bytes)

    def use(
        self, objects: Sequence[Object], keep_bytes: int | None, last: Mapping[str, int] = MappingProxyType({})
    ) -> bool:
        """Mark copies as in use, those that are still to be fetched, too; return whether there is room for them.

        Args:
            objects: The objects.
            keep_bytes: The most that all copies take on disk, for which others are removed; None for no limit.
            last: Copies that are removed after all others, with their order: the greatest first.

        Raises:
            WorldError: Nothing can be written there.
        """
        with self._here:
            new = {of.key: of.bytes for of in objects if of.key not in self._bytes}
            if new and (os.access(self._folder, os.W_OK) or not self._folder.exists()):
                try:
                    with alone(self._folder / "lock"):
                        if keep_bytes is not None and not self._made(new, keep_bytes, last):
                            return False
                        self._bytes |= new
                        self._write()
                except OSError as error:
                    raise unwritable(error, self._folder, sum(new.values()), "copies") from error
            self._uses.update(of.key for of in objects)
            return True

    def leave(self, objects: Sequence[Object], *, soon: bool = True) -> None:
        """End the use of copies, which is the last use of them so far; others see it `soon`, or at the next use."""
        with self._here:
            gone = []
            for of in objects:
                self._uses[of.key] -= 1
                if not self._uses[of.key]:
                    del self._uses[of.key]
                    gone.append(self._bytes.pop(of.key, None))
                with suppress(OSError):
                    os.utime(self._folder / of.key / of.name)
            if gone and self._mark is not None and (soon or not self._bytes):
                with suppress(OSError), alone(self._folder / "lock"):  # more stays marked than has to
                    self._write()

    def _write(self) -> None:
        if not self._bytes:
            self._forget()
            return
        if self._mark is None:
            marks_of(self._folder / _MARK)  # removes those of processes that were killed
            self._mark = mark(self._folder / _MARK)
        self._mark.path.write_text(json.dumps(self._bytes))

    def _forget(self) -> None:
        if self._mark is not None and self._process == os.getpid():  # and not in one that was forked
            unmark(self._mark)
            self._mark = None

    def _made(self, new: Mapping[str, int], keep_bytes: int, last: Mapping[str, int]) -> bool:
        """Remove copies until there is room for new ones; return whether there is."""
        used = {**_used_in(self._folder), **new}
        sizes = {folder.name: sum(_sizes_in(folder).values()) for folder in named(self._folder, _KEY)}
        over = sum((sizes | used).values()) - keep_bytes
        others = [key for key in sizes if key not in used]
        if over > sum(sizes[key] for key in others):
            return False
        for key in sorted(others, key=lambda key: (key in last, -last.get(key, 0), _used_s(self._folder / key))):
            if over <= 0:
                break
            over -= sizes[key] if _remove(self._folder / key) else 0
        return over <= 0


@cache
def room_of(_pid: int, folder: Path) -> Room:
    """Return the room of a process for a folder."""
    return Room(folder)


def _sizes_in(folder: Path) -> dict[str, int]:
    with suppress(OSError), os.scandir(folder) as items:
        return {item.name: item.stat().st_size for item in items if item.is_file(follow_symlinks=False)}
    return {}


def _used_in(folder: Path) -> dict[str, int]:
    """Return the sizes of the copies that processes use or fetch, by their keys."""
    used: dict[str, int] = {}
    for path in marks_of(folder / _MARK):
        with suppress(OSError, ValueError):
            used |= json.loads(path.read_text())
    return used


def _used_s(copy: Path) -> float:
    with suppress(OSError):
        return max((file.stat().st_mtime for file in copy.iterdir()), default=0.0)
    return 0.0


def _remove(copy: Path) -> bool:
    """Remove a copy that no process uses, whole or not; return False if the system doesn't allow it."""
    shutil.rmtree(copy, ignore_errors=True)
    return not copy.exists()


def fetched_in(parent: Path) -> list[ListedBeside]:
    """Return what is fetched into a folder of caches; nothing if that is none."""
    copies = named(parent / FETCHED, _KEY)
    if not copies:
        return []
    num_used = len({copy.name for copy in copies} & {*_used_in(parent / FETCHED)})
    return [
        ListedBeside(
            key=FETCHED,
            title="URLs",
            elements=counted(len(copies), "file"),
            bytes=sum(sum(_sizes_in(copy).values()) for copy in copies),
            used_s=max(map(_used_s, copies)),
            state=f"{num_used} {IN_USE}" if num_used else READY,
            in_use=num_used == len(copies),
        )
    ]


def remove_unused(parent: Path) -> bool:
    """Remove copies that no process uses; return whether there were any; `PermissionError` for another user's."""
    folder = parent / FETCHED
    with alone(folder / "lock"):
        used = _used_in(folder)
        copies = [copy for copy in named(folder, _KEY) if copy.name not in used]
        left = [copy for copy in copies if not _remove(copy)]
        if left:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(left[0]))
    return bool(copies)
