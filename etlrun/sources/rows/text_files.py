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
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from etlrun.sources.rows.kinds import (
    LISTS,
    TIMES,
    FoundKinds,
    Kind,
    Kinds,
    Seen,
    has_any,
    is_list,
    joined,
    kind_of_type,
    shown,
    stripped,
)
from etlrun.sources.rows.read import (
    TableFile,
    as_by,
    at_line,
    broken,
    encoding_fault,
    ending,
    first_lines,
    format_fault,
    is_gzip,
    opened,
    zero_note,
)
from etlrun.stages.rows import Table
from etlrun.system.errors import EtlrunError, Fault, WorldError, override, override_of_texts, refuse

_LINE_END = re.compile(r"\r\n?|\n")

_BLOCK = 16_000_000
"""Bytes that are parsed at once, and more than a row has."""


Dialect = Mapping[str, Any]
"""How a delimited file is written: its `separator`, and its `quote` and `escape`, which may be None."""


def remedy_of(csv: Dialect, **marks: str | None) -> str:
    """Return what sets other marks than those that a config says of csv."""
    others = ", ".join(f"{name}: {json.dumps(mark)}" for name, mark in {**csv, **marks}.items())
    return f"set {shlex.quote(f'dataset.csv={{{others}}}')}"


class _BrokenError(Exception):
    def __init__(self, line: int, what: str) -> None:
        self.line, self.is_inside = line, what != "unexpected end of data"
        super().__init__(what)


