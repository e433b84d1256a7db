"""Image files that a command line names, each or by the folders that hold them; without TensorFlow."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from etlrun.sources.listing import SUFFIXES, below
from etlrun.system.errors import EtlrunError, Fault


@dataclass(frozen=True, kw_only=True)
class Found:
    """Image files.

    Attributes:
        files: Their paths as they were named, each file once, in the order of the command line; those of a folder in
            the order of their names.
        ignored: Paths of files in folders whose suffix is not that of an image.
        again: Number of paths that were named again.
    """

    files: tuple[str, ...]
    ignored: tuple[str, ...]
    again: int


def is_override(word: str) -> bool:
    """Return whether an argument is an override such as `dataset.split=test`, and no path."""
    return re.match(r"[+~]*[A-Za-z_][\w.]*=", word) is not None and not os.path.lexists(word)


def found(words: Sequence[str]) -> Found:
    """Return the images that these files and folders are; raise `EtlrunError` with all faults."""
    faults: list[Fault] = []
    ignored: list[str] = []
    files: dict[str, str] = {}
    named = 0
    for word in words:
        for path in _images(word, faults, ignored):
            named += 1
            files.setdefault(os.path.abspath(path), path)  # noqa: PTH100 - of a path that keeps its links
    if words and not files and not faults:
        kinds, what = ", ".join(SUFFIXES), f"no image in {', '.join(words)}"
        faults.append(_fault("PATH", what, f"files with {kinds}", "check the paths"))
    if faults:
        raise EtlrunError(faults)
    return Found(files=tuple(files.values()), ignored=tuple(ignored), again=named - len(files))


def _images(word: str, faults: list[Fault], ignored: list[str]) -> Sequence[str]:
    path = Path(word).expanduser()
    if path.is_dir():
        return [*below(path, faults, ignored)]
    if not path.exists():
        what = "a broken link" if path.is_symlink() else "no such file or folder"
        faults.append(_fault(word, what, "an image, a folder of images, or KEY=VALUE", "check the path"))
    elif not path.is_file():
        faults.append(_fault(word, "neither a file nor a folder", "an image, or a folder of images", ""))
    elif not path.name.lower().endswith(SUFFIXES):
        kinds = f"a file with {', '.join(SUFFIXES)}"
        faults.append(_fault(word, f"a file with the suffix '{path.suffix}'", kinds, "convert it, or leave it out"))
    else:
        return [str(path)]
    return []


def _fault(where: str, found: str, expected: str, remedy: str) -> Fault:
    return Fault(where=where, found=found, expected=expected, remedy=remedy)
