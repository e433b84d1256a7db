"""Files of values between commas or tabs, read as texts whose types are those of all rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from etlrun.sources.rows.kinds import Kind, Seen, has_any, stripped
from etlrun.sources.rows.lines import (
    at_line,
    broken,
    delimited_fault,
    encoding_fault,
    format_fault,
    has_odd_quotes,
    header,
    line_of_row,
    shown,
    utf16_fault,
)
from etlrun.sources.rows.read import TableFile
from etlrun.stages.rows import Errors
from etlrun.system.errors import Fault, WorldError

_BLOCK = 16_000_000
"""Bytes that are parsed at once, and more than a row has."""


class DelimitedFile(TableFile):
    """A file of values between commas (csv) or tabs (tsv), of which the first row names the columns."""

    def __init__(self, path: str, delimiter: str, *, missing: tuple[str, ...], strip: bool, errors: Errors) -> None:
        """Read the names of the columns; raise `WorldError` if there are none, or one is empty or there twice."""
        super().__init__(path, errors)
        self._delimiter, self._missing, self._strip = delimiter, missing, strip
        if (fault := format_fault(path) or utf16_fault(path)) is not None:
            raise broken(path, fault, ValueError())
        self.names = header(path, delimiter)
        if any("\udc80" <= mark <= "\udcff" for mark in "".join(self.names)):
            raise broken(path, encoding_fault(path, otherwise=""), ValueError())
        self._require_names()
        self._seen: dict[str, Seen] = {}

    def _require_names(self) -> None:
        names, remedy = self.names, "write the names of the columns in the first line"
        found = ""
        if not names:
            found = "an empty file"
        elif empty := [str(place) for place, name in enumerate(names, start=1) if not name.strip()]:
            found = f"a header without a name for column {', '.join(empty)} of {len(names)}"
            if empty == ["1"]:
                remedy = "name it, or leave it out, as frame.to_csv(path, index=False) does"
        elif twice := sorted({name for name in names if names.count(name) > 1}):
            found = f"a header with {', '.join(twice)} twice"
        elif len(names) == 1 and (other := next((mark for mark in ";\t|" if mark in names[0]), None)):
            found = f"columns separated by {other!r}"
            remedy = "write it with commas, or with tabs as .tsv"
        if found:
            raise WorldError(where=at_line(self.path, 1), found=found, expected="names of columns", remedy=remedy)

    def kinds(self, declared: Mapping[str, Kind], tell: Callable[[], None]) -> dict[str, Kind | None]:
        if has_odd_quotes(self.path) and (fault := self._fault()):
            raise broken(self.path, fault, ValueError())
        self._seen = {name: Seen() for name in self.names}
        first = 0
        for batch in self._texts():
            self._require_one_header(batch, first)
            for name, values in zip(self.names, batch.columns, strict=True):
                self._seen[name].add(values, first)
            first += batch.num_rows
            tell()
        for name, seen in self._seen.items():
            if seen.kind == "whole" and name not in declared and seen.too_large is not None:
                row, text = seen.too_large
                raise WorldError(
                    where=f"{self.where(row)}, {name}",
                    found=f"{shown(text)}, an integer beyond 64 bits",
                    expected="integers from -2**63 to 2**63 - 1",
                    remedy=f"set 'dataset.columns={{{name}: text}}' for a code, or number for a float",
                )
        return {name: seen.kind for name, seen in self._seen.items()}

    def notes(self, declared: Mapping[str, Kind]) -> Iterator[str]:
        if blank := [repr(name) for name in self.names if name != name.strip()]:
            yield f"names of columns have blanks around them in {self.name}: {', '.join(blank)}."
        for name in [name for name in self.names if name not in declared]:
            seen = self._seen[name]
            yield from seen.notes(name, lambda row: Path(self.where(row)).name)

    def batches(self, kinds: Mapping[str, Kind]) -> Iterator[pa.RecordBatch]:
        return self._texts()

    def where(self, row: int) -> str:
        return at_line(self.path, line_of_row(self.path, self._delimiter, row))

    def _require_one_header(self, batch: pa.RecordBatch, first: int) -> None:
        """Raise `WorldError` for a row that names the columns again."""
        if len(self.names) == 1 or not has_any(pc.equal(batch.column(0), self.names[0])):
            return
        mask = pc.equal(batch.column(0), self.names[0])
        for name, values in zip(self.names, batch.columns, strict=True):
            mask = pc.and_(mask, pc.equal(values, name))
        if (place := pc.index(mask, value=True).as_py()) >= 0:
            raise WorldError(
                where=self.where(first + place),
                found="the header again",
                expected="a row of values",
                remedy="remove the line",
            )

    def _texts(self) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(self.path) as raw, self._explained():
            whole = pa.CompressedInputStream(raw, "gzip") if self.path.endswith(".gz") else raw
            reader = pyarrow.csv.open_csv(
                whole,
                pyarrow.csv.ReadOptions(block_size=_BLOCK),
                pyarrow.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
                pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(self.names, pa.string()),
                    strings_can_be_null=True,
                    null_values=list(self._missing),
                    check_utf8=self.errors == "strict",
                ),
            )
            for batch in reader:
                self.position = raw.tell()
                texts = self.in_utf8(batch)
                yield self._without_blanks(texts) if self._strip else texts
            self.position = self.bytes

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):
                return  # of a header alone
            raise broken(self.path, self._fault(), error) from error

    def _fault(self) -> Fault | None:
        return delimited_fault(self.path, self._delimiter, len(self.names), self.errors)

    def _without_blanks(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        missing = pa.array(self._missing, pa.string())
        columns = [stripped(values) for values in batch.columns]
        columns = [pc.if_else(pc.is_in(values, value_set=missing), None, values) for values in columns]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
