"""Overrides, and configs of a sweep, in today's spelling: deprecated keys have their new names, with a warning."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from etlrun.system.deprecated import DEPRECATIONS, Deprecation, tell
from etlrun.system.errors import ConfigError, Fault
from etlrun.system.respelled import old_keys, respelled

_WORD = re.compile(r"(?P<sign>[+~]*)(?P<key>[\w.]+)(?P<rest>=.*)?", re.DOTALL)
_OF_KEYS = ("sweep.zip", "sweep.exclude")
"""Keys whose values name dotted keys of a config."""


def current_words(words: Sequence[str]) -> list[str]:
    """Return overrides in today's spelling, with a warning for each deprecated key in them.

    Raises:
        ConfigError: A key is gone, or given beside its new name.
    """
    if not any(of.names[0] in word for word in words for of in DEPRECATIONS):
        return [*words]
    found = {word: [*_old_keys(word)] for word in words}
    now = {word: recorded_word(word) for word in words}
    faults = [fault for word, of_word in found.items() for of in of_word for fault in _faults(word, of, now)]
    if faults:
        raise ConfigError(faults)
    for word, of_word in found.items():
        for of in of_word:
            tell(word, of, now[word])
    return [now[word] for word in words]


def recorded_word(word: str) -> str:
    """Return an override, or its key, in today's spelling without a warning: what has been run is told as it is now."""
    return reduce(_respelled, _old_keys(word), word)


def current_line(line: str, file: str) -> str:
    """Return a line of a sweep's configs, as JSON, with its config and its overrides in today's spelling.

    There is one warning for the file, and no refusal: what has been run is told, whatever its keys are called now.
    """
    if not any(f'"{of.names[0]}"' in line for of in DEPRECATIONS):
        return line
    from etlrun.config.jobs import identity_of  # which needs the planner

    known = json.loads(line)
    text = json.dumps(known["config"], ensure_ascii=False).encode(errors="surrogatepass")
    if (now := respelled(text, "")) == text:
        return line
    for of in {key.of.old: key.of for key in old_keys(text, "")}.values():
        if not of.is_gone:
            tell(file, of)
    words, config = [*map(recorded_word, known["overrides"])], json.loads(now)
    return json.dumps({**known, "identity": identity_of(config), "overrides": words, "config": config})


def current_composed(config: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Return a config that Hydra has composed by itself, with the overrides `words`, in today's spelling.

    No file of etlrun has an old key: a user's has it, and only an override takes precedence over it.
    """
    found = copy.deepcopy(dict(config))
    for of in DEPRECATIONS:
        block: Any = found
        for part in of.old.split(".")[:-1]:
            block = block.get(part) if isinstance(block, dict) else None
        if isinstance(block, dict) and of.names[0] in block and not of.is_gone:
            tell(of.old, of)
            value = block.pop(of.names[0])
            if not any(_key(word) == of.new for word in words):
                block[of.names[1]] = value
    return found


def _faults(word: str, of: Deprecation, now: Mapping[str, str]) -> Iterator[Fault]:
    """Yield why a deprecated key of an override can't be read."""
    if now[word] == word:
        remedy = f"write `{of.names[1]}` in the place of `{of.names[0]}`"
        yield Fault(where=word, found=f"{of.old}, which is deprecated", expected=of.new, remedy=remedy)
    elif of.is_gone:
        yield of.refusal(word, written=now[word])
    elif _key(word) == of.old and (both := [other for other in now if _key(other) == of.new]):
        found, remedy = f"{of.old}, and {of.new} in {both[0]}", f"leave {word} out, the deprecated name"
        yield Fault(where=word, found=found, expected=f"{of.new} alone", remedy=remedy)


def _key(word: str) -> str:
    match = _WORD.fullmatch(word)
    return "" if match is None else match["key"]


def _old_keys(word: str) -> Iterator[Deprecation]:
    """Yield the deprecated keys that an override names: as its key, in a mapping, or in a text about keys."""
    if (match := _WORD.fullmatch(word)) is None:
        return
    key, rest = match["key"], match["rest"] or ""
    for of in DEPRECATIONS:
        is_named = ("${" in rest or key in _OF_KEYS) and re.search(of.pattern, rest)
        if key == of.old or is_named or (of.old.startswith(f"{key}.") and "{" in rest and _is_in(word, key, of)):
            yield of


def _is_in(word: str, key: str, of: Deprecation) -> bool:
    """Return whether the value of an override is a mapping that has the deprecated key."""
    try:
        value: Any = OverridesParser.create().parse_override(word).value()
    except (HydraException, ValueError, RecursionError):  # which is told by what composes the config
        return False
    for part in of.old.removeprefix(f"{key}.").split("."):
        if not isinstance(value, dict) or part not in value:
            return False
        value = value[part]
    return True


def _respelled(word: str, of: Deprecation) -> str:
    """Return an override with a deprecated key replaced; the override itself if it is not clear which text that is."""
    match = _WORD.fullmatch(word)
    if match is None:
        return word
    key, rest = of.new if match["key"] == of.old else match["key"], match["rest"] or ""
    if "${" in rest or key in _OF_KEYS:
        rest = re.sub(of.pattern, of.new, rest)
    inside, old = rf"(?<=[{{,\s]){re.escape(of.names[0])}(?=\s*:)", rest
    if of.old.startswith(f"{key}.") and len(re.findall(inside, rest)) == 1:
        rest = re.sub(inside, of.names[1], old)
    return f"{match['sign']}{key}{rest}"
