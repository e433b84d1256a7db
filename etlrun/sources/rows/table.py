"""Tables of one or several files: their columns, and their rows, which are kept by their content.

Large files are read twice, for the types of their columns and for their rows.
"""

import json
import re
import urllib.parse
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from etlrun.cache.store import folder_of
from etlrun.remote.copies import Copies, copied, name_of, named_by_url
from etlrun.remote.objects import Object
from etlrun.sources.content import Stamp
from etlrun.sources.rows.kept import KeptColumns, KeptWriter, contents_of, kept_as
from etlrun.sources.rows.kinds import (
    TIMES,
    FoundKinds,
    Kind,
    Kinds,
    Seen,
    composed,
    converted,
    field_of,
    first_unfit,
    has_any,
    has_blanks,
    joined,
    kind_in_common,
    shown,
    stripped,
)
from etlrun.sources.rows.read import (
    OR_REPLACE,
    ColumnarFile,
    ExamplesFile,
    TableFile,
    TextLinesFile,
    each_read,
    ending,
    is_gzip,
    names_beside,
)
from etlrun.sources.rows.text_files import DelimitedFile, JsonLinesFile
from etlrun.sources.shards import named_by_split
from etlrun.stages.base import parameters
from etlrun.stages.column_numbers import items
from etlrun.stages.paths import is_remote
from etlrun.stages.rows import Rows, Table
from etlrun.system.errors import EtlrunError, Fault, WorldError, did_you_mean, one_line, override, refuse
from etlrun.system.terminal import progress
from etlrun.system.values import sha256_of


def values_of_folders(path: str) -> dict[str, str | None]:
    """Return the values in the names of the folders of a path or URL, by column; None for one that is missing."""
    named = (part.partition("=") for part in path.replace("\\", "/").split("/")[:-1])
    values = {urllib.parse.unquote(name): value for name, is_one, value in named if name and is_one}
    missing = "__HIVE_DEFAULT_PARTITION__"
    return {name: None if value == missing else urllib.parse.unquote(value) for name, value in values.items()}


def _lines(path: str, dataset: Table) -> TableFile:
    return (DelimitedFile if dataset.dialect.get("separator") else TextLinesFile)(path, dataset)


_Open = Callable[[str, Table], TableFile]
_FORMATS: dict[str, _Open] = {
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz"), DelimitedFile),
    **dict.fromkeys((".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz"), JsonLinesFile),
    **dict.fromkeys((".parquet", ".feather", ".arrow"), ColumnarFile),
    ".tfrecord": ExamplesFile,
    **dict.fromkeys((".txt", ".txt.gz"), _lines),
}
"""Formats of tables by the ends of the names of their files."""
ENDS = ", ".join(end for end in _FORMATS if not end.endswith(".gz")) + ", or .gz behind one of text"


def has_format(path: str) -> bool:
    """Return whether the name of a file is that of a table."""
    return _format(path) is not None


def _format(path: str) -> _Open | None:
    return next((opened for end, opened in _FORMATS.items() if ending(path).endswith(end)), None)


_HELD_BYTES = 64_000_000
"""Bytes of files whose rows stay in memory from the first reading, of types, to the second."""


