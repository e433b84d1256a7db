"""Datasets of rows: examples that are read by number, of which the columns are kept in mapped files."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, InstanceOf, WithJsonSchema

from etlrun.stages.base import DATA, TRAINING, Data, Expected, Speed, Text
from etlrun.stages.dataset import (
    SPLIT_BY_EXPECTED,
    TARGETS_OF_ROWS,
    Dataset,
    Described,
    OfFiles,
    SplitBy,
    Target,
    Written,
    faults_of,
    unfit_targets,
)
from etlrun.stages.flow import Faults, Feature, Flow
from etlrun.stages.made import user_path
from etlrun.stages.paths import FILES_EXPECTED, Files, OptionalPath, is_remote, without_secrets
from etlrun.stages.plugins import ROWS
from etlrun.system.shell import BARE, pasted
from etlrun.system.values import Block, frozen

Type = Literal["text", "integer", "number", "truth", "timestamp", "integers", "numbers", "image", "image file"]


BETWEEN = "\x1f"
"""What stands between the items of lists of texts: ASCII's separator of units."""


@frozen
class Column:
    """What is known of a column after all of its rows have been read.

    Attributes:
        feature: Its type.
        missing: Number of rows without a value.
        distinct: Number of different values; None if there are more than `MOST_COUNTED`.
        is_joined: Whether its texts are lists of texts, kept with `BETWEEN` between their items.
        is_path: Whether its images are in files, of which it has the paths: absolute, or from the folder of the table.
    """

    feature: Feature
    missing: int = 0
    distinct: int | None = None
    is_joined: bool = False
    is_path: bool = False

    @property
    def type(self) -> Type:
        """Its type as `dataset.columns` names it; an integer that may be missing is a number."""
        feature = self.feature
        if feature.format == "image":
            return "image file" if self.is_path else "image"
        if feature.is_sequence:
            return "integers" if "int" in feature.dtype else "numbers"
        if feature.format == "timestamp":
            return "timestamp"
        if feature.has_missing and self.distinct and feature.low is None and feature.dtype == "float64":
            return "truth"  # which are floats where some are missing, and have no ends
        by_dtype: dict[str, Type] = {"string": "text", "bool": "truth"}
        return by_dtype.get(feature.dtype, "integer" if "int" in feature.dtype else "number")


_AT_ONCE_BYTES = 16_000_000
MOST_COUNTED = 10_000
"""Different values of a column up to which they are counted."""


