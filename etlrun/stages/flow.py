"""Examples and their features between two stages, as far as they are known before TensorFlow is imported."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

SERIALISED: Literal["tf.train.Example"] = "tf.train.Example"


class UnfitError(Exception):
    """A stage can't take what the stage before it gives."""

    def __init__(self, *, expected: str, remedy: str) -> None:
        self.expected = expected
        self.remedy = remedy
        super().__init__(expected)


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One feature of an example.

    Attributes:
        dtype: The name of a NumPy dtype, or `string` for bytes.
        shape: The size of each dimension; None for one in which examples differ.
        format: What a string holds: an encoded `image`, a serialised `tf.train.Example`, or plain `text`.
        low: The smallest possible value; None where it is not known.
        high: The largest possible value; None where it is not known.
        is_class: Whether it is the index of a class, from 0.
    """

    dtype: str
    shape: tuple[int | None, ...] = ()
    format: Literal["text", "image", "tf.train.Example"] | None = None
    low: float | None = None
    high: float | None = None
    is_class: bool = False

    def replace(self, **changes: Any) -> Feature:
        """Return this feature with some attributes changed."""
        return dataclasses.replace(self, **changes)

    @property
    def bytes(self) -> int | None:
        """The size of the feature in one example; None where examples differ."""
        sides = [side for side in self.shape if side is not None]
        if self.dtype == "string" or len(sides) < len(self.shape):
            return None
        return math.prod(sides) * ITEM_BYTES[self.dtype]

    @property
    def stored(self) -> str:
        """The dtype in which a serialised example stores it, one of three."""
        return self.dtype if self.dtype == "string" else "float32" if self.dtype.startswith("float") else "int64"

    def __str__(self) -> str:
        if self.dtype == "string":
            return f"encoded {self.format}" if self.format == "image" else str(self.format)
        shape = f" [{', '.join(str(side or '?') for side in self.shape)}]" if self.shape else ""
        return f"{self.dtype}{shape}{'' if self.low is None else f' in [{self.low:g}, {self.high:g}]'}"


ITEM_BYTES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float32": 4,
    "float64": 8,
}
"""The dtypes of features that are numbers, with their sizes."""


@dataclass(frozen=True, kw_only=True)
class Flow:
    """The examples at one point of a pipeline.

    Attributes:
        features: The features of each example, by name.
        target: The name of the feature that a model predicts; all others are its inputs.
        is_serialised: Whether all features are still in one string, a serialised example.
        batch_size: The number of examples in an element; None before batching.
    """

    features: Mapping[str, Feature]
    target: str
    is_serialised: bool = False
    batch_size: int | None = None

    def replace(self, **changes: Any) -> Flow:
        """Return this flow with some attributes changed."""
        return dataclasses.replace(self, **changes)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs of a model, sorted."""
        return tuple(sorted(name for name in self.features if name != self.target))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all features: the inputs and then the target."""
        return (*self.inputs, self.target)

    def feature(self, name: str) -> Feature:
        """Return the feature of that name; raise `UnfitError` with the known ones where there is none."""
        if name not in self.features:
            raise UnfitError(
                expected=f"a feature {name!r}; known are {', '.join(sorted(self.features))}",
                remedy="leave the step out, or add the feature to dataset.features",
            )
        return Feature(dtype="string", format=SERIALISED) if self.is_serialised else self.features[name]

    def with_feature(self, name: str, feature: Feature) -> Flow:
        """Return this flow with another feature of that name."""
        return self.replace(features={**self.features, name: feature})

    def handed(self, example: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return inputs and target as a model takes them: one input as it is, several by their names."""
        inputs = {name: example[name] for name in self.inputs}
        return (inputs if len(inputs) > 1 else inputs[self.inputs[0]]), example[self.target]

    def named(self, inputs: Any, target: Any) -> dict[str, Any]:
        """Return the features by their names, of what `handed` returns."""
        return {**(inputs if len(self.inputs) > 1 else {self.inputs[0]: inputs}), self.target: target}

    @property
    def fixed_bytes(self) -> int:
        """The size of those features of an example whose size is the same in all examples."""
        return sum(self.features[name].bytes or 0 for name in self.columns)

    @property
    def example_bytes(self) -> int | None:
        """The size of an example with all its features; None where examples differ in size."""
        is_fixed = not self.is_serialised and all(feature.bytes is not None for feature in self.features.values())
        return self.fixed_bytes if is_fixed else None

    @property
    def inputs_bytes(self) -> int | None:
        """The size of the inputs of an example; None where examples differ in size."""
        whole = self.example_bytes
        return None if whole is None else whole - (self.features[self.target].bytes or 0)

    def __str__(self) -> str:
        if self.is_serialised:
            return "serialised example"
        inputs, target = {name: str(self.features[name]) for name in self.inputs}, self.features[self.target]
        listed = ", ".join(f"{name}: {feature}" for name, feature in inputs.items())
        shown = f"{{{listed}}}" if len(inputs) > 1 else inputs[self.inputs[0]]
        batch = f"{self.batch_size} x " if self.batch_size else ""
        return f"{batch}{shown}, {self.target}{'' if target.is_class else f': {target}'}"
