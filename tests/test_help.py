"""The help of each command: what it shows, that its examples are lines of the command, and refusals of wrong lines."""

import shlex

import pytest

from etlrun.cli import main as cli
from etlrun.cli import parsers
from etlrun.cli.commands import COMMANDS
from etlrun.cli.parsers import Parser

MOST_COLUMNS = 80


def parsers_of(name: str) -> list[Parser]:
    """The parser of a command, and those of its parts, such as `cache why`."""
    parser = parsers.parser_of(name)
    return [parser, *parser.parts.values()]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_help_says_what_the_command_does_and_ends_in_an_example(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for parser in parsers_of(name):
        text = parser.format_help()
        assert text.startswith(f"usage: {parser.prog} ")
        assert parser.description
        assert f"\n\nexample:\n  etlrun {name} " in f"{text[:-1]} "
        assert max(map(len, text.splitlines())) <= MOST_COLUMNS
    assert parsers.parser_of(name).format_help().endswith(f"\n\nexample:\n  {COMMANDS[name].example}\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_argument_has_a_meaning(name: str) -> None:
    arguments = [argument for parser in parsers_of(name) for argument in parser.arguments]
    assert [of.dest for of in arguments if not of.help and not isinstance(of.choices, dict)] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_not_abbreviated(name: str) -> None:
    assert [parser.prog for parser in parsers_of(name) if parser.allow_abbrev] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_are_lines_of_the_command(name: str) -> None:
    for parser in parsers_of(name):
        example = (parser.epilog or "").removeprefix("example:\n").partition(" > ")[0]
        etlrun, command, *words = shlex.split(example)
        assert (etlrun, command) == ("etlrun", name)
        assert parser.parts or f"{example} ".startswith(f"  {parser.prog} ")
        assert parsers.parser_of(name).parse_args(words)


@pytest.mark.parametrize("columns", ["1", "20", "80", "500"])
@pytest.mark.parametrize("name", ["diff", "cache", "prepare"])
def test_a_help_is_printed_at_any_width(name: str, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    letters = "".join(parsers.parser_of(name).format_help().split())
    monkeypatch.setenv("COLUMNS", "80")
    assert letters == "".join(parsers.parser_of(name).format_help().split())


SIDE = "quoted overrides, a config file, the folder of a run or of a sweep, or a git revision"
WRONG = {
    "diff a b --formt json": [
        "--formt json: found an unknown option; expected an option of etlrun diff",
        "did you mean `--format`?",
    ],
    "evaluate RUN --thresh 0.5": [
        "--thresh 0.5: found an unknown option; expected an option of etlrun evaluate",
        "did you mean `--threshold`?",
    ],
    "runs ls --form json": [
        "--form: found an unknown option; expected an option of etlrun runs",
        "did you mean `--format`?",
    ],
    "report RUN --quux": [
        "--quux: found an unknown option; expected an option of etlrun report",
        "see etlrun report --help",
    ],
    "diff a b c d": ["c d: found an argument too many; expected those of etlrun diff", "see etlrun diff --help"],
    "diff": [f"OLD: found nothing; expected {SIDE}", "see etlrun diff --help"],
    "init": [
        "DIR: found nothing; expected the folder of the project: a new one, or an empty one",
        "see etlrun init --help",
    ],
    "evaluate": ["RUN: found nothing; expected folder of a completed run", "see etlrun evaluate --help"],
    "prepare --seed 1": [
        "SOURCE: found nothing; expected folder, list, archive, or pattern of TFRecords",
        "see etlrun prepare --help",
        "--name: found nothing; expected name of the dataset",
        "see etlrun prepare --help",
    ],
    "cache": ["command: found nothing; expected one of ls, why, gc, rm", "see etlrun cache --help"],
    "cache lss": ["command: found 'lss'; expected one of ls, why, gc, rm", "did you mean `ls`?"],
    "plan --format xml": ["--format: found 'xml'; expected one of text, json, mermaid"],
    "cache gc --max-bytes x": [
        "--max-bytes: found x; expected a number of bytes, or one with a unit such as 50MB",
    ],
    "check --config-dir": [
        "--config-dir: found no value; expected folder of your configs, checked instead of the project's",
        "see etlrun check --help",
    ],
    "check --update=3": ["--update: found the value '3'; expected no value", "see etlrun check --help"],
    "diff a b --stat --format json": ["--format: found --stat, too; expected one of them", "see etlrun diff --help"],
}


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_command_line_is_refused_as_a_wrong_config_is(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words.split())
    out, err = capsys.readouterr()
    lines = [line.strip().removeprefix("-> ") for line in err.splitlines()]
    count = sum(": found" in line for line in WRONG[words])
    assert (ended.value.code, out) == (2, "")
    assert lines == [f"etlrun: {count} fault{'s' * (count > 1)}", *WRONG[words]]
