"""Places of what commands write: new files and folders on this machine, or objects of a store."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from etlrun.remote.objects import UnreachableError
from etlrun.remote.transfers import put_all, there
from etlrun.stages.paths import is_remote, with_secrets, without_secrets
from etlrun.system.errors import Fault, fault

OUTPUT = "--output"
NEW_FILE, NEW_FOLDER = "a new file", "a new folder"


def faults_of(output: str, what: str) -> Iterator[Fault]:
    """Yield why nothing can be written to `output`: something is there, or its store can't be written to.

    `what` is `NEW_FILE` or `NEW_FOLDER`.
    """
    is_unsafe = False
    for found in with_secrets([output]):
        is_unsafe = True
        yield fault(OUTPUT, *found)
    if is_remote(output) and output.endswith("/") and what == NEW_FILE:
        yield fault(OUTPUT, f"{without_secrets(output)}, the URL of a folder", f"that of {what}", "add the file's name")
        return
    try:
        is_taken = not is_unsafe and bool(there(output, {}) if is_remote(output) else os.path.lexists(output))
    except UnreachableError as error:
        yield from error.faults
        return
    if is_taken:
        yield taken(output, what)


def taken(output: object, what: str) -> Fault:
    """Return the fault of an output that is there already; `what` is `NEW_FILE` or `NEW_FOLDER`."""
    expected, remedy = f"{what}, so that nothing is overwritten", f"choose another {OUTPUT}, or remove it"
    return fault(OUTPUT, f"{output}, which exists", expected, remedy)


@contextmanager
def placed(output: str, last: str = "") -> Iterator[Path]:
    """Yield the path to which a file or a folder is to be written; for a URL one on this machine, published afterwards.

    Of a folder the file `last` is published last. What can't be published stays on this machine.

    Raises:
        UnreachableError: The store refuses it, or does not answer.
    """
    if not is_remote(output):
        yield Path(output)
        return
    folder = Path(tempfile.mkdtemp(prefix="etlrun-"))
    path = folder / (PurePosixPath(output).name or "output")
    is_kept = False
    try:
        yield path
        try:
            put_all([*_files(path, output, last)], {})
        except UnreachableError as error:
            is_kept = True
            (of,) = error.faults
            remedy = f"{of.remedy}; what was to be written is {path}"
            raise UnreachableError(of.where, of.found, of.expected, remedy) from error
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)


def _files(path: Path, url: str, last: str) -> Iterator[tuple[Path, str]]:
    """Yield the files of a folder with their URLs, or the only one."""
    if path.is_file():
        yield path, url
        return
    names = [of.relative_to(path).as_posix() for of in path.rglob("*") if of.is_file()]
    for name in sorted(names, key=lambda name: (name == last, name)):
        yield path / name, f"{url.rstrip('/')}/{name}"