@frozen
class Known:
    """What is known of a dataset of rows after it has been read and kept.

    Attributes:
        columns: All columns by name, in the order of the data.
        rows: Number of rows of each split of the data.
        identity: First 16 hex digits of a SHA-256 over the content and how it is read.
        held_bytes: Size of the kept columns.
        classes: Values of a target that is a class, in the order of their indices; empty for others.
        notes: What a reader of the data may not expect, a sentence each.
        folder: Folder of the kept columns; empty if there is none.
        file_rows: Number of rows of each file, in the order of the files; empty if a file has all rows.
        left_out: What columns of the data have that can't be kept, by name.
        of_folders: Columns that the names of folders have, and no file.
        splits: Notes on the splits of a run: what they are if a column decides it, and equal rows in both.
        sets: What is known of the other rows of named validation sets, by their names.
    """

    columns: Mapping[str, Column]
    rows: Mapping[str, int]
    identity: str
    held_bytes: int
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    folder: str = ""
    file_rows: tuple[int, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    of_folders: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    sets: Mapping[str, Known] = field(default_factory=dict)

    def rows_at_once(self, most: int) -> int:
        """Return how many rows to work on at once: `most` at the most, and of large ones what takes some megabytes."""
        fitting = _AT_ONCE_BYTES * sum(self.rows.values()) // self.held_bytes if self.held_bytes else most
        return max(1, min(most, fitting))


Errors = Literal["strict", "replace"]
"""What becomes of texts that are not UTF-8."""

TYPES = "text, integer, number, truth, timestamp, integers, numbers, image or image file"

_Target = Annotated[dict[Text, Described], Field(min_length=1)]
_Arrays = (
    Annotated[str, Field(pattern=r"\.npz$")]
    | Annotated[dict[Annotated[str, Field(pattern=r"^\w+$")], Text], Field(min_length=1)]
)
_ARRAYS_EXPECTED = "the path or URL of an .npz, or a mapping from columns to paths or URLs of .npy"
_Types = dict[Text, Type]
_EMPTY = BeforeValidator(lambda given: {} if given is None else given, json_schema_input_type=_Types | None)
"""Takes null, in whose place Hydra takes a mapping, for an empty one."""
_Csv = dict[Literal["separator", "quote", "escape"], Annotated[str, Field(pattern=r"^([ -~\t]|\\t)$")] | None]
_CSV_EXPECTED = "a mapping from separator, quote or escape to a character of ASCII or null; or null"
_OF_ARROW = {"separator": "delimiter", "quote": "quote_char", "escape": "escape_char"}


@frozen
class Rows(Dataset):
    """A dataset of rows with named columns; see the classes derived from it for where they come from.

    Attributes:
        target: Columns to predict, such as `{price: number}`. `binary` is one of two classes, and the model gives the
            probability of the second: `true`, `yes` or 1, or else the last in order. `{number: standardize}` trains on
            standard deviations, and predicts in the column's own units. `labels` are several labels at once, as lists
            of texts or as arrays with a 0 or a 1 for each; `{labels: ','}` as texts with this between two labels. Each
            of several targets may have a `weight` of its loss.
        weight: Column with the weight of a row in the loss and the metrics, which is no input; null for equal weights.
        inputs: Columns that are inputs; null for all but the target.
        exclude: Columns that are no inputs, such as `[id]`; nothing is read of those of tables. Null for none.
        order: `random` reads the rows of each split in one fixed random order, so that a part of a split is a sample of
            it; `file` in that of the data.
        split_by: Column that decides which rows a split has; null for their place in `order`. `{time: sold}`, `{group:
            customer}` and `{stratify: kind}` decide what a part such as `train[:80%]` is; `{column: fold, train: [0,
            1], validation: [2]}` names splits.
        dir: Folder of the kept columns; null for the user's cache folder.
        known: What reading has found; null before.
        printed_columns: Function in `printed` that returns the columns of each split.
    """

    printed = "etlrun.eject.printed.rows"
    printed_columns: ClassVar[str] = "columns"

    target: Annotated[_Target, Expected(f"a mapping from columns to {TARGETS_OF_ROWS}"), DATA, TRAINING]
    weight: Annotated[Text | None, DATA, TRAINING] = None
    inputs: Data[tuple[Text, ...] | None]
    exclude: Data[tuple[Text, ...] | None] = None
    order: Data[Literal["random", "file"]]
    split_by: Annotated[Written | None, Expected(SPLIT_BY_EXPECTED), DATA] = None
    dir: Speed[OptionalPath]
    known: Annotated[
        InstanceOf[Known] | None, WithJsonSchema({"type": "null"}), Expected("null, since reading the rows finds it")
    ] = field(default=None, compare=False, repr=False)

    @property
    def printed_as(self) -> dict[str, str]:  # type: ignore[override] # of each way to split them
        by = self.splits_by
        own = {} if by is None else {"in_splits": "in_splits_by_value"} if by.values else {"taken": "taken_by_value"}
        return {"columns": self.printed_columns, **own}

    @property
    def constants(self) -> Block:
        features, by = self.examples.features, self.splits_by
        read = features if by is None else {**features, by.column: self.found.columns[by.column].feature}
        types = {name: (self.found.columns[name].type, of.dtype) for name, of in read.items()}
        found: Block = {"TYPES": types, "FEATURES": [*features], "CLASSES": list(self.found.classes)}
        found |= {"ORDER": self.order, "STRIP": False, "ERRORS": "strict"}
        return found if by is None else {**found, **by.constants}

    def read_by(self, pipeline: str) -> Self:
        other = super().read_by(pipeline)
        if other is self:
            return self
        known = None if self.known is None else self.known.sets.get(pipeline)
        return dataclasses.replace(other, split_by=None, known=known)  # whose rows are no part of those that it cuts

    @property
    def found(self) -> Known:
        """What reading has found."""
        assert self.known is not None  # noqa: S101 - plans are made after reading
        return self.known

    @cached_property
    def targets(self) -> tuple[Target, ...]:
        """The columns to predict, in the order of the config."""
        columns = self.known.columns if self.known else {}
        joined = {name for name, of in columns.items() if of.is_joined}
        return tuple(Target.of(name, of, BETWEEN if name in joined else None) for name, of in self.target.items())

    @property
    def loss_weights(self) -> dict[str, float]:
        return {target.name: target.weight for target in self.targets}

    def without(self, names: Sequence[str]) -> str:
        """Return the override, for a shell, that leaves these columns out of the inputs."""
        key, left = "exclude", [*self.excluded, *names]
        if self.inputs is not None:
            key, left = "inputs", [name for name in self.inputs if name not in names]
        listed = ",".join(name if BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False) for name in left)
        return pasted(f"{self.key(key)}=[{listed}]")

    @property
    def excluded(self) -> tuple[str, ...]:
        """Columns that are no inputs, though all others are."""
        return self.exclude or ()

    @property
    def unread(self) -> set[str]:
        """Columns that nothing is read of: those that are excluded, unless rows are split by one."""
        used = (self.splits_by.column if self.splits_by else "", self.weight, *self.target, *(self.inputs or ()))
        return {*self.excluded}.difference(used)

    @property
    def splits_by(self) -> SplitBy | None:
        """How a column decides which rows a split has; None if none does."""
        return None if self.split_by is None else SplitBy.of(self.split_by)

    def faults(self) -> Faults:
        yield from super().faults()
        yield from unfit_targets(self.target)
        for found, expected, remedy in faults_of(self.split_by) if self.split_by is not None else ():
            yield "split_by", found, expected, remedy

    def rules(self) -> Faults:
        is_one = "which is the target" if len(self.target) == 1 else "which is a target"
        for name in self.target:
            if name in (self.inputs or ()):
                yield "inputs", f"{name}, {is_one}", "other columns", "leave it out"
        if self.weight in (self.inputs or ()):
            yield "inputs", f"{self.weight}, which is the weight", "other columns", "leave it out"
        uses: dict[str | None, str] = {name: f"which {self.key('inputs')} names" for name in self.inputs or ()}
        uses[self.weight] = "which is the weight"
        uses |= dict.fromkeys(self.target, is_one)
        for name in (of for of in self.excluded if of in uses):
            yield "exclude", f"{name}, {uses[name]}", "other columns", "leave it out"
        if self.weight in self.target:
            yield "weight", f"{self.weight}, {is_one}", "another column", f"set {self.key('weight')}=null"

    @cached_property
    def examples(self) -> Flow:  # which each of thousands of columns asks for
        known = self.found.columns
        others = (*self.target, self.weight, *self.excluded)
        features = {name: known[name].feature for name in self.inputs or known if name not in others}
        for of in self.targets:
            is_class, is_binary = of.kind in ("class", "binary"), of.kind == "binary"
            target = known[of.name].feature.replace(is_class=is_class, is_binary=is_binary)
            features[of.name] = target.replace(is_labels=of.kind == "labels")
        if self.weight is not None:
            features[self.weight] = known[self.weight].feature
        return Flow(features=features, targets=tuple(self.target), weight=self.weight or "", record="row number")


