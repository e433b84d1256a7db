"""Overrides in Hydra's grammar: what a command line's words set, with which values, in which combinations."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException

from etlrun.errors import Fault, did_you_mean, likeliest, one_line

_MOST_VALUES = 100_000
"""Of a key: `range` may give more than memory holds."""


@dataclass(frozen=True)
class Value:
    """One value of an override.

    Attributes:
        text: As Hydra's grammar writes it.
        plain: As Python has it.
    """

    text: str
    plain: Any


@dataclass(frozen=True, eq=False)
class Axis:
    """An override with its values, and whether it chooses an option of a group."""

    override: Override
    is_group: bool
    values: tuple[Value, ...]

    @classmethod
    def of(cls, override: Override, loader: ConfigLoader) -> Axis:
        """The axis of an override, with one value where it is no sweep."""
        options = loader.get_group_options(override.key_or_group)
        if override.is_interval_sweep():
            ends = override.value()
            values = tuple(Value(str(end), end) for end in (ends.start, ends.end))
        elif override.is_discrete_sweep():
            convert = Override._convert_value  # noqa: SLF001 - what `value()` does with one value: it takes off quotes
            both = zip(override.sweep_string_iterator(), map(convert, override.sweep_iterator()), strict=True)
            values = tuple(Value(str(text), value) for text, value in islice(both, _MOST_VALUES + 1))
        else:
            values = (Value(override.get_value_element_as_str(), override.value()),)
        is_mapping = any(isinstance(value.plain, dict) for value in values)  # of values that stand in the group
        return cls(override, bool(options) and not is_mapping, values)

    @property
    def key(self) -> str:
        """As it was written, with its `+` or `~`."""
        return str(self.override.get_key_element())

    @property
    def is_plain(self) -> bool:
        """Whether it sets a value that Hydra expects to be there."""
        return not (self.is_group or self.key.startswith(("+", "~", "hydra.")))

    def covers(self, other: Axis) -> bool:
        """Whether it sets, adds or removes the whole of what `other` sets."""
        if self.is_group or other.is_group:
            return self.key == other.key
        return f"{other.override.key_or_group}.".startswith(f"{self.override.key_or_group}.")

    @property
    def is_of_sweep(self) -> bool:
        """Whether it says how the sweep goes, and nothing about a job."""
        return f"{self.key.lstrip('+')}.".startswith("sweep.")

    def word(self, value: Value) -> str:
        """The override with one of its values."""
        return self.override.input_line or "" if self.override.is_delete() else f"{self.key}={value.text}"

    def faults_of_grid(self) -> Iterator[Fault]:
        """A grid has no place for an interval."""
        if self.override.is_interval_sweep():
            remedy = "list the values, or search: hydra/sweeper=optuna"
            yield Fault(where=self.key, found="an interval", expected="values for a grid", remedy=remedy)

    def fault(self, options: Sequence[str]) -> Fault | None:
        """The fault of an axis without values, or with an option that its group lacks; lists are left to Hydra."""
        if not self.values:
            remedy = f"give {self.key} a value, or leave it out"
            return Fault(where=self.key, found="no value", expected="a value for each job", remedy=remedy)
        if len(self.values) > _MOST_VALUES:
            found = f"more than {_MOST_VALUES:,} values"
            return Fault(where=self.key, found=found, expected="as many values as there can be jobs")
        if self.is_of_sweep and len(self.values) > 1:
            found = f"{len(self.values)} values"
            return Fault(where=self.key, found=found, expected="one value: it is of the sweep, not of a job")
        for value in self.values if self.is_group and not self.override.is_delete() else ():
            if value.plain not in options and not isinstance(value.plain, list):
                word = value.plain if isinstance(value.plain, str) else value.text
                meant = word if word in options else likeliest(word, options)
                return Fault(
                    where=self.override.key_or_group,
                    found=f"the unknown option '{word}'" if meant != word else f"{word}, which is no text",
                    expected=f"one of {', '.join(options)}",
                    remedy=f"did you mean {typed(self.override.key_or_group, meant)}?" if meant else "",
                )
        return None


_BARE = re.compile(r"(?!(?:true|false|null|nan|inf)$)[a-z_][a-z0-9_-]*", re.IGNORECASE | re.ASCII)
"""What Hydra's grammar takes as a text without quotes; it takes more, but that is not so simple."""


def quoted(word: str) -> str:
    """The override KEY=VALUE for a value that is a text, whatever marks are in it."""
    key, _, value = word.partition("=")
    return f"{key}={QuotedString(value, Quote.double).with_quotes()}"


