"""Parsers of all commands, and what `etlrun help` knows of a command, a group, an option, a key or a concept."""

from __future__ import annotations

import argparse
import importlib
import platform
import re
import sys
import textwrap
from argparse import SUPPRESS, Namespace
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from etlrun.cli.commands import COMMANDS, DAILY, REVIEWING, Answer, Command, collect_again, split, words_of
from etlrun.system.errors import ConfigError, Failure, Fault, describe, did_you_mean, fault
from etlrun.system.hidden import in_review
from etlrun.system.loading import version_of

_HEAD = """\
usage: etlrun [COMMAND] [OVERRIDE ...]

Train a Keras model on a tf.data pipeline, both described by a reviewed YAML
config. Without a command, etlrun trains.

  etlrun                                      train on the built-in dataset
  etlrun experiment=own dataset.dir=photos    train on a folder of classes
  etlrun -m cache=none,memory                 run all combinations, compare them
  etlrun trainer.resume=RUN                   resume an interrupted run
"""
_TAIL = """\
options:
  -m, --multirun      run every combination of overrides KEY=A,B
  --config-dir DIR    your configs; default: ./conf; --config-name NAME: primary
  --cfg job           print the composed config; --info, --hydra-help: Hydra's
  --quiet, --json     print notes and errors alone; the result as one document
  -sc install=SHELL   print the completion for bash, zsh or fish
  --version           print versions; etlrun COMMAND --help describes a command

etlrun help lists the topics of which it knows more, such as cache.disk,
load.prefetch or resume."""
_CONCEPTS = Path(__file__).with_name("concepts")
_TOPICS = """\
usage: etlrun help TOPIC

A topic is a command, a group of configs such as cache, an option such as
cache.disk, a key such as load.prefetch, or one of the concepts:

"""
_WIDTH = 79
_PACKAGES = ("tensorflow", "keras", "tensorflow-datasets", "hydra-core")


def concepts() -> dict[str, str]:
    """Return the text of each concept, which begins with the line of its title."""
    paths = sorted(_CONCEPTS.glob("*.md"))
    return {path.stem: path.read_text(encoding="utf-8").removeprefix("# ") for path in paths}


def text() -> str:
    """Return the help: what etlrun is, examples, commands and options."""
    width, others = max(map(len, COMMANDS)), [name for name in COMMANDS if name not in DAILY]
    lines = [f"  {name:{width}}  {COMMANDS[name].summary}" for name in DAILY]
    alone = ", ".join(name for name in others if not COMMANDS[name].parts)
    nouns = [f"  {name:{width}}  {', '.join(COMMANDS[name].parts)}" for name in others if COMMANDS[name].parts]
    return "\n".join([_HEAD, *lines, f"\nmore: {alone}; and commands with parts:", *nouns, "", _TAIL])


def wrapped(text: str) -> str:
    """Return a text in indented lines of at most 79 columns."""
    return textwrap.indent(textwrap.fill(text, _WIDTH - 2, break_long_words=False, break_on_hyphens=False), "  ")


def version() -> str:
    """Return the version of etlrun, and those of what it stands on."""
    others = [f"{name} {version_of(name)}" for name in _PACKAGES]
    return f"etlrun {version_of('etlrun')} (Python {platform.python_version()}, {', '.join(others)})"


def help_on(known: Namespace) -> Answer:
    """Say what is known of a topic; without one, what the topics are; `ConfigError` if it is unknown."""
    name, *rest = " ".join(known.topic).split() or [""]
    topic, texts = "-".join([name, *rest]).lower(), concepts()
    if not name:
        titles = "".join(f"  {of:13} {text.partition(chr(10))[0]}\n" for of, text in texts.items())
        return Answer(f"{_TOPICS}{titles}")
    if topic in texts:
        return Answer(texts[topic])
    words = [name, *rest] if name in COMMANDS else words_of(topic)
    parser = parser_of(*words) if words and len(split(words)[0]) == len(words) else None
    entries = {} if rest else _entries()
    same = {name, *(of for of in entries if of.endswith(f".{name}"))}
    found = [
        text
        for of, text in entries.items()
        if any(of == each or of.startswith((f"{each}.", f"{each}[")) for each in same)
    ]
    keys = (key for text in entries.values() for key in re.split(r"\n(?=\w)", text))
    chosen = "|".join(
        rf"{group}\.(\w+, )*{re.escape(option)}" for group, _, option in (of.partition(".") for of in same) if option
    )
    found += [key for key in keys if re.match(rf"\S+, with ({chosen})[,\n]", key)]
    if not (parser or found):
        known_words = [*texts, *COMMANDS, *(part for of in COMMANDS.values() for part in of.parts), *entries]
        remedy = did_you_mean(topic, known_words, "etlrun help {}", "etlrun help lists topics", 0.7)
        expected = "a command, a group, an option, a key or a concept"
        raise ConfigError([fault(" ".join([name, *rest]), "an unknown topic", expected, remedy)])
    says = "\n".join([*([parser.format_help()] if parser else []), *dict.fromkeys(found)])
    return Answer(f"{says.rstrip()}\n")