class DelimitedFile(TableFile):
    """A file of values between commas (csv) or tabs (tsv), of which the first row names the columns."""

    def __init__(self, path: str, dataset: Table) -> None:
        """Read the names of the columns; raise `WorldError` if there are none, or one is empty or there twice."""
        super().__init__(path, dataset)
        separator = "\t" if ending(path).removesuffix(".gz").endswith(".tsv") else ","
        separator = dataset.dialect.get("separator") or separator
        self._dialect: Dialect = {"quote": '"', "escape": None, **dataset.dialect, "separator": separator}
        refuse([format_fault(path)], EtlrunError)
        rows = self._rows({}, strict=False, errors="surrogateescape")
        self.names = next((row for _, row in rows), [])
        if any("\udc80" <= mark <= "\udcff" for mark in "".join(self.names)):
            raise broken(path, encoding_fault(path, otherwise=""), ValueError())
        found, remedy = self._odd_header(self.names)
        if found:
            raise WorldError(at_line(path, 1), found, "names of columns", remedy)
        self._merged: list[int] = []
        self._zero: int | None = None

    def _odd_header(self, names: Sequence[str]) -> tuple[str, str]:
        found, remedy = "", "write the names of the columns in the first line"
        mark = next((mark for mark in ";\t|," if mark in names[0]), "") if len(names) == 1 else ""
        if not names:
            found = "an empty file"
        elif names[0].startswith("sep=") and not any(names[1:]):
            found, remedy = "a separator for Excel", f"remove the line, {as_by('sed 1d', self.path)}"
        elif names[0].startswith(("{", "[{")):
            found, remedy = "JSON", "name it with .jsonl"
        elif mark:
            found, remedy = f"columns separated by {mark!r}", remedy_of(self.dataset.dialect, separator=mark)
        elif empty := [str(place) for place, name in enumerate(names, start=1) if not name.strip()]:
            found = f"a header without a name for column {', '.join(empty)} of {len(names)}"
            if empty == ["1"]:
                remedy = "name it, or leave it out, as frame.to_csv(path, index=False) does"
            elif empty == [str(len(names))]:
                remedy = self._without_ends()
        elif twice := sorted({name for name in names if names.count(name) > 1}):
            found = f"a header with {', '.join(twice)} twice"
        return found, remedy

    def kinds(self) -> FoundKinds:
        quote = (self._dialect["quote"] or "\0").encode()
        marks = first_lines(self.path, quote, b"\0")
        self._zero = marks.get(b"\0")
        self._merged = self._require_rows() if quote in marks else []
        texts, first = {name: Seen() for name in self.names}, 0
        for batch in self._texts():
            self._require_one_header(batch, first)
            for name, values in zip(self.names, batch.columns, strict=True):
                texts[name].add(values, first)
            first += batch.num_rows
            self.tell()
        self.seen = {name: seen for name, seen in texts.items() if name not in self.declared}
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
        if found := override_of_texts("dataset.missing", dict.fromkeys((*self.dataset.missing, *marks))):
            return f"set {found}"
        return f"add {'them' if marks[1:] else 'it'} to dataset.missing"

    def notes(self) -> Iterator[str]:
        if blank := [repr(name) for name in self.names if name != name.strip()]:
            yield f"names of columns have blanks around them in {self.name}: {', '.join(blank)}."
        yield from zero_note(self.name, self._zero)
        if self._merged:
            yield (
                f"{self.name}, line {self._merged[0]:,} begins a row whose quotes hold several lines, each with a "
                f"value for each column: if these are rows, {remedy_of(self.dataset.dialect, quote=None)}."
            )
        yield from super().notes()

    def batches(self, kinds: Kinds) -> Iterator[pa.RecordBatch]:
        return self._texts()

    def where(self, row: int) -> str:
        rows = islice(self._rows({}, strict=False), row + 1, None)
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
            delimiter=dialect["separator"],
            quote_char=dialect["quote"] or False,
            escape_char=dialect["escape"] or False,
            newlines_in_values=True,
        )
        converting = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(self.names, pa.string()),
            strings_can_be_null=True,
            null_values=list(self.dataset.missing),
            check_utf8=self.dataset.errors == "strict",
        )
        try:
            # threads of Arrow would wait for Python's lock to read from an object of Python
            with opened(self.path) if is_gzip(self.path) else pa.OSFile(self.path) as file:
                for batch in pyarrow.csv.open_csv(
                    file, pyarrow.csv.ReadOptions(block_size=_BLOCK), parsing, converting
                ):
                    self.position = getattr(file, "fileobj", file).tell()
                    texts = self.in_utf8(batch)
                    if self.dataset.strip:
                        missing = pa.array(self.dataset.missing, pa.string())
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

    def _rows(self, marks: Dialect, *, strict: bool, errors: str = "replace") -> Iterator[tuple[int, list[str]]]:
        """Yield the line at which each row begins, and its values, with other marks; blank lines are none.

        `errors` are of `bytes.decode`.
        """
        dialect = {**self._dialect, **marks}
        csv.field_size_limit(2**31 - 1)  # of all readers of the process, which may be in threads
        with opened(self.path) as file:
            reader = csv.reader(
                io.TextIOWrapper(file, encoding="utf-8-sig", errors=errors, newline=""),
                delimiter=dialect["separator"],
                quotechar=dialect["quote"],
                quoting=csv.QUOTE_MINIMAL if dialect["quote"] else csv.QUOTE_NONE,
                escapechar=dialect["escape"],
                strict=strict,
            )
            line = 1
            try:
                for row in reader:
                    if row:
                        yield line, row
                    line = reader.line_num + 1
            except csv.Error as error:
                raise _BrokenError(line, str(error)) from error

    def _widths(self, marks: Dialect, first: int = 0) -> set[int]:
        """Return the numbers of values of the rows with other marks, from the first on; none if quotes are broken."""
        try:
            return {len(row) for _, row in islice(self._rows(marks, strict=True), first, None)}
        except _BrokenError:
            return set()

    def _without_ends(self) -> str:
        """Return the remedy of a file whose lines end with a separator."""
        command = f"sed 's/{self._dialect['separator']}$//'"
        return f"remove the separators at the ends of lines, {as_by(command, self.path)}"

    def _ragged(self, line: int, row: list[str]) -> WorldError:
        width, remedy = len(self.names), "repair the line: a value with a separator in it stands in quotes"
        if width == 1:
            remedy = "if the lines above it are no header, remove them"
        elif self._widths({}, 1) == {width + 1}:
            command = as_by(f"sed '1s/^/row{self._dialect['separator']}/'", self.path)
            remedy = f"quote values with a separator, or, if the first ones are R's names of rows, name them, {command}"
            remedy = remedy if row[-1] else self._without_ends()
        expected = f"{width}, one for each column of the header"
        return WorldError(at_line(self.path, line), f"{len(row)} value{'s' * (len(row) != 1)}", expected, remedy)

    def _require_rows(self) -> list[int]:
        """Return the first lines of rows that may be several; raise `WorldError` for a ragged row or broken quotes."""
        path, width, found = self.path, len(self.names), []
        separator: str = self._dialect["separator"]
        try:
            for line, row in self._rows({}, strict=True, errors=self.dataset.errors):
                if len(row) != width:
                    raise self._ragged(line, row)
                parts = _LINE_END.split(separator.join(row))
                if len(parts) > 1 < width and all(part.count(separator) == width - 1 for part in parts):
                    found.append(line)
        except UnicodeDecodeError as error:
            raise broken(path, encoding_fault(path), error) from error
        except _BrokenError as error:
            others: tuple[Dialect, ...] = {"escape": "\\"}, {"quote": None}
            fitting, remedy = [of for of in others if len(self._widths(of)) == 1], "repair the line"
            if fitting:
                marks = remedy_of(self.dataset.dialect, **fitting[0])
                is_quote = fitting[0] == {"quote": None}
                remedy = f"{remedy}, or, if no value is in quotes, {marks}" if is_quote else f"{marks}, or {remedy}"
            raise WorldError(
                at_line(path, error.line),
                "a quote inside a value in quotes" if error.is_inside else "a quote that is not closed",
                "values in quotes that end with a quote, and quotes in them written twice",
                remedy,
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
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)} twice")
    return dict(pairs)


