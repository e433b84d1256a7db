"""Files of values between commas or tabs, read as texts whose types are those of all rows."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from etlrun.sources.rows.kinds import Kind, Seen, has_any, stripped
from etlrun.sources.rows.lines import (
    as_by,
    at_line,
    broken,
    encoding_fault,
    first_lines,
    format_fault,
    is_gzip,
    opened,
    shown,
)
from etlrun.sources.rows.read import TableFile, zero_note
from etlrun.stages.rows import Errors
from etlrun.system.errors import EtlrunError, Fault, WorldError, override, override_of_texts

_LINE_END = re.compile(r"\r\n?|\n")
_LONGEST_VALUE = 2**31 - 1

_BLOCK = 16_000_000
"""Bytes that are parsed at once, and more than a row has."""


@dataclass(frozen=True)
class Dialect:
    """How a delimited file is written.

    Attributes:
        usual: Separator that its name says.
        csv: What a config says: see `dataset.csv`.
    """

    usual: str
    csv: Mapping[str, str | None]

    @property
    def separator(self) -> str:
        """What stands between two values."""
        return self.csv.get("separator") or self.usual

    @property
    def quote(self) -> str | None:
        """What stands around a value."""
        return self.csv.get("quote", '"')

    def but(self, **marks: str | None) -> Dialect:
        """Return the same with other marks."""
        return replace(self, csv={**self.csv, **marks})

    @property
    def remedy(self) -> str:
        """What sets it."""
        marks = ", ".join(f"{name}: {json.dumps(mark)}" for name, mark in self.csv.items())
        return f"set {shlex.quote(f'dataset.csv={{{marks}}}')}"


def _rows(path: str, dialect: Dialect, *, strict: bool, errors: str = "replace") -> Iterator[tuple[int, list[str]]]:
    """Yield the line at which each row begins, and its values; blank lines are none. `errors` are of `bytes.decode`."""
    csv.field_size_limit(_LONGEST_VALUE)  # of all readers of the process, which may be in threads
    with opened(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors=errors, newline="")
        reader = csv.reader(
            text,
            delimiter=dialect.separator,
            quotechar=dialect.quote,
            quoting=csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE,
            escapechar=dialect.csv.get("escape"),
            strict=strict,
        )
        line = 1
        while True:
            try:
                row = next(reader, None)
            except csv.Error as error:
                raise _BrokenError(line, str(error)) from error
            if row is None:
                return
            if row:
                yield line, row
            line = reader.line_num + 1


class _BrokenError(Exception):
    def __init__(self, line: int, what: str) -> None:
        self.line, self.is_inside = line, what != "unexpected end of data"
        super().__init__(what)


def header(path: str, dialect: Dialect) -> list[str]:
    """Return the first row of a delimited file, what is not UTF-8 as `surrogateescape`; empty if it has none."""
    return next((row for _, row in _rows(path, dialect, strict=False, errors="surrogateescape")), [])


def merged_rows(path: str, dialect: Dialect, width: int, errors: Errors) -> list[int]:
    """Return the first lines of rows that may be several: each of their lines has a value for each of `width` columns.

    Raises:
        EtlrunError: A row is ragged, or has broken quotes; or, of `strict` errors, a line is not UTF-8.
    """
    found = []
    try:
        for line, row in _rows(path, dialect, strict=True, errors=errors):
            if len(row) != width:
                raise EtlrunError([_ragged(path, dialect, line, row, width)])
            parts = _LINE_END.split(dialect.separator.join(row))
            if len(parts) > 1 < width and all(part.count(dialect.separator) == width - 1 for part in parts):
                found.append(line)
    except UnicodeDecodeError as error:
        raise broken(path, encoding_fault(path), error) from error
    except _BrokenError as error:
        others = (dialect.but(escape="\\"), dialect.but(quote=None))
        fitting = [f"{of.remedy}, or " for of in others if len(_widths(path, of)) == 1]
        raise WorldError(
            at_line(path, error.line),
            "a quote inside a value in quotes" if error.is_inside else "a quote that is not closed",
            "values in quotes that end with a quote, and quotes in them written twice",
            f"{''.join(fitting[:1])}repair the line",
        ) from error
    return found


def _widths(path: str, dialect: Dialect, *, first: int = 0) -> set[int]:
    """Return the numbers of values of the rows in a dialect, from the first on; none if it has broken quotes."""
    try:
        return {len(row) for _, row in islice(_rows(path, dialect, strict=True), first, None)}
    except _BrokenError:
        return set()


def without_ends(path: str, dialect: Dialect) -> str:
    """Return the remedy of a file whose lines end with a separator."""
    command = f"sed 's/{dialect.separator}$//'"
    return f"remove the separators at the ends of lines, {as_by(command, path)}"


def _ragged(path: str, dialect: Dialect, line: int, row: list[str], width: int) -> Fault:
    """Return the fault of the first row with another number of values than the header has."""
    remedy = "repair the line: a value with a separator in it stands in quotes"
    if width == 1:
        remedy = "if the lines above it are no header, remove them"
    elif _widths(path, dialect, first=1) == {width + 1}:
        command = as_by(f"sed '1s/^/row{dialect.separator}/'", path)
        remedy = f"quote values with a separator, or, if the first ones are R's names of rows, name them, {command}"
        remedy = remedy if row[-1] else without_ends(path, dialect)
    return Fault(
        at_line(path, line),
        f"{len(row)} value{'s' * (len(row) != 1)}",
        f"{width}, one for each column of the header",
        remedy,
    )


class DelimitedFile(TableFile):
    """A file of values between commas (csv) or tabs (tsv), of which the first row names the columns."""

    def __init__(self, path: str, dialect: Dialect, *, missing: tuple[str, ...], strip: bool, errors: Errors) -> None:
        """Read the names of the columns; raise `WorldError` if there are none, or one is empty or there twice."""
        super().__init__(path, errors)
        self._dialect, self._missing, self._strip = dialect, missing, strip
        if (fault := format_fault(path)) is not None:
            raise EtlrunError([fault])
        self.names = header(path, dialect)
        if any("\udc80" <= mark <= "\udcff" for mark in "".join(self.names)):
            raise broken(path, encoding_fault(path, otherwise=""), ValueError())
        names, remedy = self.names, "write the names of the columns in the first line"
        found = ""
        if not names:
            found = "an empty file"
        elif (other := self._other_line(names)) is not None:
            found, remedy = other
        elif empty := [str(place) for place, name in enumerate(names, start=1) if not name.strip()]:
            found = f"a header without a name for column {', '.join(empty)} of {len(names)}"
            if empty == ["1"]:
                remedy = "name it, or leave it out, as frame.to_csv(path, index=False) does"
            elif empty == [str(len(names))]:
                remedy = without_ends(self.path, self._dialect)
        elif twice := sorted({name for name in names if names.count(name) > 1}):
            found = f"a header with {', '.join(twice)} twice"
        if found:
            raise WorldError(at_line(self.path, 1), found, "names of columns", remedy)
        self._merged: list[int] = []
        self._zero: int | None = None

    def _other_line(self, names: Sequence[str]) -> tuple[str, str] | None:
        """Return what the first line is if it has no names in this dialect, and what to do; else None."""
        if names[0].startswith("sep=") and not any(names[1:]):
            return "a separator for Excel", f"remove the line, {as_by('sed 1d', self.path)}"
        if names[0].startswith(("{", "[{")):
            return "JSON", "name it with .jsonl"
        mark = next((mark for mark in ";\t|," if mark in names[0]), "") if len(names) == 1 else ""
        return (f"columns separated by {mark!r}", self._dialect.but(separator=mark).remedy) if mark else None

    def kinds(self, declared: Mapping[str, Kind], tell: Callable[[], None]) -> dict[str, Kind | None]:
        quote = (self._dialect.quote or "\0").encode()
        marks = first_lines(self.path, quote, b"\0")
        self._zero = marks.get(b"\0")
        self._merged = self._require_rows() if quote in marks else []
        texts = {name: Seen() for name in self.names}
        first = 0
        for batch in self._texts():
            self._require_one_header(batch, first)
            for name, values in zip(self.names, batch.columns, strict=True):
                texts[name].add(values, first)
            first += batch.num_rows
            tell()
        self.seen = {name: seen for name, seen in texts.items() if name not in declared}
        for name, seen in self.seen.items():
            if seen.kind == "whole" and seen.too_large is not None:
                row, text = seen.too_large
                raise WorldError(
                    f"{self.where(row)}, {name}",
                    f"{shown(text)}, an integer beyond 64 bits",
                    "integers from -2**63 to 2**63 - 1",
                    f"set {override('dataset.columns', name, 'text')} for a code, or number for a float",
                )
        return {name: seen.kind for name, seen in texts.items()}

    def nothing(self, marks: Sequence[str]) -> str:
        if found := override_of_texts("dataset.missing", dict.fromkeys((*self._missing, *marks))):
            return f"set {found}"
        return f"add {'them' if marks[1:] else 'it'} to dataset.missing"

    def notes(self) -> Iterator[str]:
        if blank := [repr(name) for name in self.names if name != name.strip()]:
            yield f"names of columns have blanks around them in {self.name}: {', '.join(blank)}."
        yield from zero_note(self.name, self._zero)
        if self._merged:
            yield (
                f"{self.name}, line {self._merged[0]:,} begins a row whose quotes hold several lines, each with a "
                f"value for each column: if these are rows, {self._dialect.but(quote=None).remedy}."
            )
        yield from super().notes()

    def batches(self, kinds: Mapping[str, Kind]) -> Iterator[pa.RecordBatch]:
        return self._texts()

    def where(self, row: int) -> str:
        rows = islice(_rows(self.path, self._dialect, strict=False), row + 1, None)
        return at_line(self.path, next(rows, (row + 2,))[0])

    def _require_one_header(self, batch: pa.RecordBatch, first: int) -> None:
        """Raise `WorldError` for a row that names the columns again."""
        mask = _is_name(batch.column(0), self.names[0])
        if len(self.names) == 1 or not has_any(mask):
            return
        for name, values in zip(self.names, batch.columns, strict=True):
            mask = pc.and_(mask, _is_name(values, name))
        if (place := pc.index(mask, value=True).as_py()) >= 0:
            raise WorldError(self.where(first + place), "the header again", "a row of values", "remove the line")

    def _texts(self) -> Iterator[pa.RecordBatch]:
        dialect = self._dialect
        parsing = pyarrow.csv.ParseOptions(
            delimiter=dialect.separator,
            quote_char=dialect.quote or False,
            escape_char=dialect.csv.get("escape") or False,
            newlines_in_values=True,
        )
        converting = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(self.names, pa.string()),
            strings_can_be_null=True,
            null_values=list(self._missing),
            check_utf8=self.errors == "strict",
        )
        try:
            # threads of Arrow would wait for Python's lock to read from an object of Python
            with opened(self.path) if is_gzip(self.path) else pa.OSFile(self.path) as file:
                for batch in pyarrow.csv.open_csv(
                    file, pyarrow.csv.ReadOptions(block_size=_BLOCK), parsing, converting
                ):
                    self.position = getattr(file, "fileobj", file).tell()
                    texts = self.in_utf8(batch)
                    if self._strip:
                        missing = pa.array(self._missing, pa.string())
                        columns = [stripped(values) for values in texts.columns]
                        columns = [pc.if_else(pc.is_in(values, value_set=missing), None, values) for values in columns]
                        texts = pa.RecordBatch.from_arrays(columns, names=texts.schema.names)
                    yield texts
                self.position = self.bytes
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):
                return  # of a header alone
            self._require_rows()
            raise broken(self.path, None, error) from error

    def _require_rows(self) -> list[int]:
        return merged_rows(self.path, self._dialect, len(self.names), self.errors)


def _is_name(values: pa.Array, name: str) -> pa.Array:
    """Return which values are the name of a column, also as in a file that another one was written behind."""
    return pc.equal(pc.utf8_trim(values, " \t\ufeff"), name.strip(" \t"))
