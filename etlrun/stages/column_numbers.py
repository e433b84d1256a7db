"""Steps on columns, functions of TensorFlow on batches of values: their base, and those on numbers, times and gaps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, TypeVar

from etlrun.stages.base import DATA, Data, Expected, Number, PositiveNumber
from etlrun.stages.flow import Faults, Feature, UnfitError
from etlrun.stages.lazy import pa, pc, tf
from etlrun.stages.step import Step, fields_of
from etlrun.system.values import Block, frozen

_MOST_SHOWN = 6
"""Values of a list up to which a plan shows them."""
_LARGE = 10_000
"""Number from which a plan shows whole ones."""


_Type = TypeVar("_Type")
Learned = Annotated[_Type | None, Expected("null"), DATA]
"""Type of a field that no config sets."""
Values: TypeAlias = Callable[..., Any]
"""Function that returns the values before a step; see `ColumnStep.fitted`."""


class ColumnStep(Step):
    """A step on one column, or the first one on several.

    A graph calls `op` for a batch. Fields that are null and `learned` are set by `fitted`, from the values of the
    training split alone.

    Attributes:
        name: Its name in a config.
        main: Field that its value in a config sets, if that is no mapping: `{clip: [0, 1]}`; empty if there is none.
        learned: Fields that `fitted` sets.
        takes: How many columns it takes: 1, or 2 for any number of them from two on.
        of_sequences: Whether it takes or gives sequences; else it is applied to each of their items.
        gives_sequences: Whether it gives sequences, if it is of sequences.
        op: Function from values to values, with the fields of the class by name. Values have any shape.
    """

    name: ClassVar[str]
    main: ClassVar[str] = ""
    learned: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[int] = 1
    of_sequences: ClassVar[bool] = False
    gives_sequences: ClassVar[bool] = True

    @property
    def arguments(self) -> Block:
        """Fields by name, as `op` takes them: plain values, lists in the place of tuples."""
        return {name: _plain(value) for name, value in super().arguments.items()}

    @property
    def described(self) -> Block:
        """Arguments of `op`, and behind them the other fields that are set."""
        found = self.arguments  # once, since a vocabulary may be long
        others = {of.name: getattr(self, of.name) for of in fields_of(self) if of.name not in found}
        return found | {name: value for name, value in others.items() if value is not None}

    @property
    def _given(self) -> Block:
        """Fields that differ from their defaults."""
        return {of.name: value for of in fields_of(self) if (value := getattr(self, of.name)) != of.default}

    @property
    def written(self) -> Any:
        """The step as a config writes it: its name alone, with the value of its main field, or with several fields."""
        found = {name: _plain(value) for name, value in self._given.items()}
        if not found:
            return self.name
        return {self.name: found[self.main] if found.keys() == {self.main} else found}

    @property
    def text(self) -> str:
        """The step in a line of a plan, with its values and what it has learned."""
        given = self._given
        first = f" {shown(given.pop(self.main))}" if self.main in given else ""
        others = ", ".join(f"{name} {shown(value)}" for name, value in given.items())
        return f"{self.name}{first}{f' ({others})' if others else ''}"

    def replace(self, **changes: Any) -> Self:
        """Return this step with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var] # each step is a dataclass

    def applied(self, value: Any) -> Any:
        """Return what `op` gives for a value, or for each item of sequences."""
        if isinstance(value, tf.RaggedTensor) and not self.of_sequences:
            return value.with_flat_values(self.op(value.flat_values, **self.arguments))
        return self.op(value, **self.arguments)

    def lengths(self, before: Any) -> Any:
        """Return the numbers of items of sequences behind it, by those before it; None if these do not say it."""
        return None if self.of_sequences else before

    @property
    def is_fitted(self) -> bool:
        """Whether all values that it learns are known."""
        return all(getattr(self, name) is not None for name in self.learned)

    def opened(self) -> Self:
        """Return the step with what its files contain; raise `UnfitError` if they can't be read."""
        return self

    def fitted(self, values: Values, incoming: Feature) -> Self:
        """Return the step with what it learns: from the values before it in the training split, where null is missing.

        `values` returns them, which takes as long as reading the column; of sequences, which may not fit in memory,
        `values(counts=(least, most))` returns a table of the items, `value` and `count`: the `most` most frequent of
        those that are there `least` times, or the most frequent one. `incoming` is their feature. Raises `UnfitError`
        if nothing can be learned.
        """
        return self


