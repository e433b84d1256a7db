"""Rows of text files by class in programs."""

from __future__ import annotations

import functools

from etlrun.eject.printed.folder import labelled_files
from etlrun.eject.printed.given import ERRORS, TYPES
from etlrun.sources.listing import LEFT_BY_SYSTEMS, SPLITS, TEXTS, WHOLE  # noqa: F401 - those of `labelled_files`
from etlrun.sources.rows.texts import text_of
from etlrun.stages.lazy import np

ENDS = TEXTS.suffixes
"""Ends of the names of texts."""


@functools.cache
def columns() -> dict[str, dict[str, np.ndarray]]:
    """Return the texts and the names of their classes, of each split."""
    found = {}
    for split, files in labelled_files(ENDS).items():
        texts = [text_of(path.read_bytes(), ERRORS).encode() for _, path in files]
        values = {"text": texts, "label": [label.encode() for label, _ in files]}
        found[split] = {name: np.array(values[name], object) for name in TYPES}
    return found


def paths_of(_split: str) -> list[str]:
    """Return the paths of the texts."""
    return [str(path) for files in labelled_files(ENDS).values() for _, path in files]
