"""Steps that make categories of numbers, by boundaries, and of any values, by hashes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Self

from pydantic import Field

from etlrun.stages.base import DATA, Expected, Number, Positive
from etlrun.stages.column_step import ColumnStep, constant, known, number, shown, without_missing
from etlrun.stages.flow import Faults, Feature, UnfitError
from etlrun.stages.lazy import pa, pc, tf

_Boundaries = Annotated[tuple[Number, ...], Field(min_length=1)]
_ASCENDING = "a list of numbers, each above the one before it"


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class Quantiles(Bucketize):
    """The number of the range in which a value is, of ranges with as many rows each; as `bucketize`.

    Attributes:
        count: Number of ranges; quantiles that are equal are one boundary.
        boundaries: Boundaries of the ranges; null for the quantiles of the training split.
    """

    name = "quantiles"
    main = "count"
    learned = ("boundaries",)
    not_of_op = ("count",)

    count: Annotated[Annotated[int, Field(ge=2, le=10_000)], DATA]
    boundaries: Annotated[_Boundaries | None, Expected(f"null to learn them, or {_ASCENDING}"), DATA] = None  # type: ignore[assignment]

    def fitted(self, values: Callable[[], pa.Array], incoming: Feature) -> Self:
        numbers = known(values()).cast(pa.float64(), safe=False)
        places = [place / self.count for place in range(1, self.count)]
        found = tuple(dict.fromkeys(pc.quantile(numbers, places).to_pylist()))
        least = pc.min(numbers).as_py()
        if found == (least,) and pc.max(numbers).as_py() == least:
            raise constant(f"{shown(least)} in each row of the training split")
        return self.replace(boundaries=found)


@dataclass(frozen=True, kw_only=True)
class Identity(ColumnStep):
    """The value itself as the index of a category, from 0.

    Attributes:
        categories: Number of categories; a larger value, or a negative one, is an error.
    """

    name = "identity"
    main = "categories"

    categories: Annotated[Positive, DATA]

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


@dataclass(frozen=True, kw_only=True)
class Hash(ColumnStep):
    """The index of a bin that the hash of a text or of an integer determines, as Keras's `Hashing`.

    Attributes:
        bins: Number of bins.
    """

    name = "hash"
    main = "bins"

    bins: Annotated[Positive, DATA]

    @staticmethod
    def op(values: tf.Tensor, *, bins: int) -> tf.Tensor:
        """Return int64 indices from 0 below `bins`."""
        text = values if values.dtype == tf.string else tf.strings.as_string(tf.cast(values, tf.int64))
        return tf.strings.to_hash_bucket_fast(text, bins)

    def gives(self, incoming: Feature) -> Feature:
        if incoming.dtype.startswith("float") or incoming.format not in (None, "text"):
            raise UnfitError("text or integers", "put `bucketize` before it")
        return Feature(dtype="int64", shape=incoming.shape, categories=self.bins)


@dataclass(frozen=True, kw_only=True)
class Cross(ColumnStep):
    """The index of a bin that the values of several columns together determine, as Keras's `HashedCrossing`.

    Attributes:
        bins: Number of bins.
    """

    name = "cross"
    main = "bins"
    takes = 2

    bins: Annotated[Positive, DATA]

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
