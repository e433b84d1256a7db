"""Rows as a source: records are numbers of rows, of which the parser takes columns; and those of tables and texts."""

from __future__ import annotations

import hashlib
from bisect import bisect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import field, replace
from functools import cache, cached_property, partial
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import pyarrow as pa

from etlrun.remote.copies import name_of, named_by_url
from etlrun.sources.base import Example, Identified, OnDisk, Problem, Read, Slice, Source, Split
from etlrun.sources.content import Shard, Stamp, digest, is_as
from etlrun.sources.framing import POINTER
from etlrun.sources.listing import TEXTS, notes_on, once_listed
from etlrun.sources.rows.dividing import Numbers, RowsOnDisk, RowsPart, divided, shown
from etlrun.sources.rows.images import contents, files_read, read, refused_in
from etlrun.sources.rows.kept import KeptColumns, KeptWriter, contents_of, kept_as, stamps_of
from etlrun.sources.rows.read import encoding_fault, format_fault
from etlrun.sources.rows.table import kept_of
from etlrun.sources.shards import matched, unmatched
from etlrun.stages.flow import MISSING_TIME
from etlrun.stages.lazy import tf
from etlrun.stages.paths import is_remote
from etlrun.stages.rows import Rows, Table, TextFolder
from etlrun.system.errors import EtlrunError, WorldError, fault, unreadable_path
from etlrun.system.hidden import is_closed
from etlrun.system.terminal import progress
from etlrun.system.values import frozen

if TYPE_CHECKING:
    from etlrun.cache.keeper import Compare
    from etlrun.sources.folder import FileContent

Gather = Callable[["tf.Tensor"], "tf.Tensor"]
Images = Callable[[], "dict[str, FileContent]"]
"""A function that returns the content of images by column, as it is at the first call."""


def gathered(kept: KeptColumns, name: str) -> Gather | None:
    """Return a function from numbers of rows, a tensor of any shape, to the values of a column that `take` gives.

    Lists of several rows are a ragged tensor. None for a column that only `take` reads: an array, or texts without
    codes.
    """
    feature = kept.known.columns[name].feature
    if feature.format == "image":
        return None

    def of(kind: str) -> Any:
        """Return a file of the column as a tensor that is mapped into memory; None if there is none."""
        if (found := kept.file(name, kind)) is None:
            return None
        if not found[0].stat().st_size:  # which can't be mapped: all lists are empty
            return tf.constant([], found[1])
        values = np.memmap(*found, "c")  # since TensorFlow shares no memory that is read-only; nothing writes to it
        return tf.experimental.dlpack.from_dlpack(values.__dlpack__())

    with tf.init_scope(), tf.device("CPU"):
        ends = of("ends") if kept.has_lists(name) else None
        if feature.dtype == "string":
            if (codes := of("codes")) is None:
                return None
            words = tf.constant(kept.words(name))
            return lambda numbers: tf.gather(words, tf.gather(codes, numbers))
        values, missing = of("values"), of("missing")
    if values is None:
        return None
    if missing is None or values.dtype.is_floating:
        return partial(_in_lists, partial(tf.gather, values), ends)

    def or_instead(numbers: tf.Tensor) -> tf.Tensor:
        found = tf.cast(tf.gather(values, numbers), feature.dtype)
        instead = tf.constant(MISSING_TIME if feature.format == "timestamp" else np.nan, found.dtype)
        return tf.where(tf.gather(missing, numbers), instead, found)

    return partial(_in_lists, or_instead, ends)


def _in_lists(gather: Gather, ends: Any, numbers: tf.Tensor) -> Any:
    """Return the values at `numbers`; if a column has lists, with these `ends`, those of one, or of several, ragged."""
    if ends is None:
        return gather(numbers)
    starts, stops = tf.gather(ends, numbers), tf.gather(ends, numbers + 1)
    if not numbers.shape.rank:
        return gather(tf.range(starts, stops))
    return tf.ragged.map_flat_values(gather, tf.ragged.range(starts, stops))


def as_tensor(values: Any) -> Any:
    """Return values of a column, as `take` gives those of at least one row, as a tensor: lists as a ragged one."""
    if values.dtype == object and isinstance(values[0], np.ndarray):
        return tf.RaggedTensor.from_row_lengths(np.concatenate(values), [*map(len, values)])
    return tf.constant(values)


