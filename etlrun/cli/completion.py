"""Completion of command lines by shells: commands and their options, groups, keys and their values, of config files.

It imports neither Hydra nor the stages, so that it answers at once, and prints nothing but what completes the word.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from etlrun.cli.commands import COMMANDS
from etlrun.cli.help import LISTS, concepts
from etlrun.config.folders import chosen_in, config_dir, content_of, options_of, values_of
from etlrun.system.errors import ConfigError, Fault

_OPTIONS = (
    "--help", "--version", "--multirun", "--config-dir", "--config-name", "--cfg", "--info", "--json", "--quiet"
)  # fmt: skip
"""Options without a command."""
_PATHS = ("-cd", "--config-dir", "--data-dir", "--dir", "--golden", "--html", "--out", "--output", "--png")
"""Options whose values shells complete, as they do without a completion of ours."""
_OPEN = ("=", ".")
"""Ends of what the user goes on to type behind."""
_BASH = """\
_etlrun() {
    local IFS=$'\\n' line="${COMP_LINE:0:COMP_POINT}"
    local word="${line##* }"
    COMPREPLY=($(COMP_LINE="$line" "$1" -sc query=bash 2>/dev/null))
    # Bash replaces what is behind the last of its word breaks.
    if [[ $word == *=* && $COMP_WORDBREAKS == *=* ]]; then COMPREPLY=("${COMPREPLY[@]#"${word%=*}="}"); fi
}
complete -o nospace -o default -F _etlrun etlrun
"""
_ZSH = """\
_etlrun() {
    local -a found
    found=(${(f)"$(COMP_LINE="${(j: :)words[1,CURRENT]}" ${words[1]} -sc query=zsh 2>/dev/null)"})
    (( $#found )) || { _files; return }
    compadd -S '' -- ${(M)found:#*[=.]}
    compadd -- ${found:#*[=.]}
}
compdef _etlrun etlrun
"""
_FISH = """\
function _etlrun
    set -l found (COMP_LINE=(commandline -cp) etlrun -sc query=fish 2>/dev/null)
    if test -n "$found"; printf '%s\\n' $found; else; __fish_complete_path (commandline -ct); end
end
complete -c etlrun -f -a '(_etlrun)'
"""
_INSTALL = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_UNQUOTED = re.compile(r"[\w./:-]+")


def main(arguments: Sequence[str]) -> None:
    """Print the script that installs the completion, or what completes `COMP_LINE`; `ConfigError` for another word."""
    asked = arguments[0] if arguments else ""
    what, _, shell = asked.partition("=")
    if shell not in _INSTALL or what not in ("install", "query"):
        raise ConfigError([Fault("-sc", asked or "nothing", " or ".join(f"install={of}" for of in _INSTALL))])
    if what == "query":
        found = completions(os.environ.get("COMP_LINE", ""))
        ends = " " * (shell == "bash")  # which is told to add none by itself
        print("\n".join(word if word.endswith(_OPEN) else f"{word}{ends}" for word in found))
    else:
        print(_INSTALL[shell], end="")


def completions(line: str) -> list[str]:
    """Return all words that the last one of a command line may become, sorted."""
    try:
        words = shlex.split(line)
    except ValueError:  # quotes are open
        words = line.split()
    is_begun = len(words) > 1 and not line[-1:].isspace()
    *before, word = words[1:] if is_begun else [*words[1:], ""]
    return sorted({found for found in _possible(before, word) if found.startswith(word)})


def _possible(before: Sequence[str], word: str) -> Iterator[str]:
    command = COMMANDS.get(before[0]) if before else None
    part = command and (command.parts.get("".join(before[1:2])) if command.parts else command)
    if word.startswith("-") and command is not None:
        from etlrun.cli.parsers import parser_of  # with argparse, which overrides do without

        parser = parser_of(before[0])
        parser = parser.parts.get("".join(before[1:2]), parser)
        yield from (name for of in parser.arguments for name in of.option_strings if name.startswith("--"))
    elif word.startswith("-"):
        yield from _OPTIONS
    elif before and before[-1] in _PATHS:
        return
    elif command is not None and command.parts and len(before) == 1:
        yield from command.parts
    elif before[:1] == ["help"]:
        yield from _topics(before, word)
    elif command is None or (part and any(of.form.startswith("overrides ") for of in part.arguments)):
        yield from () if before else COMMANDS
        yield from _overrides(before, word)


def _topics(before: Sequence[str], word: str) -> Iterator[str]:
    """Yield what `etlrun help` describes: concepts, commands and their parts, groups, their options, and their keys."""
    own = _own(before)
    words = [of for of in before[1:] if not of.startswith("-") and Path(of) not in own]
    if words:
        yield from COMMANDS[words[0]].parts if words[0] in COMMANDS else ()
        return
    options = options_of(config_dir(), *own)
    group, has_key, _ = word.partition(".")
    if not has_key:
        yield from (*concepts(), *LISTS, *COMMANDS, *options, *(f"{group}." for group in options))
        return
    yield from (f"{group}.{option}" for option in options.get(group, ()))
    yield from (key.removesuffix("=") for key in _overrides((), word) if key != f"{group}.name=")


def _own(before: Sequence[str]) -> list[Path]:
    words = [part for word in before for part in (word.split("=", 1) if word.startswith("--config-dir=") else [word])]
    return [Path(folder) for option, folder in itertools.pairwise(words) if option in ("--config-dir", "-cd")]


def _overrides(before: Sequence[str], word: str) -> Iterator[str]:
    folders = [config_dir(), *_own(before)]
    mark = word[: len(word) - len(word.lstrip("+~"))]
    options = options_of(*folders)
    key, has_value, value = word.removeprefix(mark).partition("=")
    if not has_value:
        yield from (f"{mark}{group}{end}" for group in options for end in _OPEN)
        leaves = _leaves(folders, before, key.partition(".")[0]) if "." in key else {}
        for path in leaves:
            if path.startswith(key):
                inner, dot, _ = path[len(key) :].partition(".")
                yield f"{mark}{key}{inner}{dot or '='}"
        return
    given = value.split(",")[:-1]  # of a multirun
    several = "".join(f"{of}," for of in given)
    values = options.get(key) or _leaves(folders, before, key.partition(".")[0]).get(key, [])
    yield from (f"{mark}{key}={several}{option}" for option in values if option not in given)


def _leaves(folders: Sequence[Path], before: Sequence[str], group: str) -> dict[str, list[str]]:
    """Return the dotted keys of the chosen option of a group, each with the values that are known."""
    words = dict(word.lstrip("+").split("=", maxsplit=1) for word in before if "=" in word)
    names = ("config", f"experiment/{words.get('experiment')}")
    option = {**chosen_in(*(content_of(name, *folders) for name in names)), **words}.get(group)
    return {} if option is None else dict(_flat(group, values_of(f"{group}/{option}", *folders)))


def _flat(path: str, value: Any) -> Iterator[tuple[str, list[str]]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(f"{path}.{name}", inner)
        return
    texts = ["true", "false"] if isinstance(value, bool) else ["null" if value is None else str(value)]
    yield path, [text for text in texts if _UNQUOTED.fullmatch(text)]
