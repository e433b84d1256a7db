"""Lengths of the sequences that columns make of rows: counted once, and kept beside the columns."""

from __future__ import annotations

import contextlib
import hashlib
import json

import numpy as np
import numpy.typing as npt

from etlrun.sources.rows.fitting import Reader
from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.stages.columns import Columns
from etlrun.stages.step import ROWS_AT_ONCE
from etlrun.system.files import replacing

_FORMAT = 1
"""Version of what is kept."""


def lengths_of(source: RowsSource, split: RowSplit, columns: Columns) -> npt.NDArray[np.int32]:
    """Return the length of the longest sequence that fitted columns make of each row of `split`, in items."""
    text = json.dumps([_FORMAT, columns.described(), split.content.digest], default=str)
    path = source.kept.folder / f"lengths-{hashlib.sha256(text.encode()).hexdigest()[:16]}.npy"
    with contextlib.suppress(OSError, ValueError):
        return np.asarray(np.load(path, mmap_mode="r"))
    found = _counted(source, split, columns)
    with contextlib.suppress(OSError), replacing(path) as temporary:  # else they are counted again
        np.save(temporary, found)
    return found


def _counted(source: RowsSource, split: RowSplit, columns: Columns) -> npt.NDArray[np.int32]:
    given = columns.flow(source.dataset.examples)
    sequences = [output for output in columns.outputs if given.features[output.name].is_sequence]
    done = {output.name: output for output in columns.outputs}
    found = np.zeros(split.num_examples, np.int32)
    for start in range(0, split.num_examples, ROWS_AT_ONCE):
        part = split.part(start, min(start + ROWS_AT_ONCE, split.num_examples))
        for output in sequences:
            counts = Reader(output, done, source, part).lengths(output.steps)
            found[start : start + len(counts)] = np.maximum(found[start : start + len(counts)], counts)
    return found
