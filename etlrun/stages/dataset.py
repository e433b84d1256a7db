"""Datasets: their splits, their features, and where they come from."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from itertools import chain, filterfalse
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field

from etlrun.stages.base import (
    DATA,
    SPEED,
    TRAINING,
    Data,
    Expected,
    OptionalPositive,
    OptionalText,
    Positive,
    Speed,
    Stage,
    Text,
)
from etlrun.stages.flow import ITEM_BYTES, Faults, Feature, Flow
from etlrun.stages.made import user_path
from etlrun.stages.objectives import Kinds
from etlrun.stages.paths import (
    FILES_EXPECTED,
    STORAGE_EXPECTED,
    Files,
    Keep,
    OptionalPath,
    Storage,
    is_remote,
    of_this_machine,
    unfit_storage,
    with_secrets,
)
from etlrun.system.values import Block, frozen

Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Options = dict[Literal["standardize", "separator", "weight"], bool | Weight | Annotated[str, Field(min_length=1)]]
_Described = dict[Kinds, Annotated[str, Field(min_length=1)] | _Options]
Described = Kinds | Annotated[_Described, Field(min_length=1, max_length=1)]
"""A target as a config describes it."""
TARGETS_OF_ROWS = (
    "class, binary, labels or number, or one of them with its options, such as {number: standardize}, "
    "{labels: '|'} or {class: {weight: 0.5}}"
)
_OPTIONS: dict[Kinds, dict[str, tuple[type, str]]] = {
    "class": {},
    "binary": {},
    "labels": {"separator": (str, "the text between two labels, such as ','")},
    "number": {"standardize": (bool, "true or false")},
}


@frozen
class Target:
    """A target of rows.

    Attributes:
        name: Name of its column.
        kind: What it is.
        weight: Weight of its loss in the sum of those of several targets.
        standardize: Whether the loss counts a number in standard deviations.
        separator: Text between the labels of a row; None if a column has a number for each.
    """

    name: str
    kind: Kinds
    weight: float = 1.0
    standardize: bool = False
    separator: str | None = None

    @classmethod
    def of(cls, name: str, described: Any, separator: str | None) -> Self:
        """Return the target that a config describes; `separator` stands between labels, unless it says another text."""
        kind, options = parsed(described)
        known = {key: value for key, value in options.items() if key in ("weight", *_OPTIONS[kind])}
        return cls(name=name, kind=kind, **({"separator": separator} if kind == "labels" else {}) | known)

    @property
    def options(self) -> Block:
        """The options that targets of its kind have, with their values."""
        return {name: getattr(self, name) for name in _OPTIONS[self.kind]}


def parsed(described: Any) -> tuple[Any, Block]:
    """Return the kind of a target that a config describes, and its options."""
    kind, options = next(iter(described.items())) if isinstance(described, dict) else (described, {})
    if isinstance(options, str):
        options = {"separator": options} if kind == "labels" else {options: True}
    return kind, options


def unfit_targets(target: Mapping[str, Any]) -> Faults:
    """Yield the faults of the names and the options of targets: key, found, expected, and the remedy."""
    for name, (kind, options) in ((name, parsed(of)) for name, of in target.items()):
        if len(target) > 1 and not re.fullmatch(r"[\w.-]+", name, re.ASCII):
            expected = "a name of letters, digits and _.- of each of several targets, by which Keras names their losses"
            yield f"target.{name}", f"the column {name!r}", expected, "give the column another name"
        if "weight" in options and len(target) == 1:
            expected = "none with a single target"
            yield f"target.{name}.{kind}.weight", options["weight"], expected, "leave it out"
        known = {**_OPTIONS.get(kind, {}), "weight": (float, "a positive number")}
        for key, value in options.items():
            where = f"target.{name}.{kind}.{key}"
            if key not in known:
                yield where, f"an option of {kind}", f"one of {', '.join(known)}", "leave it out"
            elif not isinstance(value, known[key][0]):
                yield where, value, known[key][1], ""


SPLIT_EXPECTED = "splits such as train, train[:80%] or train[100:200], joined by +"
_PERCENT = r"(\d\d?|100)%"
FILES = rf"\w+(\[(-?(\d+|{_PERCENT}))?:(-?(\d+|{_PERCENT}))?\])?"
_PARTIAL = r"(\d\d?(\.\d*)?|\.\d+|100(\.0*)?)%"
_END = rf"-?(\d[\d_]*(shard)?|{_PARTIAL})"
TFDS = rf"[\w-]+(\[({_END}:({_END})?|:{_END}|-?\d[\d_]*shard)\])?"
"""Regular expressions of a part of a split: of the sources of files, and in TFDS's slicing language."""


