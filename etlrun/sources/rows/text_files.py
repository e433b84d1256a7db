"""Files of text as tables: values between commas or tabs, whose types are those of all rows; and JSON lines."""

import codecs
import csv
import io
import json
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
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
    halved,
    has_any,
    is_list,
    joined,
    kind_of_type,
    shown,
    stripped,
    works,
)
from etlrun.sources.rows.read import TableFile, at_line, broken, encoding_fault, ending, format_fault, is_gzip, opened
from etlrun.stages.rows import Table
from etlrun.system.errors import EtlrunError, Fault, WorldError, counted, override, refuse

_BLOCK = 16_000_000
"""Bytes that are parsed at once, and more than a row has."""
_NO_INTEGER = "integers from -2**63 to 2**63 - 1"


Dialect = Mapping[str, Any]
"""How a delimited file is written: its `separator`, and its `quote` and `escape`, which may be None."""


def remedy_of(csv: Dialect, **marks: str | None) -> str:
    """Return what sets other marks than those that a config says of csv."""
    others = ", ".join(f"{name}: {json.dumps(mark)}" for name, mark in {**csv, **marks}.items())
    return f"set {shlex.quote(f'dataset.csv={{{others}}}')}"


class DelimitedFile(TableFile):
    """A file of values between commas (csv) or tabs (tsv), of which the first row names the columns."""

    nothing = "add it to dataset.missing"

    def __init__(self, path: str, dataset: Table) -> None:
        """Read the names of the columns; raise `WorldError` if there are none, or one is empty or there twice."""
        super().__init__(path, dataset)
        separator = "\t" if ending(path).removesuffix(".gz").endswith(".tsv") else ","
        separator = dataset.dialect.get("separator") or separator
        self._dialect: Dialect = {"quote": '"', "escape": None, **dataset.dialect, "separator": separator}
        refuse([format_fault(path)], EtlrunError)
        rows = self._rows(strict=False, errors="surrogateescape")
        self.names = next((row for _, row in rows), [])
        if any("\udc80" <= mark <= "\udcff" for mark in "".join(self.names)):
            raise broken(path, encoding_fault(path, otherwise=""), ValueError())
        found, remedy = self._odd_header()
        if found:
            raise WorldError(at_line(path, 1), found, "names of columns", remedy)

    def _odd_header(self) -> tuple[str, str]:
        names, remedy = self.names, "write the names of the columns in the first line"
        if not names:
            return "an empty file", remedy
        if len(names) == 1 and (mark := next((mark for mark in ";\t|," if mark in names[0]), "")):
            return f"columns separated by {mark!r}", remedy_of(self.dataset.dialect, separator=mark)
        if empty := [str(place) for place, name in enumerate(names, start=1) if not name.strip()]:
            found = f"a header without a name for column {', '.join(empty)} of {len(names)}"
            return found, "name it, or leave it out, as frame.to_csv(path, index=False) does"
        twice = sorted({name for name in names if names.count(name) > 1})
        return f"a header with {', '.join(twice)} twice" if twice else "", remedy

    def texts(self) -> list[pa.RecordBatch]:
        """Return all rows, which are texts."""
        return [*self.once(self._checked)]

    def kinds(self, known: FoundKinds | None = None) -> FoundKinds:
        """Return the kinds of the columns; those that are `known` are not looked at."""
        known = known or {}
        texts, first = {name: Seen() for name in self.names if name not in known}, 0
        for batch in self.once(self._checked) if texts else ():
            for name, seen in texts.items():
                seen.add(batch.column(name), first)
            first += batch.num_rows
        self.seen = {name: seen for name, seen in texts.items() if name not in self.declared}
        for name, seen in self.seen.items():
            if seen.kind == "whole" and seen.too_large is not None:
                row, text = seen.too_large
                raise WorldError(
                    f"{self.where(row)}, {name}",
                    f"{shown(text)}, an integer beyond 64 bits",
                    _NO_INTEGER,
                    f"set {override('dataset.columns', name, 'text')} for a code, or number for a float",
                )
        return {name: texts[name].kind if name in texts else known[name] for name in self.names}

    def batches(self, kinds: Kinds) -> Iterator[pa.RecordBatch]:
        return self.once(self._texts, last=True)

    def _checked(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows as texts; raise `WorldError` for quotes that Arrow would take for others."""
        quote = (self._dialect["quote"] or "").encode()
        with opened(self.path) as file:
            if quote and any(quote in chunk for chunk in iter(partial(file.read, _BLOCK), b"")):
                self._require_rows()
        yield from self._texts()

    def where(self, row: int) -> str:
        rows = islice(self._rows(strict=False), row + 1, None)
        return at_line(self.path, next(rows, (row + 2,))[0])

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
                    texts = self.in_utf8(batch)
                    if self.dataset.strip:
                        missing = pa.array(self.dataset.missing, pa.string())
                        columns = [stripped(values) for values in texts.columns]
                        columns = [pc.if_else(pc.is_in(values, value_set=missing), None, values) for values in columns]
                        texts = pa.RecordBatch.from_arrays(columns, names=texts.schema.names)
                    yield texts
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):
                return  # of a header alone
            self._require_rows()
            raise broken(self.path, None, error) from error

    def _rows(self, *, strict: bool, errors: str = "replace") -> Iterator[tuple[int, list[str]]]:
        """Yield the line at which each row begins, and its values; `WorldError`, if `strict`, for broken quotes."""
        dialect = self._dialect
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
                is_open = str(error) == "unexpected end of data"
                raise WorldError(
                    at_line(self.path, line),
                    "a quote that is not closed" if is_open else "a quote inside a value in quotes",
                    "values in quotes that end with a quote, and quotes in them written twice",
                    f"repair the line, or, if no value is in quotes, {remedy_of(self.dataset.dialect, quote=None)}",
                ) from error

    def _require_rows(self) -> None:
        """Raise `WorldError` for a row of another length than the header, for broken quotes, or what is no UTF-8."""
        width = len(self.names)
        try:
            for line, row in self._rows(strict=True, errors=self.dataset.errors):
                if len(row) != width:
                    found = counted(len(row), "value")
                    expected = f"{width}, one for each column of the header"
                    remedy = "repair the line: a value with a separator in it stands in quotes"
                    raise WorldError(at_line(self.path, line), found, expected, remedy)
        except UnicodeDecodeError as error:
            raise broken(self.path, encoding_fault(self.path), error) from error


_JSON_TYPES = {bool: "truth value", int: "number", float: "number", str: "text", list: "list", dict: "mapping"}

_JSON_BLOCK, _AT_ONCE = 4_000_000, 64
_READ_BY_ARROW = "an object of JSON with finite numbers, whole characters, and items of one type in a list"
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


def _parsed(line: bytes) -> dict[str, Any] | str:
    """Return the object of a line, or what is there instead."""
    try:
        row = json.loads(line.decode(errors="replace"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        return getattr(error, "msg", str(error))
    return row if isinstance(row, dict) else shown(row)


class JsonLinesFile(TableFile):
    """A file of JSON lines; a key that an object lacks is a missing value, another one a fault."""

    def __init__(self, path: str, dataset: Table) -> None:
        """Read the keys of the first object; raise `EtlrunError` if there is none."""
        super().__init__(path, dataset)
        refuse([format_fault(path)], EtlrunError)
        self._texts: set[str] = set()
        found = _parsed(next((line for _, line in lines(path)), b""))
        self.names = [] if isinstance(found, str) else [*found]
        if not self.names:
            raise self._broken(ValueError("an empty file"))

    def kinds(self) -> FoundKinds:
        found: FoundKinds = dict.fromkeys(self.names)
        texts, first, large = {name: Seen() for name in self.names}, 0, set[str]()
        for table in self.once(self._tables):
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

    def batches(self, kinds: Kinds) -> Iterator[pa.RecordBatch]:
        texts = [name for name in kinds if name in self._texts - self.joined or kinds[name] in TIMES]
        schema = pa.schema([(name, pa.string()) for name in texts])
        for table in self.once(partial(self._tables, schema), last=True):
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
                block = data.decode(errors=self.dataset.errors).encode()  # Arrow takes what is no UTF-8
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
        return broken(self.path, self._fault() or self._unread(), error)

    def _unread(self) -> Fault | None:
        """Return the fault of the first line that Python reads and Arrow does not, alone or behind those before it."""
        some, fits = lines(self.path), works(_joined, ValueError)
        while held := [*islice(some, _AT_ONCE)]:
            if (place := halved([line for _, line in held], fits)) is not None:
                number, line = held[place]
                found = shown(line.decode(errors="replace").strip())
                return Fault(at_line(self.path, number), found, _READ_BY_ARROW, "repair the line")
        return None

    def _fault(self, exact: Collection[str] = ()) -> Fault | None:
        """Return the fault of the first line that is no object with these keys, with `exact` ones of 64 bits."""
        if self.dataset.errors == "strict" and (fault := encoding_fault(self.path)) is not None:
            return fault
        types: dict[str, tuple[str, int]] = {}
        for number, line in lines(self.path):
            where, row, names = at_line(self.path, number), _parsed(line), self.names
            if isinstance(row, str) or not (row or names):
                remedy = "write an object of JSON on each line, as `jq -c` does, each key once"
                return Fault(where, f"no object with keys: {row}", "an object of JSON", remedy)
            if others := [name for name in row if name not in names]:
                found, expected = f"other keys: {', '.join(others)}", f"those of the first line: {', '.join(names)}"
                remedy = "add them to the first line, with null for a value that is missing, or leave them out"
                return Fault(where, found, expected, remedy)
            for name, value in row.items():
                if (kind := _JSON_TYPES.get(type(value))) is None:
                    continue
                before, first = types.setdefault(name, (kind, number))
                if name in exact and isinstance(value, int) and not -(2**63) <= value < 2**63:
                    found, remedy = f"{shown(value)}, an integer beyond 64 bits", "write it as a text, or as a float"
                    return Fault(f"{where}, {name}", found, _NO_INTEGER, remedy)
                if before != kind:
                    found, expected = f"a {kind}: {shown(value)}", f"a {before}, as in line {first:,}"
                    return Fault(f"{where}, {name}", found, expected, "repair the line")
        return None

    def _blocks(self) -> Iterator[bytes]:
        with opened(self.path) as file:
            mark = codecs.BOM_UTF8  # which may stand before the first line
            while block := file.read(_JSON_BLOCK) + file.readline():
                if (block := block.removeprefix(mark)).strip():
                    yield block
                mark = b""


def _read(block: bytes, schema: pa.Schema) -> pa.Table:
    reading = pyarrow.json.ReadOptions(block_size=len(block) + 1)
    return pyarrow.json.read_json(pa.BufferReader(block), reading, pyarrow.json.ParseOptions(explicit_schema=schema))


def _joined(some: Sequence[bytes]) -> pa.Table:
    return _read(b"\n".join(some).decode(errors="replace").encode(), pa.schema([]))


def _type(kind: Kind | None) -> str | None:
    if kind is None or kind == "truth":
        return kind
    if kind in LISTS:
        return "list"
    return "text" if kind in (*TIMES, "text") else "number"
