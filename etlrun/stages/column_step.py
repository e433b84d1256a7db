"""The base of steps on columns: functions of TensorFlow on a batch of values, which may learn values from a split."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Self

from etlrun.stages.base import Stage
from etlrun.stages.code import remember
from etlrun.stages.flow import Feature, UnfitError
from etlrun.stages.lazy import pa, tf

_MOST_SHOWN = 6
"""Values of a list up to which a plan shows them."""
_LARGE = 10_000
"""Number from which a plan shows whole ones."""


class UnfitColumnError(UnfitError):
    """Error of a step that can't work on the values of a column, with what was found there."""

    def __init__(self, found: str, expected: str, remedy: str) -> None:
        self.found = found
        super().__init__(expected, remedy)


class ColumnStep(Stage):
    """A step on one column, or the first one on several.

    A graph calls `op` for a batch, an ejected program contains its source: it refers to nothing but its arguments and
    `tf`. Fields that are null and `learned` are set by `fitted`, from the values of the training split alone.

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
    not_of_op: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[int] = 1
    of_sequences: ClassVar[bool] = False
    gives_sequences: ClassVar[bool] = True
    op: ClassVar[Callable[..., Any]]

    def __init_subclass__(cls) -> None:
        if "op" in vars(cls):
            remember([cls.op])

    @property
    def _fields(self) -> tuple[dataclasses.Field[Any], ...]:
        return dataclasses.fields(self)  # type: ignore[arg-type] # each step is a dataclass

    @property
    def arguments(self) -> dict[str, Any]:
        """Fields by name, as `op` takes them: plain values, lists in the place of tuples."""
        return {of.name: _plain(getattr(self, of.name)) for of in self._fields if of.name not in self.not_of_op}

    @property
    def also(self) -> dict[str, Any]:
        """Fields that `op` does not take, and that are set."""
        return {name: value for name in self.not_of_op if (value := getattr(self, name)) is not None}

    @property
    def written(self) -> Any:
        """The step as a config writes it: its name alone, with the value of its main field, or with several fields."""
        found = {of.name: _plain(getattr(self, of.name)) for of in self._fields if getattr(self, of.name) != of.default}
        if not found:
            return self.name
        return {self.name: found[self.main] if found.keys() == {self.main} else found}

    @property
    def text(self) -> str:
        """The step in a line of a plan, with its values and what it has learned."""
        given = {of.name: getattr(self, of.name) for of in self._fields if getattr(self, of.name) != of.default}
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
        """Return the step with what its files contain; raise `UnfitColumnError` if they can't be read."""
        return self

    def fitted(self, values: Callable[[], pa.Array], incoming: Feature) -> Self:
        """Return the step with what it learns: from the values before it in the training split, where null is missing.

        `values` returns them, which takes as long as reading the column; of sequences, which may not fit in memory,
        `values(parts=True)` yields those of some rows after the other, and `values(counts=(least, most))` returns a
        table of the items, `value` and `count`: the `most` most frequent of those that are there `least` times, or the
        most frequent one. `incoming` is their feature. Raises `UnfitColumnError` if nothing can be learned.
        """
        return self

    def gives(self, incoming: Feature) -> Feature:
        """Return its output for a column; raise `UnfitError` if it doesn't accept that."""
        raise NotImplementedError


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
        remedy = (
            "put `part` before it" if incoming.format == "timestamp" else "leave it out, or use a step such as hash"
        )
        raise UnfitError("numbers", remedy)
    return Feature(dtype="float64", shape=incoming.shape, has_missing=incoming.has_missing)


def without_missing(incoming: Feature) -> Feature:
    """Return the feature; raise `UnfitError` if values may be missing."""
    if incoming.has_missing:
        remedy = "put {fill: most_frequent} before it" if incoming.dtype == "string" else "put {fill: median} before it"
        found = f"{incoming} of which some are missing"
        raise UnfitColumnError(found, "a value in each row", remedy)
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
    """Return the values that are not missing; raise `UnfitColumnError` if there are none."""
    found = items(values).drop_null()
    if not len(found):
        raise UnfitColumnError(
            f"no value in the {len(values):,} rows of the training split",
            "at least one value to learn from",
            "leave the column out, or give the values in the config",
        )
    return found


def constant(what: str, *, others: str = "") -> UnfitColumnError:
    """Return the error of a column whose values do not differ, in the training split."""
    remedy = f"leave the column out{others}"
    return UnfitColumnError(what, "values that differ in the training split", remedy)
