"""Steps on columns: functions of TensorFlow on a batch of values, or on one, which may learn values from a split."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from etlrun.stages.base import DATA, Expected, OptionalPositive, Positive, Stage
from etlrun.stages.code import remember
from etlrun.stages.flow import Feature, UnfitError
from etlrun.stages.lazy import pa, pc, tf

_Values = Annotated[tuple[str | int, ...], Field(min_length=1)]


class ColumnStep(Stage):
    """A step on one column, or the first one on several.

    A graph calls `op` for a batch, an ejected program contains its source: it refers to nothing but its arguments and
    `tf`. Fields that are null and `learned` are set by `fitted`, from the values of the training split alone.

    Attributes:
        name: Its name in a config.
        main: Field that its value in a config sets, if that is no mapping: `{clip: [0, 1]}`; empty if there is none.
        learned: Fields that `fitted` sets.
        takes: How many columns it takes: 1, or 2 for any number of them from two on.
        op: Function from values to values, with the fields of the class by name. Values have any shape.
    """

    name: ClassVar[str]
    main: ClassVar[str] = ""
    learned: ClassVar[tuple[str, ...]] = ()
    not_of_op: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[int] = 1
    op: ClassVar[Callable[..., Any]]

    def __init_subclass__(cls) -> None:
        if "op" in vars(cls):
            remember([cls.op])

    @property
    def arguments(self) -> dict[str, Any]:
        """Fields by name, as `op` takes them: plain values, lists in the place of tuples."""
        names = (field.name for field in dataclasses.fields(self))  # type: ignore[arg-type]
        values = {name: getattr(self, name) for name in names if name not in self.not_of_op}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @property
    def also(self) -> dict[str, Any]:
        """Fields that `op` does not take, and that are set."""
        return {name: value for name in self.not_of_op if (value := getattr(self, name)) is not None}

    def replace(self, **changes: Any) -> Self:
        """Return this step with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var] # each step is a dataclass

    @property
    def is_fitted(self) -> bool:
        """Whether all values that it learns are known."""
        return all(getattr(self, name) is not None for name in self.learned)

    def fitted(self, values: Callable[[], pa.Array], incoming: Feature) -> Self:
        """Return the step with what it learns: from the values before it in the training split, where null is missing.

        `values` returns them, which takes as long as reading the column; `incoming` is their feature.
        """
        return self

    def gives(self, incoming: Feature) -> Feature:
        """Return its output for a column; raise `UnfitError` if it doesn't accept that."""
        raise NotImplementedError


def number(incoming: Feature) -> Feature:
    """Return the feature of float64 numbers; raise `UnfitError` unless `incoming` holds numbers without categories."""
    if incoming.dtype == "string" or incoming.categories is not None or incoming.format == "timestamp":
        raise UnfitError(expected="numbers", remedy="put a step for text, categories or times in its place")
    return Feature(dtype="float64", shape=incoming.shape, has_missing=incoming.has_missing)


def _by_frequency(values: pa.Array) -> tuple[list[Any], list[int]]:
    """Return the values that are not missing and their counts: the most frequent first, then in order of the values."""
    counted = values.drop_null().value_counts()
    table = pa.table({"value": counted.field(0), "count": counted.field(1)})
    ordered = table.sort_by([("count", "descending"), ("value", "ascending")])
    return ordered["value"].to_pylist(), ordered["count"].to_pylist()


def _text(value: Any) -> Any:
    """Return a value of a column as a config writes it."""
    return value.decode() if isinstance(value, bytes) else value


def without_missing(incoming: Feature) -> Feature:
    """Return the feature; raise `UnfitError` if values may be missing."""
    if incoming.has_missing:
        raise UnfitError(expected="a value in each row", remedy="put `{fill: median}` or another `fill` before it")
    return incoming


