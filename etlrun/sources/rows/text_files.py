"""Files of text as tables: values between commas or tabs, whose types are those of all rows; and JSON lines."""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import operator
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from etlrun.sources.rows.kinds import LISTS, TIMES, Kind, Seen, has_any, is_list, joined, kind_of_type, shown, stripped
from etlrun.sources.rows.read import (
    TableFile,
    as_by,
    at_line,
    broken,
    encoding_fault,
    first_lines,
    format_fault,
    is_gzip,
    opened,
    zero_note,
)
from etlrun.stages.rows import Errors
from etlrun.system.errors import EtlrunError, Fault, WorldError, override, override_of_texts, refuse

_LINE_END = re.compile(r"\r\n?|\n")

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
    csv.field_size_limit(2**31 - 1)  # of all readers of the process, which may be in threads
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


def _ragged(path: str, dialect: Dialect, line: int, row: list[str], width: int) -> WorldError:
    """Return the error of the first row with another number of values than the header has."""
    remedy = "repair the line: a value with a separator in it stands in quotes"
    if width == 1:
        remedy = "if the lines above it are no header, remove them"
    elif _widths(path, dialect, first=1) == {width + 1}:
        command = as_by(f"sed '1s/^/row{dialect.separator}/'", path)
        remedy = f"quote values with a separator, or, if the first ones are R's names of rows, name them, {command}"
        remedy = remedy if row[-1] else without_ends(path, dialect)
    expected = f"{width}, one for each column of the header"
    return WorldError(at_line(path, line), f"{len(row)} value{'s' * (len(row) != 1)}", expected, remedy)


class DelimitedFile(TableFile):
    """A file of values between commas (csv) or tabs (tsv), of which the first row names the columns."""

    def __init__(self, path: str, dialect: Dialect, *, missing: tuple[str, ...], strip: bool, errors: Errors) -> None:
        """Read the names of the columns; raise `WorldError` if there are none, or one is empty or there twice."""
        super().__init__(path, errors)
        self._dialect, self._missing, self._strip = dialect, missing, strip
        refuse([format_fault(path)], EtlrunError)
        rows = _rows(path, dialect, strict=False, errors="surrogateescape")
        self.names = next((row for _, row in rows), [])
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
        """Return the first lines of rows that may be several; raise `WorldError` for a ragged row or broken quotes."""
        path, dialect, width, found = self.path, self._dialect, len(self.names), []
        try:
            for line, row in _rows(path, dialect, strict=True, errors=self.errors):
                if len(row) != width:
                    raise _ragged(path, dialect, line, row, width)
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


def _is_name(values: pa.Array, name: str) -> pa.Array:
    """Return which values are the name of a column, also as in a file that another one was written behind."""
    return pc.equal(pc.utf8_trim(values, " \t\ufeff"), name.strip(" \t"))


_JSON_TYPES = {bool: "truth value", int: "number", float: "number", str: "text", list: "list", dict: "mapping"}

_JSON_BLOCK = 4_000_000
_CHUNK = 8_000_000
_EXACT = 2.0**53


def lines(path: str) -> Iterator[tuple[int, bytes]]:
    """Yield the number of each line that is not blank, from 1, and the line."""
    with opened(path) as file:
        for number, line in enumerate(file, start=1):
            content = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if content.strip():
                yield number, content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice} twice")
    return dict(pairs)


def document_fault(path: str) -> Fault | None:
    """Return the fault of a file whose objects of JSON are in an array, or not on lines of their own; else None."""
    with opened(path) as file:
        text = file.read(_CHUNK).decode("utf-8-sig", "replace").strip()
    found, command = "an array of JSON", "jq -c '.[]'"
    if not re.match(r"\s*\[\s*\{", text):
        try:
            row, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(row, dict) or ("\n" not in text[:end] and not text[end:].lstrip(" \t\r").startswith("{")):
            return None
        found, command = "objects of JSON that are not on lines of their own", "jq -c ."
    return Fault(
        path,
        found,
        "an object of JSON on each line",
        f"write them so, {as_by(command, path)} (with jq 1.7 or later, which keeps large integers)",
    )