def _integer(text: str) -> int:
    """Return an integer; of one with more digits than Python reads the first ones, which are too many for 64 bits."""
    return int(text[:400])


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


def _parsed(line: bytes) -> tuple[dict[str, Any] | str, str, str]:
    """Return the object of a line; or what is there instead, what is expected, and what to do."""
    expected, remedy = "an object of JSON", "repair the line"
    try:
        row = json.loads(line.decode(errors="replace"), parse_int=_integer, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        return f"no JSON: {error.msg}", expected, remedy
    except ValueError as error:
        return str(error), "each key once", remedy
    except RecursionError:
        return "lists or objects within each other", expected, remedy
    return row if isinstance(row, dict) else shown(row), expected, remedy


def _types_fault(
    where: str, row: dict[str, Any], number: int, types: dict[str, tuple[str, int]], exact: Collection[str]
) -> Fault | None:
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
        elif name in exact and isinstance(value, int) and not -(2**63) <= value < 2**63:
            found, expected = f"{shown(value)}, an integer beyond 64 bits", "integers from -2**63 to 2**63 - 1"
            remedy = "write it as a text for a code, or as a float"
        elif before != kind:
            found = f"a {kind}: {shown(value)}" if value != "" else "an empty text"
            expected = f"a {before}, as in line {line:,}"
        if found:
            return Fault(f"{where}, {name}", found, expected, remedy)
    return None


class JsonLinesFile(TableFile):
    """A file of JSON lines; a key that an object lacks is a missing value, another one a fault."""

    def __init__(self, path: str, dataset: Table) -> None:
        """Read the keys of the first object; raise `EtlrunError` if there is none."""
        super().__init__(path, dataset)
        refuse([format_fault(path)], EtlrunError)
        self._texts: set[str] = set()
        first = next((line for _, line in lines(path)), b"")
        if not first:
            raise WorldError(path, "an empty file", "lines of JSON", "write an object of JSON on each line")
        found, _, _ = _parsed(first)
        self.names = [] if isinstance(found, str) else [*found]
        if not self.names:
            raise self._broken(ValueError("no keys in the first line"))

    def kinds(self) -> FoundKinds:
        found: FoundKinds = dict.fromkeys(self.names)
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
                if is_list(values.type) and (self.declared.get(name) or kind) == "text":
                    self.joined.add(name)
                if (
                    kind == "number"
                    and self.declared.get(name, "text") == "text"
                    and has_any(pc.greater(pc.abs(values), _EXACT))
                ):
                    large.add(name)
                if kind is not None and found[name] is not None and _type(kind) != _type(found[name]):
                    raise self._broken(ValueError(f"{name} has values of several types"))
                found[name] = kind if kind in (*TIMES, "text") else joined(found[name], kind)
            first += table.num_rows
            self.tell()
        self.seen = {name: seen for name, seen in texts.items() if name not in self.declared}
        self._texts = {name for name, kind in found.items() if kind in (*TIMES, "text")}
        others = (of for of, kind in found.items() if kind and _type(kind) != "text")
        for name in (of for of in others if self.declared.get(of) in TIMES):
            raise WorldError(
                f"{self.path}, {name}",
                f"values of type {found[name]}",
                "times as texts, such as 2020-01-31 or 2020-01-31T12:00:00",
                f"write them so, or leave {name} out of dataset.columns",
            )
        refuse([self._fault(large)] if large else (), EtlrunError)
        return found

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        for name in [of for of, seen in self.seen.items() if seen.kind == "number"]:
            remedy = f"set {override('dataset.columns', name, 'number')}, or write them without quotes"
            yield f"{name} is text, since its numbers are in quotes in {self.name}: {remedy}."

    def batches(self, kinds: Kinds) -> Iterator[pa.RecordBatch]:
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
            except ValueError as error:  # of Arrow and of Unicode
                raise self._broken(error) from error
            if bad := {*table.column_names} - {*self.names}:
                raise self._broken(ValueError(f"another key, {min(bad)}"))
            yield table

    def _broken(self, error: Exception) -> EtlrunError:
        return broken(self.path, self._fault(), error)

    def _fault(self, exact: Collection[str] = ()) -> Fault | None:
        """Return the fault of the first line that is no object with these keys, or, if it is, that is not UTF-8.

        Integers of `exact` keys are of 64 bits.
        """
        path, names = self.path, self.names
        is_strict = self.dataset.errors == "strict"
        if (fault := (is_strict and encoding_fault(path)) or document_fault(path)) is not None:
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
            if (fault := _types_fault(where, row, number, types, exact)) is not None:
                return fault
        return None

    def _in_utf8(self, block: bytes) -> bytes:
        """Return lines with U+FFFD for what is not UTF-8, and count those; raise `UnicodeDecodeError` with `strict`."""
        try:
            block.decode()
        except UnicodeDecodeError:
            if self.dataset.errors == "strict":
                raise
            before, block = block, block.decode(errors="replace").encode()
            self.num_repaired += sum(map(operator.ne, before.split(b"\n"), block.split(b"\n")))
        return block

    def _blocks(self) -> Iterator[bytes]:
        with opened(self.path) as file:
            mark = codecs.BOM_UTF8  # which may stand before the first line
            while block := file.read(_JSON_BLOCK) + file.readline():
                self.position = getattr(file, "fileobj", file).tell()
                if (block := block.removeprefix(mark)).strip():
                    yield block
                mark = b""
            self.position = self.bytes


def _read(block: bytes, schema: pa.Schema) -> pa.Table:
    reading = pyarrow.json.ReadOptions(block_size=len(block) + 1)
    return pyarrow.json.read_json(pa.BufferReader(block), reading, pyarrow.json.ParseOptions(explicit_schema=schema))


def _type(kind: Kind | None) -> str | None:
    if kind is None or kind == "truth":
        return kind
    if kind in LISTS:
        return "list"
    return "text" if kind in (*TIMES, "text") else "number"
