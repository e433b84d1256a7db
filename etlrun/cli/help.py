"""Texts that are printed at once: `etlrun --help`, `etlrun --version`, and the lists of commands and groups."""

from __future__ import annotations

import platform
import textwrap
from collections.abc import Iterator
from pathlib import Path

from etlrun.cli.commands import COMMANDS, GROUPS
from etlrun.config.folders import options_of
from etlrun.system.loading import version_of

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
    for group in GROUPS:
        yield f"{group}:"
        yield from (f"  {name:{width}}  {of.summary}" for name, of in COMMANDS.items() if of.group == group)


def options_by_group(*folders: Path) -> Iterator[str]:
    """Yield the lines of all groups in the config folders, with their options."""
    options = options_of(*folders)
    width = max(map(len, options)) + 4
    yield from (wrapped(", ".join(names), f"  {group:{width - 2}}", " " * width) for group, names in options.items())


def wrapped(text: str, indent: str, hanging: str | None = None) -> str:
    """Return a text in lines of at most 79 columns behind an indent, which is another one from the second line on."""
    lines = textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)


def version() -> str:
    """Return the version of etlrun, and those of what it stands on."""
    others = [f"{name} {version_of(name)}" for name in _PACKAGES]
    return f"etlrun {version_of('etlrun')} (Python {platform.python_version()}, {', '.join(others)})"
