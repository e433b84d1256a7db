"""Examples at points of pipelines, as rows and columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.stages.flow import MISSING, MISSING_TIME, Feature
from etlrun.stages.rows import BETWEEN
from etlrun.system.machine import rounded

_IMAGE_RANK, _CHANNELS = 3, (1, 3)
_MOST_CHARACTERS = 160


@dataclass(frozen=True, kw_only=True)
class Row:
    """One example.

    Attributes:
        batch: Number of its batch, from 1.
        example: Its number in the batch, from 1.
        target: Target as text, with the name of a class.
    """

    batch: int
    example: int
    target: str

    @property
    def place(self) -> str:
        """Its place in the split."""
        return f"batch {self.batch}, example {self.example}"


@dataclass(frozen=True, kw_only=True)
class View:
    """All examples at one point, in one pass.

    Attributes:
        name: Such as `pass 1`; empty if the column has no other view.
        features: Features by name, as the plan describes them.
        cells: Values of each example, by feature.
    """

    name: str
    features: Mapping[str, Feature]
    cells: tuple[Mapping[str, Any], ...]

    def ends(self, name: str) -> tuple[float, float] | None:
        """Return the smallest and the largest value of a numeric feature in all cells; None if there is none."""
        if self.features[name].dtype == "string":
            return None
        there = [of for value in self.cells if (of := _there(np.asarray(value[name]))).size]
        return (float(min(of.min() for of in there)), float(max(of.max() for of in there))) if there else None

    def shown(self, name: str) -> str:
        """Describe the values of a feature in all cells: their range, or their sizes, and how many are missing."""
        feature, ends = self.features[name], self.ends(name)
        missing = sum(is_missing(cell[name]) for cell in self.cells)
        lacking = f"{missing} of {len(self.cells)} missing" if missing else ""
        if missing == len(self.cells):
            return lacking
        if ends is not None and feature.format == "timestamp":
            span = _span(*(as_text(np.int64(end), feature) for end in ends))
        elif ends is not None:
            span = _span(f"{ends[0]:.4g}", f"{ends[1]:.4g}")
        elif feature.is_sequence:
            counts = [len(cell[name]) for cell in self.cells]
            return f"{_span(f'{min(counts):,}', f'{max(counts):,}')} tokens"
        else:
            sizes = [len(cell[name]) for cell in self.cells if not is_missing(cell[name])]
            span = _span(rounded(min(sizes)), rounded(max(sizes)))
        return f"{span}, {lacking}" if lacking else span


@dataclass(frozen=True, kw_only=True)
class Column:
    """One point.

    Attributes:
        path: Path of the step.
        views: One, or one for each pass or side.
        is_of_model: Whether the model applies the step.
    """

    path: str
    views: tuple[View, ...]
    is_of_model: bool = False


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """Examples, one row each, after each step, one column each.

    Attributes:
        title: What is shown.
        source: Dataset, version and split.
        rows: Examples.
        columns: Points.
        notes: Notes for the reader, one sentence each.
        notes_on_data: Notes on the dataset, as a run has them.
    """

    title: str
    source: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    notes: tuple[str, ...] = ()
    notes_on_data: tuple[str, ...] = ()

    @property
    def views(self) -> list[tuple[Column, View]]:
        """All views with their columns, in order."""
        return [(column, view) for column in self.columns for view in column.views]


def is_image(feature: Feature) -> bool:
    """Return whether a feature is an image, encoded or not."""
    has_sides = len(feature.shape) == _IMAGE_RANK and feature.shape[-1] in _CHANNELS
    return feature.format == "image" or (has_sides and feature.dtype != "string")


def is_missing(value: Any) -> bool:
    """Return whether a value of a feature is missing: text, a time, or a number, or all numbers of an array."""
    if isinstance(value, bytes):
        return value == MISSING
    values = np.asarray(value)
    return values.dtype.kind in "fi" and values.size > 0 and not _there(values).size


def _there(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the values that are not missing."""
    is_there: npt.NDArray[np.bool_] = ~np.isnan(values) if values.dtype.kind == "f" else values != MISSING_TIME
    return values[is_there]


def as_text(value: Any, feature: Feature | None = None) -> str:
    """Return a value of a feature as text on one line, the middle of a long one left out."""
    if is_missing(value):
        return "missing"
    if isinstance(value, bytes):
        text = value.decode(errors="replace").replace(BETWEEN, ", ")
    elif feature is not None and feature.format == "timestamp":
        text = str(np.datetime64(int(value), "us")).removesuffix(".000000").removesuffix("T00:00:00")
    elif np.asarray(value).dtype == object:
        text = " | ".join(as_text(token) for token in value)
    else:
        text = np.array2string(np.asarray(value), precision=4, threshold=16, edgeitems=4, separator=", ")
    text = " ".join(text.split())
    half = _MOST_CHARACTERS // 2
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:half]} … {text[-half:]}"


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"