def _entries() -> dict[str, str]:
    """Return what each option of a group, each step and each key of configs is, by its dotted name."""
    from etlrun.config.reference import keys, merged, options
    from etlrun.stages import STAGES

    found = {of: "\n".join([of, *filter(None, [wrapped(text)])]) for of, text in options(STAGES).items()}
    every = merged(keys(STAGES))
    for key, defaults in every.items():
        is_block = any(of.path.startswith((f"{key.path}.", f"{key.path}[")) for of in every)
        kinds = ", ".join(key.kinds) or ("what its keys change" if is_block else "no run")
        common = next(iter(defaults.values()))
        others = [f", {of} with {option}" for option, of in defaults.items() if of != common]
        default = "".join([common or "none: it is required", *others])
        values = f"values: {key.values}; default: {default}; changes: {kinds}"
        group, _, first = next(iter(defaults)).partition(".")
        names = ", ".join([first, *(option.rpartition(".")[2] for option in [*defaults][1:])])
        head = f"{key.path}, with {group}.{names}" if group else key.path
        text = "\n".join([head, wrapped(key.meaning), wrapped(values)])
        found[key.path] = f"{found[key.path]}\n{text}" if key.path in found else text
    return found


_COLUMNS = 20, 78
"""Columns of a help, at least and at most, between which it has two less than the terminal."""


class Parser(argparse.ArgumentParser):
    """Parser of a command or of a part of it, which takes no abbreviations of options."""

    def __init__(self, command: Command, **options: Any) -> None:
        import shutil  # with archives, which completion does without

        columns = min(max(shutil.get_terminal_size().columns - 2, _COLUMNS[0]), _COLUMNS[1])
        super().__init__(
            description=textwrap.fill(command.description, columns),
            epilog=f"example:\n  {command.example}",
            formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=columns),
            allow_abbrev=False,
            **options,
        )
        if command.parts:
            parts = self.add_subparsers(dest="command", required=True)
            for name, part in command.parts.items():
                parts.add_parser(name, help=part.summary, command=part)
        files = self.add_argument_group("options of configs") if command.takes_overrides else self
        for of in command.whole:
            to = files if of.form.startswith("--config-") else self
            to.add_argument(*of.names, **of.options)
        if command.answers == "document" and not command.parts:
            format_of = next((of for of in command.whole if "json" in of.options.get("choices", ())), None)
            dest, says = ("json", "print JSON") if format_of is None else ("format", "the same as --format json")
            self.add_argument("--json", action="store_const", const="json", default=SUPPRESS, dest=dest, help=says)

    @property
    def parts(self) -> dict[str, Parser]:
        """Parsers of the parts of a command, such as `why` of `cache`."""
        return next((dict(of.choices) for of in self._actions if isinstance(of.choices, dict)), {})

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong with a command line."""
        title, _, rest = message.removeprefix("argument ").partition(": ")
        see = f"see {self.prog} --help"
        faults: list[Fault] = [Failure(found=f"{title}: {rest}".replace("'", ""), remedy=see)]
        if title == "the following arguments are required":
            told = {name: of.help for of in self._actions for name in (*of.option_strings, of.metavar, of.dest)}
            parts = f"one of {', '.join(self.parts)}"
            faults = [fault(name, "nothing", told[name] or parts, see) for name in rest.split(", ")]
        elif title == "unrecognized arguments":
            known = [name for of in (self, *self.parts.values()) for name in of._option_string_actions]  # noqa: SLF001
            remedy = did_you_mean(rest.partition(" ")[0].partition("=")[0], known, otherwise=see, cutoff=0.7)
            faults = [fault(rest, "an unknown argument", f"those of {self.prog}", remedy)]
        raise ConfigError(faults)


def call(name: str, arguments: list[str]) -> None:
    """Call a command, or its part that the arguments begin with, and print what it answers as `--format` says.

    Raises:
        EtlrunError: The arguments are wrong, or the command fails.
        SystemExit: With its exit status, if that is not 0.
    """
    known = parsed(name, arguments)
    module, function = split([name, *arguments])[1].function.split(".")
    command: Callable[[Namespace], Answer | None] = getattr(importlib.import_module(f"etlrun.cli.{module}"), function)
    collect_again()
    with in_review() if name in REVIEWING else nullcontext():
        answer = command(known) or Answer()
    form: str = getattr(known, "json", "") or getattr(known, "format", "text")
    if answer.says is not None:
        from etlrun.report.render import RENDER, show
        from etlrun.system.terminal import say_whole

        if isinstance(answer.says, str):
            say_whole(answer.says)
        elif form in RENDER and form != "text":
            say_whole(RENDER[form](answer.says))
        else:
            show(answer.says)
    if answer.error is not None and answer.says is not None and form == "json":  # which has the error in it
        print(describe(answer.error), file=sys.stderr)
        raise SystemExit(answer.error.status)
    if answer.error is not None:
        raise answer.error
    if answer.status:
        raise SystemExit(answer.status)


def parsed(name: str, arguments: list[str]) -> Namespace:
    """Return the arguments of a command, also as they were written, `words`, and the `request` for the config.

    `command` is the name of the command or of the part. Raises `ConfigError` if an argument is wrong.
    """
    names, command = split([name, *arguments])
    parser, words = parser_of(*names), arguments[len(names) - 1 :]
    if command.takes_overrides:
        from etlrun.config.request import requested  # which imports Hydra

        known, request = requested(parser, words)
        return Namespace(**vars(known), command=names[-1], request=request, words=words)
    known = parser.parse_args(words[:1]) if parser.parts else parser.parse_intermixed_args(words)
    if "run" in known:
        from etlrun.record.folders import found_by  # which completion does without

        given, where = known.run, "RUN "
        known.run = found_by(given, where, "run", "sweep") if name == "report" else found_by(given, where, "run")
        words = [str(known.run) if word == given else word for word in words]
    return Namespace(**vars(known), command=names[-1], words=words)


def parser_of(*words: str) -> Parser:
    """Return the parser of a command, or of a part of it, such as `cache why`."""
    names, command = split(words)
    return Parser(command, prog=f"etlrun {' '.join(names)}")
