"""Files of tables that are being read: what their formats have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from etlrun.sources.rows.kinds import Kind, Seen
from etlrun.stages.rows import Errors

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
        errors: Whether texts that are not UTF-8 are refused, or have U+FFFD for what can't be decoded.
        joined: Names of columns that have lists of texts, which become texts.
        folders: Values of columns that the names of its folders have, by name; None for one that is missing.
        left_out: What columns have whose values are of no kind, and are not kept, by name; known with the kinds.
        num_repaired: Number of rows of which a text was not UTF-8.
        seen: What `kinds` has seen of columns of texts that are not declared.
    """

    names: Sequence[str]

    def __init__(self, path: str, errors: Errors) -> None:
        self.path, self.bytes, self.position = path, Path(path).stat().st_size, 0
        self.errors, self.num_repaired, self.joined, self.left_out = errors, 0, set[str](), dict[str, str]()
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
    def kinds(self, declared: Mapping[str, Kind], tell: Callable[[], None]) -> dict[str, Kind | None]:
        """Return the kinds of the columns, of all rows, None without a value; those that are declared need not fit.

        `tell` is called whenever `position` has moved.
        """

    @abstractmethod
    def batches(self, kinds: Mapping[str, Kind]) -> Iterator[pa.RecordBatch]:
        """Yield these columns of the rows, in order, as the file has them; `kinds` are those they will be of."""

    @abstractmethod
    def where(self, row: int) -> str:
        """Return where a row is, counted from 0, as in `houses.csv, line 3`."""

    def nothing(self, marks: Sequence[str]) -> str:
        """Return what to do so that texts are missing values."""
        return "write null"

    def in_utf8(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows whose texts have U+FFFD for what is not UTF-8, and count those; as they are with `strict`."""
        if self.errors == "strict":
            return batch
        found = [repaired(values) for values in batch.columns]
        self.num_repaired += len({row for _, rows in found for row in rows})
        return pa.RecordBatch.from_arrays([values for values, _ in found], names=batch.schema.names)

    def notes_on_repairs(self) -> Iterator[str]:
        """Yield in how many rows U+FFFD stands for what is not UTF-8, if there are any."""
        if count := self.num_repaired:
            rows = f"{count:,} rows of {self.name} are" if count > 1 else f"1 row of {self.name} is"
            yield f"{rows} not in UTF-8: U+FFFD is read for what can't be decoded."

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
