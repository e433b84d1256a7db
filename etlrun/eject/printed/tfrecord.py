"""TFRecord files in programs."""

from __future__ import annotations

import functools
import glob
import types

from etlrun.eject.printed.given import FILES, NUM_CLASSES
from etlrun.eject.printed.numbered import places_in
from etlrun.eject.printed.tfds import paths_of  # noqa: F401 - those of parts, too
from etlrun.sources.slices import slices


def classes() -> list[str]:
    """Return the names of the classes: their numbers."""
    return [str(number) for number in range(NUM_CLASSES)]


@functools.cache
def parts_of(split: str) -> list[types.SimpleNamespace]:
    """Return the files of `split`, each with the records to skip and to take."""
    paths = {
        name: dict.fromkeys(path for pattern in of for path in sorted(glob.glob(pattern, recursive=True)))  # noqa: PTH207
        for name, of in FILES.items()
    }
    files = {name: {path: len(places_in(path)) for path in of} for name, of in paths.items()}
    found = []
    for name, first, end in slices(split, {name: sum(counts.values()) for name, counts in files.items()}):
        before = 0
        for path, count in files[name].items():
            skip, until = max(first - before, 0), min(end - before, count)
            if until > skip:
                found.append(types.SimpleNamespace(filename=path, skip=skip, take=until - skip))
            before += count
    return found


def num_examples(split: str) -> int:
    """Return the number of examples of `split`."""
    return sum(part.take for part in parts_of(split))
