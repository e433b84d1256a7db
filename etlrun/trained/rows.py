"""Rows of predictions, as CSV, JSON lines or Parquet. Numbers of text are the shortest that give the same float32."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from etlrun.stages.lazy import pa
from etlrun.system.files import as_unicode
from etlrun.system.values import frozen

Outputs = npt.NDArray[np.float32]
Place = tuple[str | int, ...]
"""The place of an example, such as its path, or the path of its table and the number of its row."""
PATH, ROW = "path", "row"
_HALF = 0.5


@frozen
class Head:
    """What a model predicts of a target.

    Attributes:
        target: Name of the target, if there are several; empty otherwise.
        names: Names of its classes or labels; None for numbers.
        outputs: Number of probabilities or numbers.
        is_labels: Whether several labels are predicted at once: those with a probability above 0.5.
        top: Number of likeliest classes to write, each with its probability; None for all probabilities.
    """

    target: str
    names: Sequence[str] | None
    outputs: int
    is_labels: bool = False
    top: int | None = None

    @property
    def noun(self) -> str:
        """What each probability is of."""
        return "label" if self.is_labels else "class"

    @property
    def header(self) -> list[str]:
        """Names of the columns, which begin with that of the target if there are several."""
        if self.names is None:
            named = ["value"] if self.outputs == 1 else [f"value_{place}" for place in range(self.outputs)]
        elif self.top is None or self.is_labels:
            what = "labels" if self.is_labels else "class"
            named = [what, *(f"probability_{name}" for name in self.names)]
        else:
            named = [f"{what}_{place}" for place in range(1, self.top + 1) for what in ("class", "probability")]
        return [f"{self.target}_{name}" if self.target else name for name in named]

    def cells(self, row: Outputs) -> list[str | np.float32]:
        """Return what is below the header, for the outputs of an example."""
        if self.names is None:
            return [*row]
        if self.is_labels:
            return [", ".join(self._labels(row)), *row]
        if self.top is None:
            return [self.names[int(row.argmax())], *row]
        return [of for pair in _likeliest(self.names, row, self.top) for of in pair]

    def described(self, row: Outputs) -> dict[str, Any]:
        """Return the outputs of an example as JSON has them."""
        if self.names is None:
            values = [_number(value) for value in row]
            return {"value": values[0] if len(values) == 1 else values}
        shares = dict(_likeliest(self.names, row, self.top or self.outputs))
        found: dict[str, Any] = {"labels": self._labels(row)} if self.is_labels else {"class": next(iter(shares))}
        return {**found, "probabilities": {name: _number(of) for name, of in shares.items()}}

    def _labels(self, row: Outputs) -> list[str]:
        return [name for name, share in zip(self.names or (), row, strict=True) if share > _HALF]


class CsvRows:
    """Writes CSV with a header.

    Columns are `path` and those of each target: `class` with the probability of each class; with `top` the `top`
    likeliest classes, each with its probability; without classes the values. Rows of a table have `row`, from 0, in the
    place of `path`, and those of several tables both.
    """

    def __init__(self, file: TextIO, heads: Sequence[Head], place: Place = (PATH,)) -> None:
        self._rows, self._heads = csv.writer(file, lineterminator="\n"), heads
        self._rows.writerow([*place, *(name for head in heads for name in head.header)])

    def write(self, places: Sequence[Place], outputs: Sequence[Outputs]) -> None:
        """Write a row for each place; outputs of each target are probabilities (rows, classes), or values."""
        for place, *rows in _by_row(places, outputs):
            cells = (of for head, row in zip(self._heads, rows, strict=True) for of in head.cells(row))
            self._rows.writerow([*place, *(str(of) if isinstance(of, np.float32) else of for of in cells)])

    def close(self) -> None:
        """Do nothing: all rows are written."""


class JsonLinesWriter:
    """Writes one JSON object a line: `path`, `class` and `probabilities` by class, the likeliest first; or `value`.

    Of several targets each has such an object by its name.
    """

    def __init__(self, file: TextIO, heads: Sequence[Head], place: Place = (PATH,)) -> None:
        self._file, self._heads, self._place = file, heads, place

    def write(self, places: Sequence[Place], outputs: Sequence[Outputs]) -> None:
        """Write a line for each place."""
        for place, *rows in _by_row(places, outputs):
            line: dict[str, Any] = dict(zip(map(str, self._place), map(_plain, place), strict=True))
            for head, row in zip(self._heads, rows, strict=True):
                described = head.described(row)
                line |= {head.target: described} if head.target else described
            self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        """Do nothing: all lines are written."""


class ParquetWriter:
    """Writes Parquet with the columns of CSV, of which numbers are float32."""

    def __init__(self, file: TextIO, heads: Sequence[Head], place: Place = (PATH,)) -> None:
        import pyarrow.parquet

        self._heads = heads
        kinds = [pa.int64() if of == ROW else pa.string() for of in place]
        for head in heads:
            blank = np.zeros(head.outputs, np.float32)
            kinds += [pa.string() if isinstance(of, str) else pa.float32() for of in head.cells(blank)]
        names = [*map(str, place), *(name for head in heads for name in head.header)]
        self._schema = pa.schema([*zip(names, kinds, strict=True)])
        self._file = pyarrow.parquet.ParquetWriter(file.buffer, self._schema)

    def write(self, places: Sequence[Place], outputs: Sequence[Outputs]) -> None:
        """Write a row for each place."""
        cells = [
            [*map(_plain, place), *(of for head, row in zip(self._heads, rows, strict=True) for of in head.cells(row))]
            for place, *rows in _by_row(places, outputs)
        ]
        columns = [pa.array(of, field.type) for of, field in zip(zip(*cells, strict=True), self._schema, strict=True)]
        self._file.write_batch(pa.record_batch(columns, schema=self._schema))

    def close(self) -> None:
        """Complete the file."""
        self._file.close()


@frozen
class Predicted:
    """What a model predicts of a target.

    Attributes:
        class_name: The likeliest class; None for labels and numbers.
        labels: Labels with a probability above 0.5; None for classes and numbers.
        probabilities: Probability of each class or label from 0 to 1, the likeliest first; empty for numbers.
        value: The number, or several; None for classes and labels.
    """

    class_name: str | None = None
    labels: tuple[str, ...] | None = None
    probabilities: Mapping[str, float] = field(default_factory=dict)
    value: float | tuple[float, ...] | None = None


@frozen
class Prediction(Predicted):
    """Prediction of an example; the attributes of `Predicted` are those of the only target, if there is one.

    Attributes:
        path: Path of the image, or of the table; None for rows and images that are in no file.
        row: Number of the row in its table, or of what was given, from 0; None for an image file.
        targets: What is predicted of several targets, by their names; empty with a single one.
    """

    path: str | None = None
    row: int | None = None
    targets: Mapping[str, Predicted] = field(default_factory=dict)


class Collector:
    """Makes a `Prediction` of each row.

    Attributes:
        predictions: All of them so far.
    """

    def __init__(self, heads: Sequence[Head], place: Place = (PATH,)) -> None:
        self.predictions: list[Prediction] = []
        self._heads, self._place = heads, place

    def write(self, places: Sequence[Place], outputs: Sequence[Outputs]) -> None:
        """Add a prediction for each place."""
        for place, *rows in _by_row(places, outputs):
            found: dict[str, Any] = dict(zip(map(str, self._place), map(_plain, place), strict=True))
            targets = {head.target: _values(head, row) for head, row in zip(self._heads, rows, strict=True)}
            own = targets.pop("", {})
            others = {name: Predicted(**values) for name, values in targets.items()}
            self.predictions.append(Prediction(**found, **own, targets=others))

    def close(self) -> None:
        """Do nothing: all rows are collected."""


def _values(head: Head, row: Outputs) -> dict[str, Any]:
    """Return the attributes of what is predicted of a target."""
    found = head.described(row)
    if "class" in found:
        found["class_name"] = found.pop("class")
    return {name: tuple(of) if isinstance(of, list) else of for name, of in found.items()}


def _by_row(places: Sequence[Place], outputs: Sequence[Outputs]) -> Iterator[tuple[Any, ...]]:
    """Return the place and the outputs of each target, row by row."""
    return zip(places, *(of.reshape(len(places), -1) for of in outputs), strict=True)


def _likeliest(names: Sequence[str], row: Outputs, top: int) -> Iterator[tuple[str, np.float32]]:
    """Yield the likeliest classes, of equal ones the first, as `argmax` takes it."""
    for place in np.argsort(-row, kind="stable")[:top].tolist():
        yield names[place], row[place]


def _plain(place: str | int) -> str | int:
    return as_unicode(place) if isinstance(place, str) else place


def _number(value: np.float32) -> float:
    return float(str(value))


FileWriter = CsvRows | JsonLinesWriter | ParquetWriter
Writer = FileWriter | Collector
FORMATS: dict[str, type[FileWriter]] = {"csv": CsvRows, "jsonl": JsonLinesWriter, "parquet": ParquetWriter}
"""Writers by format: of a file, and what a model predicts of each target."""
