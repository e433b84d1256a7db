"""Datasets: their splits, their features, and where they come from."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field

from etlrun.stages.base import (
    DATA,
    SPEED,
    TRAINING,
    Expected,
    Flag,
    OptionalPositive,
    OptionalText,
    Stage,
    Text,
)
from etlrun.stages.flow import ITEM_BYTES, Feature, Flow
from etlrun.stages.made import user_path
from etlrun.stages.paths import FILES_EXPECTED, Files, OptionalPath, of_this_machine
from etlrun.stages.slicing import EXPECTED, FILES, TFDS, Language, malformed

SAMPLE_NAME = "etlrun_sample"
"""The dataset that etlrun draws by itself."""
IMAGE, LABEL = "image", "label"
"""Names of the features of an example, unless a config names others."""

_VERSION = r"^((\d+|\*)\.(\d+|\*)\.(\d+|\*)|experimental_latest)$"
_VERSION_EXPECTED = "a version such as 4.0.1 or 4.*.*, or null"
_STRINGS: dict[str, Feature] = {
    "class": Feature(dtype="int64", is_class=True),
    "image": Feature(dtype="string", format="image"),
    "text": Feature(dtype="string", format="text"),
}
_NUMBERS = rf"(?P<dtype>{'|'.join(ITEM_BYTES)})( (?P<shape>[1-9]\d*(x[1-9]\d*)*))?"
_TYPES = "types such as float32, uint8 28x28, class, image or text"
_Declared = dict[
    Annotated[str, Field(min_length=1)], Annotated[str, Field(pattern=rf"^({'|'.join(_STRINGS)}|{_NUMBERS})$")]
]
"""Names of features with their types; for an array also its shape: `float32 28x28`."""

_Features = Annotated[_Declared, Field(min_length=1)]
_Target = Annotated[_Declared, Field(min_length=1, max_length=1)]
_FEATURES_EXPECTED = f"a mapping from names of features to {_TYPES}, or null"
_TARGET_EXPECTED = f"a mapping from the name of one feature to one of the {_TYPES}, or null"
_PATH = "the path of a folder on this machine"


def _feature(declared: str) -> Feature:
    found = re.fullmatch(_NUMBERS, declared)
    if found is None:
        return _STRINGS[declared]
    return Feature(dtype=found["dtype"], shape=tuple(int(side) for side in (found["shape"] or "").split("x") if side))


@dataclass(frozen=True, kw_only=True)
class Dataset(Stage):
    """The examples of a run; see the classes derived from it for where they come from.

    Attributes:
        name: `folder` or `tfrecord` for a dataset of that kind; any other is a name in TFDS, or `etlrun_sample`.
        split: Training examples, in TFDS's slicing language.
        eval_split: Validation examples; null for no validation.
        on_corrupt: `raise` ends the run at the first corrupt record, `skip` skips and counts them.
        source: Module and name of the class that reads it, a `Source`.
        printed: Module of the functions that read it in a program; empty if programs can't.
        slicing: Language of its splits.
        is_of_tfds: Whether TFDS finds its files.
        given_by: Field that says where the examples are.
    """

    path: ClassVar[str] = "dataset"
    source: ClassVar[str]
    printed: ClassVar[str] = ""
    slicing: ClassVar[Language] = FILES
    is_of_tfds: ClassVar[bool] = False
    given_by: ClassVar[str] = "files"

    name: Annotated[Text, DATA]
    split: Annotated[Text, DATA]
    eval_split: Annotated[OptionalText, DATA]
    on_corrupt: Annotated[Literal["raise", "skip"], Expected("raise or skip"), DATA]

    @classmethod
    def key_of(cls, pipeline: str) -> str:
        """Return the dotted key of the split that the pipeline `train` or `validation` reads."""
        return cls.key("split" if pipeline == "train" else "eval_split")

    def split_of(self, pipeline: str) -> str | None:
        """Return the split that the pipeline `train` or `validation` reads; None for no validation."""
        return self.split if pipeline == "train" else self.eval_split

    def faults(self) -> Iterator[tuple[str, str, str, str]]:
        for key, split in (("split", self.split), ("eval_split", self.eval_split)):
            for found, remedy in malformed(split, self.slicing) if split is not None else ():
                yield key, found, EXPECTED, remedy

    def as_it_is(self) -> Self:
        """Return the same dataset, which is not prepared if it is missing."""
        return self

    @property
    def home(self) -> str | None:
        """Data folder of TFDS, which can be another with the same data; None for its default and for other datasets."""
        return None

    @property
    def constants(self) -> dict[str, Any]:
        """Values of the constants that differ from program to program, by name: those of the functions in `printed`."""
        return {}

    @property
    def loss_weights(self) -> dict[str, float]:
        """Weights of the losses of the targets, by name."""
        return dict.fromkeys(self.examples.targets, 1.0)

    @property
    def printed_before(self) -> tuple[str, ...]:
        """Modules whose functions take the place of those of `printed`."""
        return ()

    @property
    def restore(self) -> str:
        """What to do if the data are not those that an earlier run has read."""
        return f"restore the files, or set {self.key(self.given_by)} to a copy of those"

    @property
    def title(self) -> str:
        """Name in messages and programs."""
        return self.name

    @property
    def keys(self) -> dict[str, str]:
        """Keys of the features in the dataset, by name."""
        return {name: name for name in self.examples.features}

    @property
    def examples(self) -> Flow:
        """The flow before anything is read: records with these features."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Declared(Dataset):
    """A dataset of serialised examples: images with one label each, or declared features.

    Attributes:
        image_key: Feature that holds the image, unless `features` names others.
        label_key: Feature that holds the class, unless `target` names another.
        features: Inputs of the model: names of features with their types, such as `{width: float32}`; null for
            the image alone.
        target: Feature to predict, with its type, such as `{price: float32}`; null for the class.
    """

    image_key: Annotated[Text, DATA]
    label_key: Annotated[Text, DATA]
    features: Annotated[_Features | None, Expected(_FEATURES_EXPECTED), DATA] = None
    target: Annotated[_Target | None, Expected(_TARGET_EXPECTED), DATA, TRAINING] = None

    @property
    def keys(self) -> dict[str, str]:
        inputs = {IMAGE: self.image_key} if self.features is None else {name: name for name in self.features}
        return inputs | ({LABEL: self.label_key} if self.target is None else {name: name for name in self.target})

    @property
    def examples(self) -> Flow:
        target = {LABEL: "class"} if self.target is None else self.target
        declared = ({IMAGE: "image"} if self.features is None else self.features) | target
        features = {name: _feature(text) for name, text in declared.items()}
        return Flow(features=features, targets=tuple(target), record="serialised example")

    def rules(self) -> Iterator[tuple[str, str, str, str]]:
        target = LABEL if self.target is None else next(iter(self.target))
        if target in (self.features or {IMAGE: ""}):
            remedy = "leave it out of dataset.features, or set dataset.target"
            yield "features", f"{target}, which is the target", "features to predict it from", remedy


