"""The command line: a command, a run, or what completes a word. What answers at once imports nothing else."""

from __future__ import annotations

import io
import itertools
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

from etlrun.cli.commands import COMMANDS, collect_again
from etlrun.cli.parsers import LISTS, call, concepts, text, version
from etlrun.config.folders import chosen_in, config_dir, content_of, options_of, values_of
from etlrun.system.errors import (
    INTERRUPTED,
    ConfigError,
    EtlrunError,
    Fault,
    describe,
    did_you_mean,
    likeliest,
    of_system,
)
from etlrun.system.terminal import printing, say_whole

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


def complete(arguments: Sequence[str]) -> None:
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
        whole = part.whole if part else []
        yield from ("--help", *(name for of in whole for name in of.names if name.startswith("--")))
    elif word.startswith("-"):
        yield from _OPTIONS
    elif before and before[-1] in _PATHS:
        return
    elif command is not None and command.parts and len(before) == 1:
        yield from command.parts
    elif before[:1] == ["help"]:
        yield from _topics(before, word)
    elif command is None or (part and any(form.startswith("overrides ") for form in part.arguments)):
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `etlrun` or `python -m etlrun`; exit with status 0, 1 (failed), 2 (refused), 3 (slow), 4 (policy) or 130."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            _require_surroundings()
            _answer(arguments)
        finally:
            _flush()
    except EtlrunError as error:
        print(describe(error), file=sys.stderr)
        raise SystemExit(error.status) from None
    except KeyboardInterrupt:
        print("etlrun: interrupted", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:  # as of `| head`
        raise SystemExit(1) from None
    except OSError as error:
        if error.filename is None:
            raise
        print(describe(of_system(error)), file=sys.stderr)
        raise SystemExit(EtlrunError.status) from None


def _flush() -> None:
    """Write what has been printed, so that a command notices a full disk, and a pipe whose reader has left."""
    try:
        with printing():
            if sys.stdout is not None:  # a shell may close it
                sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # where Python flushes the rest at its end
        raise


def _require_surroundings() -> None:
    """Let any name be printed; raise `EtlrunError` in surroundings in which commands can't work."""
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):  # names of files may be no Unicode, and a terminal may show ASCII alone
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if sys.flags.optimize:
        expected = "assertions, in which Hydra's parser does its work"
        remedy = "unset PYTHONOPTIMIZE, and start Python without -O"
        raise EtlrunError([Fault("PYTHONOPTIMIZE", "Python without assertions", expected, remedy)])
    try:
        Path.cwd()
    except FileNotFoundError:
        fault = Fault("the current folder", "a folder that is gone", "a folder that is there", "cd to another one")
        raise EtlrunError([fault]) from None


def _open_standard_streams() -> None:
    """Open those that a shell has closed, so that no file gets their numbers, to which native libraries write."""
    for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        if stream is None:
            opened = os.open(os.devnull, os.O_RDWR)
            os.dup2(opened, number)
            if opened > number:
                os.close(opened)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115  # for the rest of the process


def _answer(arguments: list[str]) -> None:
    if arguments and arguments[0] in COMMANDS:
        call(arguments[0], arguments[1:])
        return
    if arguments and arguments[0] in ("--shell-completion", "-sc"):
        complete(arguments[1:])
        return
    _refuse_unknown(arguments)
    for before, argument in itertools.pairwise(arguments):
        if argument in COMMANDS and before not in _WITH_VALUES:  # which Hydra would take for an override
            remedy = f"write etlrun {shlex.join([argument, *(of for of in arguments if of is not argument)])}"
            raise ConfigError([Fault(argument, "a command after other arguments", "the command first", remedy)])
    if asked := {"--version", "--help", "-h"} & {*arguments}:
        say_whole(f"{version() if '--version' in asked else text()}\n")
    else:
        _start(arguments)


