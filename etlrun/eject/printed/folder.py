"""Folders of images in programs."""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Iterator

from etlrun.eject.printed import NOWHERE
from etlrun.eject.printed.listed import by_number, num_examples, reader  # noqa: F401 - those of listed records
from etlrun.sources.base import slices
from etlrun.sources.folder import parse  # noqa: F401 - as a run parses them
from etlrun.sources.listing import (
    DIGITS,
    LEFT_BY_SYSTEMS,
    SHARDS,  # noqa: F401 - of `groups_of`
    SPLITS,
    SUFFIXES,
    WHOLE,  # noqa: F401 - of `by_split`
    by_split,
    groups_of,
    ordered_classes,
)
from etlrun.stages.lazy import np

DIR = NOWHERE


def files_in(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield the files in a folder and in those within it, without hidden ones and those of systems."""
    for path in folder.iterdir():
        if not path.name.startswith(".") and path.name.lower() not in LEFT_BY_SYSTEMS:
            yield from files_in(path) if path.is_dir() else (path,)


def labelled_files(suffixes: tuple[str, ...]) -> dict[str, list[tuple[str, str]]]:
    """Return path and class of the files of these suffixes, by split, in the order of the SHA-256 of the paths."""
    paths = [path.relative_to(DIR) for path in files_in(pathlib.Path(DIR)) if path.suffix.lower() in suffixes]
    splits = {path.parts[0] for path in paths if path.parts[2:] and path.parts[0].lower() in SPLITS}
    return by_split([path.as_posix() for path in paths], sorted(splits))


@functools.cache
def images() -> dict[str, list[tuple[str, str]]]:
    """Return the path in the folder and the class of each image, by split."""
    return labelled_files(SUFFIXES)


@functools.cache
def classes() -> list[str]:
    """Return the names of the classes."""
    return ordered_classes({label for paths in images().values() for _, label in paths})


@functools.cache
def records_of(split: str) -> list[bytes]:
    """Return the images of `split`, each as the digits of its class and its path."""
    places = {label: place for place, label in enumerate(classes())}
    counts = {name: len(paths) for name, paths in images().items()}
    taken = [image for name, start, end in slices(split, counts) for image in images()[name][start:end]]
    folder = pathlib.Path(DIR).absolute()
    return [b"%0*d%s" % (DIGITS, places[label], os.fsencode(folder / path)) for path, label in taken]


@functools.cache
def parts_of(split: str) -> list[tuple[str, int, int]]:
    """Return groups of images, which are read like shards."""
    return [(split, skip, take) for skip, take in groups_of(num_examples(split))]


def paths_of(split: str) -> list[bytes]:
    """Return the paths of the images of `split`."""
    return [record[DIGITS:] for record in records_of(split)]


def labels_of(split: str) -> np.ndarray:
    """Return the class of each image of `split`."""
    return np.array([int(record[:DIGITS]) for record in records_of(split)])
