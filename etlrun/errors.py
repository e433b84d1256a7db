"""What is told to a person when something is wrong: where, what was found, what was expected, what to do."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        where: A dotted config path, a file, or a file and its record.
        found: What is there.
        expected: What should be there.
        remedy: What to do; empty where `expected` says it already.
        is_rule: Whether each value is right by itself, and it is another one that it does not fit.
    """

    where: str
    found: str
    expected: str
    remedy: str = ""
    is_rule: bool = False

    def __str__(self) -> str:
        line = f"{self.where}: found {self.found}; expected {self.expected}"
        return f"{line}\n    -> {self.remedy}" if self.remedy else line


class EtlrunError(Exception):
    """Faults that end a command; `status` is its exit status."""

    status: ClassVar[int] = 1

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


class ConfigError(EtlrunError):
    """A wrong config: all its faults at once, before TensorFlow is imported."""

    status = 2


class WorldError(EtlrunError):
    """A right config in a wrong world: missing data, weights or devices, broken files."""

    def __init__(self, *, where: str, found: str, expected: str, remedy: str) -> None:
        super().__init__([Fault(where=where, found=found, expected=expected, remedy=remedy)])


def likeliest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` was most likely meant to be; None where none is alike, or `word` is known."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return close[0] if close and close[0] != word else None


def of_system(error: OSError) -> EtlrunError:
    """What is told where the operating system refuses a file that nobody has looked at before."""
    found = error.strerror or type(error).__name__
    remedy = "check its permissions, and those of the folders above it, and the space on its disk"
    return EtlrunError(
        [Fault(where=str(error.filename), found=found, expected="what this user may use", remedy=remedy)]
    )


def did_you_mean(word: str, known: Iterable[str], shown: str = "`{}`", otherwise: str = "") -> str:
    """A remedy with the known word that `word` was most likely meant to be, put into `shown`; else `otherwise`."""
    close = likeliest(word, known)
    return otherwise if close is None else f"did you mean {shown.format(close)}?"


def printable(name: str) -> str:
    """The name of a file or a key as a message may hold it: what can't be printed is escaped."""
    return "".join(mark if mark.isprintable() else ascii(mark)[1:-1] for mark in name)


def one_line(error: Exception) -> str:
    """The message of an error without its line breaks."""
    return " ".join(str(error).split())


def headline(error: Exception) -> str:
    """The line of a library's error message that tells most: TensorFlow puts its own below a stack of frames."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and "[[{{node" not in line]
    if not lines:
        return type(error).__name__
    line = lines[-1] if lines[0].startswith("Graph execution error") else lines[0]
    return line.split("}} ")[-1].split(" [Op:")[0]


def describe(error: EtlrunError) -> str:
    """The message of an error that ends a command."""
    count = len(error.faults)
    return "\n".join([f"etlrun: {count} fault{'s' * (count != 1)}", *(f"  {fault}" for fault in error.faults)])
