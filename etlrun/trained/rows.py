"""Rows of predictions, as CSV, JSON lines or Parquet. Numbers of text are the shortest that give the same float32."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from etlrun.stages.lazy import pa
from etlrun.system.files import as_unicode

Outputs = npt.NDArray[np.float32]
Place = tuple[str | int, ...]
"""The place of an example, such as its path, or the path of its table and the number of its row."""
PATH, ROW = "path", "row"


class CsvWriter:
    """Writes CSV with a header.

    Columns are `path` and `class` with the probability of each class; with `top` the `top` likeliest classes, each with
    its probability; without classes the values. Rows of a table have `row`, from 0, in the place of `path`, and those
    of several tables both.
    """

    def __init__(
        self, file: TextIO, names: Sequence[str] | None, outputs: int, top: int | None, place: Place = (PATH,)
    ) -> None:
        self._rows, self._names, self._top = csv.writer(file, lineterminator="\n"), names, top
        self._rows.writerow([*place, *_header(names, outputs, top)])

    def write(self, places: Sequence[Place], outputs: Outputs) -> None:
        """Write a row for each place; outputs are probabilities (rows, classes), or values (rows, numbers)."""
        for place, row in zip(places, outputs.reshape(len(places), -1), strict=True):
            cells = _cells(self._names, row, self._top)
            self._rows.writerow([*place, *(str(of) if isinstance(of, np.float32) else of for of in cells)])

    def close(self) -> None:
        """Do nothing: all rows are written."""


class JsonLinesWriter:
    """Writes one JSON object a line: `path`, `class` and `probabilities` by class, the likeliest first; or `value`."""

    def __init__(
        self, file: TextIO, names: Sequence[str] | None, outputs: int, top: int | None, place: Place = (PATH,)
    ) -> None:
        self._place = place
        self._file, self._names, self._top = file, names, top or outputs

    def write(self, places: Sequence[Place], outputs: Outputs) -> None:
        """Write a line for each place."""
        for place, row in zip(places, outputs.reshape(len(places), -1), strict=True):
            line: dict[str, Any] = dict(zip(map(str, self._place), map(_plain, place), strict=True))
            if self._names is None:
                values = [_number(value) for value in row]
                line["value"] = values[0] if len(values) == 1 else values
            else:
                shares = dict(_likeliest(self._names, row, self._top))
                line |= {
                    "class": next(iter(shares)),
                    "probabilities": {name: _number(of) for name, of in shares.items()},
                }
            self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        """Do nothing: all lines are written."""


class ParquetWriter:
    """Writes Parquet with the columns of CSV, of which numbers are float32."""

    def __init__(
        self, file: TextIO, names: Sequence[str] | None, outputs: int, top: int | None, place: Place = (PATH,)
    ) -> None:
        import pyarrow.parquet

        self._names, self._top = names, top
        header = _header(names, outputs, top)
        kinds = [pa.int64() if of == ROW else pa.string() for of in place]
        kinds += [pa.string() if of.startswith("class") else pa.float32() for of in header]
        self._schema = pa.schema([*zip([*map(str, place), *header], kinds, strict=True)])
        self._file = pyarrow.parquet.ParquetWriter(file.buffer, self._schema)

    def write(self, places: Sequence[Place], outputs: Outputs) -> None:
        """Write a row for each place."""
        rows = zip(places, outputs.reshape(len(places), -1), strict=True)
        cells = [[*map(_plain, place), *_cells(self._names, row, self._top)] for place, row in rows]
        columns = [pa.array(of, field.type) for of, field in zip(zip(*cells, strict=True), self._schema, strict=True)]
        self._file.write_batch(pa.record_batch(columns, schema=self._schema))

    def close(self) -> None:
        """Complete the file."""
        self._file.close()


def _header(names: Sequence[str] | None, outputs: int, top: int | None) -> list[str]:
    if names is None:
        return ["value"] if outputs == 1 else [f"value_{place}" for place in range(outputs)]
    if top is None:
        return ["class", *(f"probability_{name}" for name in names)]
    return [f"{what}_{place}" for place in range(1, top + 1) for what in ("class", "probability")]


def _cells(names: Sequence[str] | None, row: Outputs, top: int | None) -> list[str | np.float32]:
    if names is None:
        return [*row]
    if top is None:
        return [names[int(row.argmax())], *row]
    return [of for pair in _likeliest(names, row, top) for of in pair]


def _likeliest(names: Sequence[str], row: Outputs, top: int) -> Iterator[tuple[str, np.float32]]:
    """Yield the likeliest classes, of equal ones the first, as `argmax` takes it."""
    for place in np.argsort(-row, kind="stable")[:top].tolist():
        yield names[place], row[place]


def _plain(place: str | int) -> str | int:
    return as_unicode(place) if isinstance(place, str) else place


def _number(value: np.float32) -> float:
    return float(str(value))


Writer = CsvWriter | JsonLinesWriter | ParquetWriter
FORMATS: dict[str, type[Writer]] = {"csv": CsvWriter, "jsonl": JsonLinesWriter, "parquet": ParquetWriter}
"""Writers by format: of a file, the names of the classes, the number of outputs, and how many classes to write."""