class Tables:
    """The files of a table, whose columns have been compared and whose types are known.

    Attributes:
        files: Files of each split.
        kinds: Kinds of the columns by name, in order.
        left_out: What columns have that are not kept, by name.
        schema: Types in which the columns are kept.
    """

    def __init__(self, dataset: Table, paths: Mapping[str, list[str]], advance: Callable[[int], None]) -> None:
        """Open files, compare their columns, and infer types from all rows; `advance` is called with those read.

        Raises:
            EtlrunError: A file is no table, or has other columns than the first one.
        """
        self.files = {split: [opened_file(path, dataset) for path in of] for split, of in paths.items()}
        self._strip, self._with_blanks = dataset.strip, set[str]()
        several = [file for of in self.files.values() for file in of]
        room = _HELD_BYTES
        for file, folders in zip(several, of_folders(dataset, [of.path for of in several]), strict=True):
            file.folders = folders
            file.is_held = (room := room - file.bytes) >= 0 and not is_gzip(file.path)
        self.first, *others = several
        _require_same(dataset, self.first, others)
        found, self._noted = _inferred(dataset, several, advance)
        self.left_out = {name: what for file in several for name, what in file.left_out.items()}
        self.left_out |= {name: "values that dataset.exclude leaves out" for name in found if name in dataset.unread}
        declared: Kinds = dataset.columns
        self.kinds: Kinds = {
            name: "zoned" if kind == "zoned" and declared.get(name) in TIMES else declared.get(name) or kind or "number"
            for name, kind in found.items()
            if name not in self.left_out
        }
        if not self.kinds:
            of_first = f" in {self.first.name}"
            odd = "; ".join(f"{name}, which has {what.removesuffix(of_first)}" for name, what in self.left_out.items())
            expected = "numbers, truth values, texts, dates or timestamps, in one column at least"
            raise WorldError(self.first.path, odd, expected, "write others")
        told = {name: {"items": "texts"} for file in several for name in file.joined}
        self.schema = pa.schema([field_of(name, of, told.get(name)) for name, of in self.kinds.items()])

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader may not expect of the rows that have been read, a sentence each."""
        stay = "has blanks around values, which stay: dataset.strip=true removes them."
        blank = (f"{name} {stay}" for name in self.kinds if name in self._with_blanks)
        return tuple(dict.fromkeys((*blank, *self._noted)))

    def read(self, file: TableFile) -> Iterable[pa.RecordBatch]:
        """Return the rows of a file as `batches`, all of them if it is small."""
        return [*self.batches(file)] if file.is_small else self.batches(file)

    def batches(self, file: TableFile) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, in order, in the types of the schema."""
        first = 0
        own = {name: kind for name, kind in self.kinds.items() if name in file.names}
        with _explained(file.path):
            for batch in file.batches(own):
                columns, faults = list[pa.Array](), list[Fault]()
                for name in self.kinds:
                    if name in own:
                        values = batch.column(name)
                    else:
                        values = pa.repeat(pa.scalar(file.folders[name], pa.string()), batch.num_rows)
                    try:
                        columns.append(self._as_kept(file, name, values, first))
                    except WorldError as error:
                        faults += error.faults
                refuse(faults, EtlrunError)
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
                first += batch.num_rows

    def _as_kept(self, file: TableFile, name: str, values: pa.Array, first: int) -> pa.Array:
        """Return values of a file, the first of which is that of row `first`, as they are kept."""
        found = _checked(file, name, values, self.kinds[name], first)
        if self.kinds[name] != "text":
            return found
        found = composed(found)
        if self._strip:
            return stripped(found)
        if name not in self._with_blanks and has_blanks(found):
            self._with_blanks.add(name)
        return found


def of_folders(dataset: Table, paths: Sequence[str]) -> list[dict[str, str | None]]:
    """Return the columns that the names of folders have, by path: those with several values, or that are declared."""
    found = [values_of_folders(name_of(path)) for path in paths]
    names = dict.fromkeys(name for of in found for name in of)
    several = [name for name in names if name in dataset.columns or len({of.get(name, "") for of in found}) > 1]
    return [{name: of[name] for name in several if name in of} for of in found]


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Report a file that can't be read, or whose compressed bytes are damaged."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        is_cut_off = is_gzip(path) and getattr(error, "errno", None) is None
        raise WorldError(
            path,
            "compressed bytes that are cut off or damaged" if is_cut_off else one_line(error),
            "a file that can be read",
            "check its permissions and its storage, or write it again",
        ) from error


