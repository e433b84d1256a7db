"""Rows of predictions, as CSV or JSON lines. Numbers are the shortest that give the same float32."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from etlrun.system.files import as_unicode

Outputs = npt.NDArray[np.float32]


class CsvWriter:
    """Writes CSV with a header.

    Columns are `path` and `class` with the probability of each class; with `top` the `top` likeliest classes, each with
    its probability; without classes the values. Rows of a table have `row`, from 0, in the place of `path`.
    """

    def __init__(
        self, file: TextIO, names: Sequence[str] | None, outputs: int, top: int | None, place: str = "path"
    ) -> None:
        self._rows, self._names, self._top = csv.writer(file, lineterminator="\n"), names, top
        if names is None:
            header = ["value"] if outputs == 1 else [f"value_{place}" for place in range(outputs)]
        elif top is None:
            header = ["class", *(f"probability_{name}" for name in names)]
        else:
            header = [f"{what}_{place}" for place in range(1, top + 1) for what in ("class", "probability")]
        self._rows.writerow([place, *header])

    def write(self, paths: Sequence[str], outputs: Outputs) -> None:
        """Write a row for each path; outputs are probabilities (rows, classes), or values (rows, numbers)."""
        for path, row in zip(paths, outputs.reshape(len(paths), -1), strict=True):
            if self._names is None:
                self._rows.writerow([path, *map(str, row)])
            elif self._top is None:
                self._rows.writerow([path, self._names[int(row.argmax())], *map(str, row)])
            else:
                likeliest = [of for name, share in _likeliest(self._names, row, self._top) for of in (name, str(share))]
                self._rows.writerow([path, *likeliest])


class JsonLinesWriter:
    """Writes one JSON object a line: `path`, `class` and `probabilities` by class, the likeliest first; or `value`."""

    def __init__(
        self, file: TextIO, names: Sequence[str] | None, outputs: int, top: int | None, place: str = "path"
    ) -> None:
        self._place = place
        self._file, self._names, self._top = file, names, top or outputs

    def write(self, paths: Sequence[str], outputs: Outputs) -> None:
        """Write a line for each path."""
        for path, row in zip(paths, outputs.reshape(len(paths), -1), strict=True):
            line: dict[str, Any] = {self._place: as_unicode(path) if self._place == "path" else int(path)}
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


def _likeliest(names: Sequence[str], row: Outputs, top: int) -> Iterator[tuple[str, np.float32]]:
    """Yield the likeliest classes, of equal ones the first, as `argmax` takes it."""
    for place in np.argsort(-row, kind="stable")[:top].tolist():
        yield names[place], row[place]


def _number(value: np.float32) -> float:
    return float(str(value))


Writer = CsvWriter | JsonLinesWriter
FORMATS: dict[str, type[Writer]] = {"csv": CsvWriter, "jsonl": JsonLinesWriter}
"""Writers by format: of a file, the names of the classes, the number of outputs, and how many classes to write."""
