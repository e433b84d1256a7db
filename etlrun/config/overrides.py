"""Overrides of a command line: Hydra's grammar, words that are none, and the combinations of values."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, product
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser, create_functions
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException

from etlrun.planning.hints import meant, of_option
from etlrun.planning.spec import leaves
from etlrun.stages import Stages
from etlrun.system.errors import Fault, did_you_mean, likeliest, one_line
from etlrun.system.shell import BARE, pasted
from etlrun.system.values import Composed

_grammar = cache(OverridesParser.create)
OPTIONS = ("--help", "--version", "--multirun", "--config-dir", "--config-name", "--cfg", "--info", "--hydra-help")
"""Options of a run, as `etlrun --help` lists them."""
_QUOTES = "'\""
_UNQUOTED = str.maketrans("", "", _QUOTES)
_PAIRS = {"[": "]", "{": "}"}
_AROUND = {**_PAIRS, "(": ")"}
_SIMPLE = re.compile(r"[\w./-]*", re.ASCII)
"""Values that the grammar takes; a subset."""
_SEVERAL = re.compile(r"[^\[{].*\s[A-Za-z_][\w.]*=")
"""Values that are followed by another override."""
_FUNCTIONS = create_functions().functions
"""Functions of Hydra's grammar."""
_NAMED = re.compile(r"[\w .-]+:(?!/)")
"""Beginning of an entry of a mapping, and of no URL."""


def stray(word: str, value: str, before: str, options: Sequence[str], config: Composed, stages: Stages) -> Fault:
    """Return the fault of a word that `sorted_out` found to be no override, with what was probably meant for `config`.

    `options` are those of the command, beside those of a run.
    """
    is_option = word.startswith("-")
    key = word.lstrip("+-").replace("-", "_") if is_option else word.lstrip("+")
    known = [key.path for key in meant(key, config, stages) if not key.needs]
    paths = [key] if "." in key else list(dict.fromkeys(known))
    written = " or ".join(f"{path}={shlex.quote(value) if value else 'VALUE'}" for path in paths)
    remedy = f"write {written}" if written else ""
    if before and not (written or is_option):
        remedy = f"quote a value with spaces: {pasted(' '.join(filter(None, (before, word, value))))}"
    return Fault(
        f"{word} {value}".rstrip(),
        "an unknown option" if is_option else "a word without `=`",
        f"overrides KEY=VALUE{', or options of etlrun --help' * is_option}",
        (is_option and did_you_mean(word, (*options, *OPTIONS), cutoff=0.8)) or remedy,
    )


def rejoined(words: Sequence[str]) -> tuple[list[str], list[Fault]]:
    """Return words without values that a shell has split at spaces or at commas in braces, and their faults.

    The remedy of a fault is the whole word in quotes.
    """
    kept, faults, rest = list[str](), list[Fault](), [*words]
    while rest:
        word = rest.pop(0)
        number, whole, marks = _at_spaces(word, rest) or _at_commas(word, rest) or (0, word, "")
        del rest[:number]
        if number:
            found, remedy = f"a value that the shell has split at its {marks}", f"quote it: {pasted(whole)}"
            faults.append(Fault(word.partition("=")[0], found, "one word", remedy))
        else:
            kept.append(word)
    return kept, faults


def _at_spaces(word: str, rest: Sequence[str]) -> tuple[int, str, str] | None:
    """Return how many words end the brackets of an override, and the whole of it; None if it has none, or no end."""
    value = word.partition("=")[2]
    for number, of in enumerate(rest, 1):
        if "=" in of or not _unclosed(value):
            break
        word, value = f"{word} {of}", f"{value} {of}"
        if not _unclosed(value):
            return number, word, "spaces"
    return None


def _at_commas(word: str, rest: Sequence[str]) -> tuple[int, str, str] | None:
    """Return how many words of the same key are a mapping with it, and the whole of that; None for other values."""
    key, _, value = word.partition("=")
    number = next((place for place, of in enumerate(rest) if not of.startswith(f"{key}=")), len(rest))
    values = [value, *(of.partition("=")[2] for of in rest[:number])]
    whole = f"{key}={_expanded(values)}"
    is_mapping = number and all(map(_NAMED.match, (values[0].lstrip("["), values[-1].lstrip("["))))
    return (number, whole, "commas in braces") if is_mapping and _parsed(whole) else None


def _expanded(values: Sequence[str]) -> str:
    """Return what a shell has expanded to these values, with its braces."""
    around = re.fullmatch(r"(\[*)(.*?)(\]*)", values[0], re.DOTALL)
    first, last = (around[1], around[3]) if around and around[1] else ("", "")
    return f"{first}{{{','.join(of.removeprefix(first).removesuffix(last) for of in values)}}}{last}"