def json_fault(path: str, names: Sequence[str], errors: Errors) -> Fault | None:
    """Return the fault of the first line of JSON lines that is no object with these keys and single values.

    Of `strict` errors, it is that of the first line which is not UTF-8.
    """
    if (fault := (errors == "strict" and encoding_fault(path)) or document_fault(path)) is not None:
        return fault
    types: dict[str, tuple[str, int]] = {}
    for number, line in lines(path):
        where = at_line(path, number)
        row, expected, remedy = _parsed(line)
        if isinstance(row, str):
            return Fault(where, row, expected, remedy)
        if not row and not names:
            remedy = "write the names of all columns in the first line, with null for a value that is missing"
            return Fault(where, "an object without keys", "names of columns", remedy)
        if others := [name for name in row if name not in names]:
            found, expected = f"other keys: {', '.join(others)}", f"those of the first line: {', '.join(names)}"
            remedy = "add them to the first line, with null for a value that is missing, or leave them out"
            return Fault(where, found, expected, remedy)
        if (fault := _types_fault(where, row, number, types)) is not None:
            return fault
    return None


def _parsed(line: bytes) -> tuple[dict[str, Any] | str, str, str]:
    """Return the object of a line; or what is there instead, what is expected, and what to do."""
    expected, remedy = "an object of JSON", "repair the line"
    try:
        row = json.loads(line.decode(errors="replace"), object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        return f"no JSON: {error.msg}", expected, remedy
    except ValueError as error:
        return str(error), "each key once", remedy
    except RecursionError:
        return "lists or objects within each other", expected, remedy
    return row if isinstance(row, dict) else shown(row), expected, remedy


def _types_fault(where: str, row: dict[str, Any], number: int, types: dict[str, tuple[str, int]]) -> Fault | None:
    """Return the fault of the first value of another type than those before it, which `types` has with their lines."""
    for name, value in row.items():
        if (kind := _JSON_TYPES.get(type(value))) is None:
            continue
        before, line = types.setdefault(name, (kind, number))
        found, remedy = "", "repair the line"
        if kind == "list" and len({_JSON_TYPES.get(type(of)) for of in value} - {None}) > 1:
            found, expected = "a list of several types", "a list whose items are of one type"
        elif isinstance(value, float) and math.isinf(value):
            found, expected = f"{value}, which is infinite as a number", "finite numbers"
            remedy = "repair the value, or write null"
        elif isinstance(value, str) and any("\ud800" <= mark <= "\udfff" for mark in value):
            found, expected = f"a text with a half of a character: {shown(value)}", "text in Unicode"
        elif before != kind:
            found = f"a {kind}: {shown(value)}" if value != "" else "an empty text"
            expected = f"a {before}, as in line {line:,}"
        if found:
            return Fault(f"{where}, {name}", found, expected, remedy)
    return None


class JsonLinesFile(TableFile):
    """A file of JSON lines; a key that an object lacks is a missing value, another one a fault."""

    def __init__(self, path: str, errors: Errors) -> None:
        """Read the keys of the first object; raise `WorldError` if there is none."""
        super().__init__(path, errors)
        refuse([format_fault(path)], EtlrunError)
        self._texts: set[str] = set()
        first = next((line for _, line in lines(path)), b"")
        if not first:
            raise WorldError(path, "an empty file", "lines of JSON", "write an object of JSON on each line")
        try:
            found = json.loads(first.decode(errors="replace"))
            self.names = list(found) if isinstance(found, dict) else []
        except (ValueError, RecursionError):
            self.names = []
        if not self.names:
            raise broken(path, json_fault(path, [], errors), ValueError("no keys in the first line"))

    def kinds(self, declared: Mapping[str, Kind], tell: Callable[[], None]) -> dict[str, Kind | None]:
        found: dict[str, Kind | None] = dict.fromkeys(self.names)
        texts, first, large = {name: Seen() for name in self.names}, 0, set[str]()
        for table in self._tables():
            for name in table.column_names:
                values = table[name].combine_chunks()
                try:
                    kind = kind_of_type(values.type)
                except pa.ArrowInvalid:
                    self.left_out[name] = f"values of type {values.type} in {self.name}"
                    continue
                if not is_list(values.type) and kind in ("text", None):
                    texts[name].add(values, first)  # nulls add nothing
                    kind = texts[name].kind if texts[name].kind in (*TIMES, None) else "text"
                if is_list(values.type) and (declared.get(name) or kind) == "text":
                    self.joined.add(name)
                if (
                    kind == "number"
                    and declared.get(name, "text") == "text"
                    and has_any(pc.greater(pc.abs(values), _EXACT))
                ):
                    large.add(name)
                if kind is not None and found[name] is not None and _type(kind) != _type(found[name]):
                    raise self._broken(ValueError(f"{name} has values of several types"))
                found[name] = kind if kind in (*TIMES, "text") else joined(found[name], kind)
            first += table.num_rows
            tell()
        self.seen = {name: seen for name, seen in texts.items() if name not in declared}
        self._texts = {name for name, kind in found.items() if kind in (*TIMES, "text")}
        for name in [of for of, kind in found.items() if kind and _type(kind) != "text" and declared.get(of) in TIMES]:
            raise WorldError(
                f"{self.path}, {name}",
                f"values of type {found[name]}",
                "times as texts, such as 2020-01-31 or 2020-01-31T12:00:00",
                f"write them so, or leave {name} out of dataset.columns",
            )
        self._require_exact(large)
        return found

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        for name in [of for of, seen in self.seen.items() if seen.kind == "number"]:
            remedy = f"set {override('dataset.columns', name, 'number')}, or write them without quotes"
            yield f"{name} is text, since its numbers are in quotes in {self.name}: {remedy}."

    def _require_exact(self, large: set[str]) -> None:
        """Raise `WorldError` for an integer beyond 64 bits in one of these columns, of which Arrow makes a float."""
        for number, line in lines(self.path) if large else ():
            row = json.loads(line.decode(errors="replace"))
            for name in large & {*row}:
                if isinstance(row[name], int) and not -(2**63) <= row[name] < 2**63:
                    raise WorldError(
                        f"{at_line(self.path, number)}, {name}",
                        f"{row[name]}, an integer beyond 64 bits",
                        "integers from -2**63 to 2**63 - 1",
                        "write it as a text for a code, or as a float",
                    )

    def batches(self, kinds: Mapping[str, Kind]) -> Iterator[pa.RecordBatch]:
        texts = [name for name in kinds if name in self._texts - self.joined or kinds[name] in TIMES]
        schema = pa.schema([(name, pa.string()) for name in texts])
        for table in self._tables(schema):
            rows = table.num_rows
            columns = [table[name].combine_chunks() if name in table.column_names else pa.nulls(rows) for name in kinds]
            yield pa.RecordBatch.from_arrays(columns, names=[*kinds])

    def where(self, row: int) -> str:
        return at_line(self.path, next(islice(lines(self.path), row, None))[0])

    def _tables(self, known: pa.Schema | None = None) -> Iterator[pa.Table]:
        """Yield rows of blocks, in types of the blocks or of a schema; times stay texts, which have their zones."""
        known = known or pa.schema([])
        for data in self._blocks():
            try:
                block = self._in_utf8(data)  # which Arrow does not see to
                table = _read(block, known)
                times = [(field.name, pa.string()) for field in table.schema if pa.types.is_timestamp(field.type)]
                if times:
                    known = pa.schema([*known, *times])
                    table = _read(block, known)
                bad = next((name for name in table.column_names if name not in self.names), None)
            except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                raise self._broken(error) from error
            if bad is not None:
                raise self._broken(ValueError(f"another key, {bad}"))
            yield table

    def _broken(self, error: Exception) -> WorldError:
        return broken(self.path, json_fault(self.path, self.names, self.errors), error)

    def _in_utf8(self, block: bytes) -> bytes:
        """Return lines with U+FFFD for what is not UTF-8, and count those; raise `UnicodeDecodeError` with `strict`."""
        try:
            block.decode()
        except UnicodeDecodeError:
            if self.errors == "strict":
                raise
            before, block = block, block.decode(errors="replace").encode()
            self.num_repaired += sum(map(operator.ne, before.split(b"\n"), block.split(b"\n")))
        return block

    def _blocks(self) -> Iterator[bytes]:
        """Yield whole lines, in blocks."""
        with opened(self.path) as file:
            rest, is_first = b"", True
            while chunk := file.read(_JSON_BLOCK):
                self.position = getattr(file, "fileobj", file).tell()
                if is_first:
                    chunk, is_first = chunk.removeprefix(b"\xef\xbb\xbf"), False
                block, newline, rest = (rest + chunk).rpartition(b"\n")
                if block.strip():
                    yield block + newline
            if rest.strip():
                yield rest
            self.position = self.bytes


def _read(block: bytes, schema: pa.Schema) -> pa.Table:
    reading = pyarrow.json.ReadOptions(block_size=len(block) + 1)
    return pyarrow.json.read_json(pa.BufferReader(block), reading, pyarrow.json.ParseOptions(explicit_schema=schema))


def _type(kind: Kind | None) -> str | None:
    """Return the type that JSON has for a kind."""
    if kind is None or kind == "truth":
        return kind
    if kind in LISTS:
        return "list"
    return "text" if kind in (*TIMES, "text") else "number"
