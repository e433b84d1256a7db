"""Words of a command line: overrides in Hydra's grammar, and the words that are none, with what was probably meant."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException

from etlrun.planning.hints import meant
from etlrun.stages import Stages
from etlrun.system.errors import Fault, did_you_mean, one_line

OPTIONS = ("--help", "--version", "--multirun", "--config-dir", "--config-name", "--cfg", "--info", "--hydra-help")
"""Options of a run, as `etlrun --help` lists them."""
_BARE = re.compile(r"(?!(?:true|false|null|nan|inf)$)[a-z_][a-z0-9_-]*", re.IGNORECASE | re.ASCII)
"""Strings that Hydra's grammar accepts without quotes; a subset."""
_PATH = re.compile(r"[A-Za-z0-9_/. -]+")
"""Paths that it accepts so; a subset."""
_LIST = re.compile(r"\[(.*)\]")
_QUOTES = "'\""
_PAIRS = {"[": "]", "{": "}"}
_TWICE = "once for Hydra and once for the shell"


@dataclass(frozen=True)
class Stray:
    """Word that is no override, with the word behind it, which may be its value.

    Attributes:
        word: Word as written.
        value: Value behind it or behind its `=`; empty if there is none.
        before: Override before it, whose value it may continue; empty if there is none.
        options: Options of the command.
    """

    word: str
    value: str = ""
    before: str = ""
    options: tuple[str, ...] = OPTIONS

    def fault(self, config: Mapping[str, Any], stages: Stages) -> Fault:
        """Return the fault of this word, with the override that was probably meant for `config`."""
        is_option = self.word.startswith("-")
        key = self.word.lstrip("+-").replace("-", "_") if is_option else self.word.lstrip("+")
        known = [key.path for key in meant(key, _plain(self.value), config, stages) if not key.needs]
        paths = [key] if "." in key else list(dict.fromkeys(known))
        written = " or ".join(f"{path}={shlex.quote(self.value) if self.value else 'VALUE'}" for path in paths)
        return Fault(
            where=f"{self.word} {self.value}".rstrip(),
            found="an unknown option" if is_option else "a word without `=`",
            expected=f"overrides KEY=VALUE{', or options of etlrun --help' * is_option}",
            remedy=(is_option and did_you_mean(self.word, self.options, cutoff=0.8))
            or (f"write {written}" if written else self._quoted()),
        )

    def _quoted(self) -> str:
        if not self.before or self.word.startswith("-"):
            return ""
        whole = " ".join(word for word in (self.before, self.word, self.value) if word)
        return f"quote a value with spaces, {_TWICE}: {shlex.quote(quoted(whole))}"


def sorted_out(words: Sequence[str], options: Sequence[str] = ()) -> tuple[list[str], list[Stray]]:
    """Return the overrides among `words`, and the words that are none, of a command that has further `options`."""
    overrides, strays = [], []
    rest, before = list(words), ""
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") and ("=" in word or word[:1] in ("~", "")):
            overrides.append(word)
            before = word
            continue
        name, has_value, value = word.partition("=")
        if not has_value and rest and "=" not in rest[0] and not rest[0].startswith(("-", "~")):
            value = rest.pop(0)
        strays.append(Stray(name, value, before, (*options, *OPTIONS)))
        before = ""
    return overrides, strays


def parsed(words: Sequence[str], loader: ConfigLoader | None) -> tuple[list[Override], list[Fault]]:
    """Return the overrides that Hydra's grammar accepts, and a fault for each other one."""
    parser, overrides, faults = OverridesParser.create(config_loader=loader), [], []
    for word in words:
        try:
            overrides += parser.parse_overrides([word if word.partition("=")[0] else ""])
        except (HydraException, ValueError, RecursionError) as error:
            key, _, value = word.partition("=")
            key, value = key.lstrip(_QUOTES), value.strip(_QUOTES)
            missing = _unclosed(value)
            requoted = _requoted(parser, key, f"{value}{missing}")
            remedy = f"write {requoted}" if missing else f"quote the value, {_TWICE}: {requoted}"
            remedy = remedy if value else f"write {key}=VALUE" if key else "leave it out"
            if _are_several(parser, word):
                remedy = f"pass each override by itself: {word}"
            found = f"no closing {missing}" if missing else one_line(error).split(" See http")[0]
            if found.startswith("LexerNoViableAltException"):
                found = "a character that must be quoted"
            found = "a word without `=`" if word and "=" not in word else found if word else "an empty word"
            faults.append(Fault(where=word, found=found, expected="KEY=VALUE in Hydra's grammar", remedy=remedy))
    return overrides, faults


def in_one_argument(fault: Fault, argument: str) -> Fault:
    """Return the fault of one of the overrides in an argument, with this whole argument as the remedy writes it."""
    told, has_quotes, shown = fault.remedy.partition(f", {_TWICE}: ")
    if not has_quotes:
        return fault
    words, right = shlex.split(argument), shlex.split(shown)[0]
    is_one = "=" in fault.where  # and else a word behind it, such as the rest of its value
    words = [right if word == fault.where else word for word in words] if is_one else [right]
    inner = shlex.join(words)
    whole = shlex.quote(inner) if {*inner} & {*"!$`\\"} else '"{}"'.format(inner.replace('"', '\\"'))
    return replace(fault, remedy=f"{told} for Hydra, within the argument and for the shell: {whole}")


def quoted(word: str) -> str:
    """Return the override KEY=VALUE with the value quoted as a string."""
    key, _, value = word.partition("=")
    return f"{key}={_string(value)}"


def typed(group: str, option: str) -> str:
    """Return the override that selects an option of a group, quoted for a shell."""
    word = f"{group}={option}"
    return word if _BARE.fullmatch(option) else shlex.quote(quoted(word))


def of_path(key: str, path: str | Path) -> str:
    """Return the override of a path, from KEY=, quoted for a shell, and for Hydra where its grammar needs it."""
    word = f"{key}{path}"
    return shlex.quote(word if _PATH.fullmatch(str(path)) else quoted(word))


def _plain(text: str) -> Any:
    """Return the value of a text in YAML; the text itself if it is none."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _string(text: str) -> str:
    return str(QuotedString(text, Quote.double).with_quotes())


def _requoted(parser: OverridesParser, key: str, value: str) -> str:
    """Return the override with quotes around its value, or around the items of a list, quoted again for a shell."""
    inner = _LIST.fullmatch(value)
    if _parses(parser, word := f"{key}={value}"):
        return shlex.quote(word)
    if inner is not None:
        items = [
            item if _parses(parser, f"{key}={item}") else _string(item.strip(_QUOTES)) for item in inner[1].split(",")
        ]
        if _parses(parser, word := f"{key}=[{','.join(items)}]"):
            return shlex.quote(word)
    return shlex.quote(f"{key}={_string(value)}")


def _are_several(parser: OverridesParser, word: str) -> bool:
    """Return whether a word is several overrides with spaces between them."""
    words = word.split()
    return len(words) > 1 and all("=" in of and _parses(parser, of) for of in words)


def _unclosed(value: str) -> str:
    """Return the brackets that are missing at the end of a value; empty if none is, or if it has quotes."""
    closing: list[str] = []
    for mark in value:
        if mark in _PAIRS:
            closing.append(_PAIRS[mark])
        elif mark in _QUOTES or (mark in _PAIRS.values() and (not closing or closing.pop() != mark)):
            return ""
    return "".join(reversed(closing))


def _parses(parser: OverridesParser, word: str) -> bool:
    try:
        parser.parse_override(word)
    except (HydraException, ValueError, RecursionError):
        return False
    return True