@dataclass(frozen=True, kw_only=True)
class Fill(ColumnStep):
    """Puts a value in the place of each missing one.

    Attributes:
        value: `mean`, `median` or `most_frequent` of the training split, or the value itself.
        indicator: Whether there is another output, NAME_missing, that is 1 where the value was missing, else 0.
        filled: The value.
    """

    name: ClassVar[str] = "fill"
    main: ClassVar[str] = "value"
    learned: ClassVar[tuple[str, ...]] = ("filled",)
    not_of_op: ClassVar[tuple[str, ...]] = ("value", "indicator")

    value: Annotated[str | int | float, Expected("mean, median, most_frequent, a number or a text"), DATA]
    indicator: Annotated[bool, Expected("true or false"), DATA] = False
    filled: Annotated[str | int | float | None, Expected("null"), DATA] = None

    @staticmethod
    def op(values: tf.Tensor, *, filled: float | str) -> tf.Tensor:
        """Return the values with `filled` in the place of NaN, or of the text that stands for a missing one."""
        missing = values == b"\xff" if values.dtype == tf.string else tf.math.is_nan(values)
        return tf.where(missing, tf.cast(filled, values.dtype), values)

    def fitted(self, values: Callable[[], pa.Array], incoming: Feature) -> Self:
        if self.value not in ("mean", "median", "most_frequent"):
            return self.replace(filled=self.value)
        found = values()
        if self.value == "most_frequent":
            filled = _text(_by_frequency(found)[0][0])
        else:
            filled = float((pc.mean(found) if self.value == "mean" else pc.quantile(found, 0.5)[0]).as_py())
        return self.replace(filled=filled)

    def gives(self, incoming: Feature) -> Feature:
        if incoming.dtype == "string" and self.value in ("mean", "median"):
            raise UnfitError(expected="numbers", remedy="write {fill: most_frequent}, or the text itself")
        return incoming.replace(has_missing=False)


@dataclass(frozen=True, kw_only=True)
class Log1p(ColumnStep):
    """The natural logarithm of 1 plus the value, of values above -1."""

    name: ClassVar[str] = "log1p"

    @staticmethod
    def op(values: tf.Tensor) -> tf.Tensor:
        """Return log(1 + values)."""
        return tf.math.log1p(tf.cast(values, tf.float64))

    def gives(self, incoming: Feature) -> Feature:
        return number(incoming)


@dataclass(frozen=True, kw_only=True)
class Standardize(ColumnStep):
    """Subtracts the mean and divides by the standard deviation, as Keras's `Normalization`.

    Attributes:
        mean: Mean of the training split.
        std: Standard deviation of the training split; a constant column gives 0.
    """

    name: ClassVar[str] = "standardize"
    learned: ClassVar[tuple[str, ...]] = ("mean", "std")

    mean: Annotated[float | None, Expected("a number, or null to learn it"), DATA] = None
    std: Annotated[float | None, Expected("a positive number, or null to learn it"), DATA] = None

    @staticmethod
    def op(values: tf.Tensor, *, mean: float, std: float) -> tf.Tensor:
        """Return (values - mean) / std."""
        return (tf.cast(values, tf.float64) - mean) / max(std, 1e-7)

    def fitted(self, values: Callable[[], pa.Array], incoming: Feature) -> Self:
        numbers = values().cast(pa.float64())
        return self.replace(mean=pc.mean(numbers).as_py(), std=pc.stddev(numbers).as_py())

    def gives(self, incoming: Feature) -> Feature:
        return number(without_missing(incoming))