def sorted_out(words: Sequence[str]) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Return the overrides among `words`, and each other word with its value and the override that it may continue."""
    overrides, strays = [], []
    rest, before = list(words), ""
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") and ("=" in word or word[:1] in ("~", "")):
            overrides.append(before := word)
            continue
        name, has_value, value = word.partition("=")
        if not has_value and rest and "=" not in rest[0] and not rest[0].startswith(("-", "~")):
            value = rest.pop(0)
        strays.append((name, value, before))
        before = ""
    return overrides, strays


def parsed(words: Sequence[str], loader: ConfigLoader | None) -> tuple[list[Override], list[Fault]]:
    """Return the overrides that Hydra's grammar accepts, and a fault for each other one."""
    parser, overrides, faults = OverridesParser.create(config_loader=loader), [], []
    for word in words:
        try:
            overrides += parser.parse_overrides([spelled(word) if word.partition("=")[0] else ""])
        except (HydraException, ValueError, RecursionError) as error:
            key, _, value = word.partition("=")
            key, value = key.lstrip(_QUOTES), value.strip(_QUOTES)
            missing = _unclosed(value)
            requoted = _requoted(key, f"{value}{missing}")
            remedy = f"write {requoted}" if missing else f"quote the value: {requoted}"
            remedy = remedy if value else f"write {key}=VALUE" if key else "leave it out"
            several = word.split()
            if several[1:] and all("=" in of and _parsed(of) for of in several):
                remedy = f"pass each override by itself: {word}"
            found = f"no closing {missing}" if missing else one_line(error).split(" See http")[0]
            if found.startswith("LexerNoViableAltException"):
                found = "a character that must be quoted"
            found = "a word without `=`" if word and "=" not in word else found if word else "an empty word"
            mended = ((shlex.split(requoted)[0],),) if value and key and not several[1:] else ()
            faults.append(Fault(word, found, "KEY=VALUE in Hydra's grammar", remedy, overrides=mended))
    return overrides, faults


def in_one_argument(fault: Fault, argument: str) -> Fault:
    """Return the fault of one of the overrides in an argument, with this whole argument as the remedy writes it."""
    told, has_quotes, shown = fault.remedy.partition(": ")
    if not has_quotes or not told.startswith("quote "):
        return fault
    words, right = shlex.split(argument), shlex.split(shown)[0]
    is_one = "=" in fault.where  # and else a word behind it, such as the rest of its value
    inner = shlex.join([right if word == fault.where else word for word in words] if is_one else [right])
    whole = shlex.quote(inner) if {*inner} & {*"!$`\\"} else '"{}"'.format(inner.replace('"', '\\"'))
    return replace(fault, remedy=f"{told}, within the argument and for the shell: {whole}")


def quoted(word: str) -> str:
    """Return the override KEY=VALUE with the value quoted as a string."""
    key, _, value = word.partition("=")
    return f"{key}={_string(value)}"


def set_to(key: str, text: str | Path) -> str:
    """Return the override of a text, from KEY=, quoted where Hydra's grammar would read another value."""
    word = f"{key}{text}"
    if BARE.fullmatch(str(text)):
        return word
    read = _parsed(word)
    return word if read and read.value() == str(text) else quoted(word)


def override_of(key: str, value: Any) -> str:
    """Return the override of a plain value."""
    return set_to(f"{key}=", value) if isinstance(value, str) else f"{key}={_written(value)}"


def _written(value: Any) -> str:
    """Return a value in Hydra's grammar."""
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}: {_written(of)}' for key, of in value.items())}}}"
    return f"[{','.join(map(_written, value))}]" if isinstance(value, list) else json.dumps(value)


def typed(key: str, text: str | Path) -> str:
    """Return the override of a text, from KEY=, as it is typed: quoted for Hydra where that is needed, and a shell."""
    word = f"{key}{text}"
    read = _parsed(spelled(word))
    return pasted(word if read and read.value() == str(text) else quoted(word))


@cache
def spelled(word: str) -> str:
    """Return an override whose texts that Hydra's grammar refuses are quoted for it, as in `dataset.split=train[:80%]`.

    It had no meaning before. Commas between values, lists, mappings and references keep theirs. Several overrides in
    one word, and what has brackets, quotes or one of Hydra's functions that are wrong stay faults.
    """
    key, has_value, value = word.partition("=")
    if not has_value or _SIMPLE.fullmatch(value) or "${" in value or _SEVERAL.match(value) or _parsed(word):
        return word
    with suppress(RecursionError):  # of brackets
        parts = _parts(value)
        made = f"{key}={','.join(_element(part) for part in parts)}"
        return made if parts and _parsed(made) else word
    return word


