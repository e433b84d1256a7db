"""Commands of etlrun, which `commands.yaml` declares; none of their modules is imported before it is called.

A command is a function of its arguments, and returns an `Answer`: what it says, drawn as `--format` asks, and its end.
Completion and help read the declarations, too, so that this imports neither Hydra nor the stages.
"""

from __future__ import annotations

import gc
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import yaml

from etlrun.config.folders import FAST_LOADER

if TYPE_CHECKING:
    from etlrun.report.doc import Doc
    from etlrun.system.errors import EtlrunError

FORBIDDEN = ("data", "training", "order", "new", "removed", "worse")
"""What `--fail-on` takes, whose module is slow to import."""
_LAST_PORT = 65_535
_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


class Answer(NamedTuple):
    """What a command answers.

    Attributes:
        says: A document, or a text that is printed as it is; None for nothing.
        status: Exit status.
        error: What is wrong behind it; None if nothing is.
    """

    says: Doc | str | None = None
    status: int = 0
    error: EtlrunError | None = None


class Argument:
    """An argument or an option.

    Attributes:
        form: Its name and value as in a usage: `--config-dir, -cd DIR`, `folder DIR`, or `--all`, which is a flag. Of
            `{A,B}` it takes one, the first by default; `[WORD]` may be left out, and `[WORD ...]` be several.
        says: What it is, with its default.
        names: Its names for argparse.
        options: What argparse is told of it.
    """

    def __init__(self, form: str, says: str) -> None:
        """Read a form with a default behind it, or with `!` for a required option."""
        names, value, default = re.findall(r"([^\s,]+(?:, \S+)*) ?(\[.*\]|\S*) ?(\S*)", form)[0]
        self.form, self.names = f"{names} {value}".strip(), names.split(", ")
        is_free = value[:1] == "["
        self.says = says if default in ("", "!") else f"{says}; default: {default}"
        options = self.options = dict[str, Any](help=self.says)
        if value[:1] == "{":
            choices = value.strip("{}").split(",")
            options |= {"choices": choices, "default": choices[0]}
        elif value:
            word = value.strip("[ .]") if is_free else value
            options |= {"metavar": word, "type": _TYPES.get(form) or _TYPES.get(word, str)}
            options |= {"required": True} if default == "!" else {"default": default or None}
            options |= {"nargs": "*" if value.endswith(" ...]") else "?"} if is_free else {}
        else:
            options |= {"action": "store_true"} if form[0] == "-" else {}
        options |= _OTHERS.get(form, {})


@dataclass(frozen=True)
class Command:
    """A command, or a part of one such as `why` of `cache`.

    Attributes:
        summary: What it does, in a few words.
        example: Command line that its help ends in; RUN names a run.
        says: What it does, where that takes more words.
        arguments: What its arguments are, by their forms.
        function: Function that it calls, behind its module; empty for a command whose parts have their own.
        parts: Parts by their names.
        answers: Whether it answers a `document`, which `--json` prints, or a `text`.
        json: Keys of its JSON; empty if it answers with none.
        exits: What exit statuses mean, beside 0, 1, 2 and 130, which all commands have.
    """

    summary: str
    example: str
    says: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)
    function: str = ""
    parts: Mapping[str, Command] = field(default_factory=dict)
    answers: str = "document"
    json: str = ""
    exits: str = ""

    @classmethod
    def of(cls, block: Mapping[str, Any]) -> Self:
        """Make one of what stands in `commands.yaml`."""
        own = {key: block[key] for key in ("function", "answers") if key in block}
        parts = {name: cls.of({**own, **part}) for name, part in block.get("parts", {}).items()}
        return cls(**{**block, "parts": parts})

    @property
    def description(self) -> str:
        """What it does, as its help begins."""
        return self.says or f"{self.summary[0].upper()}{self.summary[1:]}."

    @property
    def takes_overrides(self) -> bool:
        """Whether it selects a config by overrides."""
        return "--config-name, -cn NAME" in self.arguments

    @property
    def whole(self) -> list[Argument]:
        """All of its arguments."""
        return [Argument(*of) for of in self.arguments.items()]