@frozen
class Table(OfFiles, Rows):
    r"""Rows of tables: csv, tsv, JSON lines, Parquet, Feather or TFRecord files.

    Attributes:
        files: Files, such as `part-*.parquet` or `s3://bucket/part-*.parquet`, which are the split `train`; or those of
            each split, such as `{train: train.csv, validation: val.csv}`. URLs are fetched once, into the folder of the
            kept columns.
        missing: Texts of a csv or tsv that stand for no value.
        strip: Whether blanks around texts are removed.
        columns: Types of columns that are not inferred, such as `{zip: text, day: timestamp}`.
        errors: `strict` refuses texts that are not UTF-8; `replace` puts U+FFFD for what can't be decoded.
        csv: How csv and tsv are written, such as `{separator: ';', quote: null, escape: "\\"}`: what separates values,
            also in a `.txt`; what encloses one, null for nothing; and what escapes the character behind it.
    """

    source = "etlrun.sources.rows.source:TableSource"

    files: Annotated[Files, Expected(FILES_EXPECTED), DATA]
    missing: Data[tuple[str, ...]]
    strip: Data[bool]
    columns: Annotated[_Types, _EMPTY, Expected(f"a mapping from columns to {TYPES}; or null"), DATA]
    errors: Data[Errors] = "strict"
    csv: Annotated[_Csv | None, Expected(_CSV_EXPECTED), DATA] = None

    def faults(self) -> Faults:
        yield from super().faults()
        marks = [*filter(None, {"quote": '"', **self.dialect}.values())]
        if len({*marks}) < len(marks):
            yield "csv", self.csv, "different characters", "set another one, or quote: null"

    @property
    def dialect(self) -> dict[str, str | None]:
        """What `csv` says of files."""
        return {name: "\t" if mark == r"\t" else mark for name, mark in (self.csv or {}).items()}

    @property
    def types(self) -> _Types:
        """Types of all columns, declared or found."""
        return {name: column.type for name, column in self.found.columns.items()} | self.columns

    @property
    def constants(self) -> Block:
        files = {name: [user_path(pattern) for pattern in of] for name, of in self.patterns.items()}
        return {
            **super().constants,
            "FILES": files,
            "FOLDERS": tuple(self.found.of_folders),
            "BLANK": list(self.missing),
            "STRIP": self.strip,
            "ERRORS": self.errors,
            "CSV": {"newlines_in_values": True}
            | {_OF_ARROW[of]: mark or False for of, mark in self.dialect.items() if mark or of != "separator"},
        }