def _element(text: str) -> str:
    """Return a value without commas around it, in which texts are quoted where the grammar wants it."""
    text = text.strip()
    name, has_call, _ = text.partition("(")
    if not text or _parsed(f"k={text}") or text[0] in _QUOTES or (has_call and name in _FUNCTIONS):
        return text
    if text[0] in _PAIRS and text[-1] == _PAIRS[text[0]]:
        items = _parts(text[1:-1])
        if text[0] == "[":
            return f"[{','.join(_element(item) for item in items)}]"
        pairs = [item.partition(":") for item in items]
        if all(_parsed(f"k={{{name}: 1}}") for name, _, _ in pairs):
            return f"{{{','.join(f'{name}: {_element(of)}' for name, _, of in pairs)}}}"
    return _string(text)


def _parts(value: str) -> list[str]:
    """Return the parts of a value between commas outside brackets and quotes; none if these aren't closed."""
    parts, closing, quote, before = [""], list[str](), "", ""
    for mark in value:
        if quote:
            quote = "" if mark == quote and before != "\\" else quote
        elif mark in _QUOTES and before in ("", *",[{:( "):  # and else an apostrophe
            quote = mark
        elif mark in _AROUND:
            closing.append(_AROUND[mark])
        elif closing and mark == closing[-1]:
            closing.pop()
        before = mark
        if mark == "," and not (quote or closing):
            parts.append("")
        else:
            parts[-1] += mark
    return parts if not quote and (not closing or ({*closing} == {")"} and "," not in value)) else []


def _string(text: str) -> str:
    return str(QuotedString(text, Quote.double).with_quotes())


def _requoted(key: str, value: str) -> str:
    """Return the override as it is pasted: without quotes inside it, or with all of its value in quotes."""
    words = (f"{key}={value}", f"{key}={value.translate(_UNQUOTED)}")
    return pasted(next((word for word in words if _parsed(spelled(word))), quoted(words[0])))


def _unclosed(value: str) -> str:
    """Return the brackets that are missing at the end of a value; empty if none is, or if it has quotes."""
    closing: list[str] = []
    for mark in value:
        if mark in _PAIRS:
            closing.append(_PAIRS[mark])
        elif mark in _QUOTES or (mark in _PAIRS.values() and (not closing or closing.pop() != mark)):
            return ""
    return "".join(reversed(closing))


