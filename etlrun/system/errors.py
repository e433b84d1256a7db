"""Error reporting: where, found, expected, remedy."""

from __future__ import annotations

import copyreg
import difflib
import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar

from etlrun.system.hidden import hidden
from etlrun.system.values import Block, frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

DOCS = "https://github.com/etlrun/etlrun/blob/main/docs"
"""Address of the folder of the docs, which an installation does not have."""
_IN_YAML = re.compile(r"(?!null$)[^\W\d]([\w ()/.-]*[\w()/.-])?", re.IGNORECASE)
"""Names that YAML takes without quotes; a subset."""
_STOP = re.compile(r"(?<=[^\W\d_]|['\")])\.$")
"""Full stop of a message: behind it, as in a fault, a sentence goes on."""
_COMMAND = re.compile(r"\b(?:write|run|mean|with:?) (etlrun (?:(?![A-Z]{3,}|;).)+?)\??$")
"""Command line without words that stand for others, with which a remedy ends."""
_MEANT = re.compile(r"did you mean `([^`]+)`\?")
"""Remedy that names what was meant."""
DECIDES = "a person decides: "
"""Words before a remedy of several ways among which only a person can choose."""
Overrides = tuple[tuple[str, ...], ...]
"""Alternatives that end a fault, each of one or several overrides."""
INTERRUPTED = 130
"""Exit status of a command that was interrupted, as shells have it."""


@dataclass(frozen=True)
class Fault:
    """One error in a config, a file or the environment.

    Attributes:
        where: Dotted config path, file, or file and record; empty if it is about a config file as such.
        found: The value or state that was found.
        expected: The values that are valid there.
        remedy: What to do; empty if `expected` already says it.
        is_rule: Whether the value is valid by itself and conflicts with another one.
        file: Config file that it is in, by its name in messages; empty if it is in none.
        line: Line of that file, from 1; None if it is about no line.
        configs: Configs that have it, of those that were composed; empty if it is about none.
        overrides: Alternatives that end it, each of one or several overrides, the first of which is preferred; they
            were tried.
        decide: Whether a person chooses: among alternatives that change the data or the training, or since none is
            known.
    """

    where: str
    found: str
    expected: str
    remedy: str = ""
    is_rule: bool = False
    file: str = ""
    line: int | None = None
    configs: tuple[str, ...] = ()
    overrides: Overrides = ()
    decide: bool = False

    @property
    def values(self) -> Block:
        """The fault as plain values; None for what is not known.

        `decide` is true where a person chooses: among alternatives, or since nothing was found that ends the fault.
        """
        names = ("where", "file", "line", "found", "expected", "remedy")
        values: Block = {name: getattr(self, name) or None for name in names}
        command = _COMMAND.search(self.remedy)
        return {
            **values,
            "configs": [*self.configs],
            "overrides": [*map(list, self.overrides)],
            "command": command[1] if command else None,
            "decide": self.decide or not (self.overrides or command),
        }

    @property
    def meant(self) -> str:
        """The name that was probably meant in the place of what was found; empty if none is near."""
        near = _MEANT.fullmatch(self.remedy)
        return near[1] if near else ""

    @property
    def place(self) -> str:
        """File, line and key, and the configs that have the fault, as far as they are known."""
        file = f"{self.file}:{self.line}" if self.line else self.file
        more = f" and {len(self.configs) - 1} more" if self.configs[1:] else ""
        configs = f"in {self.configs[0]}{more}" if self.configs else ""
        return ", ".join(filter(None, (": ".join(filter(None, (file, self.where))), configs)))

    def __str__(self) -> str:
        line = printable(f"{self.place}: found {self.found}; expected {self.expected}")  # keys and values of any text
        named = "|".join(re.escape(" ".join(map(quote, of)).strip("'")) for of in self.overrides)  # the alternatives
        who = DECIDES * (self.decide and re.search(rf"({named})[,;']*( |$)", self.remedy) is not None)
        return f"{line}\n    -> {who}{printable(self.remedy)}" if self.remedy else line


class Total(Fault):
    """What several faults beside it come to, which is not one more."""


def override(key: str, name: str, value: str) -> str:
    """Return the override of a mapping from `name` to a value in YAML, in words for a POSIX shell."""
    return quote(f"{key}={{{name if _IN_YAML.fullmatch(name) else json.dumps(name, ensure_ascii=False)}: {value}}}")


def fault(where: object, found: str, expected: str, remedy: str = "") -> Fault:
    """Return the fault of a file, a folder or an argument; unprintable characters in its name are escaped."""
    return Fault(printable(str(where)), found, expected, printable(remedy))