HYDRA_ANSWERS = (
    "--hydra-help", "--cfg", "-c", "--info", "-i", "--resolve", "--experimental-rerun", "--config-path", "-cp",
    "--package", "-p",
)  # fmt: skip
"""Options that Hydra handles alone: it answers by itself, or uses configs from elsewhere."""
_PRINTED = {"--hydra-help", "--cfg", "-c", "--info", "-i"}
"""Those of them that print and run nothing."""


def _start(arguments: list[str]) -> None:
    from etlrun.cli import launch  # which imports Hydra
    from etlrun.config import grid
    from etlrun.config.request import Request
    from etlrun.stages import STAGES

    collect_again()
    options = {argument for argument in arguments if argument in (launch.QUIET, launch.JSON)}
    arguments = [argument for argument in arguments if argument not in options]
    with launch.answering(options):
        if answer := next((argument for argument in arguments if argument.split("=")[0] in HYDRA_ANSWERS), ""):
            if options:
                where = " ".join(sorted(options))
                raise ConfigError([Fault(where, answer, "a run or a sweep", f"leave out {where}")])
            _by_hydra(arguments)
            return
        request = Request.of(arguments).resuming()
        if request.multirun:
            launch.multirun(request.arguments)
        else:
            launch.start(request, *grid.to_start(request, STAGES))


def _by_hydra(arguments: list[str]) -> None:
    """Let Hydra answer, which reports some of its errors itself, and raises others.

    What it only prints is printed afterwards, since it has no message for a full disk or a closed output.
    """
    from etlrun.cli.launch import launch
    from etlrun.config.composer import UNCOMPOSABLE, refusal

    text, prints = io.StringIO(), _PRINTED & {word.split("=")[0] for word in arguments}
    try:
        with redirect_stdout(text) if prints else nullcontext():
            launch(arguments)
    except UNCOMPOSABLE as error:
        raise ConfigError([refusal(error)]) from error
    finally:
        if prints:
            say_whole(text.getvalue())


_WITH_VALUES = ("--config-dir", "-cd", "--config-name", "-cn", "--config-path", "-cp", "--cfg", "-c", "--package", "-p")
"""Options of Hydra whose value may have the name of a command."""
_INSTEAD = {
    **dict.fromkeys(("train", "run", "fit", "start"), "leave it out: etlrun trains without a command"),
    **dict.fromkeys(("sweep", "multirun"), "write etlrun -m KEY=A,B"),
    "resume": "write etlrun trainer.resume=RUN",
    "version": "write etlrun --version",
    "list": "write etlrun runs ls",
}
"""What is written for words that other programs have as commands."""


def _refuse_unknown(arguments: Sequence[str]) -> None:
    """Refuse a first word that is neither a command nor an override, unless it is the name of a key."""
    word = arguments[0] if arguments else ""
    if not word or word.startswith(("-", "~")) or "=" in word:
        return
    if word not in _INSTEAD:
        from etlrun.planning.hints import is_key
        from etlrun.stages import STAGES

        if is_key(word, STAGES):
            return
    remedy = _INSTEAD.get(word) or _of_path(Path(word))
    if not remedy and (near := likeliest(word, [*COMMANDS, *_INSTEAD], cutoff=0.65)) in _INSTEAD:
        remedy = f"did you mean {near}? {_INSTEAD[near]}"
    remedy = remedy or did_you_mean(word, COMMANDS, "etlrun {}", "etlrun --help lists the commands", cutoff=0.65)
    raise ConfigError([Fault(word, "an unknown command", "a command, or overrides KEY=VALUE", remedy)])


def _of_path(path: Path) -> str:
    """Return the remedy for a path in the place of a command; empty if there is none."""
    if path.suffix in (".yaml", ".yml"):
        folder, name = shlex.quote(str(path.parent)), shlex.quote(path.stem)
        return f"for a whole config write etlrun --config-dir {folder} --config-name {name}"
    if any(next(path.glob(f"{above}summary.json"), None) for above in ("", "*/", "*/*/")):
        return f"write etlrun report {shlex.quote(str(path))}"
    return f"for a folder of images write etlrun experiment=own dataset.dir={shlex.quote(str(path))}" * path.is_dir()
