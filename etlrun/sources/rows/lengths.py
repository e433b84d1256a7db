"""Lengths of the sequences that columns make of rows: counted once, and kept beside the columns."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from etlrun.sources.rows.reader import Reader
from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.stages.column_numbers import ColumnStep
from etlrun.stages.columns import Columns, Output
from etlrun.stages.step import ROWS_AT_ONCE
from etlrun.system.files import replacing

_FORMAT = 2
"""Version of what is kept."""
Lengths = npt.NDArray[np.int32]


def lengths_of(source: RowsSource, split: RowSplit, columns: Columns) -> Lengths:
    """Return the length of the longest sequence that fitted columns make of each row of `split`, in items."""
    features = columns.flow(source.dataset.examples).features
    outputs = {output.name: output for output in columns.outputs}
    names = [name for name in outputs if features[name].is_sequence]
    path = _path(source, split, names, outputs)
    with contextlib.suppress(OSError, ValueError):
        return np.asarray(np.load(path, mmap_mode="r"))
    found = _counted(source, split, names, outputs)
    _write(path, found)
    return found


def keep_lengths(
    source: RowsSource, split: RowSplit, found: Mapping[str, Lengths | None], outputs: Mapping[str, Output]
) -> None:
    """Keep the lengths of all sequences among `outputs`, found when they were fitted; else they are counted later."""
    lengths = [of for of in found.values() if of is not None]
    if len(lengths) == len(found):
        _write(_path(source, split, [*found], outputs), np.maximum.reduce(lengths))


def _path(source: RowsSource, split: RowSplit, names: list[str], outputs: Mapping[str, Output]) -> Path:
    """Return the path for the lengths of outputs of these names, which the steps that change them determine."""
    above = {name: of for name, of in outputs.items() if name not in source.dataset.examples.features}
    steps = [[name, _changing(outputs[name]), _above(outputs[name], above)] for name in names]
    text = json.dumps([_FORMAT, steps, split.content.digest], default=str)
    return source.kept.folder / f"lengths-{hashlib.sha256(text.encode()).hexdigest()[:16]}.npy"


def _changing(output: Output) -> dict[str, object]:
    """Return an output with the steps up to the last that changes lengths, as plain values."""
    return Output(name=output.name, of=output.of, steps=_steps(output)).described


def _steps(output: Output) -> tuple[ColumnStep, ...]:
    last = max((place for place, step in enumerate(output.steps, 1) if step.of_sequences), default=0)
    return output.steps[:last]


def _above(output: Output, above: Mapping[str, Output]) -> list[object]:
    """Return the outputs that an output is made of, as plain values."""
    return [[above[name].described, _above(above[name], above)] for name in output.of if name in above]


def _write(path: Path, lengths: Lengths) -> None:
    with contextlib.suppress(OSError), replacing(path) as temporary:  # else they are counted again
        np.save(temporary, lengths)


def _counted(source: RowsSource, split: RowSplit, names: list[str], outputs: Mapping[str, Output]) -> Lengths:
    found, at_once = np.zeros(split.num_examples, np.int32), source.kept.known.rows_at_once(ROWS_AT_ONCE)
    for start in range(0, split.num_examples, at_once):
        part = split.part(start, min(start + at_once, split.num_examples))
        for name in names:
            counts = Reader(outputs[name], {**outputs}, source, part).lengths(_steps(outputs[name]))
            found[start : start + len(counts)] = np.maximum(found[start : start + len(counts)], counts)
    return found
