"""Rows as a source: records are numbers of rows, of which the parser takes columns, and reads files of images."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from etlrun.remote.copies import named_by_url
from etlrun.sources.base import Example, OnDisk, Problem, Slice, Source, Split
from etlrun.sources.content import digest, is_as
from etlrun.sources.corrupt import problem
from etlrun.sources.folder import FileContent
from etlrun.sources.framing import POINTER
from etlrun.sources.listing import DIGITS, TEXTS, notes_on, once_listed
from etlrun.sources.rows.dividing import Numbers, RowsPart, divided
from etlrun.sources.rows.kept import Array, KeptColumns, KeptWriter, contents_of, kept_as
from etlrun.sources.rows.read import encoding_fault, format_fault
from etlrun.sources.rows.table import kept_of
from etlrun.sources.shards import matched, unmatched
from etlrun.stages.flow import MISSING, MISSING_TIME
from etlrun.stages.lazy import tf
from etlrun.stages.paths import is_remote
from etlrun.stages.rows import Rows, Table, TextFolder
from etlrun.system.errors import EtlrunError, WorldError, fault, refuse, unreadable_path
from etlrun.system.hidden import is_closed
from etlrun.system.terminal import progress

if TYPE_CHECKING:
    from etlrun.cache.keeper import Compare

NO_FILE = os.fsencode(os.devnull)
"""An empty file, which is decoded to an error at once."""
_DIGITS = "0" * DIGITS


def paths_in(kept: KeptColumns, name: str, rows: Numbers) -> Array:
    """Return the paths of the image files that a column has in some rows, as bytes; empty where there is none.

    Those that are not absolute are in the folder of the table's file.
    """
    files, stamps = np.searchsorted(kept.ends[:-1], rows, side="right").tolist(), [*kept.stamps]
    folders = {file: os.fsencode(Path(stamps[file]).absolute().parent) for file in {*files}}
    pairs = zip(files, kept.take(name, rows).tolist(), strict=True)
    found = (b"" if path in (MISSING, b"") else os.path.join(folders[file], path) for file, path in pairs)  # noqa: PTH118
    return np.array([*found], object)


def files_read(kept: KeptColumns, name: str, rows: Numbers) -> Array:
    """Return the same paths; of an empty file in the place of those that name no file."""
    return np.array([of if os.path.isfile(of) else NO_FILE for of in paths_in(kept, name, rows).tolist()], object)  # noqa: PTH113 - of many files


def read_files(paths: tf.Tensor, compare: Callable[..., tf.Tensor] | None) -> tf.Tensor:
    """Return the bytes of the files with these paths (string tensors of the same shape), compared if that is asked."""
    data = tf.map_fn(tf.io.read_file, paths) if paths.shape.rank else tf.io.read_file(paths)
    return data if compare is None else compare(tf.strings.join([_DIGITS, paths]), data)


def contents(kept: KeptColumns, rows: Numbers) -> dict[str, FileContent]:
    """Return the content of the image files of some rows, by column; those that are missing have none."""
    found = {}
    for name in (name for name, column in kept.known.columns.items() if column.is_path):
        files = [*map(os.fsdecode, paths_in(kept, name, rows).tolist())]
        found[name] = FileContent(files, [0] * len(files), {*filter(os.path.isfile, files)})
    return found


def refused_in(kept: KeptColumns, row: int) -> Problem | None:
    """Return why the first image of a row that can't be used can't be; None if all can be."""
    rows = np.array([row])
    for name, column in kept.known.columns.items():
        where = name
        if column.feature.format != "image":
            continue
        if column.is_path:
            path = os.fsdecode(paths_in(kept, name, rows)[0])
            where = f"{name} {path}"
            if not os.path.isfile(path):  # noqa: PTH113 - as above
                return Problem(f"{where}: no such file" if path else f"no {name}", "an image file")
            data = Path(path).read_bytes()
        else:
            data = kept.take(name, rows)[0]
        if (found := Problem("no value", "an encoded image") if data == MISSING else problem(data)) is not None:
            return Problem(f"{where}: {found.reason}", found.expected)
    return None


Gather = Callable[["tf.Tensor"], "tf.Tensor"]


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


def numbers_of(values: np.ndarray, classes: Sequence[str]) -> np.ndarray:
    """Return the places of values among the names of classes; -1 for one that is none of them."""
    places = {name: place for place, name in enumerate(classes)}
    plain = (values if values.dtype == object else values.astype(np.int64)).tolist()  # classes are named 0 and 1
    return np.array([places.get(of.decode() if isinstance(of, bytes) else str(of), -1) for of in plain], np.int64)


class RowContent:
    """Content of some rows, by the content of their files and their numbers; a file that is changed later counts.

    Its digest is that of the rows alone. Images in files of their own, by column, count beside it.
    """

    def __init__(self, kept: KeptColumns, rows: Numbers) -> None:
        digest = hashlib.sha256(kept.known.identity.encode())
        digest.update(np.ascontiguousarray(rows).data)
        self.digest: str | None = digest.hexdigest()[:16]
        self._kept, self._rows = kept, rows

    @cached_property
    def _images(self) -> dict[str, FileContent]:
        return contents(self._kept, self._rows)

    def files(self, *, whole: bool) -> list[list[object]]:
        """Return the digest, under one name, and what identifies the images of each column."""
        images = self._images.items()
        return [["rows", self.digest], *([f"{name} of rows", of.files(whole=whole)[0][1]] for name, of in images)]

    @property
    def compared(self) -> Callable[[], Compare] | None:
        """Function that returns what compares the images of a pass; None if there are none in files of their own."""
        return self._comparing if any(of.is_path for of in self._kept.known.columns.values()) else None

    def _comparing(self) -> Compare:
        several = [of.compared() for of in self._images.values()]

        def compare(record: Any, data: Any) -> None:
            for one in several:
                one(record, data)

        return compare

    def changed(self) -> str | None:
        """Return the path of a file that is another one than at first; None if there is none."""
        found = next((path for path, stamp in self._kept.stamps.items() if not is_as(path, stamp)), None)
        return found or next(filter(None, (of.changed() for of in self._images.values())), None)


class RowsSource(Source):
    """Rows whose columns are kept; see the classes derived from it for where they come from."""

    dataset: Rows
    repair: ClassVar[str] = "repair the row"
    noun_of_shards: ClassVar[str] = "file"
    noun_of_records: ClassVar[str] = "row"
    is_read_by_parser: ClassVar[bool] = True

    def __init__(self, dataset: Rows, kept: KeptColumns | None = None) -> None:
        """Open the kept columns, unless they are given; raise `EtlrunError` if they aren't yet and can't be read."""
        self.dataset, self.kept = dataset, kept or self.opened(dataset)
        self.full_name, self.identity, self.home = dataset.title, "rows", str(self.kept.folder)
        classes = dataset.known.classes if dataset.known else ()
        self.class_names, self.num_classes = classes or None, len(classes) or None
        self.notes = self.kept.known.notes

    @property
    def limits(self) -> dict[str, int]:
        features = self.dataset.examples.features  # of a text, a step on the columns makes the number of its class
        return {name: count for name, count in super().limits.items() if features[name].dtype != "string"}

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
        are_parted = any(part.ends is not None for part in parts.values())
        count = (lambda name, start, stop: len(parts[name].slice(start, stop))) if are_parted else None
        return OnDisk(full_name=dataset.title, sizes=sizes, count=count)

    @cached_property
    def counts(self) -> dict[str, int]:
        return {name: len(part.rows) for name, part in self._parts.items()}

    def combine(self, name: str, parts: Sequence[Slice]) -> Split:
        of_parts = [self._parts[part].slice(start, stop) for part, start, stop in parts]
        return self.numbered(name, of_parts[0] if len(of_parts) == 1 else np.concatenate(of_parts))

    def content(self, split: Split) -> RowContent:
        return RowContent(self.kept, split.numbers)

    def paths(self, split: Split) -> Iterable[str]:
        return self.kept.stamps

    def refused(self, split: Split) -> Callable[[int], Problem | None]:
        return lambda place: refused_in(self.kept, int(split.numbers[place]))

    def read(self, split: Split, path: Any, skip: Any, take: Any) -> tf.data.Dataset:
        # with a copy, since TensorFlow may write to what a function returns
        rows = tf.ensure_shape(tf.numpy_function(split.numbers.copy, [], tf.int64), (None,))
        return tf.data.Dataset.from_tensor_slices(rows[skip : skip + take])

    def labels(self, split: Split) -> Numbers:
        return numbers_of(self.kept.take(self.dataset.examples.target, split.numbers), self.class_names or ())

    def place(self, number: int) -> tuple[str, int | None]:
        path, row = self.kept.place(number)
        ends = self.kept.ends
        return path, None if len(ends) > 1 and ends[-1] == len(ends) else row  # each file is one row

    def empty(self, name: str, parts: Sequence[Slice], where: str) -> WorldError:
        by = self.dataset.splits_by
        if by is None or all(self._parts[part].ends is None for part, _, _ in parts):
            return super().empty(name, parts, where)
        found = f"no rows in '{name}' of {self.full_name}, where rows of one {by.column} stay together"
        return WorldError(where, found, "at least one", "choose a larger part of the split, or another column")

    @property
    def _parts(self) -> dict[str, RowsPart]:
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
                    found[name] = read_files(found[name], compare) if name in paths else found[name]
            return found

        return parse


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
_AT_ONCE, _AT_ONCE_BYTES, _NAMED = 4_096, 32_000_000, 5
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
        stamps, contents = contents_of(labels, "a text")
        listed = {name: [[file.path, file.label] for file in files] for name, files in listing.splits.items()}
        notes = [*notes_on(listing, TEXTS)]
        identity = digest([_FORMAT, dataset.errors, listed, [*contents.values()], notes])
        rows = {name: len(files) for name, files in listing.splits.items()}

        def write(folder: Path) -> None:
            with closing(KeptWriter(folder, _SCHEMA)) as writer:
                for batch in _batches(dataset, labels):
                    writer.add(batch)
                file_rows = [1] * len(labels)
                writer.finish(rows=rows, identity=identity, title=dataset.title, notes=notes, file_rows=file_rows)

        return kept_as(dataset, identity, stamps, write, KeptColumns)


def text_of(data: bytes, errors: str) -> str:
    """Return the text of a file in UTF-8, without a byte order mark; `errors` are as in `bytes.decode`."""
    return data.decode("utf-8-sig", errors)


def _batches(dataset: TextFolder, labels: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Yield the texts of files and their `labels`, some at once; raise `EtlrunError` for those that are none."""
    rows, held, broken = list[dict[str, str]](), 0, list[str]()
    with progress() as begin:
        advance = begin("Reading texts", len(labels))
        for number, (path, label) in enumerate(labels.items(), 1):
            text = ""
            try:
                text = text_of(Path(path).read_bytes(), dataset.errors)
            except OSError as error:
                raise EtlrunError([unreadable_path(path, error, "a text")]) from error
            except UnicodeDecodeError:
                broken.append(path)
            if text.startswith(POINTER.decode()):
                refuse([format_fault(path)], EtlrunError)
            rows.append({"text": text, "label": label})
            held += len(text)
            if number == len(labels) or len(rows) == _AT_ONCE or held > _AT_ONCE_BYTES:
                yield pa.RecordBatch.from_pylist(rows, _SCHEMA)
                advance(len(rows))
                rows, held = [], 0
    faults = filter(None, (format_fault(path) or encoding_fault(path) for path in broken[:_NAMED]))
    count = f"; {len(broken):,} texts are not in UTF-8" if broken[1:] else ""
    refuse((replace(of, found=f"{of.found}{count}") for of in faults), EtlrunError)
