"""The command line: a command, or a run. What answers at once, such as help and completion, imports nothing else."""

from __future__ import annotations

import io
import itertools
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path

from etlrun.cli import commands
from etlrun.cli.commands import COMMANDS
from etlrun.system.errors import INTERRUPTED, ConfigError, EtlrunError, Fault, describe, of_system
from etlrun.system.terminal import printing, say_whole


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
        found, expected = "Python without assertions", "assertions, in which Hydra's parser does its work"
        remedy = "unset PYTHONOPTIMIZE, and start Python without -O"
        raise EtlrunError([Fault(where="PYTHONOPTIMIZE", found=found, expected=expected, remedy=remedy)])
    try:
        Path.cwd()
    except FileNotFoundError:
        found, expected = "a folder that is gone", "a folder that is there"
        fault = Fault(where="the current folder", found=found, expected=expected, remedy="cd to another one")
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
        from etlrun.cli.parsers import call

        call(arguments[0], arguments[1:])
        return
    if arguments and arguments[0] in ("--shell-completion", "-sc"):
        from etlrun.cli import completion

        completion.main(arguments[1:])
        return
    commands.refuse_unknown(arguments)
    _refuse_late_command(arguments)
    if "--version" in arguments:
        from etlrun.cli import help as texts

        say_whole(f"{texts.version()}\n")
    elif "--help" in arguments or "-h" in arguments:
        from etlrun.cli import help as texts

        say_whole(f"{texts.text()}\n")
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
    """Start a run or a sweep, or let Hydra answer."""
    from etlrun.cli import launch  # which imports Hydra
    from etlrun.config import grid
    from etlrun.config.request import Request
    from etlrun.stages import STAGES

    commands.collect_again()
    arguments, options = launch.taken(arguments)
    with launch.answering(options):
        for argument in arguments:
            if argument.split("=")[0] in HYDRA_ANSWERS:
                launch.refuse(options, argument)
                _by_hydra(arguments)
                return
        request = Request.of(arguments).resuming()
        if request.multirun:
            from etlrun.cli import multirun  # with the tables and charts of sweeps, which a single run doesn't need

            multirun.multirun(request.arguments)
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


def _refuse_late_command(arguments: list[str]) -> None:
    """Refuse a command after other arguments, which Hydra would take for an override."""
    for before, argument in itertools.pairwise(arguments):
        if argument in COMMANDS and before not in _WITH_VALUES:
            others = (other for other in arguments if other is not argument)
            remedy = f"write etlrun {shlex.join([argument, *others])}"
            found = "a command after other arguments"
            raise ConfigError([Fault(where=argument, found=found, expected="the command first", remedy=remedy)])
