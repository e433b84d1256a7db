"""Images of rows: encoded ones in a column of bytes, or in files, of which a column has the paths."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from etlrun.sources.base import Problem
from etlrun.sources.corrupt import problem
from etlrun.sources.folder import FileContent
from etlrun.sources.listing import DIGITS
from etlrun.sources.rows.dividing import Numbers
from etlrun.sources.rows.kept import Array, KeptColumns
from etlrun.stages.flow import MISSING
from etlrun.stages.lazy import tf

NO_FILE = os.fsencode(os.devnull)
"""An empty file, which is decoded to an error at once."""
_DIGITS = "0" * DIGITS


def paths_in(kept: KeptColumns, name: str, rows: Numbers) -> Array:
    """Return the paths of the image files that a column has in some rows, as bytes; empty where there is none.

    Those that are not absolute are in the folder of the table's file.
    """
    files, stamps = np.searchsorted(kept.ends[:-1], rows, side="right").tolist(), [*kept.stamps]
    folders = {file: os.fsencode(Path(stamps[file]).absolute().parent) for file in {*files}}
    pairs = zip(files, kept.take(name, rows).tolist(), strict=True)
    found = (b"" if path in (MISSING, b"") else os.path.join(folders[file], path) for file, path in pairs)  # noqa: PTH118
    return np.array([*found], object)


def files_read(kept: KeptColumns, name: str, rows: Numbers) -> Array:
    """Return the same paths; of an empty file in the place of those that name no file."""
    return np.array([of if os.path.isfile(of) else NO_FILE for of in paths_in(kept, name, rows).tolist()], object)  # noqa: PTH113 - of many files


def read(paths: tf.Tensor, compare: Callable[..., tf.Tensor] | None) -> tf.Tensor:
    """Return the bytes of the files with these paths (string tensors of the same shape), compared if that is asked."""
    data = tf.map_fn(tf.io.read_file, paths) if paths.shape.rank else tf.io.read_file(paths)
    return data if compare is None else compare(tf.strings.join([_DIGITS, paths]), data)


def contents(kept: KeptColumns, rows: Numbers) -> dict[str, FileContent]:
    """Return the content of the image files of some rows, by column; those that are missing have none."""
    found = {}
    for name in (name for name, column in kept.known.columns.items() if column.is_path):
        files = [*map(os.fsdecode, paths_in(kept, name, rows).tolist())]
        found[name] = FileContent(files, [0] * len(files), {*filter(os.path.isfile, files)})
    return found


def refused_in(kept: KeptColumns, row: int) -> Problem | None:
    """Return why the first image of a row that can't be used can't be; None if all can be."""
    rows = np.array([row])
    for name, column in kept.known.columns.items():
        where = name
        if column.feature.format != "image":
            continue
        if column.is_path:
            path = os.fsdecode(paths_in(kept, name, rows)[0])
            where = f"{name} {path}"
            if not os.path.isfile(path):  # noqa: PTH113 - as above
                return Problem(f"{where}: no such file" if path else f"no {name}", "an image file")
            data = Path(path).read_bytes()
        else:
            data = kept.take(name, rows)[0]
        if (found := Problem("no value", "an encoded image") if data == MISSING else problem(data)) is not None:
            return Problem(f"{where}: {found.reason}", found.expected)
    return None