LARGEST = 3.4028234663852886e38
"""Largest number of float32."""


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def shown(value: Any) -> str:
    """Return a value of a step in a line of a plan: numbers in four digits, long lists by their lengths."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(shown, value))}]" if len(value) <= _MOST_SHOWN else f"{len(value):,} values"
    if isinstance(value, float) and _LARGE <= abs(value) < _LARGE**3:
        return f"{value:,.0f}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def number(incoming: Feature) -> Feature:
    """Return the feature of float64 numbers; raise `UnfitError` unless `incoming` holds numbers without categories."""
    if incoming.dtype == "string" or incoming.categories is not None or incoming.format == "timestamp":
        is_time = incoming.format == "timestamp"
        raise UnfitError("numbers", "put `part` before it" if is_time else "leave it out, or use a step such as hash")
    return Feature(dtype="float64", shape=incoming.shape, has_missing=incoming.has_missing)


def plain(incoming: Feature) -> None:
    """Raise `UnfitError` unless `incoming` is numbers or text."""
    if incoming.format == "timestamp" or incoming.categories is not None:
        raise UnfitError("numbers or text", "put it behind `part`, or before the categories")


def without_missing(incoming: Feature) -> Feature:
    """Return the feature; raise `UnfitError` if values may be missing."""
    if incoming.has_missing:
        remedy = f"put {{fill: {'most_frequent' if incoming.dtype == 'string' else 'median'}}} before it"
        raise UnfitError("a value in each row", remedy, f"{incoming} of which some are missing")
    return incoming


def category(incoming: Feature) -> int:
    """Return the number of categories; raise `UnfitError` unless `incoming` is the index of one."""
    if incoming.categories is None:
        raise UnfitError("the index of a category", "put `lookup`, `bucketize` or `hash` before it")
    return incoming.categories


def items(values: pa.Array) -> pa.Array:
    """Return the values, those of sequences one after the other."""
    return values.flatten() if pa.types.is_large_list(values.type) else values


def known(values: pa.Array) -> pa.Array:
    """Return the values that are not missing; raise `UnfitError` if there are none."""
    found = items(values).drop_null()
    if not len(found):
        nothing = f"no value in the {len(values):,} rows of the training split"
        remedy = "leave the column out, or give the values in the config"
        raise UnfitError("at least one value to learn from", remedy, nothing)
    return found


def numbers_in(values: pa.Array) -> pa.Array:
    """Return the numbers that are not missing, float64; raise `UnfitError` if there are none."""
    return known(values).cast(pa.float64(), safe=False)


def constant(what: str) -> UnfitError:
    """Return the error of a column whose values do not differ, in the training split."""
    return UnfitError("values that differ in the training split", "leave the column out", what)


_STATISTICS = ("mean", "median", "most_frequent")


def counted_in(values: pa.Array) -> pa.Table:
    """Return each value that is not missing, column `value`, and how often it is there, column `count`."""
    found = values.drop_null().value_counts()
    return pa.table({"value": found.field(0), "count": found.field(1)})


def by_frequency(counted: pa.Table) -> tuple[list[Any], list[int]]:
    """Return the values and the counts of `counted_in`: the most frequent first, then in order of the values."""
    ordered = counted.sort_by([("count", "descending"), ("value", "ascending")])
    return [in_config(value) for value in ordered["value"].to_pylist()], ordered["count"].to_pylist()


def in_config(value: Any) -> Any:
    """Return a value of a column as a config writes it; a truth value as 0 or 1, a whole number as an integer."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return int(value) if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()) else value


