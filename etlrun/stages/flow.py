"""Flow between stages, known without TensorFlow: examples and their features."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, Literal, TypeAlias

from etlrun.system.errors import printable
from etlrun.system.values import frozen

SERIALISED: Literal["tf.train.Example"] = "tf.train.Example"


NUMBER = "\0number"
"""Name of the number of an example, which no config can declare as a feature."""
MISSING = b"\xff"
"""What stands in text for a missing value; no text in UTF-8 contains it."""
MISSING_TIME = -(2**63)
"""What stands in a timestamp for a missing value: NumPy's NaT."""
NUMBERS_APART = 4_294_967_311
"""Distance of the seeds of two examples, larger than the number of passes, so that all are different; a prime."""


Faults: TypeAlias = Iterator[tuple[str, object, str, str]]
"""Faults of a stage's fields: the field, what was found, what was expected, and the remedy, which may be empty."""


class UnfitError(Exception):
    """Error of a stage that doesn't accept the output of the stage before it.

    Attributes:
        found: What it does not accept; empty for that output.
        place: Place of the step among those of an output.
    """

    def __init__(self, expected: str, remedy: str, found: str = "", place: int = 0) -> None:
        self.expected, self.remedy, self.found, self.place = expected, remedy, found, place
        super().__init__(expected)


@frozen
class Feature:
    """One feature of an example.

    Attributes:
        dtype: NumPy's name; `string` for bytes.
        shape: Shape; None for sides that differ between examples.
        format: Format of a string: an encoded `image`, a serialised `tf.train.Example`, or plain `text`.
        low: Smallest possible value; None if unknown. `high` is the largest.
        is_class: Whether it is a class: its index, from 0, or a value that has one.
        is_binary: Whether it is one of two classes, of which a model gives the probability of the second one.
        is_labels: Whether it says of each of several labels whether the example has it, as 1 or 0.
        classes: Names of its classes or labels, in their order; empty if it has none, or they are not known here.
        is_normalized: Whether it is an image whose channels have been divided by their deviations.
        has_missing: Whether values may be missing: NaN, or in text `MISSING`.
        categories: Number of categories of which it is the index, from 0; None if it is no such index.
        embedding: Dimension of the vectors by which a model represents its categories; None if it does not.
        mean: Mean of a number to predict in the training split; None if unknown.
        std: Standard deviation in whose units its loss counts; None for its own units.
    """

    dtype: str
    shape: tuple[int | None, ...] = ()
    format: Literal["text", "image", "timestamp", "tf.train.Example"] | None = None
    low: float | None = None
    high: float | None = None
    is_class: bool = False
    is_binary: bool = False
    is_labels: bool = False
    classes: tuple[str, ...] = ()
    is_normalized: bool = False
    has_missing: bool = False
    categories: int | None = None
    embedding: int | None = None
    mean: float | None = None
    std: float | None = None

    def replace(self, **changes: Any) -> Feature:
        """Return this feature with some attributes changed."""
        return dataclasses.replace(self, **changes)

    @property
    def is_sequence(self) -> bool:
        """Whether it is a sequence of items, of which examples have different numbers."""
        return self.shape[:1] == (None,) and len(self.shape) < IMAGE_RANK

    @property
    def bytes(self) -> int | None:
        """Size of the feature in an example; None if examples differ."""
        sides = [side for side in self.shape if side is not None]
        if self.dtype == "string" or len(sides) < len(self.shape):
            return None
        return math.prod(sides) * ITEM_BYTES[self.dtype]

    @property
    def stored(self) -> str:
        """Dtype in a serialised example, which has only three."""
        return self.dtype if self.dtype == "string" else "float32" if self.dtype.startswith("float") else "int64"

    def __str__(self) -> str:
        if self.is_sequence and (self.dtype == "string" or self.categories is not None):
            return f"sequence of {'tokens' if self.dtype == 'string' else self.replace(shape=self.shape[1:])}"
        if self.dtype == "string":
            return f"encoded {self.format}" if self.format == "image" else str(self.format)
        if self.format == "timestamp":
            return self.format
        if self.categories is not None:
            vectors = f" as vectors of {self.embedding}" if self.embedding else ""
            return f"one of {self.categories:,} categories{vectors}"
        shape = f" [{', '.join(str(side or '?') for side in self.shape)}]" if self.shape else ""
        return f"{self.dtype}{shape}{'' if self.low is None else f' in [{self.low:g}, {self.high:g}]'}"


IMAGE_RANK = 3
"""Number of sides of a decoded image: height, width and channels."""
ITEM_BYTES = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4}
ITEM_BYTES |= {"int64": 8, "float32": 4, "float64": 8}
"""Dtypes of numeric features, with their sizes in bytes."""


def remedy_of_kind(feature: Feature) -> str:
    """Return the remedy for a feature of another kind in the place of an image; empty for images."""
    if feature.format == "text":
        as_file = "declare it as `image` in dataset.features if it is an encoded file"
        return f"{as_file}; other text is for model=emulated and trainer=drain"
    if feature.dtype == "string" or len(feature.shape) == IMAGE_RANK:
        return ""
    if len(feature.shape) == IMAGE_RANK - 1:
        as_image = f"{feature.dtype} {'x'.join(map(str, feature.shape))}x1"
        return f"declare it as an image if its values are stored so: `{as_image}` in dataset.features"
    return "leave the steps for images out; features of other kinds are for model=emulated and trainer=drain"


