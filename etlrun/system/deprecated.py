"""Deprecated keys of configs: those that have another name now, and what is said of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from etlrun import __version__
from etlrun.system.errors import Fault, printable


@dataclass(frozen=True, kw_only=True)
class Deprecation:
    """A key that has another name in its block, with the same values and the same meaning.

    Attributes:
        old: Dotted key as it was.
        new: Dotted key as it is now, in the same block.
        since: First version with the new key, which reads the old one with a warning.
        gone: First version that refuses the old key.
    """

    old: str
    new: str
    since: str
    gone: str

    @property
    def is_gone(self) -> bool:
        """Whether this version refuses the old key."""
        return _numbers(__version__) >= _numbers(self.gone)

    @property
    def names(self) -> tuple[str, str]:
        """The last parts of the old and of the new key."""
        return self.old.rpartition(".")[2], self.new.rpartition(".")[2]

    @property
    def pattern(self) -> str:
        """Regular expression of the old dotted key in a text, where it is no part of a longer one."""
        return rf"(?<![\w.]){re.escape(self.old)}(?![\w.])"

    def refusal(self, where: str, *, file: str = "", line: int | None = None, written: str = "") -> Fault:
        """Return the fault of the old key; `written` is what is to be written in its place, if it is in no file."""
        remedy = f"write {written}" if written else f"etlrun migrate {file}"
        expected = f"{self.new}, its name since {self.since}"
        return Fault(where=where, found="a key that is gone", expected=expected, remedy=remedy, file=file, line=line)


DEPRECATIONS = (
    Deprecation(old="transform.decode.scaled", new="transform.decode.fast", since="0.1", gone="0.2"),
    Deprecation(old="logger.experiment", new="logger.experiment_name", since="0.1", gone="0.2"),
)
"""All deprecated keys; those that are gone stay, so that their refusal names the new key."""

_told: set[str] = set()
_names: dict[Path, str] = {}


def tell(place: str, of: Deprecation, written: str = "") -> None:
    """Print the warning of an old key on standard error, once for each place; `written` is what to write there."""
    line = f"etlrun: {printable(place)}: {of.old} is deprecated since {of.since}, and refused from {of.gone} on; "
    line += f"write {written or of.new}, as `etlrun migrate` does in config files"
    if line not in _told:
        _told.add(line)
        print(line, file=sys.stderr)


def begin() -> None:
    """Let all warnings be printed again, as a command does that begins."""
    _told.clear()


@contextmanager
def named(folder: Path, name: str) -> Iterator[None]:
    """Let messages name the files of a temporary folder by another name of it, such as one at a git revision."""
    _names[folder] = name
    try:
        yield
    finally:
        del _names[folder]


def name_of(path: Path) -> str:
    """Return the name of a config file in messages: relative to the current folder, if it is in there."""
    for folder, name in _names.items():
        if path.is_relative_to(folder):
            return f"{name}/{path.relative_to(folder).as_posix()}" if path != folder else name
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else str(path)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