class RowContent:
    """Content of some rows, by the content of their files and their numbers; a file that is changed later counts.

    Its digest is that of the rows alone. Images in files of their own, by column, count beside it.
    """

    def __init__(self, identity: str, rows: Numbers, stamps: dict[str, Stamp], images: Images) -> None:
        digest = hashlib.sha256(identity.encode())
        digest.update(np.ascontiguousarray(rows).data)
        self.digest: str | None = digest.hexdigest()[:16]
        self._stamps, self._images = stamps, images

    def files(self, *, whole: bool) -> list[list[object]]:
        """Return the digest, under one name, and what identifies the images of each column."""
        images = self._images().items()
        return [["rows", self.digest], *([f"{name} of rows", of.files(whole=whole)[0][1]] for name, of in images)]

    def compared(self) -> Compare | None:
        """Return what compares the images of a pass; None if there are none in files of their own."""
        several = [of.compared() for of in self._images().values()]

        def compare(record: Any, data: Any) -> None:
            for one in several:
                one(record, data)

        return compare if several else None

    def changed(self) -> str | None:
        """Return the path of a file that is another one than at construction; None if there is none."""
        found = next((path for path, stamp in self._stamps.items() if not is_as(path, stamp)), None)
        return found or next(filter(None, (of.changed() for of in self._images().values())), None)


def placed(row: int, paths: Sequence[str], ends: Sequence[int]) -> tuple[str, int]:
    """Return the path of a row, and its number there; `ends` are the numbers of the rows behind those of each path."""
    file = bisect(ends, row)
    return name_of(paths[file]), row - (ends[file - 1] if file else 0)


@frozen
class RowSplit(Split):
    """Some rows of a dataset.

    Attributes:
        rows: Their numbers in the kept columns, in the order in which they are read.
        kept: The kept columns.
        identity: Identity of the kept columns.
        stamps: Files that they were read from.
        file_rows: Number of rows of each file; empty if a file has all rows.
    """

    rows: Numbers = field(repr=False, compare=False)
    kept: KeptColumns = field(repr=False, compare=False)
    identity: str
    stamps: dict[str, Stamp]
    file_rows: tuple[int, ...] = ()
    noun: ClassVar[str] = "file"
    noun_of_records: ClassVar[str] = "row"
    is_read_by_parser: ClassVar[bool] = True

    @cached_property
    def content(self) -> Identified:
        """Content of the rows."""
        images = cache(partial(contents, self.kept, self.rows))
        return RowContent(self.identity, self.rows, self.stamps, images)

    @property
    def is_compared(self) -> bool:  # type: ignore[override]
        return any(column.is_path for column in self.kept.known.columns.values())

    def refused(self, number: int) -> Problem | None:
        return refused_in(self.kept, int(self.rows[number]))

    @property
    def numbered(self) -> Read:
        """The records by number: numbers of rows in the kept columns."""
        return self.rows.__getitem__

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self.stamps)

    def read(self, path: Any, skip: Any, take: Any) -> tf.data.Dataset:
        def some() -> Numbers:
            return self.rows.copy()  # since TensorFlow may write to what a function returns

        rows = tf.ensure_shape(tf.numpy_function(some, [], tf.int64), (None,))
        return tf.data.Dataset.from_tensor_slices(rows[skip : skip + take])

    def part(self, start: int, stop: int) -> RowSplit:
        shards = (replace(self.shards[0], take=stop - start),)
        return replace(self, shards=shards, num_examples=stop - start, rows=self.rows[start:stop])

    def shared(self, other: Split) -> int:
        return int(np.isin(self.rows, other.rows).sum()) if isinstance(other, RowSplit) else 0

    def where(self, shard: Shard, number: int) -> str:
        path, row = self.place(shard, number)
        is_file = len(self._ends) > 1 and self._ends[-1] == len(self._ends)  # each of them is one row
        return path if is_file else f"{path}, row {row}"

    def place(self, shard: Shard, number: int) -> tuple[str, int | None]:
        return placed(int(self.rows[number]), self.paths, self._ends)

    @cached_property
    def _ends(self) -> list[int]:
        """Numbers of the rows behind the last one of each file."""
        return [*accumulate(self.file_rows)]


