"""Names of classes that TFDS has written beside its TFRecord files."""

from __future__ import annotations

import pathlib

from etlrun.stages.lazy import pa, pc


def names_beside(path: str) -> dict[str, list[str]]:
    """Return the names of the classes of each feature that has any, in the order of their numbers."""
    files = sorted(pathlib.Path(path).parent.glob("*.labels.txt"))
    return {file.name.removesuffix(".labels.txt"): file.read_text().splitlines() for file in files}


def named(values: pa.Array, names: list[str]) -> pa.Array:
    """Return the names of classes by their numbers, null for -1, which TFDS has for none; other values as they are."""
    if not pa.types.is_integer(values.type):
        return values
    numbers = values.cast(pa.int64())
    return pa.array(names, pa.large_string()).take(pc.if_else(pc.greater_equal(numbers, 0), numbers, None))
