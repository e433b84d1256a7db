"""What is known of rows once they have been read: of each column, and of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from etlrun.stages.flow import Feature

Type = Literal["text", "integer", "number", "truth", "timestamp", "integers", "numbers"]


BETWEEN = "\x1f"
"""What stands between the items of lists of texts: ASCII's separator of units."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """What is known of a column after all of its rows have been read.

    Attributes:
        feature: Its type.
        missing: Number of rows without a value.
        distinct: Number of different values; None if there are more than `MOST_COUNTED`.
        is_joined: Whether its texts are lists of texts, kept with `BETWEEN` between their items.
    """

    feature: Feature
    missing: int = 0
    distinct: int | None = None
    is_joined: bool = False

    @property
    def type(self) -> Type:
        """Its type as `dataset.columns` names it; an integer that may be missing is a number."""
        feature = self.feature
        if feature.is_sequence:
            return "integers" if "int" in feature.dtype else "numbers"
        if feature.format == "timestamp":
            return "timestamp"
        if feature.has_missing and self.distinct and feature.low is None and feature.dtype == "float64":
            return "truth"  # which are floats where some are missing, and have no ends
        by_dtype: dict[str, Type] = {"string": "text", "bool": "truth"}
        return by_dtype.get(feature.dtype, "integer" if "int" in feature.dtype else "number")


_AT_ONCE_BYTES = 16_000_000
MOST_COUNTED = 10_000
"""Different values of a column up to which they are counted."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of a dataset of rows after it has been read and kept.

    Attributes:
        columns: All columns by name, in the order of the data.
        rows: Number of rows of each split of the data.
        identity: First 16 hex digits of a SHA-256 over the content and how it is read.
        held_bytes: Size of the kept columns.
        classes: Values of a target that is a class, in the order of their indices; empty for others.
        notes: What a reader of the data may not expect, a sentence each.
        folder: Folder of the kept columns; empty if there is none.
        file_rows: Number of rows of each file, in the order of the files; empty if a file has all rows.
        left_out: What columns of the data have that can't be kept, by name.
        of_folders: Columns that the names of folders have, and no file.
        splits: Notes on the splits of a run: what they are if a column decides it, and equal rows in both.
    """

    columns: Mapping[str, Column]
    rows: Mapping[str, int]
    identity: str
    held_bytes: int
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    folder: str = ""
    file_rows: tuple[int, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    of_folders: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()

    def rows_at_once(self, most: int) -> int:
        """Return how many rows to work on at once: `most` at the most, and of large ones what takes some megabytes."""
        fitting = _AT_ONCE_BYTES * sum(self.rows.values()) // self.held_bytes if self.held_bytes else most
        return max(1, min(most, fitting))

    @property
    def remarks(self) -> Iterator[str]:
        """Yield what a plan has to say of the rows, a sentence each."""
        if self.folder:
            size = f"{sum(self.rows.values()):,} rows of {len(self.columns)} columns"
            yield f"{size} are kept in {self.folder}, {self.held_bytes / 1e6:,.1f} MB."
        yield from (*self.notes, *self.splits)
