"""Parsers of all commands, of one look: each help ends in an example, in at most 80 columns."""

from __future__ import annotations

import argparse
import importlib
import re
import shutil
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, NoReturn

from etlrun.cli.commands import (
    COMMANDS,
    CONFIG_FILES,
    OVERRIDES,
    REVIEWING,
    Answer,
    Command,
    collect_again,
)
from etlrun.system.errors import ConfigError, Failure, Fault, describe, did_you_mean, fault
from etlrun.system.hidden import in_review

_MOST_COLUMNS = 80
_EXAMPLE = "example:\n"


class Parser(argparse.ArgumentParser):
    """Parser of a command or of a part of it, which takes no abbreviations of options."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": _Help, **options})

    @property
    def arguments(self) -> list[argparse.Action]:
        """Arguments and options, in order."""
        return self._actions

    @property
    def parts(self) -> dict[str, Parser]:
        """Parsers of the parts of a command, such as `why` of `cache`."""
        return next((dict(of.choices) for of in self._actions if isinstance(of.choices, dict)), {})

    def error(self, message: str) -> NoReturn:
        """Print what is wrong with a command line as all errors are printed, and exit with status 2."""
        self.exit(ConfigError.status, f"{describe(ConfigError(list(self._faults(message))))}\n")

    def _faults(self, message: str) -> Iterator[Fault]:
        title, _, rest = message.partition(": ")
        see, where = f"see {self.prog} --help", title.removeprefix("argument ").partition("/")[0]
        choice = re.fullmatch(r"invalid choice: (.*?) \(choose from .*\)", rest)
        if title == "unrecognized arguments":
            yield self._unknown(rest, see)
        elif title == "the following arguments are required":
            named = (name for name in rest.split(", ") if self._argument(name).nargs not in ("*", "?"))
            yield from (fault(name, "nothing", self._expected(name), see) for name in named)
        elif choice is not None:
            remedy = did_you_mean(choice[1].strip("'"), map(str, self._argument(where).choices or ()))
            yield fault(where, choice[1], self._expected(where), remedy)
        elif rest == "expected one argument":
            yield fault(where, "no value", self._expected(where), see)
        elif rest.startswith("not allowed with argument "):
            yield fault(where, f"{rest.rpartition(' ')[2]}, too", "one of them", see)
        elif rest.startswith("ignored explicit argument "):
            yield fault(where, f"the value {rest.rpartition(' ')[2]}", "no value", see)
        else:
            yield Failure(found=f"{where}: {rest}" if title.startswith("argument ") else message, remedy="")

    def _unknown(self, words: str, see: str) -> Fault:
        if not words.startswith("-"):
            return fault(words, "an argument too many", f"those of {self.prog}", see)
        known = [
            option for of in (self, *self.parts.values()) for each in of.arguments for option in each.option_strings
        ]
        remedy = did_you_mean(words.split(maxsplit=1)[0].partition("=")[0], known, otherwise=see, cutoff=0.7)
        return fault(words, "an unknown option", f"an option of {self.prog}", remedy)

    def _argument(self, name: str) -> argparse.Action:
        return next(of for of in self._actions if name in (*of.option_strings, of.metavar, of.dest))

    def _expected(self, name: str) -> str:
        of = self._argument(name)
        return f"one of {', '.join(map(str, of.choices))}" if of.choices else str(of.help)


class _Help(argparse.HelpFormatter):
    """Help that is wrapped, but for the example at its end."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(shutil.get_terminal_size().columns, _MOST_COLUMNS) - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(_EXAMPLE) else super()._fill_text(text, width, indent)


def call(name: str, arguments: list[str]) -> None:
    """Call a command with these arguments, and print what it answers as its `--format` says.

    Raises:
        EtlrunError: The arguments are wrong, or the command fails.
        SystemExit: With its exit status, if that is not 0.
    """
    known = parsed(name, arguments)
    module, function = COMMANDS[name].function.split(".")
    command: Callable[[Namespace], Answer | None] = getattr(importlib.import_module(f"etlrun.cli.{module}"), function)
    collect_again()
    with in_review() if name in REVIEWING else nullcontext():
        answer = command(known) or Answer()
    if answer.says is not None:
        from etlrun.report.render import RENDER, show
        from etlrun.system.terminal import say_whole

        form = getattr(known, "format", "text")
        if isinstance(answer.says, str):
            say_whole(answer.says)
        elif form in RENDER and form != "text":
            say_whole(RENDER[form](answer.says))
        else:
            show(answer.says)
    if answer.error is not None:
        raise answer.error
    if answer.status:
        raise SystemExit(answer.status)


def parsed(name: str, words: list[str]) -> Namespace:
    """Return the arguments of a command, also as they were written, `words`, and the `request` for the config.

    It ends the process with status 2 if one of them is wrong.
    """
    parser = parser_of(name)
    if OVERRIDES in COMMANDS[name].arguments:
        from etlrun.config.request import requested  # which imports Hydra

        known, request = requested(parser, words)
        return Namespace(**vars(known), request=request, words=words)
    known = parser.parse_args(words) if parser.parts else parser.parse_intermixed_args(words)
    return Namespace(**vars(known), words=words)


def parser_of(name: str) -> Parser:
    """Return the parser of a command."""
    command = COMMANDS[name]
    parser = Parser(prog=f"etlrun {name}", **_told(command))
    if command.parts:
        parts = parser.add_subparsers(dest="command", required=True)
        for part, of in command.parts.items():
            _add(parts.add_parser(part, help=of.summary, **_told(of)), of)
    _add(parser, command)
    return parser


def _told(command: Command) -> dict[str, Any]:
    return {"description": command.description, "epilog": f"{_EXAMPLE}  {command.example}"}


def _add(parser: Parser, command: Command) -> None:
    """Add the arguments of a command, of which `--stat` and `--format` exclude each other."""
    is_short = any(of.form == "--stat" for of in command.arguments)
    forms = parser.add_mutually_exclusive_group() if is_short else parser
    files = parser.add_argument_group("options of configs") if OVERRIDES in command.arguments else parser
    for of in command.whole:
        *names, last = of.form.split(", ") if of.is_option else [of.form]
        name, _, value = last.partition(" ")
        options = {"help": of.says, **of.options}
        if value.startswith("{"):
            options["choices"] = value.strip("{}").split(",")
            options["default"] = options["choices"][0]
        elif value:
            options["metavar"] = value.strip("[ .]") if value.startswith("[") else value
            options |= {"nargs": "*" if "..." in value else "?"} if value.startswith("[") else {}
        elif of.is_option:
            options = {"action": "store_true", **options}
        to = files if of in CONFIG_FILES else forms if name in ("--stat", "--format") else parser
        to.add_argument(*names, name, **options)
