"""Files of JSON lines: an object for each row, with the keys of the first one."""

from __future__ import annotations

import codecs
import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from etlrun.sources.rows.kinds import LISTS, TIMES, Kind, Seen, is_list, joined, list_kind
from etlrun.sources.rows.lines import as_by, at_line, broken, encoding_fault, format_fault, opened, shown
from etlrun.sources.rows.read import TableFile
from etlrun.stages.rows import Errors
from etlrun.system.errors import EtlrunError, Fault, WorldError, override

_ARRAY = re.compile(r"\s*\[\s*\{")
_JSON_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "truth value"),
    (int, "number"),
    (float, "number"),
    (str, "text"),
    (list, "list"),
    (dict, "mapping"),
)

_BLOCK = 4_000_000
_CHUNK = 8_000_000
_EXACT = 2.0**53


def lines(path: str) -> Iterator[tuple[int, bytes]]:
    """Yield the number of each line that is not blank, from 1, and the line."""
    with opened(path) as file:
        for number, line in enumerate(file, start=1):
            content = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if content.strip():
                yield number, content


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


class JsonLinesFile(TableFile):
    """A file of JSON lines; a key that an object lacks is a missing value, another one a fault."""

    def __init__(self, path: str, errors: Errors) -> None:
        """Read the keys of the first object; raise `WorldError` if there is none."""
        super().__init__(path, errors)
        if (fault := format_fault(path)) is not None:
            raise EtlrunError([fault])
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
        texts, first = {name: Seen() for name in self.names}, 0
        for table in self._tables():
            for name in table.column_names:
                values = table[name].combine_chunks()
                try:
                    kind = _kind(values, texts[name], first)
                except pa.ArrowInvalid:
                    self.left_out[name] = f"values of type {values.type} in {self.name}"
                    continue
                if is_list(values.type) and (declared.get(name) or kind) == "text":
                    self.joined.add(name)
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
        self._require_exact(found, declared)
        return found

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        for name in [of for of, seen in self.seen.items() if seen.kind == "number"]:
            remedy = f"set {override('dataset.columns', name, 'number')}, or write them without quotes"
            yield f"{name} is text, since its numbers are in quotes in {self.name}: {remedy}."

    def _require_exact(self, found: Mapping[str, Kind | None], declared: Mapping[str, Kind]) -> None:
        """Raise `WorldError` for an integer beyond 64 bits, of which Arrow makes a float."""
        numbers = [name for name, kind in found.items() if kind == "number" and declared.get(name, "text") == "text"]
        large: set[str] = set()
        for table in self._tables() if numbers else ():
            of_floats = [name for name in numbers if name in table.column_names]
            for name in of_floats:
                ends = pc.min_max(table[name])
                if max(abs(ends["min"].as_py() or 0), abs(ends["max"].as_py() or 0)) > _EXACT:
                    large.add(name)
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
        """Yield the rows of blocks of lines, in the types that the blocks have, but for those of a schema.

        Times stay texts, since those of Arrow lose their zones.
        """
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
            while chunk := file.read(_BLOCK):
                self.position = getattr(file, "fileobj", file).tell()
                if is_first:
                    chunk, is_first = chunk.removeprefix(b"\xef\xbb\xbf"), False
                block, newline, rest = (rest + chunk).rpartition(b"\n")
                if block.strip():
                    yield block + newline
            if rest.strip():
                yield rest
            self.position = self.bytes


def _kind(values: pa.Array, texts: Seen, first: int) -> Kind | None:
    """Return the kind of the values of a block, from row `first` on; of texts, that of all so far.

    Raises:
        ArrowInvalid: They are of none.
    """
    kind = values.type
    if pa.types.is_null(kind) or pa.types.is_string(kind):
        texts.add(values, first)  # nulls add nothing
        return texts.kind if texts.kind in (*TIMES, None) else "text"
    if pa.types.is_boolean(kind):
        return "truth"
    if pa.types.is_integer(kind):
        return "integer"
    if is_list(kind):
        return list_kind(kind.value_type)
    if not pa.types.is_floating(kind):
        raise pa.ArrowInvalid
    return "number"


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
