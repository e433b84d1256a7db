"""Splits of rows by the values of a column, as `dataset.split_by` has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

Value = str | int | bool
BY = ("column", "group", "stratify", "time")
"""Keys of `dataset.split_by`, of which it has one: what it does with the values of the column."""
EXPECTED = "{time: COLUMN}, {group: COLUMN}, {stratify: COLUMN}, {column: COLUMN, train: [VALUES], …}, or null"

_Values = Annotated[tuple[Value, ...], Field(min_length=1)]
Written = dict[Annotated[str, Field(pattern=r"^\w+$")], Annotated[str, Field(min_length=1)] | _Values]
"""Type of `dataset.split_by`."""


@dataclass(frozen=True, kw_only=True)
class SplitBy:
    """How the rows of a dataset are split.

    Attributes:
        by: `time`: a slice has the rows from one value of the column to another. `group`: all rows of a value are in
            one slice. `stratify`: each value has the same share in each slice. `column`: splits are named, and have the
            rows of some values.
        column: Name of the column.
        values: Values of the column in each split, for `column` alone.
    """

    by: str
    column: str
    values: Mapping[str, tuple[Value, ...]]

    @classmethod
    def of(cls, written: Written) -> SplitBy:
        """Return what a config has written, which has no faults."""
        by = next(key for key in BY if key in written)
        values = {name: tuple(of) for name, of in written.items() if name not in BY}
        return cls(by=by, column=str(written[by]), values=values)

    @property
    def is_of_rows(self) -> bool:
        """Whether the values of the column only say which rows belong together, so that no other rows have them."""
        return self.by in ("column", "group")

    @property
    def printed(self) -> str:
        """Module of the functions that split rows in a program."""
        return f"etlrun.eject.printed.rows_{'named' if self.values else 'placed'}"

    @property
    def constants(self) -> dict[str, Any]:
        """Constants of these functions, by name."""
        values = {name: list(of) for name, of in self.values.items()}
        return {"SPLIT_BY": self.by, "SPLIT_COLUMN": self.column, "SPLIT_VALUES": values}


def faults_of(written: Written) -> Iterator[tuple[str, str, str]]:
    """Yield what is wrong with `dataset.split_by` by itself: what was found, what is expected, and the remedy."""
    by, names = [key for key in BY if key in written], [key for key in written if key not in BY]
    found = ", ".join(written)
    if len(by) != 1:
        remedy = "" if not by else f"keep one: ~dataset.split_by.{by[0]} removes {by[0]}"
        yield found, f"one of the keys {', '.join(BY)}", remedy
        return
    texts = [key for key in names if isinstance(written[key], str)]
    if not isinstance(written[by[0]], str):
        yield f"{by[0]}: {list(written[by[0]])}", "the name of a column", f"write {{{by[0]}: COLUMN}}"
    elif by[0] != "column" and names:
        expected = f"{by[0]} alone, since dataset.split and dataset.eval_split take parts such as train[:80%]"
        yield found, expected, "leave the others out, or name splits by {column: COLUMN, train: [VALUES]}"
    elif by[0] == "column" and not names:
        yield found, "a list of values of the column for each split", "add them, as in train: [0, 1], validation: [2]"
    elif texts:
        yield f"{texts[0]}: {written[texts[0]]}", "a list of values", f"write {texts[0]}: [{written[texts[0]]}]"
    else:
        yield from _of_two({name: tuple(written[name]) for name in names})


def _of_two(values: Mapping[str, tuple[Value, ...]]) -> Iterator[tuple[str, str, str]]:
    splits: dict[tuple[type, Value], str] = {}
    for split, of in values.items():
        for value in of:
            before = splits.setdefault((type(value), value), split)
            if before != split or of.count(value) > 1:
                where = f"{before} and in {split}" if before != split else f"{split} twice"
                yield f"{value} in {where}", "each value once", "leave it out of one of them"
                return
