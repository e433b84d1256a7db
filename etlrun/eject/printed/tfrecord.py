"""TFRecord files in programs."""

from __future__ import annotations

import functools

from etlrun.eject.printed import NOWHERE
from etlrun.sources.base import in_files, slices
from etlrun.sources.framing import AROUND, framing
from etlrun.sources.shards import matched

FILES = NUM_CLASSES = NOWHERE


def classes() -> list[str]:
    """Return the names of the classes: their numbers."""
    return [str(number) for number in range(NUM_CLASSES)]


def paths() -> dict[str, list[str]]:
    """Return the paths of the files of each split."""
    found = {split: [path for pattern in of for path in matched(pattern)] for split, of in FILES.items()}
    return {split: [*dict.fromkeys(of)] for split, of in found.items()}


@functools.cache
def parts_of(split: str) -> list[tuple[str, int, int]]:
    """Return the files of `split`, each with the records to skip and to take."""
    files = {name: {path: len(framing(path) or b"") // AROUND for path in of} for name, of in paths().items()}
    parts = slices(split, {name: sum(counts.values()) for name, counts in files.items()})
    return [part for name, first, end in parts for part in in_files(files[name], first, end)]