class RowsSource(Source):
    """Rows whose columns are kept; see the classes derived from it for where they come from."""

    dataset: Rows
    repair: ClassVar[str] = "repair the row"

    def __init__(self, dataset: Rows, kept: KeptColumns | None = None) -> None:
        """Open the kept columns, unless they are given; raise `EtlrunError` if they aren't yet and can't be read."""
        self.dataset, self.kept = dataset, kept or self.opened(dataset)
        self.full_name, self.identity = dataset.title, "rows"
        classes = dataset.known.classes if dataset.known else ()
        self.class_names, self.num_classes = classes or None, len(classes) or None
        self.notes = self.kept.known.notes

    @classmethod
    def is_there(cls, dataset: Any) -> bool:
        """Return whether all files are on this machine."""
        raise NotImplementedError

    @classmethod
    def opened(cls, dataset: Any) -> KeptColumns:
        """Return the kept columns, written first if they are not kept yet; raise `EtlrunError` if they can't be."""
        raise NotImplementedError

    @classmethod
    def on_disk(cls, dataset: Any) -> OnDisk:
        try:
            kept = cls.opened(dataset)
            parts = divided(kept, dataset)
        except EtlrunError:
            return OnDisk()
        each = kept.known.held_bytes / max(sum(kept.known.rows.values()), 1)
        sizes = {name: (len(part.rows), int(len(part.rows) * each)) for name, part in parts.items()}
        return RowsOnDisk(full_name=dataset.title, sizes=sizes, parts=parts)

    @property
    def counts(self) -> dict[str, int]:
        return {name: len(part.rows) for name, part in self._parts.items()}

    def split(self, name: str, where: str) -> RowSplit:
        return cast("RowSplit", super().split(name, where))

    def combine(self, name: str, parts: Sequence[Slice]) -> RowSplit:
        of_parts = [self._parts[part].slice(start, stop) for part, start, stop in parts]
        rows = of_parts[0] if len(of_parts) == 1 else np.concatenate(of_parts)
        return RowSplit(
            name=name,
            shards=(Shard(path=str(self.kept.folder), skip=0, take=len(rows)),),
            num_examples=len(rows),
            rows=rows,
            kept=self.kept,
            identity=self.kept.known.identity,
            stamps=self.kept.stamps,
            file_rows=self.kept.known.file_rows,
        )

    def empty(self, name: str, parts: Sequence[Slice], where: str) -> WorldError:
        by, blocks = self.dataset.splits_by, [of for part, _, _ in parts if (of := self._parts[part].largest)]
        if by is None or not blocks:
            return super().empty(name, parts, where)
        count, row, total = max(blocks)
        value = f"{by.column} {shown(self.kept, by.column, row)} has {count:,} of {total:,} rows, which stay together"
        return WorldError(
            where,
            f"no rows in '{name}' of {self.full_name}, since {value}",
            "at least one",
            "choose a larger part of the split, or another column",
        )

    @property
    def _parts(self) -> dict[str, RowsPart]:
        """Rows of each whole split."""
        return divided(self.kept, self.dataset)

    def parser(
        self, names: Collection[str] | None = None, compare: Callable[..., tf.Tensor] | None = None
    ) -> Callable[[tf.Tensor], Example]:
        """Return the function from numbers of rows to their columns: to those of `names`, if given.

        If given, `compare` takes the records and the bytes of images in files, and returns the latter.
        """
        features = {name: of for name, of in self.dataset.examples.features.items() if names is None or name in names}
        gathers = {name: gathered(self.kept, name) for name in features}
        others = [name for name, gather in gathers.items() if gather is None]
        dtypes = [tf.as_dtype(features[name].dtype) for name in others]
        paths = {name for name in others if self.kept.known.columns[name].is_path}

        def take(numbers: Numbers) -> list[Any]:
            rows = np.atleast_1d(numbers)
            found = [(files_read if name in paths else type(self.kept).take)(self.kept, name, rows) for name in others]
            return found if numbers.ndim else [values[0] for values in found]

        def parse(record: tf.Tensor) -> Example:
            taken = iter(tf.nest.flatten(tf.numpy_function(take, [record], dtypes)) if others else ())
            batch, found = record.shape[:1] if record.shape.rank else (), dict[str, Any]()
            for name, gather in gathers.items():
                if gather is not None:
                    found[name] = gather(record)
                else:
                    found[name] = tf.ensure_shape(next(taken), (*batch, *features[name].shape))
                    found[name] = read(found[name], compare) if name in paths else found[name]
            return found

        return parse

    def labels_of(self, split: Split) -> Numbers:
        """Return the class of each row of `split`, in the order in which they are read."""
        assert isinstance(split, RowSplit)  # noqa: S101 - one of this source
        places = {name: place for place, name in enumerate(self.class_names or ())}
        values = self.kept.take(self.dataset.examples.target, split.rows)
        plain = (values if values.dtype == object else values.astype(np.int64)).tolist()  # classes are named 0 and 1
        found = (places.get(of.decode() if isinstance(of, bytes) else str(of), -1) for of in plain)
        return np.fromiter(found, np.int64, len(plain))


