"""`etlrun help`: what is known of a command, a group of configs, an option, a key or a concept."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from etlrun.cli import parsers
from etlrun.cli.commands import COMMANDS
from etlrun.cli.help import LISTS, commands_by_group, concepts, options_by_group, wrapped
from etlrun.config.folders import config_dir, options_of, own_folder
from etlrun.system.errors import ConfigError, fault, likeliest
from etlrun.system.terminal import say_whole


def main(arguments: list[str]) -> None:
    """Print what is known of a topic; without one, what the topics are.

    Raises:
        ConfigError: The topic is unknown, or the folder of the user's configs.
    """
    known = parser().parse_args(arguments)
    topic, folders = " ".join(known.topic).split(), [config_dir()]
    folders += [own_folder(known.config_dir)] if known.config_dir is not None else []
    say_whole(about(topic, folders) if topic else index(folders))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = parsers.of_command("help", "Describe a command, a group of configs, an option, a key or a concept.")
    says = "such as plan, cache, cache.disk, load.prefetch or resume; without one, what the topics are"
    parser.add_argument("topic", nargs="*", metavar="TOPIC", help=says)
    parsers.add_config_dir(parser)
    return parser


def index(folders: Sequence[Path]) -> str:
    """Return what the topics are, with the groups in the config folders."""
    titles = {**{name: text.partition("\n")[0] for name, text in concepts().items()}, **LISTS}
    lines = ["usage: etlrun help TOPIC", "", "concepts:", *(f"  {name:13} {of}" for name, of in titles.items())]
    for title, names in (("commands", COMMANDS), ("groups of configs", options_of(*folders))):
        lines += ["", f"{title}:", wrapped(", ".join(names), "  ")]
    says = "options and keys of groups, such as cache.disk, load.prefetch, or prefetch where one key has the name"
    return "\n".join([*lines, "", wrapped(says, ""), ""])


def about(words: Sequence[str], folders: Sequence[Path]) -> str:
    """Return what is known of a topic of one word or several, which may be in a config folder.

    Raises:
        ConfigError: The topic is unknown.
    """
    topic = "-".join(words).lower()
    if topic in LISTS:
        return "\n".join([*(commands_by_group() if topic == "commands" else options_by_group(*folders)), ""])
    if topic in (known := concepts()):
        return known[topic]
    if parts := [*_of_command(words, folders)]:
        return "\n".join(parts)
    from etlrun.cli import config_topics  # of the stages, which take a tenth of a second to import

    if words[1:] or not (text := config_topics.about(words[0], *folders)):
        raise _unknown(" ".join(words), [*known, *LISTS, *COMMANDS, *config_topics.names(*folders)])
    return text


def _of_command(words: Sequence[str], folders: Sequence[Path]) -> Iterator[str]:
    """Yield the help of a command, or of a part of it such as `cache why`, and of a group of the same name."""
    name, *rest = words
    if name not in COMMANDS:
        return
    found: parsers.Parser | None = parsers.parser_of(name)
    for word in rest:
        found = None if found is None else found.parts.get(word)
    if found is not None:
        yield found.format_help()
    if not rest and name in options_of(*folders):
        from etlrun.cli import config_topics

        yield config_topics.about(name, *folders)


def _unknown(topic: str, known: Sequence[str]) -> ConfigError:
    group, _, name = topic.lower().rpartition(".")
    ends = {of.rpartition(".")[2]: of for of in reversed(known) if of.startswith(group)}
    meant = ends.get(likeliest(name, ends, 0.7) or name) or likeliest(topic, known, 0.85)
    remedy = f"did you mean etlrun help {meant}?" if meant else "etlrun help lists the topics"
    return ConfigError([fault(topic, "an unknown topic", "a command, a group, an option, a key or a concept", remedy)])
