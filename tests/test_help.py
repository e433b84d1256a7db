"""The help of each command: what it shows, and that its example is a command line of that command."""

import argparse
import shlex
from collections.abc import Iterator

import pytest

from etlrun.cli import commands
from etlrun.cli.commands import COMMANDS

MOST_COLUMNS = 80


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser, and those of its parts, such as `cache why`."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


@pytest.mark.parametrize("name", COMMANDS)
def test_each_help_says_what_the_command_does_and_ends_in_an_example(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    parser = commands.parser_of(name)
    text = parser.format_help()
    assert text.startswith(f"usage: etlrun {name} ")
    assert parser.description
    assert text.endswith(f"\n\nexample:\n  {COMMANDS[name].example}\n")
    assert max(map(len, text.splitlines())) <= MOST_COLUMNS


@pytest.mark.parametrize("name", COMMANDS)
def test_each_argument_has_a_meaning(name: str) -> None:
    without = [action.metavar for of in parsers(commands.parser_of(name)) for action in of._actions if not action.help]
    parts = ["dispatcher | worker", None]
    assert [of for of in without if of not in parts] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_not_abbreviated(name: str) -> None:
    assert [of.prog for of in parsers(commands.parser_of(name)) if of.allow_abbrev] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_is_a_line_of_the_command(name: str) -> None:
    etlrun, command, *words = shlex.split(COMMANDS[name].example.partition(" > ")[0])
    assert (etlrun, command) == ("etlrun", name)
    assert commands.parser_of(name).parse_args(words)
