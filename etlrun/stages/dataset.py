"""Dataset, its splits and its features."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from etlrun.stages.base import DATA, SPEED, Expected, Flag, OptionalPath, OptionalText, Stage, Text
from etlrun.stages.flow import ITEM_BYTES, Feature, Flow

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
Declared = dict[
    Annotated[str, Field(min_length=1)], Annotated[str, Field(pattern=rf"^({'|'.join(_STRINGS)}|{_NUMBERS})$")]
]
"""Names of features with their types; for an array also its shape: `float32 28x28`."""


def _feature(declared: str) -> Feature:
    found = re.fullmatch(_NUMBERS, declared)
    if found is None:
        return _STRINGS[declared]
    return Feature(dtype=found["dtype"], shape=tuple(int(side) for side in (found["shape"] or "").split("x") if side))


@dataclass(frozen=True, kw_only=True)
class Dataset(Stage):
    """A TFDS dataset of images with one label each, or of declared features.

    Attributes:
        name: Name in TFDS, or `etlrun_sample`.
        version: Version such as `4.0.1`, or with wildcards `4.*.*`; null for the newest.
        data_dir: Data folder of TFDS; null for TFDS's default.
        split: Training examples, in TFDS's slicing language.
        eval_split: Validation examples; null for no validation.
        download: Whether to download and prepare a missing dataset.
        image_key: Feature that holds the image, unless `features` names others.
        label_key: Feature that holds the class, unless `target` names another.
        on_corrupt: `raise` ends the run at the first corrupt record, `skip` skips and counts them.
        features: Inputs of the model: names of features with their types, such as `{width: float32}`; null for
            the image alone.
        target: Feature to predict, with its type, such as `{price: float32}`; null for the class.
    """

    path: ClassVar[str] = "dataset"

    @classmethod
    def key_of(cls, pipeline: str) -> str:
        """Return the dotted key of the split that the pipeline `train` or `validation` reads."""
        return cls.key("split" if pipeline == "train" else "eval_split")

    def split_of(self, pipeline: str) -> str | None:
        """Return the split that the pipeline `train` or `validation` reads; None for no validation."""
        return self.split if pipeline == "train" else self.eval_split

    name: Annotated[Text, DATA]
    version: Annotated[Annotated[str, Field(pattern=_VERSION)] | None, Expected(_VERSION_EXPECTED), DATA]
    data_dir: Annotated[OptionalPath, SPEED]
    split: Annotated[Text, DATA]
    eval_split: Annotated[OptionalText, DATA]
    download: Annotated[Flag, SPEED]
    image_key: Annotated[Text, DATA]
    label_key: Annotated[Text, DATA]
    on_corrupt: Annotated[Literal["raise", "skip"], Expected("raise or skip"), DATA]
    features: Annotated[
        Annotated[Declared, Field(min_length=1)] | None,
        Expected(f"a mapping from names of features to {_TYPES}, or null"),
        DATA,
    ] = None
    target: Annotated[
        Annotated[Declared, Field(min_length=1, max_length=1)] | None,
        Expected(f"a mapping from the name of one feature to one of the {_TYPES}, or null"),
        DATA,
    ] = None

    @property
    def keys(self) -> dict[str, str]:
        """Keys of the features in the dataset, by name."""
        inputs = {IMAGE: self.image_key} if self.features is None else {name: name for name in self.features}
        return inputs | ({LABEL: self.label_key} if self.target is None else {name: name for name in self.target})

    @property
    def examples(self) -> Flow:
        """The flow before anything is read: serialised examples with these features."""
        target = {LABEL: "class"} if self.target is None else self.target
        declared = ({IMAGE: "image"} if self.features is None else self.features) | target
        features = {name: _feature(text) for name, text in declared.items()}
        return Flow(features=features, target=next(iter(target)), is_serialised=True)

    def rules(self) -> Iterator[tuple[str, str, str, str]]:
        target = LABEL if self.target is None else next(iter(self.target))
        if target in (self.features or {IMAGE: ""}):
            remedy = "leave it out of dataset.features, or set dataset.target"
            yield "features", f"{target}, which is the target", "features to predict it from", remedy
