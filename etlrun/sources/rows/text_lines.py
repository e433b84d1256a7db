"""Files of plain text: a text in each line, in a single column."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from etlrun.sources.rows.kinds import Kind
from etlrun.sources.rows.lines import as_by, at_line, encoding_fault, first_lines, format_fault, opened
from etlrun.sources.rows.read import TableFile, zero_note
from etlrun.stages.rows import Errors
from etlrun.system.errors import EtlrunError, WorldError

_AT_ONCE = 4_000_000
_TO_LF = r"sed 's/\r/\n/g'"


class TextLinesFile(TableFile):
    """A file with a text in each line, also in one that is blank, as values of one column."""

    def __init__(self, path: str, name: str, errors: Errors) -> None:
        """Read texts of the column `name`; raise `WorldError` if there is none, or if `strict` ones are not UTF-8."""
        super().__init__(path, errors)
        self.names = [name]
        if (fault := format_fault(path) or (encoding_fault(path) if errors == "strict" else None)) is not None:
            raise EtlrunError([fault])
        self._marks = first_lines(path, b"\n", b"\r", b"\0")
        if b"\r" in self._marks and b"\n" not in self._marks:
            raise WorldError(path, "line ends of CR alone", "those of LF", f"convert them, {as_by(_TO_LF, path)}")
        with opened(path) as file:
            is_empty = not file.read(1)
        if is_empty:
            raise WorldError(path, "an empty file", "lines of text", "write one")

    def notes(self) -> Iterator[str]:
        yield from zero_note(self.name, self._marks.get(b"\0"))

    def kinds(self, declared: Mapping[str, Kind], tell: Callable[[], None]) -> dict[str, Kind | None]:
        self.position = self.bytes
        tell()
        return {self.names[0]: "text"}

    def batches(self, kinds: Mapping[str, Kind]) -> Iterator[pa.RecordBatch]:
        with opened(self.path) as file:
            mark = codecs.BOM_UTF8  # which may stand before the first line
            while lines := file.readlines(_AT_ONCE):
                lines[0], mark = lines[0].removeprefix(mark), b""
                texts = pa.array([line.rstrip(b"\r\n") for line in lines], pa.large_binary()).view(pa.large_string())
                yield self.in_utf8(pa.RecordBatch.from_arrays([texts], names=[*self.names]))

    def where(self, row: int) -> str:
        return at_line(self.path, row + 1)
