"""Rows of predictions, as CSV, JSON lines or Parquet. Numbers of text are the shortest that give the same float32."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TextIO

import numpy as np

from etlrun.stages.lazy import pa
from etlrun.system.files import as_unicode
from etlrun.system.values import Block
from etlrun.trained.scores import HALF, Outputs

Place = tuple[str | int, ...]
"""The place of an example, such as its path, or the path of its table and the number of its row."""
PATH, ROW = "path", "row"
Write = Callable[[Sequence[Place], Sequence[Outputs]], None]
"""Writes a row for each place; outputs of each target are probabilities (rows, classes), or values."""


class Head(NamedTuple):
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

    def described(self, row: Outputs) -> Block:
        """Return the outputs of an example by the names of the attributes of `Predicted`."""
        if self.names is None:
            values = tuple(_number(value) for value in row)
            return {"value": values[0] if len(values) == 1 else values}
        shares = dict(_likeliest(self.names, row, self.top or self.outputs))
        first = {"labels": (*self._labels(row),)} if self.is_labels else {"class_name": next(iter(shares))}
        return {**first, "probabilities": {name: _number(of) for name, of in shares.items()}}

    def _labels(self, row: Outputs) -> list[str]:
        return [name for name, share in zip(self.names or (), row, strict=True) if share > HALF]


def paired(
    heads: Sequence[Head], places: Sequence[Place], outputs: Sequence[Outputs]
) -> Iterator[tuple[Place, list[tuple[Head, Outputs]]]]:
    """Yield the place of each row, and its outputs of each target with what they are."""
    for place, *rows in zip(places, *(of.reshape(len(places), -1) for of in outputs), strict=True):
        yield place, [*zip(heads, rows, strict=True)]


def named(header: Sequence[str], place: Place) -> Block:
    """Return a place by the names of what tells examples apart; its path is Unicode."""
    return dict(zip(header, (as_unicode(of) if isinstance(of, str) else of for of in place), strict=True))


@contextmanager
def to_csv(file: TextIO, heads: Sequence[Head], header: Sequence[str] = (PATH,)) -> Iterator[Write]:
    """Write CSV with a header.

    Columns are `path` and those of each target: `class` with the probability of each class; with `top` the `top`
    likeliest classes, each with its probability; without classes the values. Rows of a table have `row`, from 0, in the
    place of `path`, and those of several tables both.
    """
    writer = csv.writer(file, lineterminator="\n")
    names = [[*header, *(name for head in heads for name in head.header)]]

    def write(places: Sequence[Place], outputs: Sequence[Outputs]) -> None:
        writer.writerows(names)  # no header stands above an error
        names.clear()
        for place, pairs in paired(heads, places, outputs):
            cells = (of for head, row in pairs for of in head.cells(row))
            writer.writerow([*place, *(str(of) if isinstance(of, np.float32) else of for of in cells)])

    yield write
    writer.writerows(names)


@contextmanager
def to_json_lines(file: TextIO, heads: Sequence[Head], header: Sequence[str] = (PATH,)) -> Iterator[Write]:
    """Write one JSON object a line: `path`, `class` and `probabilities` by class, the likeliest first; or `value`.

    Of several targets each has such an object by its name.
    """

    def write(places: Sequence[Place], outputs: Sequence[Outputs]) -> None:
        for place, pairs in paired(heads, places, outputs):
            line = named(header, place)
            for head, row in pairs:
                found = {name.removesuffix("_name"): of for name, of in head.described(row).items()}
                line |= {head.target: found} if head.target else found
            file.write(json.dumps(line) + "\n")

    yield write


@contextmanager
def to_parquet(file: TextIO, heads: Sequence[Head], header: Sequence[str] = (PATH,)) -> Iterator[Write]:
    """Write Parquet with the columns of CSV, of which numbers are float32."""
    import pyarrow.parquet

    names = [*header, *(name for head in heads for name in head.header)]
    blank = [of for head in heads for of in head.cells(np.zeros(head.outputs, np.float32))]
    kinds = [pa.int64() if of == ROW else pa.string() for of in header]
    kinds += [pa.string() if isinstance(of, str) else pa.float32() for of in blank]
    schema = pa.schema([*zip(names, kinds, strict=True)])
    writer = pyarrow.parquet.ParquetWriter(file.buffer, schema)

    def write(places: Sequence[Place], outputs: Sequence[Outputs]) -> None:
        each = paired(heads, places, outputs)
        rows = [
            [*named(header, at).values(), *(of for head, row in pairs for of in head.cells(row))] for at, pairs in each
        ]
        writer.write_batch(pa.record_batch([*map(pa.array, zip(*rows, strict=True), kinds)], schema=schema))

    yield write
    writer.close()


def _likeliest(names: Sequence[str], row: Outputs, top: int) -> Iterator[tuple[str, np.float32]]:
    """Yield the likeliest classes, of equal ones the first, as `argmax` takes it."""
    for place in np.argsort(-row, kind="stable")[:top].tolist():
        yield names[place], row[place]


def _number(value: np.float32) -> float:
    return float(str(value))


FORMATS = {"csv": to_csv, "jsonl": to_json_lines, "parquet": to_parquet}
"""What writes rows, by format: to a file, of what a model predicts of each target."""