def typed(group: str, option: str) -> str:
    """What chooses an option of a group in a shell."""
    word = f"{group}={option}"
    return word if _BARE.fullmatch(option) else shlex.quote(quoted(word))


def one_by_one(axes: Sequence[Axis]) -> Iterator[Chosen]:
    """The first value of each axis, and each other value with the first ones of the others."""
    first = {axis: axis.values[0] for axis in axes}
    yield first
    for axis in axes:
        for value in axis.values[1:]:
            yield {**first, axis: value}


def parsed(words: Sequence[str], loader: ConfigLoader | None) -> tuple[list[Override], list[Fault]]:
    """The overrides that are in Hydra's grammar, and a fault for each that is not."""
    parser, overrides, faults = OverridesParser.create(config_loader=loader), [], []
    for word in words:
        try:
            overrides += parser.parse_overrides([word if word.partition("=")[0] else ""])
        except (HydraException, ValueError, RecursionError) as error:
            key, _, value = word.partition("=")
            remedy = f"""quote the value, once for Hydra and once for the shell: '{key}="{value}"'"""
            remedy = remedy if value else f"write {key}=VALUE"
            found = one_line(error).split(" See http")[0]
            if found.startswith("LexerNoViableAltException"):
                found = "a mark that is allowed in quotes only"
            faults.append(Fault(where=word, found=found, expected="KEY=VALUE in Hydra's grammar", remedy=remedy))
    return overrides, faults


Chosen = dict[Axis, Value]


def set_last(axes: Iterable[Axis]) -> list[Axis]:
    """The plain values that may be set after all others: none that is set before comes later and is about the same."""
    last: list[Axis] = []
    before: list[Axis] = []
    for axis in reversed(list(axes)):
        if axis.is_plain and not any(axis.covers(later) or later.covers(axis) for later in before):
            last.insert(0, axis)
        elif not axis.is_group:
            before.append(axis)
    return last


def covered(axes: Sequence[Axis]) -> Iterator[Fault]:
    """Several values of which none counts, since a later override takes their place in every job."""
    for place, axis in enumerate(axes):
        for later in axes[place + 1 :] if len(axis.values) > 1 else ():
            if later.covers(axis):
                yield Fault(
                    where=axis.key,
                    found=f"{len(axis.values)} values, and {later.override.input_line} after them",
                    expected="values that count: of two overrides of a key the last one does",
                    remedy="leave one of the two out",
                )


class Combinations:
    """The combinations of the values of some axes, in order: those of the last axis change fastest.

    Attributes:
        faults: Of the zipped keys and the rules, by `sweep.zip` and `sweep.exclude`.
    """

    def __init__(self, axes: Sequence[Axis], zipped: Sequence[Sequence[str]], exclude: Sequence[str]) -> None:
        self.axes = axes
        self.faults: list[Fault] = []
        self._by_key = {axis.key.lstrip("+"): axis for axis in axes}
        self._groups = self._zipped(zipped)
        self._rules = [self._rule(rule) for rule in exclude]

    def __iter__(self) -> Iterator[Chosen]:
        """What each axis is in each combination that no rule leaves out."""
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
        """The axes that go together, each group at the place of its first axis."""
        found: dict[str, list[Axis]] = {}
        for place, keys in enumerate(zipped):
            where = f"sweep.zip[{place}]"
            axes = [self._axis(key, where) for key in keys]
            lengths = [len(axis.values) for axis in axes if axis]
            if None in axes:
                continue
            if len(set(lengths)) > 1 or len(set(keys)) < len(keys) or any(key in found for key in keys):
                counts = ", ".join(f"{key} with {length}" for key, length in zip(keys, lengths, strict=True))
                self._fault(where, counts, "as many values of each, and each key in one list")
                continue
            group = [axis for axis in axes if axis]
            found |= dict.fromkeys(keys, group)
        groups = [found.get(axis.key.lstrip("+"), [axis]) for axis in self.axes]
        return [group for place, group in enumerate(groups) if group not in groups[:place]]

    def _rule(self, rule: str) -> list[tuple[Axis, bool, set[str]]]:
        """The terms of a rule: an axis, whether it has to be one of the values, and these."""
        terms = []
        for term in rule.split():
            key, equals, values = term.partition("=")
            axis = self._axis(key.removesuffix("!"), f"sweep.exclude: {rule}") if equals else None
            if not equals:
                self._fault(f"sweep.exclude: {rule}", term, "terms KEY=VALUE or KEY!=VALUE, | between several values")
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
