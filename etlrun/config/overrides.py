"""Overrides of a command line: their validation, and the combinations of their values."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from hydra.core.override_parser.types import Override

from etlrun.config.grammar import typed
from etlrun.planning.hints import of_option
from etlrun.system.errors import Fault, did_you_mean, likeliest

COMMANDS = {"sweep": "sweep", "tune": "search"}
"""Groups that configure a command, each with what that does."""
_MOST_VALUES = 100_000
"""Maximum number of values of a key: `range` may yield more than memory holds."""


@dataclass(frozen=True)
class Value:
    """Value of an override.

    Attributes:
        text: Text in Hydra's grammar.
        plain: Python value.
    """

    text: str
    plain: Any


@dataclass(frozen=True, eq=False)
class Axis:
    """Override with its values, and whether it selects an option of a group."""

    override: Override
    is_group: bool
    values: tuple[Value, ...]

    @classmethod
    def of(cls, override: Override, options: Sequence[str]) -> Axis:
        """Return the axis of an override, with a single value if it is not a sweep; `options` are those of a group."""
        if override.is_interval_sweep():
            ends = override.value()
            values = tuple(Value(str(end), end) for end in (ends.start, ends.end))
        elif override.is_discrete_sweep():
            convert = Override._convert_value  # noqa: SLF001 - as in `value()`, removes quotes
            both = zip(override.sweep_string_iterator(), map(convert, override.sweep_iterator()), strict=True)
            values = tuple(Value(str(text), value) for text, value in islice(both, _MOST_VALUES + 1))
        else:
            values = (Value(override.get_value_element_as_str(), override.value()),)
        is_mapping = any(isinstance(value.plain, dict) for value in values)  # values within the group
        return cls(override, bool(options) and not is_mapping, values)

    @property
    def key(self) -> str:
        """Key as written, with its `+` or `~`."""
        return str(self.override.get_key_element())

    @property
    def is_plain(self) -> bool:
        """Whether it changes an existing value, as Hydra expects."""
        return not (self.is_group or self.key.startswith(("+", "~", "hydra.")))

    def covers(self, other: Axis) -> bool:
        """Return whether it sets, adds or removes everything that `other` sets."""
        if self.is_group or other.is_group:
            return self.key == other.key
        return f"{other.override.key_or_group}.".startswith(f"{self.override.key_or_group}.")

    @property
    def command(self) -> str:
        """The command that it configures, `sweep` or `tune`; empty if it configures a run."""
        group = self.key.lstrip("+").partition(".")[0]
        return group if group in COMMANDS else ""

    def word(self, value: Value) -> str:
        """Return the override with one of its values."""
        return self.override.input_line or "" if self.override.is_delete() else f"{self.key}={value.text}"

    def faults_of_grid(self) -> Iterator[Fault]:
        """Yield the fault of an interval, which a grid cannot have."""
        if self.override.is_interval_sweep():
            remedy = "list the values, or search: hydra/sweeper=optuna"
            yield Fault(where=self.key, found="an interval", expected="values for a grid", remedy=remedy)

    def fault(self, options: Sequence[str], named: Mapping[str, str]) -> Fault | None:
        """Return the fault of an axis without values or with an unknown option; lists are left to Hydra.

        `named` has the options whose key `name` selects one of several things, by these names.
        """
        if not self.values:
            remedy = f"give {self.key} a value, or leave it out"
            return Fault(where=self.key, found="no value", expected="a value for each job", remedy=remedy)
        if len(self.values) > _MOST_VALUES:
            found = f"more than {_MOST_VALUES:,} values"
            return Fault(where=self.key, found=found, expected=f"at most {_MOST_VALUES:,}")
        if self.command and len(self.values) > 1:
            found = f"{len(self.values)} values"
            expected = f"one value: it configures the {COMMANDS[self.command]}, not a job"
            listed = f"{self.key}=[{','.join(value.text for value in self.values)}]"
            are_words = all(isinstance(value.plain, str) for value in self.values)
            return Fault(
                where=self.key, found=found, expected=expected, remedy=f"for a list write {listed}" * are_words
            )
        for value in self.values if self.is_group and not self.override.is_delete() else ():
            if value.plain not in options and not isinstance(value.plain, list):
                word = value.plain if isinstance(value.plain, str) else value.text
                known = [*options, *named]
                meant, group = word if word in known else likeliest(word, known), self.override.key_or_group
                chosen = typed(group, named.get(meant, meant)) if meant else ""
                remedy = f"did you mean {chosen}{f' {group}.name={meant}' if meant in named else ''}?"
                return Fault(
                    where=group,
                    found=f"{word}, which is not a string" if word in options else f"the unknown option '{word}'",
                    expected=f"one of {', '.join(options)}",
                    remedy=of_option(group, word, remedy * bool(meant)),
                )
        return None


def one_by_one(axes: Sequence[Axis]) -> Iterator[Chosen]:
    """Yield the first value of each axis, and then each other value with the first ones of the other axes."""
    first = {axis: axis.values[0] for axis in axes}
    yield first
    for axis in axes:
        for value in axis.values[1:]:
            yield {**first, axis: value}


Chosen = dict[Axis, Value]


def set_last(axes: Iterable[Axis]) -> list[Axis]:
    """Return the plain values that may be set last: no override after them affects the same keys."""
    last: list[Axis] = []
    before: list[Axis] = []
    for axis in reversed(list(axes)):
        if axis.is_plain and not any(axis.covers(later) or later.covers(axis) for later in before):
            last.insert(0, axis)
        elif not axis.is_group:
            before.append(axis)
    return last


def covered(axes: Sequence[Axis]) -> Iterator[Fault]:
    """Yield the faults of several values that a later override replaces in every job."""
    for place, axis in enumerate(axes):
        for later in axes[place + 1 :] if len(axis.values) > 1 else ():
            if later.covers(axis):
                yield Fault(
                    where=axis.key,
                    found=f"{len(axis.values)} values, and then {later.override.input_line}",
                    expected="one override for each key: the last one takes precedence",
                    remedy="remove one of the two",
                )


def unlisted(config: Mapping[str, Any], axes: Sequence[Axis], idle: Container[str]) -> Iterator[Fault]:
    """Yield the faults of valid keys that need a `+`, since no file of this config sets them.

    Keys that are `idle` in a combination belong to another option, and need not be in the files of this one.
    """
    for axis in axes:
        for value in axis.values:
            nested = value.plain
            for part in reversed(axis.key.split(".")):
                nested = {part: nested}
            for key in _absent(config, nested):
                if key not in idle:
                    yield Fault(
                        where=key,
                        found="a key that no file of this config sets",
                        expected="an existing key",
                        remedy=f"write +{axis.override.input_line} to add it",
                    )


def _absent(block: Any, values: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of `values` that are missing in a composed `block`."""
    if isinstance(block, dict) and isinstance(values, dict):
        for key, value in values.items():
            if key in block:
                yield from _absent(block[key], value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}"