def _checked(file: TableFile, name: str, values: pa.Array, kind: Kind, first: int) -> pa.Array:
    """Return the values of a batch in the type of a kind; raise `WorldError` for one that is not of it."""
    try:
        found = converted(values, kind)
        found.validate(full=kind == "text")  # which Arrow does not when it reads files of columns
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        place, value = first_unfit(values, kind)
        raise WorldError(
            f"{file.where(first + place)}, {name}",
            shown(value) or "an empty text",
            "text in UTF-8" if kind == "text" else f"a value of type {kind}",
            f"repair the value{OR_REPLACE}"
            if kind == "text"
            else f"{_repair(value, file)}, or set another type by {override('dataset.columns', name, 'text')}",
        ) from error
    if kind in ("number", "whole", "numbers") and has_any(infinite := pc.is_inf(items(found))):
        place = pc.index(infinite, value=True).as_py()
        place = pc.list_parent_indices(found)[place].as_py() if kind == "numbers" else place
        raise WorldError(
            f"{file.where(first + place)}, {name}",
            f"{shown(values[place].as_py())}, which is infinite as a number",
            "finite numbers",
            "repair the value, or leave it empty as missing",
        )
    return found


def _repair(value: object, file: TableFile) -> str:
    """Return what to do with a value that is no number, perhaps since it is written with commas."""
    text = str(value).strip()
    marks = next((marks for marks, form in _COMMAS.items() if re.fullmatch(form, text)), "")
    if not marks or not isinstance(file, DelimitedFile):
        return "repair the value"
    return f"write numbers with a decimal point, as by pandas: read_csv({file.name!r}, {marks})"


_COMMAS = {
    'thousands=","': r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?",
    'decimal=",", thousands="."': r"[+-]?\d{1,3}(\.\d{3})+,\d+",
    'decimal=","': r"[+-]?\d+,\d+",
}
"""Numbers that are written with commas, by what reads them."""


def _require_same(dataset: Table, first: TableFile, others: Sequence[TableFile]) -> None:
    """Raise `EtlrunError` for files with other columns than the first one, and columns of a config that it lacks."""
    where, what, expected = dataset.key("columns"), "a column that the files don't have", ", ".join(first.columns)
    strange = [name for name in dataset.columns if name not in first.columns]
    unknown = [Fault(f"{where}.{of}", what, f"one of {expected}", did_you_mean(of, first.columns)) for of in strange]
    faults, remedy = list[Fault](), "write the same columns to all files, or leave one of them out of dataset.files"
    for file in others:  # the order of their columns may be another
        if other := ({*first.columns} ^ {*file.columns}) - dataset.unread:
            found, columns = f"columns that differ in {', '.join(sorted(other))}", f"the columns of {first.path}"
            faults.append(Fault(file.path, found, columns, remedy))
    refuse(faults or unknown, EtlrunError)


def _inferred(
    dataset: Table, files: Sequence[TableFile], advance: Callable[[int], None]
) -> tuple[FoundKinds, list[str]]:
    first, origins, notes = files[0], dict[str, TableFile](), list[str]()
    kinds: FoundKinds = dict.fromkeys(first.names)
    for name in first.columns[len(kinds) :]:  # those of folders
        values = Seen()
        values.add(pa.array([of.folders[name] for of in files], pa.string()), 0)
        kinds[name] = values.kind

    for file, found in _kinds_of(files):
        advance(1)
        notes += file.notes()
        for name in [of for of in first.names if found.get(of) is not None and of not in dataset.unread]:
            kind = joined(before := kinds[name], found[name])
            is_mixed = kind == "text" and {before, found[name]} - {None, "text"} and name in origins
            if is_mixed and name not in dataset.columns:
                notes.append(_mixed(name, origins[name], before, file, found[name]))
            kinds[name] = kind
            origins.setdefault(name, file)
    return kinds, notes


_AT_ONCE = 256
"""Small files of which the kinds of columns are found together."""


_Waiting = list[tuple[DelimitedFile, list[pa.RecordBatch]]]


def _kinds_together(waiting: _Waiting) -> Iterator[tuple[TableFile, FoundKinds]]:
    """Yield these files with the kinds of their columns, and remove them from the list."""
    found, held = FoundKinds(), [batch for _, of in waiting for batch in of]
    is_one_table = len({frozenset(file.names) for file, _ in waiting}) == 1 and all(of for _, of in waiting)
    for name in waiting[0][0].names if is_one_table and len(waiting) > 1 else ():
        if (kind := kind_in_common([batch.column(name) for batch in held])) is not None:
            found[name] = kind
    yield from ((file, file.kinds(found)) for file, _ in waiting)
    waiting.clear()


