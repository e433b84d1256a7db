"""Files of tables that are being read: what their formats have in common; plain text, Parquet, Arrow, TFRecords."""

import codecs
import gzip
import json
import os
import pathlib
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import IO, Any, ClassVar, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from etlrun.sources.content import Numbered, whole
from etlrun.sources.framing import POINTED, POINTER, array_of, count_of, features_in, kind_of
from etlrun.sources.rows.kinds import FoundKinds, Kind, Kinds, Seen, is_list, kind_of_type
from etlrun.sources.shards import counts_of
from etlrun.stages.rows import Table
from etlrun.system.errors import EtlrunError, Fault, WorldError, counted, one_line, refuse

_BEGIN, _BINARY = 512, (b"PAR1", b"ARROW1", b"\x1f\x8b", b"PK\x03\x04")
"""Bytes of a file that are looked at, and what begins those of Parquet, Arrow, gzip and zip."""
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


def format_fault(path: str) -> Fault | None:
    """Return the fault of a file that is no text by its first bytes: of another format, or in UTF-16."""
    with opened(path) as file:
        begins = file.read(_BEGIN)
    if begins.startswith(POINTER):
        return Fault(path, POINTED[0], "lines of text", POINTED[1])
    if not begins.startswith(_BINARY) and json.detect_encoding(begins).startswith("utf-8"):
        return None
    remedy = "name it with the end of its format, decompress it, or convert it to UTF-8"
    return Fault(path, f"no text: it begins with {begins[:8]!r}", "text in UTF-8", remedy)


def encoding_fault(path: str, otherwise: str = OR_REPLACE) -> Fault | None:
    """Return the fault of the first line that is not UTF-8; None if all are. Its remedy ends with `otherwise`."""
    with opened(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                remedy = f"convert it, as by: iconv -f LATIN1 -t UTF-8{otherwise}"
                return Fault(at_line(path, number), f"the byte 0x{line[error.start]:02x}", "text in UTF-8", remedy)
    return None


def broken(path: str, fault: Fault | None, error: Exception) -> EtlrunError:
    """Return the error of a file that Arrow can't read: with the line that was found, or with Arrow's own words."""
    return EtlrunError([fault or Fault(path, one_line(error), "a table that Arrow can read", "write the file again")])


Found = TypeVar("Found")
_SMALL_BYTES, _AT_ONCE = 1_000_000, 8


def repaired(values: pa.Array) -> pa.Array:
    """Return texts with U+FFFD for what is not UTF-8; other values as they are."""
    try:
        (values.view(pa.string()) if pa.types.is_binary(values.type) else values).validate(full=True)
    except pa.ArrowInvalid:
        plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        data = plain.cast(pa.large_binary()).to_pylist()
        return pa.array([None if of is None else of.decode(errors="replace") for of in data], pa.large_string())
    return values


class TableFile(ABC):
    """A file of a table.

    Attributes:
        path: Its path.
        names: Names of its columns, in order.
        bytes: Its size.
        dataset: What a config says of how it is read.
        joined: Names of columns that have lists of texts, which become texts.
        folders: Values of columns that the names of its folders have, by name; None for one that is missing.
        left_out: What columns have whose values are of no kind, and are not kept, by name; known with the kinds.
        declared: Kinds of columns as a config has them.
        seen: What `kinds` has seen of columns of texts that are not declared.
        is_held: Whether rows that `kinds` has read stay in memory for `batches`.
    """

    names: Sequence[str]
    nothing: ClassVar[str] = "write null"
    """What to do so that a text is a missing value."""

    def __init__(self, path: str, dataset: Table) -> None:
        self.path, self.dataset, self.bytes = path, dataset, Path(path).stat().st_size
        self.declared: Kinds = dataset.columns
        self.joined, self.left_out = set[str](), dict[str, str]()
        self.seen, self.folders = dict[str, Seen](), dict[str, str | None]()
        self.is_held, self._held = False, list[Any]()

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

    def once(self, read: Callable[[], Iterator[Found]], *, last: bool = False) -> Iterator[Found]:
        """Yield rows as they are `read`, or those that were held when they were read before: until the `last` time."""
        if self._held:
            held = self._held
            self._held = [] if last else held
            yield from held
            return
        held = []
        for some in read():
            if self.is_held and not last:
                held.append(some)
            yield some
        self._held = held

    def in_utf8(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows whose texts have U+FFFD for what is not UTF-8; as they are with `strict`."""
        if self.dataset.errors == "strict":
            return batch
        return pa.RecordBatch.from_arrays([*map(repaired, batch.columns)], names=batch.schema.names)

    def notes(self) -> Iterator[str]:
        """Yield what `kinds` has seen that a reader may not expect."""
        for name, seen in ((name, seen) for name, seen in self.seen.items() if name not in self.dataset.unread):
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


class TextLinesFile(TableFile):
    """A file with a text in each line, also in one that is blank, as values of one column."""

    def __init__(self, path: str, dataset: Table) -> None:
        """Read texts; raise `EtlrunError` if there is none, or if they are not UTF-8, unless that is replaced."""
        super().__init__(path, dataset)
        self.names = [next(iter(dataset.columns), "text")]
        refuse([format_fault(path) or (encoding_fault(path) if dataset.errors == "strict" else None)], EtlrunError)
        with opened(path) as file:
            is_empty = not file.read(1)
        if is_empty:
            raise WorldError(path, "an empty file", "lines of text", "write one")

    def kinds(self) -> FoundKinds:
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
        with Path(self.path).open("rb") as file:
            if file.read(len(POINTER)) == POINTER:
                return WorldError(self.path, POINTED[0], kind, POINTED[1])
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
        try:
            for batch in self._parquet([*kinds]) if self._is_parquet else self._arrow():
                yield self.in_utf8(batch.select([*kinds]))
        except (pa.ArrowInvalid, OSError) as error:
            raise self._broken(error) from error

    def where(self, row: int) -> str:
        return f"{self.path}, row {row:,}"

    def _parquet(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        with pyarrow.parquet.ParquetFile(
            self.path,
            pre_buffer=False,  # which would hold the whole file
            coerce_int96_timestamp_unit="us",  # since nanoseconds wrap around before 1678 and after 2261
            page_checksum_verification=True,
        ) as file:
            yield from file.iter_batches(_ROWS, columns=names)

    def _arrow(self) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(self.path) as source:
            reader = self._reader(source)
            is_stream = isinstance(reader, pa.ipc.RecordBatchStreamReader)
            for batch in reader if is_stream else map(reader.get_batch, range(reader.num_record_batches)):
                for start in range(0, batch.num_rows, _ROWS):
                    yield batch.slice(start, _ROWS)

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
                is_other = name not in found or (count and found[name] not in (None, kind))
                if is_other or not -1 <= number < max(len(classes), 1):
                    odd = f"{counted(count, 'value')} of type {kind}" if is_other else f"the number {number}"
                    expected = "the features of the first example with their types, and numbers of named classes"
                    raise WorldError(f"{self.where(row)}, {name}", odd, expected, "write the files again")
                if count > 1:
                    self.left_out.setdefault(name, f"{counted(count, 'value')} in {self.name}, record {row}")
                found[name] = kind if count else found[name]
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
        try:
            return features_in(self._records.one(row))
        except ValueError as error:
            what, expected = "a damaged record, or none of tf.train.Example", "a serialised example"
            raise WorldError(self.where(row), what, expected, "write the file again") from error
