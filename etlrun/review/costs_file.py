"""The file `etlrun-costs.json` of a config folder, which keeps measured costs in a repository."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etlrun.review.measured_costs import Costs, Entry, Read
from etlrun.system.errors import ConfigError, Fault, fault, of_file

if TYPE_CHECKING:
    from etlrun.review.folders import Folders
    from etlrun.review.sides import Side

_FORMAT = 1
_HEAD = 3
"""Lines above the first entry."""
_REMEDY = "resolve or delete it, and write it with etlrun costs --write"
_Valid = tuple[Callable[[Any], bool], str]
"""Whether a value is valid, and what is expected."""


def as_text(entries: Iterable[Entry]) -> str:
    """Return the content of the file: an entry a line, sorted."""
    ordered = sorted(entries, key=lambda entry: (entry.experiment, entry.machine, entry.plan))
    lines = ",\n".join(f"  {_line(entry)}" for entry in ordered)
    return f'{{\n "format": {_FORMAT},\n "measured": [\n{lines}\n ]\n}}\n'


def _line(entry: Entry) -> str:
    return json.dumps(_plain(entry), ensure_ascii=False)


def _plain(entry: Entry) -> dict[str, Any]:
    """Return an entry without what is not known."""
    plain = dataclasses.asdict(entry)
    plain["reads"] = {name: _known(read) for name, read in plain["reads"].items()}
    return _known(plain)


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, "", (), {})}


def read(content: bytes, name: str) -> list[Entry]:
    """Return the costs in the content of the file `name`.

    Raises:
        ConfigError: It is no file of costs; with all its faults.
    """
    try:
        document = json.loads(content.decode(), parse_constant=_refuse)
    except json.JSONDecodeError as error:
        line = min(error.lineno, max(1, len(error.doc.splitlines())))  # its end may be behind the last one
        raise ConfigError([of_file(name, f"no JSON: {error.msg}", "JSON", _REMEDY, line=line)]) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError([of_file(name, str(error), "JSON", _REMEDY)]) from error
    held = document if isinstance(document, dict) else {}
    if held.get("format") != _FORMAT or not isinstance(held.get("measured"), list):
        found = "no list of measured costs" if held.get("format") == _FORMAT else f"format {held.get('format')}"
        raise ConfigError([of_file(name, found, f"measured costs of format {_FORMAT}", _REMEDY)])
    lines = content.decode().splitlines()
    faults = [
        of_file(name, of.found, of.expected, _REMEDY, line=_line_of(place, entry, lines), key=of.where)
        for place, entry in enumerate(held["measured"])
        for of in _faults(entry, f"measured[{place}]")
    ]
    if faults:
        raise ConfigError(faults)
    return [_entry(entry) for entry in held["measured"]]


def _line_of(place: int, entry: Any, lines: Sequence[str]) -> int | None:
    """Return the line of an entry, where the file is laid out as it was written; else None."""
    number = place + _HEAD + 1
    try:
        return number if json.loads(lines[number - 1].strip().rstrip(",")) == entry else None
    except (ValueError, IndexError):
        return None


def _refuse(word: str) -> None:
    message = f"the number {word}"
    raise ValueError(message)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _numbers(least: float, most: float = math.inf) -> Callable[[Any], bool]:
    def are(values: Any) -> bool:
        return isinstance(values, list) and all(type(of) in (int, float) and least <= of <= most for of in values)

    return are


_TEXT: _Valid = (lambda value: isinstance(value, str) and value.isprintable(), "a printable text")
_COUNT: _Valid = (_is_count, "an integer that is not negative")
_NUMBERS: _Valid = (_numbers(0.0, 1e18), "a list of numbers that are not negative")
_SHARES: _Valid = (_numbers(0.0, 1.0), "a list of numbers from 0 to 1")
_MAPPING: _Valid = (lambda value: isinstance(value, dict), "a mapping")
_OF_ENTRY = {
    **dict.fromkeys(("experiment", "plan", "machine"), _TEXT),
    "examples_per_s": _NUMBERS,
    "au": _SHARES,
    "memory_bytes": _NUMBERS,
    "reads": _MAPPING,
}
_OF_READ = {"split": _TEXT, "examples": _COUNT, "cache": _TEXT, "held_bytes": _COUNT, "fill_s": _NUMBERS}
_MANDATORY = {"experiment", "plan", "machine", "split", "examples"}


def _faults(held: Any, where: str, known: Mapping[str, _Valid] = _OF_ENTRY) -> Iterator[Fault]:
    """Yield the faults of an entry, or of what it says of a pipeline."""
    if not isinstance(held, dict):
        yield fault(where, json.dumps(held), "a mapping")
        return
    for key in held.keys() - known.keys():
        yield fault(f"{where}.{key}", "an unknown key", f"one of the keys {', '.join(known)}")
    for key, (is_valid, expected) in known.items():
        if key in held and not is_valid(held[key]):
            yield fault(f"{where}.{key}", json.dumps(held[key]), expected)
        elif key not in held and key in _MANDATORY:
            yield fault(f"{where}.{key}", "nothing", expected)
    if known is _OF_ENTRY and isinstance(held.get("reads"), dict):
        for name, of in held["reads"].items():
            yield from _faults(of, f"{where}.reads.{name}", _OF_READ)


def _entry(held: Mapping[str, Any]) -> Entry:
    def taken(of: Mapping[str, Any]) -> dict[str, Any]:
        return {key: tuple(value) if isinstance(value, list) else value for key, value in of.items()}

    reads = {name: Read(**taken(of)) for name, of in held.get("reads", {}).items()}
    return Entry(**{**taken(held), "reads": reads})


def faults_in(folders: Folders) -> Sequence[Fault]:
    """Return the faults of the file of a config folder; none if there is no file."""
    try:
        if (file := folders.costs) is not None:
            read(file[1], file[0])
    except ConfigError as error:
        return error.faults
    return ()


def of_sides(old: Side, new: Side, now: Folders, *others: Iterable[Entry]) -> Costs:
    """Return the costs in the files of both sides, those of the working tree for a single config, and `others` on top.

    A file that can't be read is left out. That of the old side is a note alone: the change may be its repair.
    """
    files = [side.costs if side.is_revision else now.costs for side in (old, new)]
    notes, sources, faults = list[str](), list[list[Entry]](), tuple[Fault, ...]()
    for side, file in zip((old, new), files, strict=True):
        try:
            sources.append([] if file is None else read(file[1], file[0]))
        except ConfigError as error:
            sources.append([])
            faults = error.faults if file == files[1] else ()
            of = f" of {side.word}" * side.is_revision
            notes.append(f"{error.faults[0].file}{of} can't be read, and its costs are left out")
    if old.is_revision and new.is_revision and files[0] != files[1] and not notes:
        name = next(file[0] for file in files if file is not None)
        state = "added" if files[0] is None else "removed" if files[1] is None else "changed"
        count = len({*map(_line, sources[0])} ^ {*map(_line, sources[1])})
        notes.append(f"{name}: {state}, {count} entr{'y differs' if count == 1 else 'ies differ'}")
    return Costs(*sources, *others, notes=[*dict.fromkeys(notes)], faults=faults)
