"""Lines of text files that can't be read as tables: what is wrong with them, and where."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

from etlrun.sources.framing import POINTED, POINTER
from etlrun.stages.rows import Errors
from etlrun.system.errors import EtlrunError, Fault, WorldError, printable

_CHUNK = 8_000_000
_BEGIN = 512
_LINE_END = re.compile(r"\r\n?|\n")
_ARRAY = re.compile(r"\s*\[\s*\{")
_OTHERS = (
    (b"PAR1", "a Parquet file", "name it with .parquet"),
    (b"ARROW1", "a file of Arrow", "name it with .arrow"),
    (
        rb"\x1f\x8b|BZh\d1AY|\xfd7zXZ|\x28\xb5\x2f\xfd",
        "a compressed file",
        "decompress it, or add .gz for gzip",
    ),
    (rb"PK\x03\x04|\xd0\xcf\x11\xe0", "an archive or a workbook", "unpack it, or save the sheet as csv"),
    (rb"%PDF-|SQLite format 3", "a document or a database", "export its table as csv"),
    (POINTER, *POINTED),
    (
        rb"(?i)(\xef\xbb\xbf)?\s*<(!doctype|html|\?xml)",
        "a page of HTML or XML",
        "download the file itself",
    ),
)
"""Patterns of what begins files of other formats, what these are, and what to do."""
_LONGEST_VALUE = 2**31 - 1
_SHOWN = 40
OR_REPLACE = "; or set dataset.errors=replace"
"""End of the remedy of what is not UTF-8."""


def ending(path: str) -> str:
    """Return a path in lower case without the number of a shard, which ends with the format of the file."""
    return re.sub(r"-\d+-of-\d+$", "", path.lower())


def is_gzip(path: str) -> bool:
    """Return whether the name of a file is that of one which is compressed."""
    return ending(path).endswith(".gz")


def opened(path: str) -> IO[bytes]:
    """Open a file, decompressed if its name ends in `.gz`."""
    return gzip.open(path, "rb") if is_gzip(path) else Path(path).open("rb")  # type: ignore[return-value]


def at_line(path: str, line: int) -> str:
    """Return where a line is, counted from 1."""
    return f"{path}, line {line:,}"


def shown(value: object) -> str:
    """Return a value on one short line."""
    text = printable(str(value))
    return f"{text[:_SHOWN]}…" if len(text) > _SHOWN else text


def as_by(command: str, path: str) -> str:
    """Return the end of a remedy: what prints what a command makes of the text of a file."""
    file = shlex.quote(path)
    return f"as by: gunzip -c {file} | {command}" if is_gzip(path) else f"as by: {command} {file}"


def format_fault(path: str) -> Fault | None:
    """Return the fault of a file that is no text in UTF-8 by its first bytes, or is not compressed as its name says."""
    with Path(path).open("rb") as file:
        begins = file.read(_BEGIN)
    is_plain = is_gzip(path) and bool(begins)
    if is_plain and begins.startswith(b"\x1f\x8b"):
        with opened(path) as file:
            begins, is_plain = file.read(_BEGIN), False
    for pattern, found, remedy in _OTHERS:
        if re.match(pattern, begins):
            return Fault(path, found, "lines of text", remedy)
    if is_plain:
        remedy = "leave .gz out of its name, or compress it"
        return Fault(path, "a file that is not compressed", "bytes of gzip", remedy)
    encoding = json.detect_encoding(begins) if any(begins[:4]) else "utf-8"
    if encoding.startswith("utf-8"):
        return None
    name = re.sub("-([LB]E)$", r"\1", encoding.upper())  # as iconv has it
    remedy = f"convert it, {as_by(f'iconv -f {name} -t UTF-8', path)}"
    return Fault(path, f"text in {name[:6]}", "text in UTF-8", remedy)


def first_lines(path: str, *marks: bytes) -> dict[bytes, int]:
    """Return the first line, from 1, that has each of these bytes, if one has."""
    found, line = dict[bytes, int](), 1
    with opened(path) as file:
        while chunk := file.read(_CHUNK):
            for mark in marks:
                if mark not in found and (place := chunk.find(mark)) >= 0:
                    found[mark] = line + chunk.count(b"\n", 0, place)
            line += chunk.count(b"\n")
    return found


def encoding_fault(path: str, otherwise: str = OR_REPLACE) -> Fault | None:
    """Return the fault of the first line that is not UTF-8; None if all are. Its remedy ends with `otherwise`."""
    remedy = f"convert it, {as_by('iconv -f LATIN1 -t UTF-8', path)}{otherwise}"
    with opened(path) as file:
        decoder, line = codecs.getincrementaldecoder("utf-8")(), 1
        while (chunk := file.read(_CHUNK)) or decoder.getstate()[0]:
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                line += chunk[: max(error.start, 0)].count(b"\n")
                return Fault(
                    at_line(path, line), f"the byte 0x{error.object[error.start]:02x}", "text in UTF-8", remedy
                )
            line += chunk.count(b"\n")
    return None


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


def line_of_row(path: str, dialect: Dialect, number: int) -> int:
    """Return the line of a row below the header, counted from 0."""
    rows = islice(_rows(path, dialect, strict=False), number + 1, None)
    return next(rows, (number + 2,))[0]


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


def lines(path: str) -> Iterator[tuple[int, bytes]]:
    """Yield the number of each line that is not blank, from 1, and the line."""
    with opened(path) as file:
        for number, line in enumerate(file, start=1):
            content = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if content.strip():
                yield number, content


_JSON_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "truth value"),
    (int, "number"),
    (float, "number"),
    (str, "text"),
    (list, "list"),
    (dict, "mapping"),
)


def _json_type(value: Any) -> str | None:
    return next((name for kind, name in _JSON_TYPES if isinstance(value, kind)), None)


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
    if not _ARRAY.match(text):
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
    faults = (_json_line_fault(path, number, line, names, types) for number, line in lines(path))
    return next((fault for fault in faults if fault is not None), None)


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


def _json_line_fault(
    path: str, number: int, line: bytes, names: Sequence[str], types: dict[str, tuple[str, int]]
) -> Fault | None:
    where = at_line(path, number)
    found, expected, remedy = _parsed(line)
    if isinstance(found, str):
        return Fault(where, found, expected, remedy)
    row = found
    if not row and not names:
        remedy = "write the names of all columns in the first line, with null for a value that is missing"
        return Fault(where, "an object without keys", "names of columns", remedy)
    if others := [name for name in row if name not in names]:
        found, expected = f"other keys: {', '.join(others)}", f"those of the first line: {', '.join(names)}"
        remedy = "add them to the first line, with null for a value that is missing, or leave them out"
        return Fault(where, found, expected, remedy)
    return _json_types_fault(where, row, number, types)


def _json_types_fault(where: str, row: dict[str, Any], number: int, types: dict[str, tuple[str, int]]) -> Fault | None:
    """Return the fault of the first value of another type than those before it, which `types` has with their lines."""
    for name, value in row.items():
        if (kind := _json_type(value)) is None:
            continue
        before, line = types.setdefault(name, (kind, number))
        if kind == "list" and len({*map(_json_type, value)} - {None}) > 1:
            found, expected = "a list of several types", "a list whose items are of one type"
            return Fault(f"{where}, {name}", found, expected, "repair the line")
        if isinstance(value, float) and math.isinf(value):
            found = f"{value}, which is infinite as a number"
            return Fault(f"{where}, {name}", found, "finite numbers", "repair the value, or write null")
        if isinstance(value, str) and any("\ud800" <= mark <= "\udfff" for mark in value):
            found = f"a text with a half of a character: {shown(value)}"
            return Fault(f"{where}, {name}", found, "text in Unicode", "repair the line")
        if before != kind:
            found = f"a {kind}: {shown(value)}" if value != "" else "an empty text"
            expected = f"a {before}, as in line {line:,}"
            return Fault(f"{where}, {name}", found, expected, "repair the line")
    return None


def broken(path: str, fault: Fault | None, error: Exception) -> WorldError:
    """Return the error of a file that Arrow can't read: with the line that was found, or with Arrow's own words."""
    if fault is not None:
        return WorldError(fault.where, fault.found, fault.expected, fault.remedy)
    return WorldError(path, " ".join(str(error).split()), "a table that Arrow can read", "write the file again")