class TableSource(RowsSource):
    """Rows of tables."""

    @classmethod
    def is_there(cls, dataset: Table) -> bool:
        is_open, patterns = not is_closed(dataset.storage), [of for some in dataset.patterns.values() for of in some]
        return all(is_open if is_remote(of) else matched(of) or unmatched(of) for of in patterns)

    @classmethod
    @named_by_url()
    def opened(cls, dataset: Table) -> KeptColumns:
        return kept_of(dataset)


_FORMAT = 1
"""Version of how texts are read."""
_AT_ONCE, _AT_ONCE_BYTES = 4_096, 32_000_000
_NAMED = 5
_SCHEMA = pa.schema([("text", pa.large_string()), ("label", pa.large_string())])


class TextFolderSource(RowsSource):
    """Rows of text files in a folder for each class."""

    @classmethod
    def is_there(cls, dataset: TextFolder) -> bool:
        return Path(dataset.folder).expanduser().exists()

    @classmethod
    def opened(cls, dataset: TextFolder) -> KeptColumns:
        listing = once_listed(dataset.folder, dataset.key("folder"), TEXTS)
        if listing.refused:
            refused = listing.refused.items()
            raise EtlrunError([fault(listing.folder / path, why, "a text", "remove it") for path, why in refused])
        labels = {str(listing.folder / of.path): of.label for files in listing.splits.values() for of in files}
        stamps = stamps_of(labels, "a text")
        content = [*contents_of(stamps, "a text").values()]
        listed = {name: [[file.path, file.label] for file in files] for name, files in listing.splits.items()}
        notes = [*notes_on(listing, TEXTS)]
        identity = digest([_FORMAT, dataset.errors, listed, content, notes])
        rows = {name: len(files) for name, files in listing.splits.items()}

        def write(folder: Path) -> None:
            with closing(KeptWriter(folder, _SCHEMA)) as writer:
                for batch in _batches(dataset, labels, notes):
                    writer.add(batch)
                file_rows = [1] * len(labels)
                writer.finish(rows=rows, identity=identity, title=dataset.title, notes=notes, file_rows=file_rows)

        return kept_as(dataset, identity, stamps, write, KeptColumns)


def text_of(data: bytes, errors: str) -> str:
    """Return the text of a file in UTF-8, without a byte order mark; `errors` are as in `bytes.decode`."""
    return data.decode("utf-8-sig", errors)


def _batches(dataset: TextFolder, labels: Mapping[str, str], notes: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the texts of files and their `labels`, some at once; add to `notes` how many are repaired."""
    texts, held, broken = list[str](), 0, list[str]()
    with progress() as begin:
        advance, names = begin("Reading texts", len(labels)), iter(labels.values())
        for number, path in enumerate(labels, 1):
            try:
                data = Path(path).read_bytes()
            except OSError as error:
                raise EtlrunError([unreadable_path(path, error, "a text")]) from error
            if data.startswith(POINTER) and (found := format_fault(path)) is not None:
                raise EtlrunError([found])
            try:
                texts.append(text_of(data, "strict"))
            except UnicodeDecodeError:
                broken.append(path)
                texts.append(text_of(data, "replace"))
            held += len(data)
            if number == len(labels) or len(texts) == _AT_ONCE or held > _AT_ONCE_BYTES:
                some = texts, islice(names, len(texts))
                yield pa.RecordBatch.from_arrays([pa.array(of, pa.large_string()) for of in some], schema=_SCHEMA)
                advance(len(texts))
                texts, held = [], 0
    if not broken:
        return
    count = f"{len(broken):,} text{'s are' if broken[1:] else ' is'} not in UTF-8"
    if dataset.errors == "strict":
        faults = filter(None, (format_fault(path) or encoding_fault(path) for path in broken[:_NAMED]))
        more = f"; {count}" if broken[1:] else ""
        raise EtlrunError([replace(of, found=f"{of.found}{more}") for of in faults])
    notes.append(f"{count}: U+FFFD is read for what can't be decoded.")
