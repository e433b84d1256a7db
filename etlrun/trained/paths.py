"""Image files that a command line names: each, by a folder that holds them, or by a URL; without TensorFlow."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etlrun.cache.store import folder_of
from etlrun.remote.copies import Copies, copied
from etlrun.remote.objects import Object, Storage, UnreachableError, listed
from etlrun.sources.listing import SUFFIXES, below
from etlrun.stages.paths import is_remote
from etlrun.system.errors import EtlrunError, Fault, fault, unreadable_path
from etlrun.system.loading import load_tensorflow

_MOST_DECODED = 1_000
"""Images that are decoded to tell of those that can't be, beside other faults."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """Image files.

    Attributes:
        files: Their paths as they were named, each file once, in the order of the command line; those of a folder or
            of a pattern of URLs in the order of their names. Of a URL it is the path of its copy.
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


def found(words: Sequence[str], storage: Storage | None = None, *, skips: bool = False) -> Found:
    """Return the images that these files, folders and URLs are; raise `EtlrunError` with all faults.

    Objects of URLs are fetched first, into the user's cache folder; `storage` is how their store is reached.
    What can't be read in a folder, such as a link to a file that is gone, is no fault if the command `skips` it.
    """
    faults: list[Fault] = []
    ignored: list[str] = []
    no_files: dict[str, str] = {}
    files: dict[str, str] = {}
    named = 0
    copies = _fetched([word for word in words if is_remote(word)], storage or {}, faults)
    for word in words:
        for path in copies[word] if is_remote(word) else _images(word, faults, ignored, no_files):
            named += 1
            files.setdefault(os.path.abspath(path), path)  # noqa: PTH100 - of a path that keeps its links
    if words and not files and not faults:
        kinds, what = ", ".join(SUFFIXES), f"no image in {', '.join(words)}"
        faults.append(fault("PATH", what, f"files with {kinds}", "check the paths"))
    remedy = "leave it out, or pass --on-corrupt skip"
    faults += [] if skips else [fault(path, why, "an image", remedy) for path, why in no_files.items()]
    if faults:
        images = [] if skips else [path for path in files.values() if path not in no_files][:_MOST_DECODED]
        decoded = _unusable(images, remedy) if images else []
        raise EtlrunError([*faults, *decoded])
    taken = tuple(files.values())
    return Found(files=taken, ignored=tuple(ignored), again=named - len(files), no_files=no_files)


def _unusable(paths: Sequence[str], remedy: str) -> Iterator[Fault]:
    """Yield the faults of images that can't be decoded, to be told together with those of the arguments."""
    load_tensorflow()
    from etlrun.sources.corrupt import problem

    for path in paths:
        try:
            found = problem(Path(path).read_bytes())
        except OSError as error:
            yield unreadable_path(path, error, "an image")
            continue
        if found is not None:
            yield fault(path, found.reason, found.expected, remedy)


def _images(word: str, faults: list[Fault], ignored: list[str], no_files: dict[str, str]) -> Sequence[str]:
    path = Path(word).expanduser()
    if path.is_dir():
        return [*below(path, faults, ignored, no_files)]
    if not path.exists():
        what = "a broken link" if path.is_symlink() else "no such file or folder"
        faults.append(fault(word, what, "an image, a folder of images, or KEY=VALUE", "check the path"))
    elif not path.is_file():
        faults.append(fault(word, "neither a file nor a folder", "an image, or a folder of images", ""))
    elif other := _other(word, path.name):
        faults.append(other)
    else:
        return [str(path)]
    return []


def _other(where: str, name: str) -> Fault | None:
    """Return the fault of a file whose suffix is not that of an image; None if it is."""
    if name.lower().endswith(SUFFIXES):
        return None
    kinds, remedy = f"a file with {', '.join(SUFFIXES)}", "convert it to JPEG or PNG, or leave it out"
    return fault(where, f"a file with the suffix '{Path(name).suffix}'", kinds, remedy)


def _fetched(urls: Sequence[str], storage: Storage, faults: list[Fault]) -> dict[str, list[str]]:
    """Return the paths of the copies of the images that each URL names; none if there are faults, which are added."""
    named: dict[str, tuple[Object, ...]] = {}
    for url in urls:
        try:
            named[url] = listed(url, storage)
        except UnreachableError as error:
            faults += error.faults
            continue
        faults += [] if named[url] else [fault(url, "no object", "a URL, or a pattern of URLs, of images", "check it")]
    objects = {of.url: of for each in named.values() for of in each}
    faults += [other for of in objects.values() if (other := _other(of.url, of.name)) is not None]
    if faults:
        return {url: [] for url in urls}
    paths = copied(objects, Copies(folder_of(None), storage))
    return {url: [paths[of.url] for of in each] for url, each in named.items()}