def _parsed(word: str) -> Override | None:
    with suppress(HydraException, ValueError, RecursionError):
        return _grammar().parse_override(word)
    return None


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

    @property
    def are_words(self) -> bool:
        """Whether all values are texts."""
        return all(isinstance(value.plain, str) for value in self.values)

    @property
    def several(self) -> Fault:
        """The fault of several values where one is expected, with a list and a text of the same words."""
        raw, remedy = (self.override.input_line or "").partition("=")[2], ""
        if not (self.is_group or "(" in raw):
            text = f", a text {pasted(quoted(f'{self.key}={raw}'))}" * self.are_words
            remedy = f"a list is written {pasted(f'{self.key}=[{raw}]')}{text}; "
        remedy += f"run each with: etlrun -m {pasted(f'{self.key}={raw}')}"
        return Fault(self.key, f"{len(self.values)} values", "one", remedy)

    def fault(self, options: Sequence[str], named: Mapping[str, str]) -> Fault | None:
        """Return the fault of an axis without values or with an unknown option; lists are left to Hydra.

        `named` has the options whose key `name` selects one of several things, by these names.
        """
        if not self.values:
            remedy = f"give {self.key} a value, or leave it out"
            return Fault(self.key, "no value", "a value for each job", remedy)
        if len(self.values) > _MOST_VALUES:
            return Fault(self.key, f"more than {_MOST_VALUES:,} values", f"at most {_MOST_VALUES:,}")
        if self.command and len(self.values) > 1:
            expected = f"one value: it configures the {COMMANDS[self.command]}, not a job"
            remedy = f"for a list write {self.key}=[{','.join(value.text for value in self.values)}]"
            return Fault(self.key, f"{len(self.values)} values", expected, remedy * self.are_words)
        for value in self.values if self.is_group and not self.override.is_delete() else ():
            if value.plain not in options and not isinstance(value.plain, list):
                word = value.plain if isinstance(value.plain, str) else value.text
                known = [*options, *named]
                meant, group = word if word in known else likeliest(word, known), self.override.key_or_group
                chosen = typed(f"{group}=", named.get(meant, meant)) if meant else ""
                words = f"{chosen}{f' {group}.name={meant}' if meant in named else ''}"
                return Fault(
                    group,
                    f"{word}, which is not a string" if word in options else f"the unknown option '{word}'",
                    f"one of {', '.join(options)}",
                    of_option(group, word, f"did you mean {words}?" * bool(meant)),
                    overrides=(tuple(shlex.split(words)),) if meant else (),
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
        is_plain = not (axis.is_group or axis.key.startswith(("+", "~", "hydra.")))  # as Hydra expects it
        if is_plain and not any(axis.covers(later) or later.covers(axis) for later in before):
            last.insert(0, axis)
        elif not axis.is_group:
            before.append(axis)
    return last


def covered(axes: Sequence[Axis]) -> Iterator[Fault]:
    """Yield the faults of several values that a later override replaces in every job."""
    for place, axis in enumerate(axes):
        for later in axes[place + 1 :] if len(axis.values) > 1 else ():
            if later.covers(axis):
                found = f"{len(axis.values)} values, and then {later.override.input_line}"
                expected = "one override for each key: the last one takes precedence"
                yield Fault(axis.key, found, expected, "remove one of the two")


def unlisted(config: Composed, axes: Sequence[Axis], idle: Container[str]) -> Iterator[Fault]:
    """Yield the faults of valid keys that need a `+`, as no file of this config sets them, but for `idle` ones."""
    each = [(key, axis) for axis in axes for value in axis.values for key, _ in leaves(axis.key, value.plain)]
    for key, of in each:
        block: Any = config
        parts = key.split(".")
        while parts and isinstance(block, dict) and parts[0] in block:
            block = block[parts.pop(0)]
        if parts and isinstance(block, dict) and key not in idle:
            remedy = f"write +{of.override.input_line} to add it"
            yield Fault(key, "a key that no file of this config sets", "an existing key", remedy)


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
        self._rules = [terms for rule in exclude if (terms := self._rule(rule))]

    def __iter__(self) -> Iterator[Chosen]:
        """Yield the value of each axis in each combination that no rule excludes."""
        steps = [
            [dict(zip(group, row, strict=True)) for row in zip(*(axis.values for axis in group), strict=True)]
            for group in self._groups
        ]
        for parts in product(*steps):
            together = {axis: value for part in parts for axis, value in part.items()}
            chosen = {axis: together[axis] for axis in self.axes}
            if not any(
                all(bool(values & {chosen[of].text, str(chosen[of].plain)}) is wanted for of, wanted, values in rule)
                for rule in self._rules
            ):
                yield chosen

    def _zipped(self, zipped: Sequence[Sequence[str]]) -> list[list[Axis]]:
        """Return the groups of zipped axes, each at the position of its first axis."""
        found: dict[str, list[Axis]] = {}
        for place, keys in enumerate(zipped):
            where = f"sweep.zip[{place}]"
            axes = [axis for key in keys if (axis := self._axis(key, where))]
            lengths = [len(axis.values) for axis in axes]
            if len(axes) < len(keys):
                continue
            if len(set(lengths)) > 1 or len(set(keys)) < len(keys) or any(key in found for key in keys):
                counts = ", ".join(f"{key} with {length}" for key, length in zip(keys, lengths, strict=True))
                self._fault(where, counts, "the same number of values for each key, and each key in one list")
            else:
                found |= dict.fromkeys(keys, axes)
        groups = [found.get(axis.key.lstrip("+"), [axis]) for axis in self.axes]
        return [group for place, group in enumerate(groups) if group not in groups[:place]]

    def _rule(self, rule: str) -> list[tuple[Axis, bool, set[str]]]:
        """Return the terms of a rule: an axis, whether it must have one of the values, and the values."""
        terms, where = [], f"sweep.exclude: {rule}"
        for term in rule.split():
            key, equals, values = term.partition("=")
            name, given = key.removesuffix("!"), {*values.split("|")}
            if not equals:
                self._fault(where, term, "terms KEY=VALUE or KEY!=VALUE, with | between values")
            elif (axis := self._axis(name, where)) is not None:
                known = [value.plain if isinstance(value.plain, str) else value.text for value in axis.values]
                for value in sorted(given.difference(known)):
                    self._fault(where, f"{name}={value}", f"one of {', '.join(known)}")
                terms.append((axis, name == key, given))
        return terms

    def _axis(self, key: str, where: str) -> Axis | None:
        if key not in self._by_key:
            known = list(self._by_key)
            expected = f"one of {', '.join(known)}" if known else "a key that is on the command line"
            self._fault(where, f"the key {key}, which is not on the command line", expected, did_you_mean(key, known))
        return self._by_key.get(key)

    def _fault(self, where: str, found: str, expected: str, remedy: str = "") -> None:
        self.faults.append(Fault(where, found, expected, remedy))
