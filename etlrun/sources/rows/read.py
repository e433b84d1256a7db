"""Files of tables that are being read: what their formats have in common; plain text, Parquet, Arrow, TFRecords."""

from __future__ import annotations

import codecs
import gzip
import json
import os
import pathlib
import re
import shlex
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from etlrun.sources.content import Numbered, whole
from etlrun.sources.framing import POINTED, POINTER, array_of, count_of, features_in, kind_of
from etlrun.sources.rows.kinds import FoundKinds, Kind, Kinds, Seen, is_list, kind_of_type
from etlrun.sources.shards import counts_of
from etlrun.stages.rows import Table
from etlrun.system.errors import EtlrunError, Fault, WorldError, one_line, refuse

_CHUNK = 8_000_000
_BEGIN = 512
_OTHERS = (
    (b"PAR1", "a Parquet file", "name it with .parquet"),
    (b"ARROW1", "a file of Arrow", "name it with .arrow"),
    (rb"\x1f\x8b|BZh\d1AY|\xfd7zXZ|\x28\xb5\x2f\xfd", "a compressed file", "decompress it, or add .gz for gzip"),
    (rb"PK\x03\x04|\xd0\xcf\x11\xe0", "an archive or a workbook", "unpack it, or save the sheet as csv"),
    (rb"%PDF-|SQLite format 3", "a document or a database", "export its table as csv"),
    (POINTER, *POINTED),
    (rb"(?i)(\xef\xbb\xbf)?\s*<(!doctype|html|\?xml)", "a page of HTML or XML", "download the file itself"),
)
"""Patterns of what begins files of other formats, what these are, and what to do."""
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
        line, rest = 1, b""  # the bytes of a character that a chunk parts
        while chunk := rest + file.read(_CHUNK):
            try:
                _, count = codecs.utf_8_decode(chunk, "strict", len(chunk) == len(rest))
            except UnicodeDecodeError as error:
                where = at_line(path, line + chunk.count(b"\n", 0, error.start))
                return Fault(where, f"the byte 0x{chunk[error.start]:02x}", "text in UTF-8", remedy)
            line, rest = line + chunk.count(b"\n"), chunk[count:]
    return None


def broken(path: str, fault: Fault | None, error: Exception) -> EtlrunError:
    """Return the error of a file that Arrow can't read: with the line that was found, or with Arrow's own words."""
    return EtlrunError([fault or Fault(path, one_line(error), "a table that Arrow can read", "write the file again")])


Found = TypeVar("Found")
_SMALL_BYTES, _AT_ONCE = 1_000_000, 8


def repaired(values: pa.Array) -> tuple[pa.Array, Sequence[int]]:
    """Return texts with U+FFFD for what is not UTF-8, and the places of those; other values as they are."""
    try:
        (values.view(pa.string()) if pa.types.is_binary(values.type) else values).validate(full=True)
    except pa.ArrowInvalid:
        plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        data = plain.cast(pa.large_binary()).to_pylist()
        texts = [None if of is None else of.decode(errors="replace") for of in data]
        return pa.array(texts, pa.large_string()), [
            row for row, of in enumerate(texts) if of and of.encode() != data[row]
        ]
    return values, ()


def zero_note(name: str, line: int | None) -> Iterator[str]:
    """Yield the note on the first line of a text with the byte 0x00, if there is one."""
    if line is not None:
        yield f"{name}, line {line:,} has the byte 0x00, which stays: damaged files have it more often than texts."


