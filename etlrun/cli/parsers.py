"""Parsers of all commands, and what `etlrun help` knows of a command, a group, an option, a key or a concept."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import platform
import re
import textwrap
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from etlrun.cli.commands import COMMANDS, CONFIG_FILES, GROUPS, REVIEWING, Answer, Command, collect_again
from etlrun.config.folders import config_dir, file_of, options_of, own_folder
from etlrun.system.errors import ConfigError, Failure, Fault, describe, did_you_mean, fault, likeliest
from etlrun.system.hidden import in_review
from etlrun.system.loading import version_of
from etlrun.system.values import grouped

if TYPE_CHECKING:
    from etlrun.config.reference import Key


_HEAD = """\
usage: etlrun [COMMAND] [OVERRIDE ...]

Train a Keras model on a tf.data pipeline, both described by a reviewed YAML
config. Without a command, etlrun trains.

examples:
  etlrun                                      train on the built-in dataset
  etlrun experiment=own dataset.dir=photos    train on a folder of classes
  etlrun -m cache=none,memory                 run all combinations, compare them
  etlrun trainer.resume=RUN                   resume an interrupted run
"""
_TAIL = """\
options:
  -m, --multirun      run every combination of overrides KEY=A,B
  --config-dir DIR    folder of your configs; --config-name NAME: primary
  --cfg job           print the composed config; --info, --hydra-help: Hydra's
  --quiet, --json     print notes and errors alone; the result as one document
  -sc install=SHELL   print the completion for bash, zsh or fish
  --version           print versions; etlrun COMMAND --help describes a command