def _kinds_of(files: Sequence[TableFile]) -> Iterator[tuple[TableFile, FoundKinds]]:
    """Yield files with the kinds of their columns: a look at each column takes as long for many small ones."""

    def read(file: TableFile) -> list[pa.RecordBatch] | FoundKinds:
        with _explained(file.path):
            if isinstance(file, DelimitedFile) and file.is_held and file.is_small:
                return file.texts()
            return file.kinds()

    waiting: _Waiting = []
    try:
        for file, of in each_read(files, read):
            if isinstance(file, DelimitedFile) and isinstance(of, list):
                waiting.append((file, of))
            if len(waiting) == _AT_ONCE or not isinstance(of, list):
                yield from _kinds_together(waiting)
            if not isinstance(of, list):
                yield file, of
    except EtlrunError:
        yield from _kinds_together(waiting)  # whose faults come first
        raise
    yield from _kinds_together(waiting)


def opened_file(path: str, dataset: Table) -> TableFile:
    """Return a file of a table, which is opened; raise `WorldError` if it is none."""
    found = _format(path)
    assert found is not None  # noqa: S101 - its name has been looked at
    with _explained(path):
        return found(path, dataset)


def _mixed(name: str, one: TableFile, kind: Kind | None, other: TableFile, found: Kind | None) -> str:
    """Return the note on a column that is text since two files differ; raise `WorldError` if theirs are types."""
    if isinstance(one, DelimitedFile) and isinstance(other, DelimitedFile):
        return f"{name} is text: its values are of type {kind} in {one.name}, and {found} in {other.name}."
    raise WorldError(
        f"{other.path}, {name}",
        f"values of type {found}",
        f"values of type {kind}, as in {one.path}",
        f"write the files with one type, or set {override('dataset.columns', name, 'text')}",
    )


def files_of(dataset: Table) -> dict[str, list[str]]:
    """Return the paths of the files of each split; objects that URLs name are fetched first, each once.

    Raises:
        EtlrunError: A pattern names no file or not all shards, or a file that is no table, or one of another split; or
            an object can't be fetched.
    """
    objects, faults = dict[str, Object](), list[Fault]()
    files = named_by_split(dataset, f"a pattern of files that end in {ENDS}", objects, faults)
    faults += [
        Fault(path, "a file of another name", f"one that ends in {ENDS}", "rename it")
        for path in dict.fromkeys(path for paths in files.values() for path in paths)
        if not has_format(objects[path].name if path in objects else path)
    ]
    refuse([*faults, *_of_two_splits(dataset, files)], EtlrunError)
    places = copied(objects, Copies(folder_of(dataset.dir), dataset.storage or {}))
    return {split: [places.get(path, path) for path in paths] for split, paths in files.items()}


def _of_two_splits(dataset: Table, files: Mapping[str, list[str]]) -> Iterator[Fault]:
    """Yield a fault for each file that is in a split before, by whatever path: its rows would be trained on, too."""
    splits: dict[str | Path, str] = {}
    for split, paths in files.items() if len(files) > 1 else ():
        for path in paths:
            if (before := splits.setdefault(path if is_remote(path) else Path(path).resolve(), split)) != split:
                yield Fault(
                    dataset.key("files"),
                    f"{path} in {before} and in {split}",
                    "each file in one split",
                    "leave it out of one of them; one split may be both trained on and evaluated",
                )


@named_by_url()
def names_of(dataset: Table) -> Sequence[str]:
    """Return the names of the columns of the first file; raise `EtlrunError` if there is none, or it is no table."""
    paths = [path for of in files_of(dataset).values() for path in of]
    first = opened_file(paths[0], dataset)
    first.folders = of_folders(dataset, paths)[0]
    return first.columns


_FORMAT = 14
"""Version of the format of kept columns, and of the code that reads files."""
_READ = ("columns", "missing", "strip", "errors", "csv")
"""Parameters of how files are read."""
_EXACT = 2.0**53


