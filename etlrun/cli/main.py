"""The command line: a command, a run, or what completes a word. What answers at once imports nothing else."""

import io
import itertools
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from typing import Any

from etlrun.cli.commands import COMMANDS, collect_again, split, words_of
from etlrun.cli.parsers import call, text, version
from etlrun.system.errors import (
    INTERRUPTED,
    ConfigError,
    EtlrunError,
    Fault,
    describe,
    did_you_mean,
    document,
    of_system,
)
from etlrun.system.terminal import discard, printing, say_whole


def complete(arguments: list[str]) -> None:
    """Print the script that installs the completion, or what completes `COMP_LINE`: commands, and what Hydra knows."""
    asked = " ".join(arguments[1:])
    if not re.fullmatch("(install|query)=(bash|zsh|fish)", asked):
        raise ConfigError([Fault("-sc", asked or "nothing", "install=bash, install=zsh or install=fish")])
    if not asked.startswith("query"):
        _by_hydra(arguments)
        return
    program, *words = os.environ.get("COMP_LINE", "").split(" ")
    if len(words) == 1:
        _say_beginnings(COMMANDS, words[0])
    elif words and words[0] in COMMANDS:
        names, command = split(words)
        if command.parts:
            _say_beginnings(command.parts if len(words) == _OF_PART else (), words[-1])
            return
        os.environ["COMP_LINE"] = " ".join([program, *words[len(names) :]])
    folders = [word for pair in itertools.pairwise(words) if pair[0] in ("--config-dir", "-cd") for word in pair]
    with suppress(Exception, SystemExit), redirect_stderr(io.StringIO()):  # a line that is not yet valid has none
        _by_hydra([*arguments, *folders])


_OF_PART = 2
"""Words in front of the cursor where it is at a part of a command."""


def _say_beginnings(names: Iterable[str], word: str) -> None:
    print("".join(f"{name}\n" for name in sorted(names) if name.startswith(word)), end="")


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
        raise _ended(error, arguments) from None
    except KeyboardInterrupt:
        print("etlrun: interrupted", file=sys.stderr)
        _document({"status": "interrupted", "exit_status": INTERRUPTED, "error": None, "faults": []}, arguments)
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:  # as of `| head`
        raise SystemExit(1) from None
    except OSError as error:
        if error.filename is None:
            raise
        raise _ended(of_system(error), arguments) from None


def _ended(error: EtlrunError, arguments: Sequence[str]) -> SystemExit:
    """Print an error, and return the end of the command."""
    print(describe(error), file=sys.stderr)
    _document(document(error), arguments)
    return SystemExit(error.status)


def _document(values: dict[str, Any], arguments: Sequence[str]) -> None:
    """Print a document on standard output where JSON is asked for."""
    if {"--json", "--format=json"} & {*arguments} or ("--format", "json") in itertools.pairwise(arguments):
        with suppress(OSError):  # of a disk that is full, as the error says
            say_whole(json.dumps(values, indent=2) + "\n")
            _flush()


def _flush() -> None:
    """Write what has been printed, so that a command notices a full disk, and a pipe whose reader has left."""
    try:
        with printing():
            sys.stdout.flush()
    except OSError:
        discard(sys.stdout.fileno())
        raise


def _require_surroundings() -> None:
    """Let any name be printed; raise `EtlrunError` in surroundings in which commands can't work."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):  # else a file gets that of one that a shell closed
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):  # names of files may be no Unicode, and a terminal may show ASCII alone
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if sys.flags.optimize:
        expected = "assertions, in which Hydra's parser does its work"
        remedy = "unset PYTHONOPTIMIZE, and start Python without -O"
        raise EtlrunError([Fault("PYTHONOPTIMIZE", "Python without assertions", expected, remedy)])
    try:
        os.getcwd()  # noqa: PTH109 - pathlib is slower to import
    except FileNotFoundError:
        fault = Fault("the current folder", "a folder that is gone", "a folder that is there", "cd to another one")
        raise EtlrunError([fault]) from None


def _answer(arguments: list[str]) -> None:
    if arguments and arguments[0] in COMMANDS:
        call(arguments[0], arguments[1:])
        return
    if arguments and arguments[0] in ("--shell-completion", "-sc"):
        complete(arguments)
        return
    _refuse_unknown(arguments)
    for before, argument in itertools.pairwise(arguments):
        if (words := words_of(argument)) and before not in _WITH_VALUES:  # which Hydra would take for an override
            remedy = f"write etlrun {shlex.join([*words, *(of for of in arguments if of is not argument)])}"
            raise ConfigError([Fault(argument, "a command after other arguments", "the command first", remedy)])
    if asked := {"--version", "--help", "-h"} & {*arguments}:
        say_whole(f"{version() if '--version' in asked else text()}\n")
    else:
        _start(arguments)


_PRINTED = ("--hydra-help", "--cfg", "-c", "--info", "-i", "--resolve")
"""Options by which Hydra prints something, and nothing is run."""


def _start(arguments: list[str]) -> None:
    from etlrun.cli import launch  # which imports Hydra
    from etlrun.config import grid
    from etlrun.config.request import Request
    from etlrun.stages import STAGES

    collect_again()
    options = {argument for argument in arguments if argument in (launch.QUIET, launch.JSON)}
    arguments = [argument for argument in arguments if argument not in options]
    with launch.answering(options):
        if answer := next((argument for argument in arguments if argument.split("=")[0] in _PRINTED), ""):
            if options:
                where = " ".join(sorted(options))
                raise ConfigError([Fault(where, answer, "a run or a sweep", f"leave out {where}")])
            _by_hydra(arguments)
            return
        request = Request.of(arguments).resuming()
        if request.multirun:
            launch.multirun(request)
        else:
            launch.start(request, *grid.to_start(request, STAGES))


def _by_hydra(arguments: list[str]) -> None:
    """Print what Hydra says afterwards, since it has no message for a full disk or a closed output."""
    from etlrun.config.request import by_hydra

    text = io.StringIO()
    try:
        with redirect_stdout(text):
            by_hydra(arguments, lambda _: None)
    finally:
        say_whole(text.getvalue())


_WITH_VALUES = ("--config-dir", "-cd", "--config-name", "-cn", "--cfg", "-c")
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
    words = words_of(word)
    if not (words or word in _INSTEAD):
        from etlrun.planning.hints import is_key
        from etlrun.stages import STAGES

        if is_key(word, STAGES):
            return
    remedy = f"write etlrun {shlex.join([*words, *arguments[1:]])}" if words else _INSTEAD.get(word)
    remedy = remedy or did_you_mean(word, COMMANDS, "etlrun {}", "etlrun --help lists the commands", cutoff=0.65)
    raise ConfigError([Fault(word, "an unknown command", "a command, or overrides KEY=VALUE", remedy)])
