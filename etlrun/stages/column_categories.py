"""Steps that make categories of values, by a vocabulary, boundaries or hashes, and encodings of categories."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from etlrun.stages.base import DATA, Data, Expected, Number, OptionalPositive, Positive
from etlrun.stages.column_numbers import (
    ColumnStep,
    Learned,
    Values,
    by_frequency,
    category,
    constant,
    counted_in,
    items,
    known,
    number,
    numbers_in,
    shown,
    without_missing,
)
from etlrun.stages.flow import Faults, Feature, UnfitError
from etlrun.stages.lazy import pa, pc, tf
from etlrun.stages.paths import OptionalPath
from etlrun.stages.words import vocabulary_of
from etlrun.system.values import frozen

_Values = Annotated[tuple[str | int, ...], Field(min_length=1)]
MOST_VALUES = 1_000_000
"""Most values of a vocabulary."""


@frozen
class Lookup(ColumnStep):
    """The index of a value in a vocabulary, as Keras's `StringLookup` and `IntegerLookup`; a missing one is unknown.

    Attributes:
        values: The vocabulary; null to learn it from the training split, the most frequent value first.
        file: File of UTF-8 text with a value in each line, in the place of `values`.
        top: Number of values that are learned, the most frequent ones; null for all.
        min_count: Rows that have to have a value for it to be learned.
        oov: Indices for values that are not in the vocabulary, before its own; or `error`.
    """

    name = "lookup"
    main = "values"
    learned = ("values",)

    values: Annotated[_Values | None, Expected("a list of texts or of integers, or null to learn it"), DATA] = None
    file: Data[OptionalPath] = None
    top: Data[OptionalPositive] = None
    min_count: Data[Positive] = 1
    oov: Data[Annotated[int, Field(ge=1)] | Literal["error"]] = 1

    @staticmethod
    def op(found: tf.Tensor, *, values: list[str | int], oov: Any, table: Any = None) -> tf.Tensor:
        """Return int64 indices: from 0 below `oov` for values outside of the vocabulary, then in its order.

        `table` is that of `Lookup.table`, for a caller who keeps it; without one it is made here.
        """
        is_text = found.dtype == tf.string
        looked_up = found if is_text else tf.cast(found, tf.int64)
        is_one = oov == 1 and not found.dtype.is_floating  # all unknown values have one index
        if table is None:
            first = 0 if oov == "error" else oov
            keys = tf.constant(values, tf.string if is_text else tf.int64)
            numbers = tf.range(first, first + len(values), dtype=tf.int64)
            table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, numbers), 0 if oov == 1 else -1)
        index = table.lookup(looked_up)
        if is_one:
            return index
        if found.dtype.is_floating:
            index = tf.where(tf.cast(looked_up, found.dtype) == found, index, -tf.ones_like(index))
        if oov == "error":
            known = tf.debugging.Assert(tf.reduce_all(index >= 0), ["a value that is in no vocabulary", found])
            with tf.control_dependencies([known]):
                return tf.identity(index)
        bins = tf.strings.to_hash_bucket_fast(found, oov) if is_text else tf.math.floormod(looked_up, oov)
        return tf.where(index < 0, bins, index)

    def table(self) -> Any:
        """Return the table of the vocabulary, from each value to its index."""
        first, values = self.oov if isinstance(self.oov, int) else 0, self.values or ()
        keys = tf.constant(values, tf.string if isinstance(values[0], str) else tf.int64)
        numbers = tf.range(first, first + len(values), dtype=tf.int64)
        unknown = 0 if self.oov == 1 else -1
        return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, numbers), unknown)

    def faults(self) -> Faults:
        values = self.values or ()
        if len({isinstance(value, str) for value in values}) > 1:
            number = next(value for value in values if not isinstance(value, str))
            yield "values", f"texts and {number}", "texts alone, or integers alone", f"write '{number}' in quotes"
        elif len(set(values)) < len(values):
            twice = next(value for place, value in enumerate(values) if value in values[:place])
            yield "values", f"{twice} twice", "each value once", "remove one of the two"

    def rules(self) -> Faults:
        if self.values is not None and self.file is not None:
            yield "file", self.file, "null, since the values are given", "remove one of the two"
        is_given = self.values is not None or self.file is not None
        for name, value in (("top", self.top), ("min_count", self.min_count)):
            if is_given and value not in (None, 1):
                yield name, value, "no limit, since the values are given", "leave it out"

    @property
    def text(self) -> str:
        known = shown(self.values) if self.values else "not read yet"
        return f"{self.name} {known}{f' (oov {self.oov})' if self.oov != 1 else ''}"

    def opened(self) -> Self:
        return self if self.file is None or self.values is not None else self._limited(vocabulary_of(self.file))

    def _limited(self, values: tuple[Any, ...]) -> Self:
        if len(values) > MOST_VALUES:
            expected = f"at most {MOST_VALUES:,} values of a vocabulary"
            remedy = "set `top` to fewer, or use {hash: 100000} in its place"
            raise UnfitError(expected, remedy, f"{len(values):,} different values")
        return self.replace(values=values)

    def fitted(self, values: Values, incoming: Feature) -> Self:
        if not incoming.is_sequence:
            counted = counted_in(known(values()))
        elif not len(counted := values(counts=(self.min_count, self.top or MOST_VALUES + 1))):
            known(values())
        found, counts = by_frequency(counted)
        kept = [value for value, count in zip(found, counts, strict=True) if count >= self.min_count][: self.top]
        if any(isinstance(value, float) for value in kept):
            raise UnfitError("text or integers", "put `bucketize` or `quantiles` in its place")
        if not kept:
            remedy = f"lower `min_count`; the most frequent value is there {counts[0]:,} times"
            nothing = f"no value {self.min_count:,} times in the training split"
            raise UnfitError("at least one value of the vocabulary", remedy, nothing)
        return self._limited(tuple(kept))

    def gives(self, incoming: Feature) -> Feature:
        if incoming.format not in (None, "text") or incoming.categories is not None:
            raise UnfitError("text or integers", "leave it out, or put it before the categories")
        if self.oov == "error":
            without_missing(incoming)
        if self.values and isinstance(self.values[0], str) is not (incoming.dtype == "string"):
            remedy = "list those" if self.file is None else "give `values`, since those of a file are text"
            expected = f"{'text' if isinstance(self.values[0], str) else 'integers'}, as the vocabulary has"
            raise UnfitError(expected, remedy)
        extra = self.oov if isinstance(self.oov, int) else 0
        categories = len(self.values or ()) + extra
        return Feature(dtype="int64", shape=incoming.shape, categories=categories)

    def unknown(self, values: pa.Array) -> pa.Array:
        """Return those of the values before it that are not in the vocabulary, without missing ones."""
        values = items(values)
        is_text = pa.types.is_large_binary(values.type)
        is_float = pa.types.is_floating(values.type)
        kind = pa.large_binary() if is_text else pa.float64() if is_float else pa.int64()
        keys = [of.encode() if isinstance(of, str) else float(of) if is_float else of for of in self.values or ()]
        there = values.drop_null().cast(kind, safe=False)
        return there.filter(pc.invert(pc.is_in(there, pa.array(keys, kind))))


@frozen
class Classes(Lookup):
    """The index of a class, in the order of their values; a plan puts it behind a target that is a class."""

    name = "class"

    oov: Data[Literal["error"]] = "error"

    def fitted(self, values: Values, incoming: Feature) -> Self:
        as_integers = values if incoming.dtype == "string" else (lambda: values().cast("int64"))
        learned = super().fitted(as_integers, incoming).values
        return self.replace(values=tuple(sorted(learned or ())))

    def gives(self, incoming: Feature) -> Feature:
        texts: dict[str | int, str] = {0: "false", 1: "true"} if incoming.dtype == "bool" else {}
        names = tuple(texts.get(value, str(value)) for value in self.values or ())
        return super().gives(without_missing(incoming)).replace(is_class=True, categories=None, classes=names)


@frozen
class OneHot(ColumnStep):
    """A vector with a 1 at the index of the category, as Keras's `CategoryEncoding`.

    Attributes:
        categories: Number of categories, which the step before it knows.
    """

    name = "one_hot"
    learned = ("categories",)

    categories: Data[OptionalPositive] = None

    @staticmethod
    def op(index: tf.Tensor, *, categories: int) -> tf.Tensor:
        """Return float32 vectors of `categories`."""
        return tf.one_hot(index, categories)

    @property
    def text(self) -> str:
        return self.name if self.categories is None else f"{self.name} ({self.categories:,})"

    def fitted(self, values: Values, incoming: Feature) -> Self:
        return self.replace(categories=incoming.categories)

    def gives(self, incoming: Feature) -> Feature:
        depth = category(incoming)
        if self.categories is not None and self.categories < depth:
            remedy = "leave `categories` out, since the step before it knows them"
            raise UnfitError(f"at most {self.categories} categories", remedy)
        return Feature(dtype="float32", shape=(*incoming.shape, self.categories or depth), low=0.0, high=1.0)


@frozen
class Embed(ColumnStep):
    """Lets the model represent each category by a vector that it learns.

    Attributes:
        dimension: Dimension of the vector; null for the fourth root of the number of categories, rounded up.
        padding: Whether index 0 is kept for the padding of sequences, which the step before it knows.
        trainable: A constant of fingerprints, and of what is kept.
    """

    name = "embed"
    main = "dimension"
    learned = ("padding",)

    dimension: Data[OptionalPositive] = None
    padding: Learned[bool] = None
    trainable: Literal[True] = True

    @staticmethod
    def op(index: tf.Tensor, *, padding: bool) -> tf.Tensor:
        """Return the index, which the model embeds: in sequences from 1, since 0 is behind their ends."""
        return index + 1 if padding else index

    @property
    def text(self) -> str:
        return self.name if self.dimension is None else f"{self.name} {self.dimension}"

    def fitted(self, values: Values, incoming: Feature) -> Self:
        return self.replace(padding=incoming.is_sequence)

    def gives(self, incoming: Feature) -> Feature:
        count = category(incoming)
        dimension = self.dimension or math.ceil(count**0.25)
        return incoming.replace(embedding=dimension, categories=count + incoming.is_sequence)


_Boundaries = Annotated[tuple[Number, ...], Field(min_length=1)]
_ASCENDING = "a list of numbers, each above the one before it"


@frozen
class Bucketize(ColumnStep):
    """The number of the range in which a value is, as Keras's `Discretization`.

    Attributes:
        boundaries: Numbers in ascending order; a value that equals one of them is above it.
    """

    name = "bucketize"
    main = "boundaries"

    boundaries: Annotated[_Boundaries, Expected(_ASCENDING), DATA]

    @staticmethod
    def op(values: tf.Tensor, *, boundaries: list[float]) -> tf.Tensor:
        """Return int64 indices from 0, below the first boundary, to the number of the boundaries."""
        flat = tf.reshape(tf.cast(values, tf.float64), [-1])
        found = tf.searchsorted(tf.constant(boundaries, tf.float64), flat, side="right", out_type=tf.int64)
        return tf.reshape(found, tf.shape(values))

    def faults(self) -> Faults:
        pairs = [(low, high) for low, high in pairwise(self.boundaries or ()) if low >= high]
        if pairs:
            yield "boundaries", f"{shown(pairs[0][1])} behind {shown(pairs[0][0])}", _ASCENDING, "sort them"

    def gives(self, incoming: Feature) -> Feature:
        number(without_missing(incoming))
        return Feature(dtype="int64", shape=incoming.shape, categories=len(self.boundaries or ()) + 1)


@frozen
class Quantiles(Bucketize):
    """The number of the range in which a value is, of ranges with as many rows each; as `bucketize`.

    Attributes:
        count: Number of ranges; equal quantiles are one boundary.
        boundaries: Boundaries of the ranges; null for the quantiles of the training split.
    """

    name = "quantiles"
    main = "count"
    learned = ("boundaries",)

    count: Data[Annotated[int, Field(ge=2, le=10_000)]]
    boundaries: Annotated[_Boundaries | None, Expected(f"null to learn them, or {_ASCENDING}"), DATA] = None  # type: ignore[assignment]

    def fitted(self, values: Values, incoming: Feature) -> Self:
        numbers = numbers_in(values())
        places = [place / self.count for place in range(1, self.count)]
        found = tuple(dict.fromkeys(pc.quantile(numbers, places).to_pylist()))
        least = pc.min(numbers).as_py()
        if found == (least,) and pc.max(numbers).as_py() == least:
            raise constant(f"{shown(least)} in each row of the training split")
        return self.replace(boundaries=found)


@frozen
class Identity(ColumnStep):
    """The value itself as the index of a category, from 0.

    Attributes:
        categories: Number of categories; another value is an error.
    """

    name = "identity"
    main = "categories"

    categories: Data[Positive]

    @staticmethod
    def op(values: tf.Tensor, *, categories: int) -> tf.Tensor:
        """Return int64 indices from 0 below `categories`."""
        index = tf.cast(values, tf.int64)
        is_whole = tf.cast(index, values.dtype) == values
        is_known = tf.reduce_all(is_whole & (index >= 0) & (index < categories))
        known = tf.debugging.Assert(is_known, ["a value that is no category from 0 below", categories, values])
        with tf.control_dependencies([known]):
            return tf.identity(index)

    def gives(self, incoming: Feature) -> Feature:
        number(without_missing(incoming))
        low, high = incoming.low, incoming.high
        if any(end is not None and end != int(end) for end in (low, high)):
            raise UnfitError("integers", "put `bucketize` or `quantiles` in its place")
        if low is not None and high is not None and (low < 0 or high >= self.categories):
            remedy = f"write {{identity: {int(high) + 1}}}" if low >= 0 else "use lookup, or bucketize"
            expected = f"integers from 0 to {self.categories - 1}"
            raise UnfitError(expected, remedy)
        return Feature(dtype="int64", shape=incoming.shape, categories=self.categories)


@frozen
class Hash(ColumnStep):
    """The index of a bin that the hash of a text or of an integer determines, as Keras's `Hashing`.

    Attributes:
        bins: Number of bins.
    """

    name = "hash"
    main = "bins"

    bins: Data[Positive]

    @staticmethod
    def op(values: tf.Tensor, *, bins: int) -> tf.Tensor:
        """Return int64 indices from 0 below `bins`."""
        text = values if values.dtype == tf.string else tf.strings.as_string(tf.cast(values, tf.int64))
        return tf.strings.to_hash_bucket_fast(text, bins)

    def gives(self, incoming: Feature) -> Feature:
        if incoming.dtype.startswith("float") or incoming.format not in (None, "text"):
            raise UnfitError("text or integers", "put `bucketize` before it")
        return Feature(dtype="int64", shape=incoming.shape, categories=self.bins)


@frozen
class Cross(ColumnStep):
    """The index of a bin that the values of several columns together determine, as Keras's `HashedCrossing`.

    Attributes:
        bins: Number of bins.
    """

    name = "cross"
    main = "bins"
    takes = 2

    bins: Data[Positive]

    @staticmethod
    def op(values: tuple[tf.Tensor, ...], *, bins: int) -> tf.Tensor:
        """Return int64 indices from 0 below `bins`, of values of one shape."""
        plain = [of if of.dtype == tf.string else tf.cast(of, tf.int64) for of in values]
        crossed = tf.sparse.cross_hashed([tf.reshape(of, [-1, 1]) for of in plain], bins)
        return tf.reshape(tf.sparse.to_dense(crossed), tf.shape(values[0]))

    def gives(self, incoming: Any) -> Feature:
        """Return its output for several columns; raise `UnfitError` if it doesn't accept one of them."""
        for feature in incoming:
            if feature.is_sequence:
                raise UnfitError("single values, no sequences", "choose other columns")
            if feature.dtype.startswith("float") or feature.format not in (None, "text"):
                remedy = "name an output above it that ends with `bucketize` or `quantiles`, and `embed`"
                raise UnfitError("text, integers or categories", remedy)
        if len({feature.shape for feature in incoming}) > 1:
            raise UnfitError("columns of one shape", "choose others")
        return Feature(dtype="int64", shape=incoming[0].shape, categories=self.bins)


CATEGORIES: tuple[type[ColumnStep], ...] = (Bucketize, Quantiles, Identity, Lookup, Hash, Cross, OneHot, Embed)
