"""Files of Parquet and Arrow (Feather), whose columns have types."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from etlrun.sources.rows.kinds import Kind, list_kind
from etlrun.sources.rows.lines import broken, format_fault
from etlrun.sources.rows.of_lists import is_list
from etlrun.sources.rows.read import TableFile
from etlrun.stages.rows import Errors
from etlrun.system.errors import EtlrunError, Fault, WorldError

_ROWS = 65_536
_END = b"\xff\xff\xff\xff\0\0\0\0"
"""What closes a stream of Arrow."""


def _kind(values: pa.DataType) -> Kind | str | None:
    """Return the kind of a type; None for one without values, and an empty text for one that is not kept."""
    if pa.types.is_dictionary(values):
        return _kind(values.value_type)
    if pa.types.is_null(values):
        return None
    if is_list(values):
        try:
            return list_kind(values.value_type)
        except pa.ArrowInvalid:
            return ""
    if pa.types.is_timestamp(values) and values.tz is not None:
        return "zoned"
    checks: tuple[tuple[Kind, tuple[bool, ...]], ...] = (
        ("integer", (pa.types.is_integer(values),)),
        ("number", (pa.types.is_floating(values), pa.types.is_decimal(values))),
        ("truth", (pa.types.is_boolean(values),)),
        ("timestamp", (pa.types.is_timestamp(values), pa.types.is_date(values))),
        ("text", (pa.types.is_string(values), pa.types.is_large_string(values), pa.types.is_string_view(values))),
    )
    return next((kind for kind, found in checks if any(found)), "")


class ColumnarFile(TableFile):
    """A file whose columns have types."""

    def __init__(self, path: str, errors: Errors, *, is_parquet: bool) -> None:
        """Read the schema; raise `EtlrunError` if the file is cut off, or has two columns of a name."""
        super().__init__(path, errors)
        self._is_parquet = is_parquet
        self.names = self._schema.names
        faults = [
            Fault(path, f"two columns {name}", "a name for each", "give it another name")
            for name in sorted({name for name in self.names if self.names.count(name) > 1})
        ]
        if faults:
            raise EtlrunError(faults)

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

    def _broken(self, error: Exception) -> WorldError:
        kind = "a Parquet file" if self._is_parquet else "a file of Arrow"
        if (fault := format_fault(self.path)) is not None and fault.found != kind:
            return broken(self.path, replace(fault, expected=kind), error)
        return WorldError(
            self.path,
            f"{kind} that is cut off or damaged: {' '.join(str(error).split())}" if self.bytes else "an empty file",
            "a complete one",
            "write or copy it again",
        )

    def kinds(self, declared: Mapping[str, Kind], tell: Callable[[], None]) -> dict[str, Kind | None]:
        found = {field.name: _kind(field.type) or None for field in self._schema}
        others = (of for of in self._schema if _kind(of.type) == "" and of.name not in declared)
        self.left_out = {of.name: f"values of type {of.type} in {self.name}" for of in others}
        are_texts = {name for name in found if (declared.get(name) or found[name]) == "text"}
        self.joined = {field.name for field in self._schema if is_list(field.type) and field.name in are_texts}
        return found  # type: ignore[return-value]

    def notes(self) -> Iterator[str]:
        if self._is_parquet:
            return
        with Path(self.path).open("rb") as file:
            file.seek(-len(_END), os.SEEK_END)
            end = file.read()
        if end != _END and not end.endswith(b"ARROW1"):
            yield f"{self.name} ends without the end of a stream of Arrow: what wrote it may have been interrupted."

    def batches(self, kinds: Mapping[str, Kind]) -> Iterator[pa.RecordBatch]:
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
            several = (
                (reader.get_batch(place) for place in range(reader.num_record_batches))
                if isinstance(reader, pa.ipc.RecordBatchFileReader)
                else reader
            )
            for batch in several:
                for start in range(0, batch.num_rows, _ROWS):
                    yield batch.slice(start, _ROWS), batch.num_rows

    def _reader(self, source: pa.NativeFile) -> pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader:
        """Return the reader of a file of Arrow, or of a stream that was written to one."""
        try:
            return pa.ipc.open_file(source)
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_stream(source)