@frozen
class Fill(ColumnStep):
    """Puts a value in the place of each missing one.

    Attributes:
        value: `mean`, `median` or `most_frequent` of the training split, or the value itself.
        indicator: Whether another output, NAME_missing, is 1 where the value was missing, else 0.
        filled: The value that was learned.
    """

    name = "fill"
    main = "value"
    learned = ("filled",)

    value: Annotated[str | int | Number, Expected("mean, median, most_frequent, a number or a text"), DATA]
    indicator: Data[bool] = False
    filled: Learned[str | int | Number] = None

    @staticmethod
    def op(values: tf.Tensor, *, filled: float | str) -> tf.Tensor:
        """Return the values with `filled` in the place of NaN, or of the text that stands for a missing one."""
        if values.dtype == tf.string:
            return tf.where(values == b"\xff", tf.constant(filled, tf.string), values)
        if not values.dtype.is_floating:
            return values
        return tf.where(tf.math.is_nan(values), tf.cast(filled, values.dtype), values)

    @property
    def text(self) -> str:
        learned = f" ({shown(self.filled)})" if self.filled not in (None, self.value) else ""
        return f"fill {shown(self.value)}{learned}"

    def fitted(self, values: Values, incoming: Feature) -> Self:
        if self.value not in _STATISTICS:
            return self.replace(filled=self.value)
        found = known(values())
        if self.value == "most_frequent":
            return self.replace(filled=by_frequency(counted_in(found))[0][0])
        numbers = found.cast(pa.float64(), safe=False)
        middle = pc.mean(numbers) if self.value == "mean" else pc.quantile(numbers, 0.5)[0]
        return self.replace(filled=float(middle.as_py()))

    def gives(self, incoming: Feature) -> Feature:
        plain(incoming)
        if incoming.dtype == "string" and (self.value in ("mean", "median") or not isinstance(self.value, str)):
            raise UnfitError("numbers", "write {fill: most_frequent}, or the text itself in quotes")
        if incoming.dtype != "string" and isinstance(self.value, str) and self.value not in _STATISTICS:
            raise UnfitError("text", "write {fill: median}, or a number")
        found = incoming.replace(has_missing=False)
        if isinstance(self.value, str) or incoming.low is None or incoming.high is None:
            return found
        return found.replace(low=min(incoming.low, self.value), high=max(incoming.high, self.value))


@frozen
class Missing(ColumnStep):
    """1 where the value is missing, else 0."""

    name = "missing"

    @staticmethod
    def op(values: tf.Tensor) -> tf.Tensor:
        """Return 1.0 in the place of NaN, or of the text that stands for a missing value, 0.0 in that of others."""
        if values.dtype == tf.string:
            return tf.cast(values == b"\xff", tf.float32)
        if not values.dtype.is_floating:
            return tf.zeros_like(values, tf.float32)
        return tf.cast(tf.math.is_nan(values), tf.float32)

    def gives(self, incoming: Feature) -> Feature:
        plain(incoming)
        return Feature(dtype="float32", shape=incoming.shape, low=0.0, high=1.0)


@frozen
class Log1p(ColumnStep):
    """The natural logarithm of 1 plus the value, of values above -1."""

    name = "log1p"

    @staticmethod
    def op(values: tf.Tensor) -> tf.Tensor:
        """Return log(1 + values)."""
        return tf.math.log1p(tf.cast(values, tf.float64))

    def gives(self, incoming: Feature) -> Feature:
        found = number(incoming)
        if incoming.low is not None and incoming.low <= -1:
            raise UnfitError("values above -1", "put {clip: [0, null]} before it, or leave it out")
        return found


@frozen
class Standardize(ColumnStep):
    """Subtracts the mean and divides by the standard deviation, as Keras's `Normalization`.

    Attributes:
        mean: Mean to subtract; null for that of the training split.
        std: Standard deviation to divide by; null for that of the training split.
    """

    name = "standardize"
    learned = ("mean", "std")

    mean: Data[Number | None] = None
    std: Data[PositiveNumber | None] = None

    @staticmethod
    def op(values: tf.Tensor, *, mean: float, std: float) -> tf.Tensor:
        """Return (values - mean) / std."""
        return (tf.cast(values, tf.float64) - mean) / max(std, 1e-7)

    def fitted(self, values: Values, incoming: Feature) -> Self:
        numbers = numbers_in(values())
        mean, std = pc.mean(numbers).as_py(), pc.stddev(numbers).as_py()
        ends = pc.min_max(numbers)
        if ends["min"].as_py() == ends["max"].as_py():
            raise constant(f"{shown(mean)} in each row of the training split")
        if not math.isfinite(mean) or not math.isfinite(std):
            low, high = ends["min"].as_py(), ends["max"].as_py()
            found = f"numbers from {low:g} to {high:g}, whose standard deviation is infinite"
            remedy = "repair them, write them in a larger unit, or put `clip` before it"
            raise UnfitError("numbers whose squares are finite", remedy, found)
        return self.replace(mean=mean if self.mean is None else self.mean, std=std if self.std is None else self.std)

    def gives(self, incoming: Feature) -> Feature:
        return number(without_missing(incoming))


