"""Steps on the targets of rows, and on the weights of rows, which no config names: a plan puts them there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Self

from etlrun.stages.base import DATA, Expected
from etlrun.stages.column_categories import Classes
from etlrun.stages.column_step import LARGEST, ColumnStep, UnfitColumnError, number, without_missing
from etlrun.stages.flow import Feature
from etlrun.stages.known import BETWEEN
from etlrun.stages.lazy import pa, pc, tf

MOST_LABELS = 10_000


@dataclass(frozen=True, kw_only=True)
class Binary(Classes):
    """The index of one of two classes, of which the positive one is 1; a plan puts it behind a binary target."""

    name = "binary"

    def fitted(self, values: Callable[[], pa.Array], incoming: Feature) -> Self:
        found = super().fitted(values, incoming).values or ()
        return self.replace(values=tuple(sorted(found, key=_is_positive)))

    def gives(self, incoming: Feature) -> Feature:
        return super().gives(incoming).replace(is_binary=True)


def _is_positive(value: str | int) -> bool:
    return str(value).casefold() in ("1", "true", "yes")


@dataclass(frozen=True, kw_only=True)
class Number(ColumnStep):
    """The number to predict; a plan puts it behind a target that is a number.

    Attributes:
        standardize: Whether the loss counts it in standard deviations, which the last layer of the model undoes.
        mean: Mean of the training split. `std` is its standard deviation, `least` the smallest value.
    """

    name = "number"
    learned = ("mean", "std", "least")
    not_of_op = ("standardize", *learned)

    standardize: Annotated[bool, DATA] = False
    mean: Annotated[float | None, Expected("null"), DATA] = None
    std: Annotated[float | None, Expected("null"), DATA] = None
    least: Annotated[float | None, Expected("null"), DATA] = None

    @staticmethod
    def op(values: tf.Tensor) -> tf.Tensor:
        """Return the numbers as float32."""
        return tf.cast(values, tf.float32)

    def fitted(self, values: Callable[[], pa.Array], incoming: Feature) -> Self:
        found = values().cast(pa.float64(), safe=False)
        mean, std, least = pc.mean(found).as_py(), pc.stddev(found).as_py(), pc.min(found).as_py()
        most = pc.max(found).as_py() or 0
        if max(abs(least or 0), abs(most)) > LARGEST:
            raise UnfitColumnError(
                f"numbers from {least:g} to {most:g}",
                f"numbers of at most {LARGEST:.4g}, since a model predicts float32",
                "repair them, or write them in a larger unit",
            )
        return self.replace(mean=mean, std=std, least=least)

    def gives(self, incoming: Feature) -> Feature:
        std = self.std if self.standardize else None
        return number(without_missing(incoming)).replace(dtype="float32", mean=self.mean, std=std)


@dataclass(frozen=True, kw_only=True)
class Labels(ColumnStep):
    """A 1 for each label of a row, and a 0 for all others; a plan puts it behind a target of several labels.

    Attributes:
        separator: Text between two labels; None if the column has a number for each.
        values: The labels, in order.
    """

    name = "labels"
    learned = ("values",)

    separator: Annotated[str | None, Expected("a text, or null"), DATA] = None
    values: Annotated[tuple[str, ...] | None, Expected("null"), DATA] = None

    @property
    def text(self) -> str:
        text = super().text
        return text if self.separator != BETWEEN else text.replace(f"separator {BETWEEN}", "of lists")

    @staticmethod
    def op(found: tf.Tensor, *, separator: str | None, values: list[str]) -> tf.Tensor:
        """Return float32 vectors with a place for each label; a text that is missing has none of them."""
        if separator is None:
            return tf.cast(found, tf.float32)
        texts = tf.reshape(found, [-1])
        parts = tf.strings.split(texts, separator)
        labels = tf.strings.strip(parts.flat_values)
        is_label = (labels != "") & (labels != b"\xff")
        labels, rows = tf.boolean_mask(labels, is_label), tf.boolean_mask(parts.value_rowids(), is_label)
        keys, numbers = tf.constant(values, tf.string), tf.range(len(values), dtype=tf.int64)
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, numbers), -1)
        index = table.lookup(labels)
        known = tf.debugging.Assert(tf.reduce_all(index >= 0), ["a label that is in no row of the training", labels])
        with tf.control_dependencies([known]):
            places = tf.stack([rows, index], axis=1)
        shape = tf.stack([tf.size(texts, tf.int64), len(values)])
        counts = tf.scatter_nd(places, tf.ones_like(index, tf.float32), shape)
        each = tf.reshape(tf.minimum(counts, 1.0), tf.concat([tf.shape(found), [len(values)]], 0))
        return tf.ensure_shape(each, [*found.shape, len(values)])

    def fitted(self, values: Callable[[], pa.Array], incoming: Feature) -> Self:
        if self.separator is None:
            return self.replace(values=tuple(map(str, range(incoming.shape[0] or 0))))
        found = labels_in(values(), self.separator)
        if not found or len(found) > MOST_LABELS:
            raise UnfitColumnError(
                f"{len(found):,} labels in the training split",
                f"from 1 to {MOST_LABELS:,} different ones",
                "name the text between two labels of a row: {labels: ','}",
            )
        return self.replace(values=found)

    def gives(self, incoming: Feature) -> Feature:
        shape = (len(self.values or ()),)
        return Feature(dtype="float32", shape=shape, low=0.0, high=1.0, is_labels=True, classes=self.values or ())


def labels_in(values: pa.Array, separator: str) -> tuple[str, ...]:
    """Return the different labels of texts (`large_binary`), in order."""
    texts = values.drop_null().unique().cast(pa.large_string())
    labels = pc.ascii_trim_whitespace(pc.split_pattern(texts, separator).flatten()).unique()
    return tuple(sorted(label for label in labels.to_pylist() if label))


@dataclass(frozen=True, kw_only=True)
class Weight(ColumnStep):
    """The weight of a row in the loss; a plan puts it behind `dataset.weight`."""

    name = "weight"

    @staticmethod
    def op(values: tf.Tensor) -> tf.Tensor:
        """Return the weights as float32."""
        return tf.cast(values, tf.float32)

    def gives(self, incoming: Feature) -> Feature:
        return number(without_missing(incoming)).replace(dtype="float32")


def checked_weight(weight: tf.Tensor) -> tf.Tensor:
    """Return a weight as it is; a negative one, or one that is not finite, is an error."""
    number = tf.cast(weight, tf.float32)
    is_weight = tf.reduce_all((number >= 0) & tf.math.is_finite(number))
    with tf.control_dependencies([tf.debugging.Assert(is_weight, ["a weight below 0", weight])]):
        return tf.identity(weight)


TARGET_STEPS: dict[str, type[ColumnStep]] = {step.name: step for step in (Classes, Binary, Labels, Number, Weight)}
"""Steps on targets and on weights by their names, which no config has."""