def malformed(split: str, language: str) -> Iterator[str]:
    """Yield the parts of a split that are none in a language."""
    yield from (part for each in split.split("+") if not re.fullmatch(language, part := each.strip()))


Value = str | int | bool
BY = ("column", "group", "stratify", "time")
"""Keys of `dataset.split_by`, of which it has one: what it does with the values of the column."""
SPLIT_BY_EXPECTED = "{time: COLUMN}, {group: COLUMN}, {stratify: COLUMN}, {column: COLUMN, train: [VALUES], …}, or null"

_Values = Annotated[tuple[Value, ...], Field(min_length=1)]
Written = dict[Annotated[str, Field(pattern=r"^\w+$")], Annotated[str, Field(min_length=1)] | _Values]
"""Type of `dataset.split_by`."""


@frozen
class SplitBy:
    """How the rows of a dataset are split.

    Attributes:
        by: `time`: a slice has the rows from one value of the column to another. `group`: all rows of a value are in
            one slice. `stratify`: each value has the same share in each slice. `column`: splits are named, and have the
            rows of some values.
        column: Name of the column.
        values: Values of the column in each split, for `column` alone.
    """

    by: str
    column: str
    values: Mapping[str, tuple[Value, ...]]

    @classmethod
    def of(cls, written: Written) -> SplitBy:
        """Return what a config has written, which has no faults."""
        by = next(key for key in BY if key in written)
        values = {name: tuple(of) for name, of in written.items() if name not in BY}
        return cls(by=by, column=str(written[by]), values=values)

    @property
    def constants(self) -> Block:
        """Constants of these functions, by name."""
        values = {name: list(of) for name, of in self.values.items()}
        return {"SPLIT_BY": self.by, "SPLIT_COLUMN": self.column, "SPLIT_VALUES": values}


def faults_of(written: Written) -> Iterator[tuple[object, str, str]]:
    """Yield what is wrong with `dataset.split_by` by itself: what was found, what is expected, and the remedy."""
    by = [key for key in BY if key in written]
    if len(by) > 1:
        remedy = f"keep one: ~dataset.split_by.{by[0]} removes {by[0]}"
        yield ", ".join(written), f"one of the keys {', '.join(BY)}", remedy
        return
    values: Block = {name: of for name, of in written.items() if name not in BY}
    is_of_lists = bool(values) and not any(isinstance(of, str) for of in values.values())
    fits = is_of_lists if by == ["column"] else not values
    if not by or not isinstance(written[by[0]], str) or not fits:
        yield written, SPLIT_BY_EXPECTED, ""
        return
    splits: dict[tuple[type, Value], str] = {}
    for split, of in values.items():
        for value in of:
            before = splits.setdefault((type(value), value), split)
            if before != split or of.count(value) > 1:
                where = f"{before} and in {split}" if before != split else f"{split} twice"
                yield f"{value} in {where}", "each value once", "leave it out of one of them"
                return


STRINGS: dict[str, Feature] = {
    "class": Feature(dtype="int64", is_class=True),
    "image": Feature(dtype="string", format="image"),
    "text": Feature(dtype="string", format="text"),
}
_NUMBERS = rf"(?P<dtype>{'|'.join(ITEM_BYTES)})( (?P<shape>[1-9]\d*(x[1-9]\d*)*))?"
_UNNAMED = re.sub(r"\?P<\w+>", "", _NUMBERS)
_TYPES = "types such as float32, uint8 28x28, class, image or text"
_Type = Annotated[str, Field(pattern=rf"^({'|'.join(STRINGS)}|{_UNNAMED})$")]
_OF_TARGETS = r"number|binary|(class|labels) [1-9]\d{0,5}"
_TargetType = Annotated[str, Field(pattern=rf"^({'|'.join(STRINGS)}|{_OF_TARGETS}|{_UNNAMED})$")]
_Weighted = Annotated[dict[_TargetType, dict[Literal["weight"], Weight]], Field(min_length=1, max_length=1)]