@frozen
class Arrays(OfFiles, Rows):
    """Rows of arrays of NumPy: one array a column, of which the first dimension are the rows.

    Attributes:
        files: The `.npy` of each column, such as `{x: x.npy, y: y.npy}`, or an `.npz`, whose members are the columns.
            All rows are the split `train`. URLs are fetched once, into `dir`.
    """

    source = "etlrun.sources.rows.arrays:ArraysSource"
    printed_columns = "columns_of_arrays"

    files: Annotated[_Arrays, Expected(_ARRAYS_EXPECTED), DATA]

    @property
    def is_archive(self) -> bool:
        """Whether the columns are the members of an `.npz`."""
        return isinstance(self.files, str)

    @property
    def paths(self) -> dict[str, str]:
        """Paths of the files, by column unless they are all in one."""
        return {"": self.files} if isinstance(self.files, str) else dict(self.files)

    @property
    def constants(self) -> Block:
        found = super().constants
        files = {name: user_path(self.paths["" if self.is_archive else name]) for name in found["TYPES"]}
        return {**found, "FILES": files}


@frozen
class TextFolder(Rows):
    """Rows of text files in a folder for each class, with the columns `text` and `label`, the name of the class.

    Attributes:
        folder: The folder of the classes, or of splits such as `train` with classes in them; without these, all files
            are the split `train`. They are ordered by the SHA-256 of their paths in it.
        errors: `strict` refuses texts that are not UTF-8; `replace` puts U+FFFD for what can't be decoded.
    """

    source = "etlrun.sources.rows.source:TextFolderSource"
    printed_columns = "columns_of_texts"
    given_by = "folder"

    folder: Annotated[Text, Expected("the path of a folder on this machine"), DATA]
    errors: Data[Errors]

    def faults(self) -> Faults:
        yield from super().faults()
        if is_remote(self.folder):
            remedy = "copy it here, or write its texts as JSON lines, which dataset=table reads from URLs"
            yield "folder", without_secrets(self.folder), "the path of a folder on this machine", remedy

    @property
    def constants(self) -> Block:
        return {**super().constants, "DIR": user_path(self.folder), "ERRORS": self.errors}


@frozen
class Python(Rows):
    """Rows that a function of an installed package returns.

    Attributes:
        of: Name of its entry point in the group `etlrun.datasets`: see docs/extending.md. All rows are the split
            `train`.
    """

    source = "etlrun.sources.rows.arrays:PythonSource"
    printed_columns = "columns_of_function"
    given_by = "of"

    of: Data[Text]

    @property
    def entries(self) -> list[EntryPoint]:
        """Entry points of that name; one, unless packages are missing or at odds."""
        return [entry for entry in _installed(tuple(sys.path)) if entry.name == self.of]

    @property
    def constants(self) -> Block:
        return {**super().constants, "FUNCTION": self.entries[0].value}

    @property
    def restore(self) -> str:
        return "restore the package that the rows come from"


@cache
def _installed(_paths: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the functions of the packages in these paths, which are listed once for many plans."""
    return tuple(entry_points(group=ROWS))