@frozen
class Flow:
    """The examples at one point of a pipeline.

    Attributes:
        features: Features of each example, by name.
        targets: Names of the features to predict.
        weight: Name of the weight of an example in the loss; empty if all count the same. All other features are
            inputs.
        record: What holds the features while they are in one value: a `serialised example`; an `image file`, of which
            the string is the class and the path; or a `row number`, of which the columns are kept. Empty otherwise.
        batch_size: Examples per element, the most if batches differ; None before batching.
        is_padded: Whether the sequences of a batch have one length.
    """

    features: Mapping[str, Feature] = field(hash=False)
    targets: tuple[str, ...]
    weight: str = ""
    record: Literal["", "serialised example", "image file", "row number"] = ""
    batch_size: int | None = None
    is_padded: bool = False

    def replace(self, **changes: Any) -> Flow:
        """Return this flow with some attributes changed."""
        return dataclasses.replace(self, **changes)

    @property
    def is_serialised(self) -> bool:
        """Whether the features are still in one string."""
        return self.record != ""

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the model's inputs, in order."""
        return tuple(sorted(name for name in self.features if name not in (*self.targets, self.weight)))

    @property
    def images(self) -> tuple[str, ...]:
        """Names of the inputs that are images."""
        return tuple(name for name in self.inputs if len(self.features[name].shape) == IMAGE_RANK)

    @property
    def sequences(self) -> tuple[str, ...]:
        """Names of the inputs that are sequences."""
        return tuple(name for name in self.inputs if self.features[name].is_sequence)

    @property
    def target(self) -> str:
        """Name of the feature to predict; of the first one, if there are several."""
        return self.targets[0]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all features: the inputs, the targets and the weight."""
        return (*self.inputs, *self.targets, *([self.weight] if self.weight else []))

    def feature(self, name: str) -> Feature:
        """Return the feature of that name; if there is none, raise `UnfitError` with the known ones."""
        if name not in self.features:
            remedy = "leave the step out, or add the feature to dataset.features"
            if name == "image" and all(
                of.format in {None, "text", "timestamp"} and len(of.shape) < IMAGE_RANK - 1
                for of in self.features.values()
            ):
                remedy = "set transform=columns model=tabular: this step is for images"
            elif [self.features[other].format for other in self.inputs] == ["image"]:
                remedy = f"leave dataset.features out, and set dataset.image_key={self.inputs[0]}"
            raise UnfitError(f"a feature {name!r}; known are {', '.join(sorted(self.features))}", remedy)
        return Feature(dtype="string", format=SERIALISED) if self.is_serialised else self.features[name]

    def with_feature(self, name: str, feature: Feature) -> Flow:
        """Return this flow with another feature of that name."""
        return self.replace(features={**self.features, name: feature})

    def handed(self, batch: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return what a model takes of features by name, which is the end of all features by name."""
        return handed(batch, self.inputs, self.targets, self.weight)

    def given(self, batch: Mapping[str, Any]) -> Any:
        """Return the inputs of features by name as a model takes them: a single one as it is, several by name."""
        return one_or_named(batch, self.inputs)

    @property
    def fixed_bytes(self) -> int:
        """Size of the features that have the same size in all examples."""
        return sum(self.features[name].bytes or 0 for name in self.columns)

    @property
    def example_bytes(self) -> int | None:
        """Size of an example with all its features; None if examples differ."""
        is_fixed = not self.is_serialised and all(feature.bytes is not None for feature in self.features.values())
        return self.fixed_bytes if is_fixed else None

    def __str__(self) -> str:
        if self.is_serialised:
            return self.record
        inputs = {name: str(self.features[name]) for name in self.inputs}
        listed = ", ".join(f"{name}: {feature}" for name, feature in inputs.items())
        shown = inputs[self.inputs[0]] if len(inputs) == 1 else f"{{{listed}}}"
        batch = f"{self.batch_size} x " if self.batch_size else ""
        others = ((name, self.features[name]) for name in self.columns[len(inputs) :])
        given = ", ".join([f"{batch}{shown}", *(f"{name}{'' if of.is_class else f': {of}'}" for name, of in others)])
        return printable(given)


def one_or_named(batch: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return features of these names: a single one as it is, several by name."""
    return batch[names[0]] if len(names) == 1 else {name: batch[name] for name in names}


def handed(
    batch: Mapping[str, Any], inputs: Sequence[str], targets: Sequence[str], weight: str = ""
) -> tuple[Any, ...]:
    """Return what a model takes of features by name: inputs and targets, and the weight if there is one."""
    of_model = one_or_named(batch, inputs), one_or_named(batch, targets)
    return (*of_model, batch[weight]) if weight else of_model


def numbered(example: Mapping[str, Any], *number: Any) -> dict[str, Any]:
    """Return an example with its number, if there is one."""
    return {**example, **({NUMBER: number[0]} if number else {})}
