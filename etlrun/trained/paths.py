"""Image files that a command line names, each or by the folders that hold them; without TensorFlow."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etlrun.sources.layout import SUFFIXES
from etlrun.sources.listing import below
from etlrun.system.errors import EtlrunError, Fault, fault


@dataclass(frozen=True, kw_only=True)
class Found:
    """Image files.

    Attributes:
        files: Their paths as they were named, each file once, in the order of the command line; those of a folder in
            the order of their names.
        ignored: Paths of files in folders whose suffix is not that of an image.
        again: Number of paths that were named again.
        no_files: Why some of the files can't be read, by their paths: see `Images`.
    """

    files: tuple[str, ...]
    ignored: tuple[str, ...]
    again: int
    no_files: Mapping[str, str]


def is_override(word: str) -> bool:
    """Return whether an argument is an override such as `dataset.split=test`, and no path."""
    return re.match(r"[+~]*[A-Za-z_][\w.]*=", word) is not None and not os.path.lexists(word)


def found(words: Sequence[str], *, skips: bool = False) -> Found:
    """Return the images that these files and folders are; raise `EtlrunError` with all faults.

    What can't be read in a folder, such as a link to a file that is gone, is no fault if the command `skips` it.
    """
    faults: list[Fault] = []
    ignored: list[str] = []
    no_files: dict[str, str] = {}
    files: dict[str, str] = {}
    named = 0
    for word in words:
        for path in _images(word, faults, ignored, no_files):
            named += 1
            files.setdefault(os.path.abspath(path), path)  # noqa: PTH100 - of a path that keeps its links
    if words and not files and not faults:
        kinds, what = ", ".join(SUFFIXES), f"no image in {', '.join(words)}"
        faults.append(fault("PATH", what, f"files with {kinds}", "check the paths"))
    remedy = "leave it out, or pass --on-corrupt skip"
    faults += [] if skips else [fault(path, why, "an image", remedy) for path, why in no_files.items()]
    if faults:
        raise EtlrunError(faults)
    taken = tuple(files.values())
    return Found(files=taken, ignored=tuple(ignored), again=named - len(files), no_files=no_files)


def _images(word: str, faults: list[Fault], ignored: list[str], no_files: dict[str, str]) -> Sequence[str]:
    path = Path(word).expanduser()
    if path.is_dir():
        return [*below(path, faults, ignored, no_files)]
    if not path.exists():
        what = "a broken link" if path.is_symlink() else "no such file or folder"
        faults.append(fault(word, what, "an image, a folder of images, or KEY=VALUE", "check the path"))
    elif not path.is_file():
        faults.append(fault(word, "neither a file nor a folder", "an image, or a folder of images", ""))
    elif not path.name.lower().endswith(SUFFIXES):
        kinds = f"a file with {', '.join(SUFFIXES)}"
        faults.append(fault(word, f"a file with the suffix '{path.suffix}'", kinds, "convert it, or leave it out"))
    else:
        return [str(path)]
    return []
