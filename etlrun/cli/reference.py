"""Reference of the command line, made from the parsers of the commands and the concepts of `etlrun help`.

`python -m etlrun.cli.reference > docs/reference/commands.md` updates the page.
"""

import sys
from collections.abc import Iterator

from etlrun.cli.commands import COMMANDS, GROUPS, Command
from etlrun.cli.parsers import concepts

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
    for heading, modules in GROUPS.items():
        parts += [f"## {heading.capitalize()}"]
        for name, command in COMMANDS.items():
            parts += _described(name, command, "###") if command.module in modules else ()
    parts += ["## Concepts", *(f"### {text.rstrip()}" for text in concepts().values())]
    return "\n\n".join(parts) + "\n"


def _described(name: str, command: Command, heading: str) -> Iterator[str]:
    yield from (f"{heading} {name}", command.description)
    for part, of in command.parts.items():
        yield from _described(f"{name} {part}", of, f"{heading}#")
    if command.parts:
        return
    yield f"    etlrun {name} {command.usage}".rstrip()
    forms = sorted(command.whole, key=lambda of: of.is_option)
    rows = [(of.form if of.is_option else of.options.get("metavar", of.form), of.says) for of in forms]
    table = ["| `{}` | {} |".format(form.replace("|", "\\|"), says) for form, says in rows]
    yield from ["\n".join(["| argument | meaning |", "| --- | --- |", *table])] if rows else []
    yield f"Example:\n\n    {command.example}"


if __name__ == "__main__":
    sys.stdout.write(markdown())