class TableFile(ABC):
    """A file of a table.

    Attributes:
        path: Its path.
        names: Names of its columns, in order.
        bytes: Its size.
        position: How many of its bytes have been read by the last pass.
        dataset: What a config says of how it is read.
        tell: Function that is called whenever `position` has moved.
        joined: Names of columns that have lists of texts, which become texts.
        folders: Values of columns that the names of its folders have, by name; None for one that is missing.
        left_out: What columns have whose values are of no kind, and are not kept, by name; known with the kinds.
        num_repaired: Number of rows of which a text was not UTF-8.
        declared: Kinds of columns as a config has them.
        seen: What `kinds` has seen of columns of texts that are not declared.
    """

    names: Sequence[str]

    def __init__(self, path: str, dataset: Table) -> None:
        self.path, self.dataset, self.bytes, self.position = path, dataset, Path(path).stat().st_size, 0
        self.declared: Kinds = dataset.columns
        self.tell: Callable[[], None] = lambda: None
        self.num_repaired, self.joined, self.left_out = 0, set[str](), dict[str, str]()
        self.seen, self.folders = dict[str, Seen](), dict[str, str | None]()

    @property
    def name(self) -> str:
        """Its name without folders, which stays where the file is copied."""
        return Path(self.path).name

    @property
    def is_small(self) -> bool:
        """Whether what it has may be held at once."""
        return self.bytes < _SMALL_BYTES

    @property
    def columns(self) -> list[str]:
        """Names of all columns: its own, and those of its folders."""
        return [*dict.fromkeys((*self.names, *self.folders))]

    @abstractmethod
    def kinds(self) -> FoundKinds:
        """Return the kinds of the columns, of all rows, None without a value; those that are declared need not fit."""

    @abstractmethod
    def batches(self, kinds: Kinds) -> Iterator[pa.RecordBatch]:
        """Yield these columns of the rows, in order, as the file has them; `kinds` are those they will be of."""

    @abstractmethod
    def where(self, row: int) -> str:
        """Return where a row is, counted from 0, as in `houses.csv, line 3`."""

    def nothing(self, marks: Sequence[str]) -> str:
        """Return what to do so that texts are missing values."""
        return "write null"

    def in_utf8(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows whose texts have U+FFFD for what is not UTF-8, and count those; as they are with `strict`."""
        if self.dataset.errors == "strict":
            return batch
        found = [repaired(values) for values in batch.columns]
        self.num_repaired += len({row for _, rows in found for row in rows})
        return pa.RecordBatch.from_arrays([values for values, _ in found], names=batch.schema.names)

    def notes(self) -> Iterator[str]:
        """Yield what `kinds` has seen that a reader may not expect."""
        for name, seen in self.seen.items():
            yield from seen.notes(name, lambda row: Path(self.where(row)).name, self.nothing)


def each_read(files: Iterable[TableFile], read: Callable[[TableFile], Found]) -> Iterator[tuple[TableFile, Found]]:
    """Yield files with what `read` returns of them; small ones are read ahead, since each waits for Arrow's threads."""
    ahead = deque[tuple[TableFile, Future[Found] | None]]()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for file in [*files, None]:
            while ahead and (file is None or len(ahead) > _AT_ONCE):
                before, future = ahead.popleft()
                yield before, read(before) if future is None else future.result()
            if file is not None:
                ahead.append((file, pool.submit(read, file) if file.is_small else None))


_AT_ONCE_BYTES = 4_000_000
_TO_LF = r"sed 's/\r/\n/g'"


class TextLinesFile(TableFile):
    """A file with a text in each line, also in one that is blank, as values of one column."""

    def __init__(self, path: str, dataset: Table) -> None:
        """Read texts; raise `EtlrunError` if there is none, or if they are not UTF-8, unless that is replaced."""
        super().__init__(path, dataset)
        self.names = [next(iter(dataset.columns), "text")]
        refuse([format_fault(path) or (encoding_fault(path) if dataset.errors == "strict" else None)], EtlrunError)
        self._marks = first_lines(path, b"\n", b"\r", b"\0")
        if b"\r" in self._marks and b"\n" not in self._marks:
            raise WorldError(path, "line ends of CR alone", "those of LF", f"convert them, {as_by(_TO_LF, path)}")
        with opened(path) as file:
            is_empty = not file.read(1)
        if is_empty:
            raise WorldError(path, "an empty file", "lines of text", "write one")

    def notes(self) -> Iterator[str]:
        yield from zero_note(self.name, self._marks.get(b"\0"))

    def kinds(self) -> FoundKinds:
        self.position = self.bytes
        self.tell()
        return {self.names[0]: "text"}

    def batches(self, kinds: Kinds) -> Iterator[pa.RecordBatch]:
        with opened(self.path) as file:
            mark = codecs.BOM_UTF8  # which may stand before the first line
            while lines := file.readlines(_AT_ONCE_BYTES):
                lines[0], mark = lines[0].removeprefix(mark), b""
                texts = pa.array([line.rstrip(b"\r\n") for line in lines], pa.large_binary()).view(pa.large_string())
                yield self.in_utf8(pa.RecordBatch.from_arrays([texts], names=[*self.names]))

    def where(self, row: int) -> str:
        return at_line(self.path, row + 1)


_ROWS = 65_536
_END = b"\xff\xff\xff\xff\0\0\0\0"
"""What closes a stream of Arrow."""


class ColumnarFile(TableFile):
    """A file whose columns have types."""

    def __init__(self, path: str, dataset: Table) -> None:
        """Read the schema; raise `EtlrunError` if the file is cut off, or has two columns of a name."""
        super().__init__(path, dataset)
        self._is_parquet = ending(path).endswith(".parquet")
        self.names = self._schema.names
        if twice := sorted({name for name in self.names if self.names.count(name) > 1}):
            expected, remedy = "a name for each", "give it another name"
            raise EtlrunError([Fault(path, f"two columns {name}", expected, remedy) for name in twice])

    @cached_property
    def _schema(self) -> pa.Schema:
        try:
            if self._is_parquet:
                with pyarrow.parquet.ParquetFile(self.path) as file:
                    return file.schema_arrow
            with pa.memory_map(self.path) as source:
                return self._reader(source).schema
        except (pa.ArrowInvalid, OSError) as error:
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> EtlrunError:
        kind = "a Parquet file" if self._is_parquet else "a file of Arrow"
        if (fault := format_fault(self.path)) is not None and fault.found != kind:
            return EtlrunError([replace(fault, expected=kind)])
        found = f"{kind} that is cut off or damaged: {one_line(error)}" if self.bytes else "an empty file"
        return WorldError(self.path, found, "a complete one", "write or copy it again")

    def kinds(self) -> FoundKinds:
        found: FoundKinds = dict.fromkeys(self.names)
        for name, kind in zip(self.names, self._schema.types, strict=True):
            try:
                found[name] = kind_of_type(kind)
            except pa.ArrowInvalid:
                if name not in self.declared:
                    self.left_out[name] = f"values of type {kind} in {self.name}"
            if is_list(kind) and (self.declared.get(name) or found[name]) == "text":
                self.joined.add(name)
        return found

    def notes(self) -> Iterator[str]:
        if self._is_parquet:
            return
        with Path(self.path).open("rb") as file:
            file.seek(-len(_END), os.SEEK_END)
            end = file.read()
        if end != _END and not end.endswith(b"ARROW1"):
            yield f"{self.name} ends without the end of a stream of Arrow: what wrote it may have been interrupted."

    def batches(self, kinds: Kinds) -> Iterator[pa.RecordBatch]:
        done = 0
        try:
            for batch, count in self._parquet([*kinds]) if self._is_parquet else self._arrow():
                done += batch.num_rows
                self.position = self.bytes * done // max(count, 1)
                yield self.in_utf8(batch.select([*kinds]))
        except (pa.ArrowInvalid, OSError) as error:
            raise self._broken(error) from error
        self.position = self.bytes

    def where(self, row: int) -> str:
        return f"{self.path}, row {row:,}"

    def _parquet(self, names: list[str]) -> Iterator[tuple[pa.RecordBatch, int]]:
        with pyarrow.parquet.ParquetFile(
            self.path,
            pre_buffer=False,  # which would hold the whole file
            coerce_int96_timestamp_unit="us",  # since nanoseconds wrap around before 1678 and after 2261
            page_checksum_verification=True,
        ) as file:
            for batch in file.iter_batches(_ROWS, columns=names):
                yield batch, file.metadata.num_rows

    def _arrow(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        with pa.memory_map(self.path) as source:
            reader = self._reader(source)
            is_stream = isinstance(reader, pa.ipc.RecordBatchStreamReader)
            for batch in reader if is_stream else map(reader.get_batch, range(reader.num_record_batches)):
                for start in range(0, batch.num_rows, _ROWS):
                    yield batch.slice(start, _ROWS), batch.num_rows

    def _reader(self, source: pa.NativeFile) -> pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader:
        try:
            return pa.ipc.open_file(source)
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_stream(source)


def names_beside(path: str) -> dict[str, list[str]]:
    """Return the names of the classes of each feature that has any, in the order of their numbers."""
    files = sorted(pathlib.Path(path).parent.glob("*.labels.txt"))
    return {file.name.removesuffix(".labels.txt"): file.read_text().splitlines() for file in files}


def named(values: pa.Array, names: list[str]) -> pa.Array:
    """Return the names of classes by their numbers, null for -1, which TFDS has for none; other values as they are."""
    if not pa.types.is_integer(values.type):
        return values
    numbers = values.cast(pa.int64())
    return pa.array(names, pa.large_string()).take(pc.if_else(pc.greater_equal(numbers, 0), numbers, None))


_EXAMPLES = 1_024
_KINDS: Mapping[str, Kind] = {"a string": "text", "int64": "integer", "float32": "number"}


class ExamplesFile(TableFile):
    """A file of serialised examples; a feature that one lacks is a missing value."""

    def __init__(self, path: str, dataset: Table) -> None:
        """Read the features of the first example; raise `EtlrunError` if there is none, or the file is damaged."""
        super().__init__(path, dataset)
        faults: list[Fault] = []
        self._count = counts_of([path], faults)[path]
        refuse(faults, EtlrunError)
        if not self._count:
            raise WorldError(path, "no records", "at least one example", "write the file again")
        self._classes = names_beside(path)
        self._records = Numbered(whole({path: self._count}))
        self.names = sorted(self._features(0))
        if not self.names:
            raise WorldError(self.where(0), "an example without features", "features", "write the file again")

    def kinds(self) -> FoundKinds:
        found: FoundKinds = dict.fromkeys(self.names)
        for row in range(self._count):
            for name, feature in self._features(row).items():
                count, kind, classes = count_of(feature), _KINDS.get(kind_of(feature)), self._classes.get(name, ())
                number = feature.int64_list.value[0] if classes and count and kind == "integer" else -1
                odd, expected = "", ""
                if name not in found:
                    odd, expected = "a feature that the first example lacks", ", ".join(found)
                elif count and found[name] not in (None, kind):
                    odd, expected = f"a value of type {kind}", f"values of type {found[name]}, as before"
                elif not -1 <= number < max(len(classes), 1):
                    odd, last = f"{number}", len(classes) - 1
                    expected = f"the number of a class, from 0 to {last}, as {name}.labels.txt has them"
                if odd:
                    remedy = "write the files again, or read others"
                    raise WorldError(f"{self.where(row)}, {name}", odd, expected, remedy)
                if count > 1:
                    self.left_out.setdefault(name, f"{count:,} values in {self.name}, record {row}")
                found[name] = kind if count else found[name]
            if row % _EXAMPLES == 0:
                self.tell()
        return {name: "text" if kind == "integer" and name in self._classes else kind for name, kind in found.items()}

    def batches(self, kinds: Kinds) -> Iterator[pa.RecordBatch]:
        for start in range(0, self._count, _EXAMPLES):
            examples = [*map(self._features, range(start, min(start + _EXAMPLES, self._count)))]
            arrays = {name: array_of([example[name] for example in examples]) for name in kinds}
            columns = [
                named(values, self._classes[name]) if kinds[name] == "text" and name in self._classes else values
                for name, values in arrays.items()
            ]
            yield self.in_utf8(pa.RecordBatch.from_arrays(columns, names=[*kinds]))

    def where(self, row: int) -> str:
        return f"{self.path}, record {row}"

    def _features(self, row: int) -> Mapping[str, Any]:
        self.position = self.bytes * (row + 1) // self._count
        try:
            return features_in(self._records.one(row))
        except ValueError as error:
            what, expected = "a damaged record, or none of tf.train.Example", "a serialised example"
            raise WorldError(self.where(row), what, expected, "write the file again") from error