def of_file(file: str, found: str, expected: str, remedy: str = "", *, line: int | None = None, key: str = "") -> Fault:
    """Return the fault of a config file, or of a line or a key in it; unprintable characters in names are escaped."""
    return Fault(printable(key), found, expected, printable(remedy), file=printable(file), line=line)


@frozen
class Failure(Fault):
    """End of a run that no value explains; `found` is a whole sentence without its full stop."""

    where: str = ""
    expected: str = ""

    def __str__(self) -> str:
        return "\n    -> ".join(map(printable, filter(None, (self.found, self.remedy))))


class EtlrunError(Exception):
    """One or more faults that end a command with the exit status `status`."""

    status: ClassVar[int] = 1

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    def __reduce__(self) -> tuple[Any, ...]:  # since subclasses are made of other arguments
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class ConfigError(EtlrunError):
    """Invalid config: all of its faults at once, raised before TensorFlow is imported."""

    status = 2


@contextmanager
def placed(where: str) -> Iterator[None]:
    """Let errors be those of a place, as of the key that a user has set; they name their own behind what was found."""
    try:
        yield
    except EtlrunError as error:
        faults = [replace(of, where=where, found=f"{of.found} ({of.where})") for of in error.faults]
        raise (ConfigError if isinstance(error, ConfigError) else EtlrunError)(faults) from error


def refuse(faults: Iterable[Fault | None], kind: type[EtlrunError] = ConfigError) -> None:
    """Raise an error of a kind with these faults, if there are any that are not None."""
    if found := [*filter(None, faults)]:
        raise kind(found)


class WorldError(EtlrunError):
    """Valid config that cannot run here: missing data, weights or devices, or corrupt files."""

    def __init__(self, where: object, found: str, expected: str, remedy: str, overrides: Overrides = ()) -> None:
        """Make one of a single fault; among its `overrides` and other remedies a person decides."""
        one = Fault(str(where), found, expected, remedy, overrides=overrides, decide=bool(overrides))
        super().__init__([one])


def likeliest(word: str, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """Return the closest of the `known`, of a similarity from `cutoff` on (0 to 1); None if `word` is known."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return close[0] if close and close[0] != word else None


def of_system(error: OSError) -> EtlrunError:
    """Return the error to report when the operating system denies access to a file."""
    remedy = "check the permissions of the file and of its parent folders, and the free space on the disk"
    return EtlrunError([unreadable_path(str(error.filename), error, "a file that this user can access", remedy)])


def unreadable_path(
    path: str, error: OSError, expected: str, remedy: str = "check its permissions and its storage"
) -> Fault:
    """Return the fault of a file or folder that the system doesn't let this process read."""
    return Fault(path, error.strerror or type(error).__name__, expected, remedy)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular for one: `1 image`, `1,200 images`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def first_few(texts: Iterable[str], most: int) -> str:
    """Return the first of these texts, and how many more there are: `a, b and 3 more`."""
    found = [*texts]
    return ", ".join(found[:most]) + (f" and {len(found) - most:,} more" if len(found) > most else "")


def did_you_mean(word: str, known: Iterable[str], shown: str = "`{}`", otherwise: str = "", cutoff: float = 0.5) -> str:
    """Return a remedy that suggests the closest match, formatted with `shown`; `otherwise` if nothing is close."""
    close = likeliest(word, known, cutoff)
    return otherwise if close is None else f"did you mean {shown.format(close)}?"


def printable(name: str) -> str:
    """Return the name of a file or a key with unprintable characters escaped."""
    if name.isprintable():
        return name
    return "".join(mark if mark.isprintable() else ascii(mark)[1:-1] for mark in name)


def one_line(error: Exception) -> str:
    """Return the message of an error on a single line, without its full stop."""
    return hidden(_STOP.sub("", " ".join(str(error).split())))


def headline(error: Exception) -> str:
    """Return the most informative line of a library's error, without its full stop; TensorFlow's is below a stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and "[[{{node" not in line]
    if not lines:
        return type(error).__name__
    line = lines[-1] if lines[0].startswith("Graph execution error") else lines[0]
    return hidden(_STOP.sub("", line.split("}} ")[-1].split(" [Op:")[0]))


def document(error: EtlrunError) -> Block:
    """Return the JSON of a command that ended with an error: in the words of people, and each fault as values."""
    words = "\n".join(map(str, error.faults))
    faults = [of.values for of in error.faults if not isinstance(of, Total)]
    return {"status": "failed", "exit_status": error.status, "error": words, "faults": faults}


def describe(error: EtlrunError) -> str:
    """Return the message of an error that ends a command."""
    number = sum(not isinstance(of, Total) for of in error.faults)
    return "\n  ".join([f"etlrun: {counted(number, 'fault')}", *map(str, error.faults)])