def _reading(fits: Callable[[str], object], expected: str, convert: Callable[[str], Any] = str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if not fits(text):
            raise ArgumentTypeError(f"found {text or 'nothing'}; expected {expected}")
        return convert(text)

    return read


def _integer(low: int, high: float = float("inf"), expected: str = "a positive integer") -> Callable[[str], int]:
    return _reading(lambda text: text.isascii() and text.isdecimal() and low <= int(text) <= high, expected, int)


def _bytes(text: str) -> int:
    """Return a number of bytes from an argument such as `2000000` or `50MB`."""
    number, unit = re.findall(r"([\d.]+) ?(\D*)", text.lower())[0]
    return int(float(number) * _UNITS[unit or "b"])


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


_SIZE = re.compile(r"\d+(\.\d+)? ?([kmgt]?b)?", re.IGNORECASE)
_TYPES: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("FILE", "FILE.html", "FOLDER", "--golden DIR"), Path),
    **dict.fromkeys(("--output FILE", "--output FOLDER", "--shards N", "--seed N"), str),
    **dict.fromkeys(("--importance N", "--top K"), int),
    "N": _integer(1),
    "X": float,
    "--show DIR": _reading(
        lambda text: "=" not in text or Path(text).exists(), "a folder, after the two sides: OLD NEW --show DIR", Path
    ),
    "--max-bytes N !": _reading(_SIZE.fullmatch, "a number of bytes, or one with a unit such as 50MB", _bytes),
    "--port PORT 5050": _integer(1, _LAST_PORT, f"an integer from 1 to {_LAST_PORT}"),
    "--port PORT": _integer(0, _LAST_PORT, f"an integer from 0 to {_LAST_PORT}"),
    "--dispatcher HOST:PORT !": _reading(re.compile(r"\S+:[0-9]+").fullmatch, "HOST:PORT"),
    "--host NAME localhost": _reading(re.compile(r"\S+").fullmatch, "a name of this machine"),
}
"""Functions that read values, by forms of arguments or by words for values; others are texts."""
_OTHERS: Mapping[str, Mapping[str, Any]] = {
    "--fail-on KIND[,KIND]": {
        "type": _reading(lambda text: {*_names(text)} <= {*FORBIDDEN}, f"some of {', '.join(FORBIDDEN)}", _names),
        "action": "extend",
        "default": [],
    },
    "--label NAME": {"type": _names, "action": "extend", "default": []},
}
"""What else argparse is told, by forms of arguments."""
_BLOCKS = yaml.load(Path(__file__).with_suffix(".yaml").read_bytes(), FAST_LOADER)  # noqa: S506 - a safe one
COMMANDS = {name: Command.of(block) for name, block in _BLOCKS.items()}
"""The commands, by their names."""
DAILY = ("plan", "diff", "check", "show", "doctor", "report", "evaluate", "predict", "export")
"""Commands that are needed every week, which `etlrun --help` describes."""
REVIEWING = frozenset({"plan", "check", "diff", "verify"})
"""Commands that open no store that a variable of the environment names."""


def words_of(word: str) -> list[str]:
    """Return how a command is written, or a part that one command alone has, by its name; empty for other words."""
    found = [[word]] if word in COMMANDS else [[name, word] for name, of in COMMANDS.items() if word in of.parts]
    return found[0] if len(found) == 1 else []


def split(words: Sequence[str]) -> tuple[list[str], Command]:
    """Return the first words that name a command, or a part of it, and what they name; the first is a command's."""
    command = COMMANDS[words[0]]
    part = command.parts.get(words[1]) if words[1:] else None
    return (list(words[:1]), command) if part is None else (list(words[:2]), part)


def collect_again() -> None:
    """Turn garbage collections on again, which need not look at modules."""
    gc.freeze()
    gc.enable()
