"""Splits: the syntax of slices such as `train[:80%]+test[10:20]`, and splits of rows by the values of a column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from etlrun.system.values import frozen

SPLIT_EXPECTED = "splits such as train, train[:80%] or train[100:200], joined by +"
_WHOLE = 100


@dataclass(frozen=True)
class Language:
    """Slicing language of a dataset.

    Attributes:
        name: Pattern of the name of a split.
        bound: Pattern of one end of a slice.
        bounds: Description of such ends.
        has_shards: Whether a slice may be of shards, and a single one of them.
    """

    name: str
    bound: str
    bounds: str
    has_shards: bool


_BOUND_OF_TFDS = r"-?(\d[\d_]*(\.\d*)?|\.\d+)(%|shard)?"
TFDS = Language(r"[\w-]+", _BOUND_OF_TFDS, "numbers of examples, percents or shards", has_shards=True)
FILES = Language(r"\w+", r"-?\d+%?", "whole numbers of examples or percents", has_shards=False)
"""Languages of TFDS, and of the sources of files."""


def malformed(split: str, language: Language) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with each part of a split and at which character, counted from 1, with the remedy."""
    start = 1
    for part in split.split("+"):
        text = part.strip()
        fault = (
            _of_part(text, language) if text else (0, "no split", f"name a split{', or remove the +' * ('+' in split)}")
        )
        if fault is not None:
            place = start + len(part) - len(part.lstrip()) + fault[0]
            yield f"{split!r} with {fault[1]} at character {place}", fault[2]
        start += len(part) + 1


def _of_part(text: str, language: Language) -> tuple[int, str, str] | None:
    """Return the place of a fault in a part, from 0, what it is, and the remedy; None if there is none."""
    name, bracket, rest = text.partition("[")
    known = re.match(language.name, name)
    if known is None or known.end() < len(name):
        place = known.end() if known else 0
        return place, f"{text[place]!r} in the name of a split", "write NAME or NAME[FROM:TO], such as train[:80%]"
    inner, closed, behind = rest.partition("]")
    if bracket and not closed:
        likely = inner if ":" in inner else f":{inner or '80%'}"
        return len(name), "a '[' that is not closed", f"close it, as in {name}[{likely}]"
    if behind:
        return len(name) + len(inner) + 2, f"{behind!r} behind the slice", "remove it, or join splits by +"
    return _of_slice(name, inner, language) if bracket else None


def _of_slice(name: str, inner: str, language: Language) -> tuple[int, str, str] | None:
    start, bounds = len(name) + 1, inner.split(":")
    place = start
    for bound in bounds:
        if bound and (found := _of_bound(bound, inner, language)):
            return place, found, f"write {language.bounds}, such as {name}[:80%]"
        place += len(bound) + 1
    if len(bounds) > 2:  # noqa: PLR2004 - both ends
        return start, "a third value", f"write {name}[{':'.join(bounds[:2])}]: slices have no step"
    if not inner or (language.has_shards and inner == ":"):
        return start - 1, "a slice without ends", f"write {name} for all of it"
    if len(bounds) == 1 and not inner.endswith("shard"):
        return start, "a slice without ':'", f"write {name}[:{inner}] for what is before it, or {name}[{inner}:]"
    return None


def _of_bound(bound: str, inner: str, language: Language) -> str:
    """Return what is wrong with one end of a slice; empty if nothing is."""
    if not re.fullmatch(language.bound, bound):
        return f"{bound!r} as an end of a slice"
    if "." in bound and "%" not in inner:
        return f"{bound!r}, a part of an example,"
    return f"{bound!r}, more than 100%," if bound.endswith("%") and abs(float(bound[:-1])) > _WHOLE else ""


Value = str | int | bool
BY = ("column", "group", "stratify", "time")
"""Keys of `dataset.split_by`, of which it has one: what it does with the values of the column."""
SPLIT_BY_EXPECTED = "{time: COLUMN}, {group: COLUMN}, {stratify: COLUMN}, {column: COLUMN, train: [VALUES], …}, or null"

_Values = Annotated[tuple[Value, ...], Field(min_length=1)]
Written = dict[Annotated[str, Field(pattern=r"^\w+$")], Annotated[str, Field(min_length=1)] | _Values]
"""Type of `dataset.split_by`."""


@frozen
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
        return f"etlrun.eject.printed.rows:{'Named' if self.values else 'Placed'}Splits"

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