class Combinations:
    """Combinations of the values of axes, in order: the last axis changes fastest.

    Attributes:
        faults: Faults of `sweep.zip` and `sweep.exclude`.
    """

    def __init__(self, axes: Sequence[Axis], zipped: Sequence[Sequence[str]], exclude: Sequence[str]) -> None:
        self.axes = axes
        self.faults: list[Fault] = []
        self._by_key = {axis.key.lstrip("+"): axis for axis in axes}
        self._groups = self._zipped(zipped)
        self._rules = [self._rule(rule) for rule in exclude]

    def __iter__(self) -> Iterator[Chosen]:
        """Yield the value of each axis in each combination that no rule excludes."""
        steps = [[dict(zip(group, row, strict=True)) for row in self._rows(group)] for group in self._groups]
        for parts in product(*steps):
            together = {axis: value for part in parts for axis, value in part.items()}
            chosen = {axis: together[axis] for axis in self.axes}
            if not any(self._holds(rule, chosen) for rule in self._rules):
                yield chosen

    @staticmethod
    def _rows(group: Sequence[Axis]) -> Iterator[tuple[Value, ...]]:
        return zip(*(axis.values for axis in group), strict=True)

    def _zipped(self, zipped: Sequence[Sequence[str]]) -> list[list[Axis]]:
        """Return the groups of zipped axes, each at the position of its first axis."""
        found: dict[str, list[Axis]] = {}
        for place, keys in enumerate(zipped):
            where = f"sweep.zip[{place}]"
            axes = [self._axis(key, where) for key in keys]
            lengths = [len(axis.values) for axis in axes if axis]
            if None in axes:
                continue
            if len(set(lengths)) > 1 or len(set(keys)) < len(keys) or any(key in found for key in keys):
                counts = ", ".join(f"{key} with {length}" for key, length in zip(keys, lengths, strict=True))
                self._fault(where, counts, "the same number of values for each key, and each key in one list")
                continue
            group = [axis for axis in axes if axis]
            found |= dict.fromkeys(keys, group)
        groups = [found.get(axis.key.lstrip("+"), [axis]) for axis in self.axes]
        return [group for place, group in enumerate(groups) if group not in groups[:place]]

    def _rule(self, rule: str) -> list[tuple[Axis, bool, set[str]]]:
        """Return the terms of a rule: an axis, whether it must have one of the values, and the values."""
        terms = []
        for term in rule.split():
            key, equals, values = term.partition("=")
            axis = self._axis(key.removesuffix("!"), f"sweep.exclude: {rule}") if equals else None
            if not equals:
                self._fault(f"sweep.exclude: {rule}", term, "terms KEY=VALUE or KEY!=VALUE, with | between values")
            if axis is not None:
                given = set(values.split("|"))
                known = [str(value.plain) if isinstance(value.plain, str) else value.text for value in axis.values]
                for value in sorted(given.difference(known)):
                    expected = f"one of {', '.join(known)}"
                    self._fault(f"sweep.exclude: {rule}", f"{key.removesuffix('!')}={value}", expected)
                terms.append((axis, not key.endswith("!"), given))
        return terms

    @staticmethod
    def _holds(rule: list[tuple[Axis, bool, set[str]]], chosen: Chosen) -> bool:
        return bool(rule) and all(
            bool(values & {chosen[axis].text, str(chosen[axis].plain)}) is wanted for axis, wanted, values in rule
        )

    def _axis(self, key: str, where: str) -> Axis | None:
        if key not in self._by_key:
            known = list(self._by_key)
            expected = f"one of {', '.join(known)}" if known else "a key that is on the command line"
            self._fault(where, f"the key {key}, which is not on the command line", expected, did_you_mean(key, known))
        return self._by_key.get(key)

    def _fault(self, where: str, found: str, expected: str, remedy: str = "") -> None:
        self.faults.append(Fault(where=where, found=found, expected=expected, remedy=remedy))
