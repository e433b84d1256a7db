"""Tables of one or several files: their columns, and their rows as batches of the types that are kept."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial

import pyarrow as pa
import pyarrow.compute as pc

from etlrun.remote.copies import name_of
from etlrun.sources.rows.columnar import ColumnarFile
from etlrun.sources.rows.delimited import DelimitedFile
from etlrun.sources.rows.json_lines import JsonLinesFile
from etlrun.sources.rows.kinds import (
    TYPES,
    Kind,
    Seen,
    composed,
    composed_note,
    converted,
    first_unfit,
    has_any,
    has_blanks,
    joined,
    stripped,
)
from etlrun.sources.rows.lines import OR_REPLACE, Dialect, ending, is_gzip, shown
from etlrun.sources.rows.of_folders import values_of_folders
from etlrun.sources.rows.read import TableFile, each_read
from etlrun.sources.rows.text_lines import TextLinesFile
from etlrun.stages.column_numbers import items
from etlrun.stages.rows import Table
from etlrun.system.errors import EtlrunError, Fault, WorldError, did_you_mean, override

_Open = Callable[[str, Table], TableFile]


def _delimited(usual: str) -> _Open:
    return lambda path, of: DelimitedFile(
        path, Dialect(usual, of.dialect), missing=of.missing, strip=of.strip, errors=of.errors
    )


def _lines(path: str, of: Table) -> TableFile:
    if separator := of.dialect.get("separator"):
        return _delimited(separator)(path, of)
    return TextLinesFile(path, next(iter(of.columns), "text"), of.errors)


_EXAMPLES = "etlrun.sources.rows.examples"
"""Module that imports what plans do without."""
_FORMATS: dict[str, _Open] = {
    ".csv": _delimited(","),
    ".csv.gz": _delimited(","),
    ".tsv": _delimited("\t"),
    ".tsv.gz": _delimited("\t"),
    **dict.fromkeys((".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz"), lambda path, of: JsonLinesFile(path, of.errors)),
    ".parquet": lambda path, of: ColumnarFile(path, of.errors, is_parquet=True),
    **dict.fromkeys((".feather", ".arrow"), lambda path, of: ColumnarFile(path, of.errors, is_parquet=False)),
    ".tfrecord": lambda path, of: importlib.import_module(_EXAMPLES).ExamplesFile(path, of.errors),
    **dict.fromkeys((".txt", ".txt.gz"), _lines),
}
"""Formats of tables by the ends of the names of their files."""
ENDS = ", ".join(end for end in _FORMATS if not end.endswith((".gz", ".txt"))) + ", or .gz behind one of text"


def has_format(path: str) -> bool:
    """Return whether the name of a file is that of a table."""
    return _format(path) is not None


def _format(path: str) -> _Open | None:
    return next((opened for end, opened in _FORMATS.items() if ending(path).endswith(end)), None)


@dataclass(frozen=True)
class Tables:
    """The files of a table, whose columns have been compared and whose types are known.

    Attributes:
        files: Files of each split.
        kinds: Kinds of the columns by name, in order.
        noted: What a reader may not expect of them, a sentence each.
        strip: Whether blanks around texts are removed.
        left_out: What columns have that are not kept, by name.
    """

    files: Mapping[str, list[TableFile]]
    kinds: Mapping[str, Kind]
    noted: tuple[str, ...]
    strip: bool
    left_out: Mapping[str, str]
    _with_blanks: set[str] = field(default_factory=set)
    _composed: set[str] = field(default_factory=set)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader may not expect of the rows that have been read, a sentence each."""
        stay = "has blanks around values, which stay: dataset.strip=true removes them."
        blank = (f"{name} {stay}" for name in self.kinds if name in self._with_blanks)
        in_nfc = (composed_note(name) for name in self.kinds if name in self._composed)
        repaired = (note for files in self.files.values() for file in files for note in file.notes_on_repairs())
        return (*blank, *in_nfc, *repaired, *self.noted)

    @property
    def of_folders(self) -> list[str]:
        """Names of the columns that the names of folders have, and no file."""
        first = next(iter(self.files.values()))[0]
        return [name for name in self.kinds if name not in first.names]

    @cached_property
    def schema(self) -> pa.Schema:
        """Types in which the columns are kept."""
        joined = {name for files in self.files.values() for file in files for name in file.joined}
        metadata = {name: {"items": "texts"} for name in joined}
        return pa.schema([pa.field(name, TYPES[of], metadata=metadata.get(name)) for name, of in self.kinds.items()])

    def read(self, file: TableFile) -> Iterable[pa.RecordBatch]:
        """Return the rows of a file as `batches`, all of them if it is small."""
        return [*self.batches(file)] if file.is_small else self.batches(file)

    def batches(self, file: TableFile) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, in order, in the types of the schema."""
        first = file.num_repaired = 0  # rows have been counted with their types
        own = {name: kind for name, kind in self.kinds.items() if name in file.names}
        for batch in _readable(file.path, file.batches(own)):
            columns = [
                self._as_kept(name, _checked(file, name, _column(file, name, batch), kind, first))
                for name, kind in self.kinds.items()
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
            first += batch.num_rows

    def _as_kept(self, name: str, values: pa.Array) -> pa.Array:
        if self.kinds[name] != "text":
            return values
        before, values = values, composed(values)
        if values is not before and has_any(pc.not_equal(values, before)):
            self._composed.add(name)
        if self.strip:
            return stripped(values)
        if name not in self._with_blanks and has_blanks(values):
            self._with_blanks.add(name)
        return values


def _column(file: TableFile, name: str, batch: pa.RecordBatch) -> pa.Array:
    """Return a column of a batch of a file, which its folders have if the file does not."""
    if name in file.names:
        return batch.column(name)
    return pa.repeat(pa.scalar(file.folders[name], pa.string()), batch.num_rows)


def of_folders(dataset: Table, paths: Sequence[str]) -> list[dict[str, str | None]]:
    """Return the columns that the names of folders have, by path: those with several values, or that are declared."""
    found = [values_of_folders(name_of(path)) for path in paths]
    names = dict.fromkeys(name for of in found for name in of)
    several = [name for name in names if name in dataset.columns or len({of.get(name, "") for of in found}) > 1]
    return [{name: of[name] for name in several if name in of} for of in found]


def _readable(path: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with _explained(path):
        yield from batches


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Report a file that can't be read, or whose compressed bytes are damaged."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        is_cut_off = is_gzip(path) and getattr(error, "errno", None) is None
        raise WorldError(
            path,
            "compressed bytes that are cut off or damaged" if is_cut_off else " ".join(str(error).split()),
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
            else f"repair the value, or set another type by {override('dataset.columns', name, 'text')}",
        ) from error
    if kind in ("number", "whole", "numbers") and has_any(infinite := pc.is_inf(items(found))):
        place = pc.index(infinite, value=True).as_py()
        place = pc.list_parent_indices(found)[place].as_py() if kind == "numbers" else place
        raise WorldError(
            f"{file.where(first + place)}, {name}",
            f"{shown(values[place].as_py())}, which is infinite as a number",
            "finite numbers",
            "repair the value, or leave it empty, which is missing",
        )
    return found


def opened(dataset: Table, paths: Mapping[str, list[str]], advance: Callable[[TableFile], None]) -> Tables:
    """Open files, compare their columns, and infer types from all rows; `advance` is called as they are read.

    Raises:
        EtlrunError: A file is no table, or has other columns than the first one.
    """
    files = {split: [opened_file(path, dataset) for path in of] for split, of in paths.items()}
    several = [file for of in files.values() for file in of]
    for file, named in zip(several, of_folders(dataset, [of.path for of in several]), strict=True):
        file.folders = named
    first = several[0]
    if faults := [fault for file in several[1:] if (fault := _differing(first, file))]:
        raise EtlrunError(faults)
    declared = _declared(dataset, first)
    kinds: dict[str, Kind | None] = dict.fromkeys(first.names)
    kinds |= {name: _kind_of_folders(several, name) for name in first.columns if name not in first.names}
    origins: dict[str, TableFile] = {}
    notes: list[str] = []
    if not any(isinstance(file, DelimitedFile) for file in several):
        given = {"missing": {*dataset.missing} - {"", "NA", "null"}, "csv": dataset.csv}
        idle = (name for name, value in given.items() if value)
        notes += [f"{dataset.key(name)} is about csv and tsv alone: it changes nothing here." for name in idle]
    times: dict[str, set[Kind | None]] = {name: set() for name, kind in declared.items() if kind == "timestamp"}

    def read(file: TableFile) -> dict[str, Kind | None]:
        with _explained(file.path):
            return file.kinds(declared, (lambda: None) if file.is_small else partial(advance, file))

    for file, found in each_read(several, read):
        advance(file)
        notes += file.notes()
        for name, of in times.items():
            of.add(found.get(name))
        for name in [name for name in first.names if name not in declared and found.get(name) is not None]:
            kind = joined(kinds[name], found[name])
            if kind == "text" and {kinds[name], found[name]} - {None, "text"} and name in origins:
                notes.append(_mixed(name, origins[name], kinds[name], file, found[name]))
            kinds[name] = kind
            origins.setdefault(name, file)
    zoned: dict[str, Kind] = {name: "zoned" for name, of in times.items() if of - {None} == {"zoned"}}
    left_out = {name: what for file in several for name, what in file.left_out.items()}
    known = {
        name: zoned.get(name) or declared.get(name) or kind or "number"
        for name, kind in kinds.items()
        if name not in left_out
    }
    if not known:
        expected, remedy = "numbers, truth values, texts, dates or timestamps, in one column at least", "write others"
        raise EtlrunError(
            [
                Fault(f"{first.path}, {name}", what.removesuffix(f" in {first.name}"), expected, remedy)
                for name, what in left_out.items()
            ]
        )
    return Tables(files, known, tuple(dict.fromkeys(notes)), dataset.strip, left_out)


def _kind_of_folders(files: Sequence[TableFile], name: str) -> Kind | None:
    values = Seen()
    values.add(pa.array([of.folders[name] for of in files], pa.string()), 0)
    return values.kind


def opened_file(path: str, dataset: Table) -> TableFile:
    """Return a file of a table, which is opened; raise `WorldError` if it is none."""
    found = _format(path)
    assert found is not None  # noqa: S101 - its name has been looked at
    with _explained(path):
        return found(path, dataset)


def _differing(first: TableFile, file: TableFile) -> Fault | None:
    """Return the fault of a file that has other columns than the first one; their order may be another."""
    lacking = [name for name in first.columns if name not in file.columns]
    beside = [name for name in file.columns if name not in first.columns]
    if not lacking and not beside:
        return None
    named = [f"without {', '.join(lacking)}"] * bool(lacking) + [f"with {', '.join(beside)}"] * bool(beside)
    return Fault(
        file.path,
        f"columns {' and '.join(named)}",
        f"the columns of {first.path}",
        "write the same columns to all files, or leave one of them out of dataset.files",
    )


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


def _declared(dataset: Table, first: TableFile) -> dict[str, Kind]:
    """Return the kinds that the config declares; raise `EtlrunError` for columns that the files don't have."""
    faults = [
        Fault(
            f"{dataset.key('columns')}.{name}",
            "a column that the files don't have",
            f"one of {', '.join(first.columns)}",
            did_you_mean(name, first.columns),
        )
        for name in dataset.columns
        if name not in first.columns
    ]
    if faults:
        raise EtlrunError(faults)
    return dict(dataset.columns)