def kept_of(dataset: Table) -> KeptColumns:
    """Return the columns of a dataset, which are read and written first if they are not kept yet.

    Raises:
        EtlrunError: A file is missing, can't be read, or is no table.
    """
    files, stamps, identity = _identified(dataset)
    write = partial(write_table, identity=identity, dataset=dataset, paths=files)
    return kept_as(dataset, identity, stamps, write, KeptColumns)


def identity_of(dataset: Table) -> str:
    """Return the identity of the columns of a dataset, whether or not they are kept; raise `EtlrunError` as above."""
    return _identified(dataset)[-1]


def _identified(dataset: Table) -> tuple[dict[str, list[str]], dict[str, Stamp], str]:
    files = files_of(dataset)
    stamps, contents = contents_of((path for paths in files.values() for path in paths), "a table")
    read = {name: [[Path(path).name, contents[path]] for path in paths] for name, paths in files.items()}
    how = {of.name: of.value for of in parameters(dataset) if of.name in _READ and not of.is_default}
    folders = {Path(path).parent: path for path in stamps if ".tfrecord" in path}
    names = [found for path in folders.values() if (found := names_beside(path))]
    how |= {"classes": names} if names else {}
    how |= {"exclude": sorted(dataset.unread)} if dataset.unread else {}
    columns = of_folders(dataset, [path for paths in files.values() for path in paths])
    how |= {"folders": columns} if any(columns) else {}
    text = json.dumps([_FORMAT, pa.__version__.split(".")[0], read, how], default=str, sort_keys=True)
    return files, stamps, sha256_of(text)


def or_a_value(dataset: Rows, name: str) -> str:
    """Return the end of a remedy for missing values: texts of csv and tsv that stand for none may be values."""
    is_text = dataset.found.columns[name].feature.dtype == "string"
    if not is_text or not isinstance(dataset, Table) or not re.search(r"\.[ct]sv", str(dataset.files)):
        return ""
    marks = " or ".join(filter(None, dataset.missing))
    return marks and f", or, if {marks} is a value, leave it out of dataset.missing"


def write_table(folder: Path, identity: str, dataset: Table, paths: dict[str, list[str]]) -> None:
    """Read the types of the columns of files and their rows, and write these."""
    total, rows, file_rows = sum(map(len, paths.values())), {}, list[int]()
    with progress() as begin, ExitStack() as stack:
        tables = Tables(dataset, paths, begin("Reading types (files)", total))
        writer = stack.enter_context(closing(KeptWriter(folder, tables.schema)))
        advance = begin("Reading rows (files)", total)
        for split, files in tables.files.items():
            before = len(file_rows)
            for _, batches in each_read(files, tables.read):
                file_rows.append(0)
                for batch in batches:
                    writer.add(batch)
                    file_rows[-1] += batch.num_rows
                advance(1)
            rows[split] = sum(file_rows[before:])
            if not rows[split]:
                where, remedy = ", ".join(paths[split]), "write the files again, or choose others"
                raise WorldError(where, f"no rows for {split}", "at least one row", remedy)
        faults = [
            Fault(
                f"dataset.columns.{name}",
                f"missing values, and integers from {column.feature.low:.0f} to {column.feature.high:.0f}",
                "integers below 2**53 where some are missing, since these are read as floats",
                f"set {override('dataset.columns', name, 'numbers' if column.feature.is_sequence else 'number')} for "
                "rounded floats, or text for codes",
            )
            for name, column in writer.columns.items()
            if tables.kinds[name] in ("integer", "integers")
            and column.missing
            and max(abs(column.feature.low or 0), abs(column.feature.high or 0)) >= _EXACT
        ]
        refuse(faults, EtlrunError)
        writer.finish(
            rows=rows,
            identity=identity,
            title=dataset.title,
            notes=tables.notes,
            file_rows=file_rows,
            left_out=tables.left_out,
            of_folders=[name for name in tables.kinds if name not in tables.first.names],
        )
