"""Reference of the command line, made from the parsers of the commands and the concepts of `etlrun help`.

`python -m etlrun.cli.reference > docs/reference/commands.md` updates the page.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from etlrun.cli import parsers
from etlrun.cli.commands import COMMANDS, GROUPS
from etlrun.cli.help import concepts
from etlrun.cli.parsers import Parser

_HEAD = """\
# Command line

<!-- python -m etlrun.cli.reference > docs/reference/commands.md -->

`etlrun [OVERRIDE ...]` trains, and `etlrun -m KEY=A,B` runs a sweep: [overrides](#overrides-values-on-the-command-line)
choose and change the config. Anything else is a command. RUN is the folder of a run, such as
`outputs/2026-11-27/01-44-43-857061`. `etlrun --help` lists the commands, `etlrun COMMAND --help` describes one, and
`etlrun help TOPIC` has what stands on this page and on that of the [keys of configs](stages.md)."""


def markdown() -> str:
    """Return the page: commands by what they are for, and concepts."""
    parts = [_HEAD]
    for group in GROUPS:
        parts += [f"## {group.capitalize()}"]
        for name, command in COMMANDS.items():
            parts += _described(parsers.parser_of(name), "###") if command.group == group else ()
    parts += ["## Concepts", *(f"### {text.rstrip()}" for text in concepts().values())]
    return "\n\n".join(parts) + "\n"


def _described(parser: Parser, heading: str) -> Iterator[str]:
    """Yield the sections of a command, and of its parts."""
    yield f"{heading} {parser.prog.removeprefix('etlrun ')}"
    yield from filter(None, [parser.description])
    arguments = [
        of for of in parser.arguments if not isinstance(of.choices, dict) and "--help" not in of.option_strings
    ]
    if parser.parts:
        for part in parser.parts.values():
            yield from _described(part, f"{heading}#")
        return
    yield f"    {_usage(parser.prog, arguments)}"
    if arguments:
        rows = [f"| `{_named(of)}` | {of.help} |" for of in arguments]
        yield "\n".join(["| argument | meaning |", "| --- | --- |", *rows])
    yield f"Example:\n\n    {(parser.epilog or '').partition(chr(10))[2].strip()}"


def _usage(prog: str, arguments: list[argparse.Action]) -> str:
    """Return a command line with what is required, and what follows it."""
    words = [prog, *(_named(of) for of in arguments if of.option_strings and of.required)]
    words += ["[OPTION ...]"] * any(of.option_strings and not of.required for of in arguments)
    forms: dict[object, str] = {None: "{}", "?": "[{}]", "*": "[{} ...]"}
    words += [forms[of.nargs].format(of.metavar) for of in arguments if not of.option_strings]
    return " ".join(words)


def _named(of: argparse.Action) -> str:
    """Return an argument as it is written: its options, and the place or the choices of its value."""
    value = of.metavar or ("|".join(of.choices) if of.choices else "")
    return " ".join(filter(None, [", ".join(of.option_strings), str(value)])).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(markdown())