@dataclass(frozen=True, kw_only=True)
class Lookup(ColumnStep):
    """The index of a value in a vocabulary, as Keras's `StringLookup` and `IntegerLookup`.

    Attributes:
        values: The vocabulary; null to learn it from the training split, the most frequent value first.
        top: Most values that are learned, the most frequent ones; null for all.
        min_count: Least number of rows of a value that is learned.
        oov: Number of indices for values that are not in the vocabulary, before its own; or `error`.
    """

    name: ClassVar[str] = "lookup"
    main: ClassVar[str] = "values"
    learned: ClassVar[tuple[str, ...]] = ("values",)
    not_of_op: ClassVar[tuple[str, ...]] = ("top", "min_count")

    values: Annotated[_Values | None, Expected("a list of texts or of integers, or null to learn it"), DATA] = None
    top: Annotated[OptionalPositive, DATA] = None
    min_count: Annotated[Positive, DATA] = 1
    oov: Annotated[Annotated[int, Field(ge=1)] | Literal["error"], Expected("a positive integer, or error"), DATA] = 1

    @staticmethod
    def op(found: tf.Tensor, *, values: list[str | int], oov: Any) -> tf.Tensor:
        """Return int64 indices: from 0 below `oov` for values outside of the vocabulary, then in its order."""
        keys = tf.constant(values, tf.string if found.dtype == tf.string else tf.int64)
        looked_up = found if found.dtype == tf.string else tf.cast(found, tf.int64)
        first = 0 if oov == "error" else oov
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(keys, tf.range(first, first + len(values), dtype=tf.int64)), -1
        )
        index = table.lookup(looked_up)
        if oov == "error":
            known = tf.debugging.Assert(tf.reduce_all(index >= 0), ["a value that is in no vocabulary", found])
            with tf.control_dependencies([known]):
                return tf.identity(index)
        text = looked_up if found.dtype == tf.string else tf.strings.as_string(looked_up)
        return tf.where(index < 0, tf.strings.to_hash_bucket_fast(text, first), index)

    def fitted(self, values: Callable[[], pa.Array], incoming: Feature) -> Self:
        found, counts = _by_frequency(values())
        kept = [_text(value) for value, count in zip(found, counts, strict=True) if count >= self.min_count]
        return self.replace(values=tuple(kept[: self.top]))

    def gives(self, incoming: Feature) -> Feature:
        if incoming.dtype.startswith("float") or incoming.categories is not None:
            raise UnfitError(expected="text or integers", remedy="bucketize numbers first")
        extra = self.oov if isinstance(self.oov, int) else 0
        return Feature(dtype="int64", shape=incoming.shape, categories=len(self.values or ()) + extra)


@dataclass(frozen=True, kw_only=True)
class Classes(Lookup):
    """The index of a class, in the order of their values; a plan puts it behind a target that is a class."""

    name: ClassVar[str] = "class"

    oov: Annotated[Literal["error"], Expected("error"), DATA] = "error"

    def fitted(self, values: Callable[[], pa.Array], incoming: Feature) -> Self:
        as_integers = (lambda: values().cast("int64")) if incoming.dtype == "bool" else values
        learned = super().fitted(as_integers, incoming).values
        return self.replace(values=tuple(sorted(learned or ())))

    def gives(self, incoming: Feature) -> Feature:
        return super().gives(without_missing(incoming)).replace(is_class=True, categories=None)


@dataclass(frozen=True, kw_only=True)
class OneHot(ColumnStep):
    """A vector with a 1 at the index of the category, as Keras's `CategoryEncoding`.

    Attributes:
        categories: Number of categories, which the step before it knows.
    """

    name: ClassVar[str] = "one_hot"
    learned: ClassVar[tuple[str, ...]] = ("categories",)

    categories: Annotated[OptionalPositive, DATA] = None

    @staticmethod
    def op(index: tf.Tensor, *, categories: int) -> tf.Tensor:
        """Return float32 vectors of `categories`."""
        return tf.one_hot(index, categories)

    def fitted(self, values: Callable[[], pa.Array], incoming: Feature) -> Self:
        return self.replace(categories=incoming.categories)

    def gives(self, incoming: Feature) -> Feature:
        depth = incoming.categories
        if depth is None:
            raise UnfitError(expected="the index of a category", remedy="put `lookup`, `bucketize` or `hash` before it")
        return Feature(dtype="float32", shape=(*incoming.shape, depth), low=0.0, high=1.0)


@dataclass(frozen=True, kw_only=True)
class Embed(ColumnStep):
    """Lets the model represent each category by a vector that it learns.

    Attributes:
        dimension: Dimension of the vector; null for the fourth root of the number of categories, rounded up.
    """

    name: ClassVar[str] = "embed"
    main: ClassVar[str] = "dimension"
    not_of_op: ClassVar[tuple[str, ...]] = ("dimension",)

    dimension: Annotated[OptionalPositive, DATA] = None

    @staticmethod
    def op(index: tf.Tensor) -> tf.Tensor:
        """Return the index, which the model embeds."""
        return index

    def gives(self, incoming: Feature) -> Feature:
        if incoming.categories is None:
            raise UnfitError(expected="the index of a category", remedy="put `lookup`, `bucketize` or `hash` before it")
        return incoming.replace(embedding=self.dimension or math.ceil(incoming.categories**0.25))


_ALL: tuple[type[ColumnStep], ...] = (Fill, Log1p, Standardize, Lookup, OneHot, Embed)
COLUMN_STEPS: dict[str, type[ColumnStep]] = {step.name: step for step in _ALL}
"""All steps on columns by their names in a config."""
