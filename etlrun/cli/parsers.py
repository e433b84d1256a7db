"""Parsers of commands, of one look: each help ends in an example, and no line is longer than 80 columns."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterator
from typing import Any, NoReturn

from etlrun.cli.commands import COMMANDS, module_of
from etlrun.system.errors import ConfigError, Failure, Fault, describe, did_you_mean, fault

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
        """Yield the faults in a message of argparse."""
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


def of_command(name: str, description: str) -> Parser:
    """Return the parser of a command, without its arguments."""
    example = f"{_EXAMPLE}  {COMMANDS[name].example}"
    return Parser(prog=f"etlrun {name}", description=description, epilog=example)


def parser_of(name: str) -> Parser:
    """Return the parser of a command, whose module is imported."""
    function = COMMANDS[name].function
    parser: Parser = getattr(module_of(name), "parser" if function == "main" else f"{function}_parser")()
    return parser


def of_part(parts: Any, name: str, says: str, example: str, **options: Any) -> Parser:
    """Return the parser of a part of a command, such as `why` of `cache`, added to its `parts`."""
    description = f"{says[0].upper()}{says[1:]}."
    part: Parser = parts.add_parser(
        name, help=says, description=description, epilog=f"{_EXAMPLE}  {example}", **options
    )
    return part


def of_config(name: str, description: str) -> Parser:
    """Return the parser of a command that takes the overrides and the options which select a config."""
    parser = of_command(name, description)
    configs = add_config(parser)
    configs.add_argument("--config-name", "-cn", metavar="NAME", help="primary config; default: config")
    return parser


def add_config(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add overrides and the folder of the user's configs; return the group of that option."""
    says = "KEY=VALUE or GROUP=OPTION, as for a run: etlrun help overrides"
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help=says)
    configs = parser.add_argument_group("options of configs")
    add_config_dir(configs)
    return configs


def add_config_dir(to: argparse._ActionsContainer, says: str = "folder of your configs, beside etlrun's") -> None:
    """Add the option that names the folder of the user's configs."""
    to.add_argument("--config-dir", "-cd", metavar="DIR", help=says)


def add_epoch(parser: argparse.ArgumentParser) -> None:
    """Add the option for another epoch than the one whose model the run has kept."""
    says = "take the model of the last epoch, or of epoch N, of which there is a checkpoint; default: the one kept"
    parser.add_argument("--epoch", metavar="last|N", help=says)


def add_format(to: argparse._ActionsContainer, *formats: str) -> None:
    """Add the option that names the format of what is printed: text, unless another one is asked for."""
    choices = formats or ("text", "json")
    to.add_argument("--format", choices=choices, default="text", help="output format; default: text")