Features = Annotated[dict[Text, _Type], Field(min_length=1)]
"""Names of features with their types; for an array also its shape: `float32 28x28`."""
Targets = Annotated[dict[Text, _TargetType | _Weighted], Field(min_length=1)]
"""Names of features to predict with their types, or with these and the weight of their loss."""
FEATURES = f"a mapping from names of features to {_TYPES}, or null"
TARGETS = (
    f"a mapping from names of features to {_TYPES}, to number, binary, class 3 or labels 5, or to one of them with its "
    "options, such as {class 3: {weight: 0.5}}; or null"
)


def feature_of(declared: str) -> Feature:
    """Return the feature of a declared type."""
    found = re.fullmatch(_NUMBERS, declared)
    if found is None:
        return STRINGS[declared]
    return Feature(dtype=found["dtype"], shape=tuple(int(side) for side in (found["shape"] or "").split("x") if side))


def target_of(declared: Any) -> Feature:
    """Return the feature of a declared target."""
    text, _ = parsed(declared)
    kind, _, count = text.partition(" ")
    names = tuple(map(str, range(int(count) if kind in ("class", "labels") and count else 2)))
    if kind == "number":
        return feature_of("float32")
    if kind == "binary":
        return STRINGS["class"].replace(is_binary=True, classes=names)
    if kind == "labels":
        return Feature(dtype="int64", shape=(len(names),), low=0, high=1, is_labels=True, classes=names)
    return STRINGS["class"].replace(classes=names) if kind == "class" and count else feature_of(text)


_Sets = Annotated[dict[Text, Text | Annotated[dict[Text, Any], Field(min_length=1)]], Field(min_length=1)]
_SETS = "a mapping from names to splits, or to other files of the same kind, such as "
OptionalSets = Annotated[_Sets | None, Expected(_SETS + "{hard: 'test[:50%]', next_year: {files: 2025.csv}}; or null")]
_NAME = r"(?!(train|val|validation)$|val_)[\w-]+"
_NAMES = "a name of letters, digits, _ and -, which is none of train, val, validation, nor one that begins with val_"

SAMPLE_NAME = "etlrun_sample"
"""The dataset that etlrun draws by itself."""
IMAGE, LABEL = "image", "label"
"""Names of the features of an example, unless a config names others."""

_VERSION = Annotated[str, Field(pattern=r"^((\d+|\*)\.(\d+|\*)\.(\d+|\*)|experimental_latest)$")]


