"""What `etlrun help` knows of configs: of a group, of an option of it or a step, and of a key."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from etlrun.cli.help import wrapped
from etlrun.config.folders import file_of, options_of
from etlrun.config.reference import Key, keys, options
from etlrun.stages import STAGES

_OF_EXPERIMENTS = "Whole configs, which set keys of several groups."


def about(word: str, *folders: Path) -> str:
    """Return what is known of a group, an option or a key; empty if it is none. `KEY=VALUE` names its key, too.

    Groups and options are those in the config folders.
    """
    key, _, value = word.lstrip("+~").partition("=")
    option = f"{key}.{value}" if value else key
    if option in options_of(*folders):
        return _group(option, folders)
    if option in _options(*folders):
        return _option(option, folders)
    if same := [of for of in _keys() if of.path == key]:
        inner = [of for of in _keys() if re.match(rf"{re.escape(key)}(\[\])?\.", of.path)]
        return _key(same, is_block=bool(inner)) + (f"\n{_names('its keys', inner)}\n" if inner else "")
    found = [of for of in dict.fromkeys((*_options(*folders), *(of.path for of in _keys()))) if of.endswith(f".{key}")]
    return about(found[0], *folders) if len(found) == 1 else _matches(found)


def names(*folders: Path) -> list[str]:
    """Return all groups and options in the config folders, and all keys."""
    return [*options_of(*folders), *_options(*folders), *dict.fromkeys(key.path for key in _keys())]


@cache
def _keys() -> list[Key]:
    return list(keys(STAGES))


@cache
def _options(*folders: Path) -> dict[str, str]:
    return options(STAGES, *folders)


def _group(group: str, folders: Sequence[Path]) -> str:
    """Return the options of a group, and its keys: what those do that all options have, and the names of others."""
    meaning, default = next(((key.meaning, key.default) for key in _keys() if key.path == group), (_OF_EXPERIMENTS, ""))
    lines = [group, "", wrapped(meaning, "  "), "", "options:"]
    for option in options_of(*folders)[group]:
        lines += [f"  {group}={option}{' (default)' * (option == default)}"]
        lines += filter(None, [wrapped(_options(*folders)[f"{group}.{option}"], "      ")])
    for title, of in (("steps", group), ("steps on columns", "columns")) if group == "transform" else ():
        steps = (
            name.partition(".")[2]
            for name in _options(*folders)
            if name.startswith(f"{of}.") and not file_of(name, *folders).is_file()
        )
        lines += ["", f"{title}:", wrapped(", ".join(steps), "  ")]
    own = [key for key in _keys() if key.path.startswith(f"{group}.")]
    lines += _described([key for key in own if not key.option])
    for option in dict.fromkeys(key.option for key in own if key.option):
        lines += ["", _names(f"keys of {option}", (key for key in own if key.option == option))]
    return "\n".join([*lines, ""])


def _option(option: str, folders: Sequence[Path]) -> str:
    """Return what an option of a group or a step is, the values that its file sets, and the keys of it alone."""
    group, _, name = option.partition(".")
    text, path = _options(*folders)[option], file_of(option, *folders)
    lines = [option, *(["", wrapped(text, "  ")] if text else [])]
    if path.is_file():
        values = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        lines += ["", f"{group}={name} sets:", *(f"  {line}".rstrip() for line in values)]
    lines += _described([key for key in _keys() if key.option == option])
    if shared := [key for key in _keys() if key.path.startswith(f"{group}.") and not key.option and path.is_file()]:
        lines += ["", _names(f"keys of all options of {group}", shared)]
    return "\n".join([*lines, ""])


def _described(found: Iterable[Key]) -> Iterator[str]:
    """Yield lines with the default, the kinds and the first sentence of each key."""
    for number, key in enumerate(found):
        yield from ("", "keys:") if number == 0 else ()
        kinds = f" ({', '.join(key.kinds)})" if key.kinds else ""
        yield f"  {key.path}{f'={key.default}' if key.default else ', required'}{kinds}"
        yield wrapped(re.split(r"(?<=\.)\s", key.meaning)[0], "      ")


def _names(title: str, found: Iterable[Key]) -> str:
    return f"{title}:\n{wrapped(', '.join(dict.fromkeys(key.path for key in found)), '  ')}"


def _matches(found: Sequence[str]) -> str:
    """Return the options and keys that have one name, of which the user chooses one; empty if there are none."""
    return "\n".join(["several have this name:", *(f"  {name}" for name in found), ""]) if found else ""


def _key(found: Sequence[Key], *, is_block: bool) -> str:
    """Return what is known of a key, which options may have in several forms."""
    forms: dict[Key, list[Key]] = {}
    for key in found:
        forms.setdefault(dataclasses.replace(key, option="", default=""), []).append(key)
    lines = [found[0].path]
    for form, same in forms.items():
        rows = {
            "with": ", ".join(key.option for key in same if key.option),
            "values": form.values,
            "default": _default(same),
            "changes": ", ".join(form.kinds) or ("what its keys change" if is_block else "no run"),
            "since": form.since,
        }
        lines += ["", wrapped(form.meaning, "  "), ""]
        lines += [wrapped(text, f"  {name:8} ", f"{'':11}") for name, text in rows.items() if text]
    return "\n".join([*lines, ""])


def _default(found: Sequence[Key]) -> str:
    """Return the default of a key, which options may have of their own."""
    texts: dict[str, list[str]] = {}
    for key in found:
        texts.setdefault(key.default or "none: it is required", []).append(key.option)
    return ", ".join(f"{text} ({', '.join(of)})" for text, of in texts.items()) if len(texts) > 1 else next(iter(texts))