etlrun help lists the topics of which it knows more, such as groups, cache.disk,
load.prefetch or resume."""
_CONCEPTS = Path(__file__).with_name("concepts")
LISTS = {"commands": "All commands, by what they are for", "groups": "Groups of configs, with their options"}
"""Topics that are made of the commands and the configs, each with its title."""
_WIDTH = 79
_PACKAGES = ("tensorflow", "keras", "tensorflow-datasets", "hydra-core")


def concepts() -> dict[str, str]:
    """Return the text of each concept, which begins with the line of its title."""
    paths = sorted(_CONCEPTS.glob("*.md"))
    return {path.stem: path.read_text(encoding="utf-8").removeprefix("# ") for path in paths}


def text() -> str:
    """Return the help: what etlrun is, examples, commands and options."""
    return "\n".join([_HEAD, *commands_by_group(), "", _TAIL])


def commands_by_group() -> Iterator[str]:
    """Yield the lines of all commands, below the headings of what they are for."""
    width = max(map(len, COMMANDS))
    for heading, modules in GROUPS.items():
        yield f"{heading}:"
        yield from (f"  {name:{width}}  {of.summary}" for name, of in COMMANDS.items() if of.module in modules)


def wrapped(text: str, indent: str, hanging: str | None = None) -> str:
    """Return a text in lines of at most 79 columns behind an indent, which is another one from the second line on."""
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def version() -> str:
    """Return the version of etlrun, and those of what it stands on."""
    others = [f"{name} {version_of(name)}" for name in _PACKAGES]
    return f"etlrun {version_of('etlrun')} (Python {platform.python_version()}, {', '.join(others)})"


def help_on(known: Namespace) -> Answer:
    """Say what is known of a topic; without one, what the topics are; `ConfigError` if it is unknown."""
    topic, folders = " ".join(known.topic).split(), [config_dir()]
    folders += [own_folder(known.config_dir)] if known.config_dir is not None else []
    return Answer(about(topic, folders) if topic else index(folders))


def index(folders: Sequence[Path]) -> str:
    """Return what the topics are, with the groups in the config folders."""
    titles = {**{name: text.partition("\n")[0] for name, text in concepts().items()}, **LISTS}
    lines = ["usage: etlrun help TOPIC", "", "concepts:", *(f"  {name:13} {of}" for name, of in titles.items())]
    for title, names in (("commands", COMMANDS), ("groups of configs", options_of(*folders))):
        lines += ["", f"{title}:", wrapped(", ".join(names), "  ")]
    says = "options and keys of groups, such as cache.disk, load.prefetch, or prefetch where one key has the name"
    return "\n".join([*lines, "", wrapped(says, ""), ""])


def about(words: Sequence[str], folders: Sequence[Path]) -> str:
    """Return what is known of a topic of some words, which may be in a config folder; `ConfigError` if nothing is."""
    topic, options = "-".join(words).lower(), options_of(*folders)
    if topic in LISTS:
        width = max(map(len, options)) + 4
        lines = [wrapped(", ".join(of), f"  {group:{width - 2}}", " " * width) for group, of in options.items()]
        return "\n".join([*(commands_by_group() if topic == "commands" else lines), ""])
    if topic in (known := concepts()):
        return known[topic]
    if parts := [*_of_command(words, folders)]:
        return "\n".join(parts)
    if words[1:] or not (text := about_config(words[0], *folders)):
        raise _unknown(" ".join(words), [*known, *LISTS, *COMMANDS, *names(*folders)])
    return text


def _of_command(words: Sequence[str], folders: Sequence[Path]) -> Iterator[str]:
    """Yield the help of a command, or of a part of it such as `cache why`, and of a group of the same name."""
    name, *rest = words
    if name not in COMMANDS:
        return

    whole = parser_of(name)
    if found := whole.parts.get(" ".join(rest)) if rest else whole:
        yield found.format_help()
    if not rest and name in options_of(*folders):
        yield about_config(name, *folders)


def _unknown(topic: str, known: Sequence[str]) -> ConfigError:
    group, _, name = topic.lower().rpartition(".")
    ends = {of.rpartition(".")[2]: of for of in reversed(known) if of.startswith(group)}
    meant = ends.get(likeliest(name, ends, 0.7) or name) or likeliest(topic, known, 0.85)
    remedy = f"did you mean etlrun help {meant}?" if meant else "etlrun help lists the topics"
    return ConfigError([fault(topic, "an unknown topic", "a command, a group, an option, a key or a concept", remedy)])


_OF_EXPERIMENTS = "Whole configs, which set keys of several groups."


def about_config(word: str, *folders: Path) -> str:
    """Return what is known of a group, an option or a key; empty if it is none. `KEY=VALUE` names its key, too.

    Groups and options are those in the config folders.
    """
    key, _, value = word.lstrip("+~").partition("=")
    option = f"{key}.{value}" if value else key
    if option in options_of(*folders):
        return _group(option, folders)
    if option in _options(*folders):
        return _option(option, folders)
    if same := [of for of in _keys() if of.path == key]:
        inner = [of for of in _keys() if re.match(rf"{re.escape(key)}(\[\])?\.", of.path)]
        return _key(same, is_block=bool(inner)) + (f"\n{_names('its keys', inner)}\n" if inner else "")
    found = [of for of in dict.fromkeys((*_options(*folders), *(of.path for of in _keys()))) if of.endswith(f".{key}")]
    if len(found) == 1:
        return about_config(found[0], *folders)
    return "\n".join(["several have this name:", *(f"  {name}" for name in found), ""]) if found else ""


def names(*folders: Path) -> list[str]:
    """Return all groups and options in the config folders, and all keys."""
    return [*options_of(*folders), *_options(*folders), *dict.fromkeys(key.path for key in _keys())]


@cache
def _keys() -> list[Key]:
    from etlrun.config.reference import keys
    from etlrun.stages import STAGES

    return list(keys(STAGES))


@cache
def _options(*folders: Path) -> dict[str, str]:
    from etlrun.config.reference import options
    from etlrun.stages import STAGES

    return options(STAGES, *folders)


def _group(group: str, folders: Sequence[Path]) -> str:
    """Return the options of a group, and its keys: what those do that all options have, and the names of others."""
    meaning, default = next(((key.meaning, key.default) for key in _keys() if key.path == group), (_OF_EXPERIMENTS, ""))
    lines = [group, "", wrapped(meaning, "  "), "", "options:"]
    for option in options_of(*folders)[group]:
        lines += [f"  {group}={option}{' (default)' * (option == default)}"]
        lines += filter(None, [wrapped(_options(*folders)[f"{group}.{option}"], "      ")])
    for title, of in (("steps", group), ("steps on columns", "columns")) if group == "transform" else ():
        steps = (
            name.partition(".")[2]
            for name in _options(*folders)
            if name.startswith(f"{of}.") and not file_of(name, *folders).is_file()
        )
        lines += ["", f"{title}:", wrapped(", ".join(steps), "  ")]
    own = [key for key in _keys() if key.path.startswith(f"{group}.")]
    lines += _described([key for key in own if not key.option])
    for option, found in grouped((key.option, key) for key in own if key.option).items():
        lines += ["", _names(f"keys of {option}", found)]
    return "\n".join([*lines, ""])


def _option(option: str, folders: Sequence[Path]) -> str:
    """Return what an option of a group or a step is, the values that its file sets, and the keys of it alone."""
    group, _, name = option.partition(".")
    text, path = _options(*folders)[option], file_of(option, *folders)
    lines = [option, *(["", wrapped(text, "  ")] if text else [])]
    if path.is_file():
        values = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        lines += ["", f"{group}={name} sets:", *(f"  {line}".rstrip() for line in values)]
    lines += _described([key for key in _keys() if key.option == option])
    if shared := [key for key in _keys() if key.path.startswith(f"{group}.") and not key.option and path.is_file()]:
        lines += ["", _names(f"keys of all options of {group}", shared)]
    return "\n".join([*lines, ""])


def _described(found: Iterable[Key]) -> Iterator[str]:
    for number, key in enumerate(found):
        yield from ("", "keys:") if number == 0 else ()
        kinds = f" ({', '.join(key.kinds)})" if key.kinds else ""
        yield f"  {key.path}{f'={key.default}' if key.default else ', required'}{kinds}"
        yield wrapped(re.split(r"(?<=\.)\s", key.meaning)[0], "      ")


def _names(title: str, found: Iterable[Key]) -> str:
    return f"{title}:\n{wrapped(', '.join(dict.fromkeys(key.path for key in found)), '  ')}"


def _key(found: Sequence[Key], *, is_block: bool) -> str:
    """Return what is known of a key, which options may have in several forms."""
    lines = [found[0].path]
    for form, same in grouped((dataclasses.replace(key, option="", default=""), key) for key in found).items():
        defaults = grouped((key.default or "none: it is required", key.option) for key in same)
        rows = {
            "with": ", ".join(key.option for key in same if key.option),
            "values": form.values,
            "default": ", ".join(
                f"{text} ({', '.join(of)})" if len(defaults) > 1 else text for text, of in defaults.items()
            ),
            "changes": ", ".join(form.kinds) or ("what its keys change" if is_block else "no run"),
            "since": form.since,
        }
        lines += ["", wrapped(form.meaning, "  "), ""]
        lines += [wrapped(text, f"  {name:8} ", f"{'':11}") for name, text in rows.items() if text]
    return "\n".join([*lines, ""])


_COLUMNS = 20, 78
"""Columns of a help, at least and at most, between which it has two less than the terminal."""
_TOLD = (
    (r"invalid choice: (.*?) \(choose from .*\)", "{}", ""),
    ("expected one argument", "no value", ""),
    ("not allowed with argument .*?([^ ]*)", "{}, too", "one of them"),
    ("ignored explicit argument (.*)", "the value {}", "no value"),
)
"""What argparse says of an argument, with what is found, and what is expected if that is not its value."""


class Parser(argparse.ArgumentParser):
    """Parser of a command or of a part of it, which takes no abbreviations of options.

    Of its arguments `--stat` and `--format` exclude each other.
    """

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
        forms = self.add_mutually_exclusive_group() if "--stat" in command.arguments else self
        files = self.add_argument_group("options of configs") if command.takes_overrides else self
        for of in command.whole:
            is_form = of.names[0] in ("--stat", "--format")
            to = forms if is_form else files if of.form in CONFIG_FILES else self
            to.add_argument(*of.names, **of.options)

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
        if title == "unrecognized arguments":
            yield self._unknown(rest, see)
            return
        if title == "the following arguments are required":
            named = (name for name in rest.split(", ") if self._argument(name).nargs not in ("*", "?"))
            yield from (fault(name, "nothing", self._expected(name), see) for name in named)
            return
        for form, found, expected in _TOLD:
            if (match := re.fullmatch(form, rest)) is not None:
                value, choices = "".join(match.groups()), self._argument(where).choices or ()
                remedy = did_you_mean(value.strip("'"), map(str, choices), otherwise=see)
                yield fault(where, found.format(value), expected or self._expected(where), remedy)
                return
        yield Failure(found=f"{where}: {rest}" if title.startswith("argument ") else message, remedy="")

    def _unknown(self, words: str, see: str) -> Fault:
        if not words.startswith("-"):
            return fault(words, "an argument too many", f"those of {self.prog}", see)
        parsers = self, *self.parts.values()
        known = [option for of in parsers for each in of._actions for option in each.option_strings]  # noqa: SLF001
        remedy = did_you_mean(words.split(maxsplit=1)[0].partition("=")[0], known, otherwise=see, cutoff=0.7)
        return fault(words, "an unknown option", f"an option of {self.prog}", remedy)

    def _argument(self, name: str) -> argparse.Action:
        return next(of for of in self._actions if name in (*of.option_strings, of.metavar, of.dest))

    def _expected(self, name: str) -> str:
        of = self._argument(name)
        return f"one of {', '.join(map(str, of.choices))}" if of.choices else str(of.help)


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
    if COMMANDS[name].takes_overrides:
        from etlrun.config.request import requested  # which imports Hydra

        known, request = requested(parser, words)
        return Namespace(**vars(known), request=request, words=words)
    known = parser.parse_args(words) if parser.parts else parser.parse_intermixed_args(words)
    return Namespace(**vars(known), words=words)


def parser_of(name: str) -> Parser:
    """Return the parser of a command."""
    return Parser(COMMANDS[name], prog=f"etlrun {name}")