@frozen
class Dataset(Stage):
    """The examples of a run; see the classes derived from it for where they come from.

    Attributes:
        name: A name in TFDS, `etlrun_sample`, or the name of another option, such as `table`.
        split: Training examples, in TFDS's slicing language.
        eval_split: Validation examples; null for none.
        eval_splits: Validation sets by name, measured after each epoch: a split, or other `files` of the same kind,
            whose split is `train` unless `split` names one.
        on_corrupt: `raise` ends the run at the first corrupt record; `skip` skips and counts them.
        source: Module and name of the class that reads it, a `Source`.
        printed: Module of the functions that read it in a program; empty if programs can't.
        slicing: Regular expression of a part of its splits.
        is_of_tfds: Whether TFDS finds its files.
        printed_as: Functions of `printed` by the names that they have in a program, if these are others.
        given_by: Field that says where the examples are.
    """

    path = "dataset"
    source: ClassVar[str]
    printed: ClassVar[str] = ""
    printed_as: ClassVar[Mapping[str, str]] = {}
    slicing: ClassVar[str] = FILES
    is_of_tfds: ClassVar[bool] = False
    given_by: ClassVar[str] = "files"

    name: Data[Text]
    split: Data[Text]
    eval_split: Data[OptionalText]
    eval_splits: Data[OptionalSets] = None
    on_corrupt: Data[Literal["raise", "skip"]]

    @classmethod
    def key_of(cls, pipeline: str) -> str:
        """Return the dotted key of what a pipeline reads: `train`, `validation`, or a named validation set."""
        own = {"train": "split", "validation": "eval_split"}
        return cls.key(own[pipeline]) if pipeline in own else f"{cls.key('eval_splits')}.{pipeline}"

    @property
    def sets(self) -> Mapping[str, Any]:
        """What a config has written of each named validation set."""
        return self.eval_splits or {}

    @property
    def splits(self) -> dict[str, str]:
        """The split that each pipeline reads: `train`, `validation` if there is one, and the named validation sets."""
        own = {"train": self.split} | ({} if self.eval_split is None else {"validation": self.eval_split})
        return own | {name: of if isinstance(of, str) else of.get("split", "train") for name, of in self.sets.items()}

    def read_by(self, pipeline: str) -> Self:
        """Return the dataset that a pipeline reads: this one, or the other files of a named validation set."""
        given = self.sets.get(pipeline)
        if given is None or isinstance(given, str):
            return self
        changes: Block = {"split": self.splits[pipeline], self.given_by: given[self.given_by]}
        return dataclasses.replace(self, eval_split=None, eval_splits=None, **changes)

    def faults(self) -> Faults:
        for name, split in self.splits.items():
            for part in malformed(split, self.slicing) if not isinstance(self.sets.get(name), dict) else ():
                key, found = self.key_of(name).removeprefix("dataset."), f"{split!r}, which is no split"
                found = found if part == split else f"{split!r}, of which {part!r} is no split"
                files = f", or {{{self.given_by}: ...}} for other data" * (name in self.sets and "[" not in part)
                yield key, found, SPLIT_EXPECTED, f"write NAME or NAME[FROM:TO], such as train[:80%]{files}"
        for name, given in self.sets.items():
            if not re.fullmatch(_NAME, name, re.ASCII):
                yield f"eval_splits.{name}", f"the name {name!r}", _NAMES, "give the set another name"
            if not isinstance(given, str) and not {self.given_by} <= given.keys() <= {self.given_by, "split"}:
                expected = f"a split, or {{{self.given_by}: ...}}, perhaps with `split`"
                yield f"eval_splits.{name}", given, expected, f"name what the set reads by `{self.given_by}`"

    def as_it_is(self) -> Self:
        """Return the same dataset, which is not prepared if it is missing."""
        return self

    def without_download(self) -> Self:
        """Return the same dataset, which is not downloaded if it is missing; the sample is made without a network."""
        return self if self.name == SAMPLE_NAME else self.as_it_is()

    @property
    def patterns(self) -> Mapping[str, tuple[str, ...]]:
        """Patterns of its files by split, or their folder; empty if it has none."""
        given: Any = getattr(self, self.given_by, None)
        splits = given if isinstance(given, Mapping) else {"train": given} if given else {}
        return {split: (of,) if isinstance(of, str) else of for split, of in splits.items()}

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of its files, or of their folder; empty if all are on this machine."""
        return tuple(filter(is_remote, chain(*self.patterns.values())))

    @property
    def constants(self) -> Block:
        """Values of the constants that differ from program to program, by name: those of the functions in `printed`."""
        return {}

    @property
    def loss_weights(self) -> dict[str, float]:
        """Weights of the losses of the targets, by name."""
        return dict.fromkeys(self.examples.targets, 1.0)

    @property
    def restore(self) -> str:
        """What to do if the data are not those that an earlier run has read."""
        return f"restore the files, or set {self.key(self.given_by)} to a copy of those"

    @property
    def title(self) -> str:
        """Name in messages and programs."""
        first = next(chain(*self.patterns.values()), "")
        return self.name if self.is_of_tfds or not first else PurePath(first).name or first

    @property
    def keys(self) -> dict[str, str]:
        """Keys of the features in the dataset, by name."""
        return {name: name for name in self.examples.features}

    @property
    def stored(self) -> dict[str, tuple[Any, ...]]:
        """Key, shape, and dtypes in a serialised example and in a pipeline, of the features by name."""
        features = ((name, key, self.examples.features[name]) for name, key in self.keys.items())
        return {name: (key, of.shape, of.stored, of.dtype) for name, key, of in features}

    @property
    def examples(self) -> Flow:
        """The flow before anything is read: records with these features."""
        raise NotImplementedError


@frozen
class OfFiles(Dataset):
    """A dataset of files on this machine, or of URLs.

    Attributes:
        storage: Options of the store of URLs, such as `{anon: true}`; null for its library's own.
    """

    storage: Annotated[Storage | None, Expected(STORAGE_EXPECTED), SPEED] = None

    def faults(self) -> Faults:
        yield from super().faults()
        for found in with_secrets(self.urls):
            yield self.given_by, *found
        for found in unfit_storage(self.storage or {}):
            yield "storage", *found


@frozen
class Declared(OfFiles):
    """A dataset of serialised examples: images with one label each, or declared features.

    Attributes:
        image_key: Feature with the image, unless `features` names others.
        label_key: Feature with the class, unless `target` names another.
        features: Inputs of the model with their types, such as `{width: float32}`; null for the image alone.
        target: Features to predict with their types, such as `{price: float32}`; null for the class. `number` is
            float32, `binary` one of two classes, `labels 5` a 0 or a 1 for each of 5 labels. Of several targets each
            may have a `weight` of its loss, and a class has its number of classes.
        weight: Feature with the weight of an example in the loss and the metrics, which is no input; null for equal
            weights. It is float32 unless `features` has its type.
        keep: How much of what is fetched from URLs stays on this machine: above a size, files that were read are
            removed.
        copies: Folder of what is fetched; null for the user's cache folder.
    """

    image_key: Data[Text]
    label_key: Data[Text]
    features: Annotated[Features | None, Expected(FEATURES), DATA] = None
    target: Annotated[Targets | None, Expected(TARGETS), DATA, TRAINING] = None
    weight: Annotated[Text | None, DATA, TRAINING] = None
    keep: Speed[Keep] = "all"
    copies: Speed[OptionalPath] = None

    @property
    def keys(self) -> dict[str, str]:
        inputs = {IMAGE: self.image_key} if self.features is None else {name: name for name in self.features}
        targets = {LABEL: self.label_key} if self.target is None else {name: name for name in self.target}
        return inputs | targets | ({} if self.weight is None else {self.weight: self.weight})

    @property
    def examples(self) -> Flow:
        inputs = {IMAGE: "image"} if self.features is None else self.features
        weight = {} if self.weight is None else {self.weight: "float32"}
        features = {name: feature_of(text) for name, text in (weight | inputs).items()}
        targets = {name: target_of(of) for name, of in (self.target or {LABEL: "class"}).items()}
        features = {**features, **targets}
        return Flow(features=features, targets=tuple(targets), weight=self.weight or "", record="serialised example")

    @property
    def loss_weights(self) -> dict[str, float]:
        return {name: parsed(of)[1].get("weight", 1.0) for name, of in (self.target or {LABEL: "class"}).items()}

    def faults(self) -> Faults:
        yield from super().faults()
        yield from unfit_targets(self.target or {})

    def rules(self) -> Faults:
        flow, declared = self.examples, self.features or {IMAGE: ""}
        is_one = "which is the target" if len(flow.targets) == 1 else "which is a target"
        for name in flow.targets:
            if name in declared:
                remedy = "leave it out of dataset.features, or set dataset.target"
                yield "features", f"{name}, {is_one}", "features to predict it from", remedy
            of = flow.features[name]
            if len(flow.targets) > 1 and of.is_class and not of.classes:
                expected = "a class with the number of its classes, since there are several targets"
                yield f"target.{name}", "class", expected, "write it behind the word, such as `class 3`"
        if not flow.weight:
            return
        feature, remedy = flow.features[flow.weight], f"name a numeric feature, or set {self.key('weight')}=null"
        if flow.weight in flow.targets:
            yield "weight", f"{flow.weight}, {is_one}", "another feature", remedy
        elif feature.dtype == "string" or feature.shape or feature.is_class:
            yield "weight", f"{flow.weight}, which is {feature}", "a feature with a number in each example", remedy
        elif {*declared} == {flow.weight}:
            yield "weight", f"{flow.weight}, which is the only feature", "other features to predict from", remedy


@frozen
class TfdsDataset(Declared):
    """A TFDS dataset of images with one label each, or of declared features.

    Attributes:
        version: Version, or one with wildcards; null for the newest.
        data_dir: Data folder of TFDS, or its URL; null for TFDS's default.
        download: Whether to download and prepare a missing dataset.
    """

    source = "etlrun.sources.tfds:TfdsSource"
    printed = "etlrun.eject.printed.records"
    printed_as: ClassVar = {"classes": "classes_of_tfds", "parts_of": "parts_of_tfds"}
    slicing = TFDS
    is_of_tfds = True
    given_by = "data_dir"

    version: Annotated[_VERSION | None, Expected("a version such as 4.0.1 or 4.*.*, or null"), DATA]
    data_dir: Annotated[Text | None, Expected("a path or a URL, or null"), SPEED]
    download: Speed[bool]

    def as_it_is(self) -> Self:
        return dataclasses.replace(self, download=False)

    @property
    def constants(self) -> Block:
        name = f"{self.name}:{self.version}" if self.version else self.name
        folder = None if self.data_dir is None else user_path(self.data_dir)
        return {"NAME": name, "DATA_DIR": folder, "DOWNLOAD": self.download and self.name != SAMPLE_NAME}

    @property
    def restore(self) -> str:
        return f"set {self.key('data_dir')} to those records"


@frozen
class Folder(Dataset):
    """A folder of images with a folder for each class, which may stand in folders of splits such as `train`.

    Attributes:
        dir: The folder. Its images are ordered by the SHA-256 of their paths in it. Without folders of splits, all are
            the split `train`.
    """

    source = "etlrun.sources.folder:FolderSource"
    printed = "etlrun.eject.printed.folder"
    given_by = "dir"

    dir: Annotated[Text, AfterValidator(of_this_machine), Expected("the path of a folder on this machine"), DATA]

    @property
    def constants(self) -> Block:
        return {"DIR": user_path(self.dir)}

    @property
    def examples(self) -> Flow:
        features = {IMAGE: STRINGS["image"], LABEL: STRINGS["class"]}
        return Flow(features=features, targets=(LABEL,), record="image file")


SOURCES: dict[str, type[Dataset]] = {"folder": Folder}
"""Datasets by their `name`, those of installed packages included; every other name is one of TFDS."""


def dataset_type(name: object) -> type[Dataset]:
    """Return the type of the dataset of that `dataset.name`."""
    return SOURCES.get(name, TfdsDataset) if isinstance(name, str) else TfdsDataset


@frozen
class TFRecords(Declared):
    """TFRecord files of serialised examples, written by any program.

    Attributes:
        files: Files, such as `train-*.tfrecord`, which are the split `train`; or those of each split, such as `{train:
            train-*.tfrecord, validation: val-*.tfrecord}`.
        num_classes: Number of classes of the target, which are counted from 0; null if it is no class.
    """

    source = "etlrun.sources.tfrecord:TFRecordSource"
    printed = "etlrun.eject.printed.records"
    printed_as: ClassVar = {"classes": "classes_of_files", "parts_of": "parts_of_files"}

    files: Annotated[Files, Expected(FILES_EXPECTED), DATA]
    num_classes: Annotated[OptionalPositive, DATA, TRAINING]

    @property
    def constants(self) -> Block:
        files = {name: [user_path(pattern) for pattern in of] for name, of in self.patterns.items()}
        return {"FILES": files, "NUM_CLASSES": self.num_classes}

    def faults(self) -> Faults:
        yield from super().faults()
        files = [*filterfalse(is_remote, chain(*self.patterns.values()))]
        if self.urls and files:
            found, remedy = f"URLs, and {files[0]}", "copy those of this machine there, or those of URLs here"
            yield "files", found, "URLs alone, or files on this machine alone", remedy

    def rules(self) -> Faults:
        yield from super().rules()
        flow, found = self.examples, self.num_classes
        target = flow.features[flow.target]
        if len(flow.targets) > 1 or target.classes:
            if self.num_classes is not None:
                yield "num_classes", found, f"null with {self.key('target')}, which has the number of each", ""
        elif target.is_class != (self.num_classes is not None):
            needed = "the number of classes" if target.is_class else "null, since the target is no class"
            yield "num_classes", found, needed, ""


@frozen
class Fetch(Stage):
    """Fetches shards of URLs in the order in which they are read, ahead of the stage that reads them.

    Attributes:
        at_once: Shards that are fetched at once.
        keep: How much of what is fetched stays on this machine.
    """

    path = "extract.fetch"
    changes_data = False

    at_once: Speed[Positive]
    keep: Speed[Keep]
