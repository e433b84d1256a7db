"""Lines of text files that can't be read as tables: what is wrong with them, and where."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from etlrun.stages.rows import Errors
from etlrun.system.errors import Fault, WorldError, printable

_CHUNK = 8_000_000
_INSIDE = re.compile(rb'[^,\t\r\n"]"[^,\t\r\n"]')
_OTHERS = (
    (b"PAR1", "a Parquet file", "name it with .parquet"),
    (b"ARROW1", "a file of Arrow", "name it with .arrow"),
    (b"\x1f\x8b", "a compressed file", "add .gz to its name"),
    (b"PK\x03\x04", "an archive or a workbook", "unpack it, or save the sheet as csv"),
    (b"\xd0\xcf\x11\xe0", "an archive or a workbook", "unpack it, or save the sheet as csv"),
)
"""What begins files of other formats, and what to do."""
_LONGEST_VALUE = 2**31 - 1
_SHOWN = 40
OR_REPLACE = "; or set dataset.errors=replace"
"""End of the remedy of what is not UTF-8."""


def opened(path: str) -> IO[bytes]:
    """Open a file, decompressed if its name ends in `.gz`."""
    return gzip.open(path, "rb") if path.endswith(".gz") else Path(path).open("rb")  # type: ignore[return-value]


def at_line(path: str, line: int) -> str:
    """Return where a line is, counted from 1."""
    return f"{path}, line {line:,}"


def shown(value: object) -> str:
    """Return a value on one short line."""
    text = printable(str(value))
    return f"{text[:_SHOWN]}…" if len(text) > _SHOWN else text


def format_fault(path: str) -> Fault | None:
    """Return the fault of a file that is no text by its first bytes, or that is not compressed as its name says."""
    with Path(path).open("rb") as file:
        begins = file.read(8)
    if path.endswith(".gz"):
        if not begins or begins.startswith(b"\x1f\x8b"):
            return None
        remedy = "leave .gz out of its name, or compress it"
        return Fault(where=path, found="a file that is not compressed", expected="bytes of gzip", remedy=remedy)
    for start, found, remedy in _OTHERS:
        if begins.startswith(start):
            return Fault(where=path, found=found, expected="lines of text", remedy=remedy)
    return None


def utf16_fault(path: str) -> Fault | None:
    """Return the fault of a file whose first bytes say that it is in UTF-16; None if they don't."""
    with opened(path) as file:
        if not file.read(2).startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return None
    remedy = f"convert it, as by: iconv -f UTF-16 -t UTF-8 {path}"
    return Fault(where=path, found="text in UTF-16", expected="text in UTF-8", remedy=remedy)


def encoding_fault(path: str, otherwise: str = OR_REPLACE) -> Fault | None:
    """Return the fault of the first line that is not UTF-8; None if all are. Its remedy ends with `otherwise`."""
    if (fault := utf16_fault(path)) is not None:
        return fault
    remedy = f"convert it, as by: iconv -f LATIN1 -t UTF-8 {path}{otherwise}"
    with opened(path) as file:
        decoder, line = codecs.getincrementaldecoder("utf-8")(), 1
        while (chunk := file.read(_CHUNK)) or decoder.getstate()[0]:
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                line += chunk[: max(error.start, 0)].count(b"\n")
                found = f"the byte 0x{error.object[error.start]:02x}"
                return Fault(where=at_line(path, line), found=found, expected="text in UTF-8", remedy=remedy)
            line += chunk.count(b"\n")
    return None


def has_odd_quotes(path: str) -> bool:
    """Return whether quotes of a file may be broken: there is an odd number of them, or one inside a value."""
    count = 0
    with opened(path) as file:
        while chunk := file.read(_CHUNK):
            found = chunk.count(b'"')
            if found and _INSIDE.search(chunk):
                return True
            count += found
    return count % 2 == 1


@contextmanager
def _long_values() -> Iterator[None]:
    before = csv.field_size_limit(_LONGEST_VALUE)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _rows(path: str, delimiter: str, *, strict: bool, errors: str = "replace") -> Iterator[tuple[int, list[str]]]:
    """Yield the line at which each row begins, and its values; blank lines are none. `errors` are of `bytes.decode`."""
    with opened(path) as file, _long_values():
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors=errors, newline="")
        reader = csv.reader(text, delimiter=delimiter, strict=strict)
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
        self.line, self.what = line, what
        super().__init__(what)


