"""Folders of kept columns, as they are listed and removed beside caches."""

import fcntl
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from etlrun.cache.store import BROKEN, IN_USE, READY, ListedBeside, named
from etlrun.system.errors import counted
from etlrun.system.files import alone

FACTS = "columns.json"
"""File that completes a folder of columns; who reads the folder shares a lock on it."""
_NAME, _FILLING = re.compile("rows-[0-9a-f]{16}"), re.compile(r"rows-[0-9a-f]{16}\.filling")


def kept_folders(parent: Path) -> list[ListedBeside]:
    """Return all folders of kept columns in a folder."""
    found = []
    for folder in filter(Path.is_dir, named(parent, _NAME)):
        with suppress(OSError):  # removed meanwhile
            facts: dict[str, Any] = {}
            path, sizes = folder / FACTS, {file.name: file.stat().st_size for file in folder.iterdir()}
            with suppress(OSError, ValueError):
                facts = json.loads(path.read_text())
            with _unread(path) as is_unread:
                in_use = not is_unread
            is_complete = facts and all(sizes.get(name) == size for name, size in facts["files"].items())
            found.append(
                ListedBeside(
                    key=folder.name,
                    title=facts.get("title", "?") if is_complete else "?",
                    elements=counted(len(facts.get("columns", ())), "column"),
                    count=sum(facts.get("rows", {}).values()),
                    bytes=sum(sizes.values()),
                    made_s=folder.stat().st_mtime,
                    used_s=(path if path.exists() else folder).stat().st_mtime,
                    state=BROKEN if not is_complete else IN_USE if in_use else READY,
                    in_use=in_use,
                )
            )
    return found


@contextmanager
def _unread(path: Path) -> Iterator[bool]:
    """Keep others from reading columns during the block, if none does so; yield whether that is so."""
    with ExitStack() as stack:
        is_unread = True
        try:
            fcntl.flock(stack.enter_context(path.open()), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_unread = False
        except OSError:  # no file, or no locks
            pass
        yield is_unread


@contextmanager
def _owned(folder: Path) -> Iterator[None]:
    """Keep others from writing a folder of columns; raise `TimeoutError` if one does so."""
    path = folder.with_name(f"{folder.stem}.lock")
    with alone(path, longest_s=0.0):
        yield
        path.unlink(missing_ok=True)


def remove(parent: Path, key: str) -> bool:
    """Remove a folder of kept columns; return False if it is in use."""
    folder = parent / key
    with suppress(TimeoutError), _owned(folder), _unread(folder / FACTS) as is_unread:
        if is_unread:
            gone = folder.rename(folder.with_suffix(".filling"))  # who opens it from now on does not find it
            shutil.rmtree(gone)
            return True
    return False


def leftovers(parent: Path) -> Iterator[tuple[Path, str]]:
    """Remove what killed processes have left, and yield each path with the reason if that fails."""
    for folder in filter(Path.is_dir, named(parent, _FILLING)):
        with suppress(TimeoutError), _owned(folder):
            reason = ""
            try:
                shutil.rmtree(folder)
            except OSError as error:
                reason = error.strerror or str(error)
            yield folder, reason
