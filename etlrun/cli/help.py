"""`etlrun --help`, `--version`, and `etlrun help`: what is known of a command, a group, an option, a key or a concept.

Nothing here imports the stages, from which keys are known, before one is asked for.
"""

from __future__ import annotations

import dataclasses
import platform
import re
import textwrap
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from etlrun.cli.commands import COMMANDS, GROUPS, Answer
from etlrun.config.folders import config_dir, file_of, options_of, own_folder
from etlrun.system.errors import ConfigError, fault, likeliest
from etlrun.system.loading import version_of

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
    from etlrun.cli.parsers import parser_of

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
    for option in dict.fromkeys(key.option for key in own if key.option):
        lines += ["", _names(f"keys of {option}", (key for key in own if key.option == option))]
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
    forms: dict[Key, list[Key]] = {}
    for key in found:
        forms.setdefault(dataclasses.replace(key, option="", default=""), []).append(key)
    lines = [found[0].path]
    for form, same in forms.items():
        defaults: dict[str, list[str]] = {}  # which options may have of their own
        for key in same:
            defaults.setdefault(key.default or "none: it is required", []).append(key.option)
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