@dataclass(frozen=True, kw_only=True)
class TfdsDataset(Declared):
    """A TFDS dataset of images with one label each, or of declared features.

    Attributes:
        version: Version such as `4.0.1`, or with wildcards `4.*.*`; null for the newest.
        data_dir: Data folder of TFDS; null for TFDS's default.
        download: Whether to download and prepare a missing dataset.
    """

    source: ClassVar[str] = "etlrun.sources.tfds:TfdsSource"
    printed: ClassVar[str] = "etlrun.eject.printed.tfds"
    slicing: ClassVar[Language] = TFDS
    is_of_tfds: ClassVar[bool] = True

    version: Annotated[Annotated[str, Field(pattern=_VERSION)] | None, Expected(_VERSION_EXPECTED), DATA]
    data_dir: Annotated[OptionalPath, SPEED]
    download: Annotated[Flag, SPEED]

    def as_it_is(self) -> Self:
        return dataclasses.replace(self, download=False)

    @property
    def home(self) -> str | None:
        return self.data_dir

    @property
    def constants(self) -> dict[str, Any]:
        name = f"{self.name}:{self.version}" if self.version else self.name
        folder = None if self.data_dir is None else user_path(self.data_dir)
        return {"NAME": name, "DATA_DIR": folder, "DOWNLOAD": self.download and self.name != SAMPLE_NAME}

    @property
    def restore(self) -> str:
        return f"set {self.key('data_dir')} to those records"


