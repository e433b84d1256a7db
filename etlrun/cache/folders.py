"""Folders of caches below `cache.dir`: those with the name of a cache and only the files of a cache.

Other files and folders are foreign: they are neither read nor removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path

from etlrun.cache.parts import INDEX, MANIFEST
from etlrun.system.errors import WorldError

_KEY = "[0-9a-f]{20}"
PUBLISHED, FILLING, GONE = (
    re.compile(_KEY),
    re.compile(rf"{_KEY}\.filling"),
    re.compile(rf"{_KEY}\.gone\.[0-9a-f]{{8}}"),
)
"""Names of folders: of a cache, of one being filled, of one being removed."""
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
            others = [item.name for item in files if not _is_own(item)]
            if not others:
                return files
            found = f"a folder that holds {os.fsencode(min(others)).decode(errors='backslashreplace')}"
    raise FileExistsError(errno.EEXIST, f"{found} has the name of a cache", str(folder))


def _is_own(item: os.DirEntry[str]) -> bool:
    return _FILE.fullmatch(item.name) is not None and item.is_file(follow_symlinks=False)


def discard(folder: Path) -> None:
    """Remove a cache, if it exists; raise `OSError` if it can't be removed, or isn't a cache."""
    with contextlib.suppress(FileNotFoundError):
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
        found, expected = str(error.strerror), "a lock that is held only briefly"
        remedy = f"`fuser {error.filename}` names the process: let it finish, or end it"
    return WorldError(where, found, expected, remedy)