@frozen
class Clip(ColumnStep):
    """Replaces values outside of a range by its nearer end.

    Attributes:
        range: Smallest and largest value, `[low, high]`, of which one may be null.
    """

    name = "clip"
    main = "range"

    range: Annotated[tuple[Number | None, Number | None], Expected("[low, high], of which one may be null"), DATA]

    @staticmethod
    def op(values: tf.Tensor, *, range: list[float | None]) -> tf.Tensor:  # noqa: A002 - the field's name
        """Return the values, at least `range[0]` and at most `range[1]`."""
        found = tf.cast(values, tf.float64)
        found = found if range[0] is None else tf.maximum(found, tf.constant(range[0], tf.float64))
        return found if range[1] is None else tf.minimum(found, tf.constant(range[1], tf.float64))

    def faults(self) -> Faults:
        low, high = self.range
        if (low is None and high is None) or (low is not None and high is not None and low >= high):
            ends = ", ".join("null" if end is None else shown(end) for end in self.range)
            yield "range", f"[{ends}]", "[low, high], low below high", ""

    def gives(self, incoming: Feature) -> Feature:
        low, high = self.range if None not in self.range else (None, None)
        return number(incoming).replace(low=low, high=high)


@frozen
class Part(ColumnStep):
    """A part of a time, in UTC: a number.

    Attributes:
        part: `year`, `month` (1 to 12), `day` (1 to 31), `weekday` (0 is Monday), `hour` or `minute`.
    """

    name = "part"
    main = "part"

    part: Data[Literal["year", "month", "day", "weekday", "hour", "minute"]]

    @staticmethod
    def op(values: tf.Tensor, *, part: str) -> tf.Tensor:
        """Return float64 numbers for microseconds since 1970; NaN for the time that stands for a missing one."""
        minutes = tf.math.floordiv(values, 60_000_000)
        days = tf.math.floordiv(minutes, 1_440)
        if part == "minute":
            found = tf.math.floormod(minutes, 60)
        elif part == "hour":
            found = tf.math.floordiv(tf.math.floormod(minutes, 1_440), 60)
        elif part == "weekday":
            found = tf.math.floormod(days + 3, 7)
        else:  # days since 1 March of year 0, in eras of 400 years
            era = tf.math.floordiv(days + 719_468, 146_097)
            of_era = days + 719_468 - era * 146_097
            years = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
            of_year = of_era - (365 * years + years // 4 - years // 100)
            month = (5 * of_year + 2) // 153
            if part == "day":
                found = of_year - (153 * month + 2) // 5 + 1
            elif part == "month":
                found = tf.math.floormod(month + 2, 12) + 1
            else:
                found = years + era * 400 + month // 10
        nan = tf.constant(float("nan"), tf.float64)
        return tf.where(values == tf.int64.min, nan, tf.cast(found, tf.float64))

    def gives(self, incoming: Feature) -> Feature:
        if incoming.format != "timestamp":
            raise UnfitError("a timestamp", "set dataset.columns={NAME: timestamp} if the column holds times")
        ends = {"month": (1, 12), "day": (1, 31), "weekday": (0, 6), "hour": (0, 23), "minute": (0, 59)}
        low, high = ends.get(self.part, (None, None))
        return Feature(dtype="float64", shape=incoming.shape, low=low, high=high, has_missing=incoming.has_missing)


NUMBERS: tuple[type[ColumnStep], ...] = (Fill, Missing, Part, Clip, Log1p, Standardize)
