"""Folders of images in programs."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import pathlib
import types

from etlrun.eject.printed.given import DIR
from etlrun.eject.printed.listed import by_number, num_examples, reader  # noqa: F401 - those of listed records
from etlrun.sources.folder import parse  # noqa: F401 - as a run parses them
from etlrun.sources.listing import DIGITS, LEFT_BY_SYSTEMS, SHARDS, SPLITS, SUFFIXES, WHOLE, ordered_classes
from etlrun.sources.slices import slices
from etlrun.stages.lazy import np


def folders_in(path: pathlib.Path) -> list[pathlib.Path]:
    """Return the folders in a folder, without hidden ones and those of systems."""
    shown = (of for of in path.iterdir() if not of.name.startswith(".") and of.name.lower() not in LEFT_BY_SYSTEMS)
    return [of for of in shown if of.is_dir()]


def labelled_files(suffixes: tuple[str, ...]) -> dict[str, list[tuple[str, pathlib.Path]]]:
    """Return class and path of the files of these suffixes, by split, in the order of the SHA-256 of the paths."""
    folder = pathlib.Path(DIR).absolute()
    divided = [path for path in folders_in(folder) if path.name.lower() in SPLITS and folders_in(path)]
    roots = {path.name: path for path in divided} or {WHOLE: folder}
    found: dict[str, list[tuple[str, pathlib.Path]]] = {name: [] for name in roots}
    for name, root in roots.items():
        for parent, folders, files in os.walk(root, followlinks=True):
            folders[:] = [of.name for of in folders_in(pathlib.Path(parent))]
            within = pathlib.Path(parent).relative_to(root).parts
            shown = [file for file in files if file.lower().endswith(suffixes) and not file.startswith(".")]
            found[name] += [(within[0], pathlib.Path(parent, file)) for file in shown if within]
        by_path = {os.fsencode(path.relative_to(folder).as_posix()): (label, path) for label, path in found[name]}
        found[name] = [by_path[path] for path in sorted(by_path, key=lambda path: hashlib.sha256(path).digest())]
    return found


@functools.cache
def images() -> dict[str, list[tuple[str, pathlib.Path]]]:
    """Return the class and the path of each image, by split."""
    return labelled_files(SUFFIXES)


@functools.cache
def classes() -> list[str]:
    """Return the names of the classes."""
    return ordered_classes({label for paths in images().values() for label, _ in paths})


@functools.cache
def records_of(split: str) -> list[bytes]:
    """Return the images of `split`, each as the digits of its class and its path."""
    places = {label: place for place, label in enumerate(classes())}
    counts = {name: len(paths) for name, paths in images().items()}
    taken = [image for name, start, end in slices(split, counts) for image in images()[name][start:end]]
    return [b"%0*d%s" % (DIGITS, places[label], os.fsencode(path)) for label, path in taken]


@functools.cache
def parts_of(split: str) -> list[types.SimpleNamespace]:
    """Return groups of images, which are read like shards."""
    count = num_examples(split)
    bounds = [count * place // SHARDS for place in range(SHARDS + 1)]
    groups = [(start, end - start) for start, end in itertools.pairwise(bounds) if end > start]
    return [types.SimpleNamespace(filename=split, skip=start, take=size) for start, size in groups]


def paths_of(split: str) -> list[bytes]:
    """Return the paths of the images of `split`."""
    return [record[DIGITS:] for record in records_of(split)]


def labels_of(split: str) -> np.ndarray:
    """Return the class of each image of `split`."""
    return np.array([int(record[:DIGITS]) for record in records_of(split)])