def header(path: str, delimiter: str) -> list[str]:
    """Return the first row of a delimited file, what is not UTF-8 as `surrogateescape`; empty if it has none."""
    return next((row for _, row in _rows(path, delimiter, strict=False, errors="surrogateescape")), [])


def line_of_row(path: str, delimiter: str, number: int) -> int:
    """Return the line of a row below the header, counted from 0."""
    found = (line for place, (line, _) in enumerate(_rows(path, delimiter, strict=False)) if place == number + 1)
    return next(found, number + 2)


def delimited_fault(path: str, delimiter: str, width: int, errors: Errors) -> Fault | None:
    """Return the fault of the first row of a delimited file that is ragged or has broken quotes; None if there is none.

    `width` is the number of columns. Of `strict` errors, it is that of the first line which is not UTF-8.
    """
    if errors == "strict" and (fault := encoding_fault(path)) is not None:
        return fault
    try:
        for line, row in _rows(path, delimiter, strict=True):
            if len(row) != width:
                remedy = "repair the line: a value with a separator in it stands in quotes"
                if width == 1:
                    remedy = "if the lines above it are no header, remove them"
                return Fault(
                    where=at_line(path, line),
                    found=f"{len(row)} value{'s' * (len(row) != 1)}",
                    expected=f"{width}, one for each column of the header",
                    remedy=remedy,
                )
    except _BrokenError as error:
        is_open = error.what == "unexpected end of data"
        return Fault(
            where=at_line(path, error.line),
            found="a quote that is not closed" if is_open else "a quote inside a value in quotes",
            expected="values in quotes that end with a quote, and quotes in them written twice",
            remedy="repair the line",
        )
    return None


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


def _is_kept(items: set[str | None]) -> bool:
    """Return whether lists with items of these types are kept."""
    return items <= {"number", None} or items <= {"text", None}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice} twice")
    return dict(pairs)


def json_fault(path: str, names: Sequence[str], errors: Errors) -> Fault | None:
    """Return the fault of the first line of JSON lines that is no object with these keys and single values.

    Of `strict` errors, it is that of the first line which is not UTF-8.
    """
    if errors == "strict" and (fault := encoding_fault(path)) is not None:
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
        return Fault(where=where, found=found, expected=expected, remedy=remedy)
    row = found
    if not row and not names:
        remedy = "write the names of all columns in the first line, with null for a value that is missing"
        return Fault(where=where, found="an object without keys", expected="names of columns", remedy=remedy)
    if others := [name for name in row if name not in names]:
        found, expected = f"other keys: {', '.join(others)}", f"those of the first line: {', '.join(names)}"
        remedy = "add them to the first line, with null for a value that is missing, or leave them out"
        return Fault(where=where, found=found, expected=expected, remedy=remedy)
    return _json_types_fault(where, row, number, types)


def _json_types_fault(where: str, row: dict[str, Any], number: int, types: dict[str, tuple[str, int]]) -> Fault | None:
    """Return the fault of the first value of another type than those before it, which `types` has with their lines."""
    for name, value in row.items():
        if (kind := _json_type(value)) is None:
            continue
        before, line = types.setdefault(name, (kind, number))
        if kind == "mapping" or (kind == "list" and not _is_kept({*map(_json_type, value)})):
            remedy = "write its parts as columns of their own"
            expected = "a single value, or a list of numbers or of texts"
            return Fault(where=f"{where}, {name}", found=f"a {kind}", expected=expected, remedy=remedy)
        if isinstance(value, float) and math.isinf(value):
            found, remedy = f"{value}, which is infinite as a number", "repair the value, or write null"
            return Fault(where=f"{where}, {name}", found=found, expected="finite numbers", remedy=remedy)
        if isinstance(value, str) and any("\ud800" <= mark <= "\udfff" for mark in value):
            found = f"a text with a half of a character: {shown(value)}"
            return Fault(where=f"{where}, {name}", found=found, expected="text in Unicode", remedy="repair the line")
        if before != kind:
            found = f"a {kind}: {shown(value)}" if value != "" else "an empty text"
            expected = f"a {before}, as in line {line:,}"
            return Fault(where=f"{where}, {name}", found=found, expected=expected, remedy="repair the line")
    return None


def broken(path: str, fault: Fault | None, error: Exception) -> WorldError:
    """Return the error of a file that Arrow can't read: with the line that was found, or with Arrow's own words."""
    if fault is not None:
        return WorldError(where=fault.where, found=fault.found, expected=fault.expected, remedy=fault.remedy)
    found = " ".join(str(error).split())
    return WorldError(where=path, found=found, expected="a table that Arrow can read", remedy="write the file again")