@dataclass(frozen=True, kw_only=True)
class Folder(Dataset):
    """A folder of images with a folder for each class, which may stand in folders of splits such as `train`.

    Attributes:
        dir: The folder. Its images are the examples, in the order of the SHA-256 of their paths in it; without folders
            of splits, all are the split `train`.
    """

    source: ClassVar[str] = "etlrun.sources.folder:FolderSource"
    printed: ClassVar[str] = "etlrun.eject.printed.folder"

    dir: Annotated[Annotated[str, Field(min_length=1), AfterValidator(of_this_machine)], Expected(_PATH), DATA]

    @property
    def constants(self) -> dict[str, Any]:
        return {"DIR": user_path(self.dir)}

    @property
    def restore(self) -> str:
        return f"restore the images, or set {self.key('dir')} to a copy of those"

    @property
    def title(self) -> str:
        return PurePath(self.dir).name or self.dir

    @property
    def examples(self) -> Flow:
        features = {IMAGE: _STRINGS["image"], LABEL: _STRINGS["class"]}
        return Flow(features=features, targets=(LABEL,), record="image file")


@dataclass(frozen=True, kw_only=True)
class TFRecords(Declared):
    """TFRecord files of serialised examples, written by any program.

    Attributes:
        files: Pattern of the files, such as `train-*.tfrecord`; or one for each split, such as
            `{train: train-*.tfrecord, validation: val-*.tfrecord}`. A single pattern is the split `train`.
        num_classes: Number of classes of the target, whose values are 0 to below it; null if it is no class.
    """

    source: ClassVar[str] = "etlrun.sources.tfrecord:TFRecordSource"
    printed: ClassVar[str] = "etlrun.eject.printed.tfrecord"

    files: Annotated[Files, Expected(FILES_EXPECTED), DATA]
    num_classes: Annotated[OptionalPositive, DATA, TRAINING]

    @property
    def constants(self) -> dict[str, Any]:
        patterns = {name: user_path(pattern) for name, pattern in self.patterns.items()}
        return {"FILES": patterns, "NUM_CLASSES": self.num_classes}

    @property
    def title(self) -> str:
        return PurePath(next(iter(self.patterns.values()))).name

    @property
    def patterns(self) -> Mapping[str, str]:
        """Patterns of the files by split."""
        return {"train": self.files} if isinstance(self.files, str) else self.files

    def rules(self) -> Iterator[tuple[str, str, str, str]]:
        yield from super().rules()
        is_class = self.examples.features[self.examples.target].is_class
        if is_class != (self.num_classes is not None):
            found = "null" if is_class else str(self.num_classes)
            needed = "the number of classes" if is_class else "null, since the target is no class"
            yield "num_classes", found, needed, ""


SOURCES: dict[str, type[Dataset]] = {"folder": Folder, "tfrecord": TFRecords}
"""Datasets by their `name`, those of installed packages included; every other name is one of TFDS."""


def dataset_type(name: object) -> type[Dataset]:
    """Return the type of the dataset of that `dataset.name`."""
    return SOURCES.get(name, TfdsDataset) if isinstance(name, str) else TfdsDataset
