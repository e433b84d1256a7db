"""The command line: a command, or a run. What answers at once, such as help and completion, imports nothing else."""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Sequence

from etlrun.cli import commands
from etlrun.cli.commands import COMMANDS
from etlrun.system.errors import INTERRUPTED, ConfigError, EtlrunError, Fault, describe, of_system


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `etlrun` or `python -m etlrun`; exit with status 0, 1 (failed), 2 (refused), 3 (slow) or 130."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _answer(arguments)
    except EtlrunError as error:
        print(describe(error), file=sys.stderr)
        raise SystemExit(error.status) from None
    except KeyboardInterrupt:
        print("etlrun: interrupted", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        raise SystemExit(1) from None
    except OSError as error:
        if error.filename is None:
            raise
        print(describe(of_system(error)), file=sys.stderr)
        raise SystemExit(EtlrunError.status) from None


def _answer(arguments: list[str]) -> None:
    if arguments and arguments[0] in COMMANDS:
        commands.call(arguments[0], arguments[1:])
        return
    if arguments and arguments[0] in ("--shell-completion", "-sc"):
        from etlrun.cli import completion

        completion.main(arguments[1:])
        return
    commands.refuse_unknown(arguments)
    _refuse_late_command(arguments)
    if "--version" in arguments:
        from etlrun.cli import help as texts

        print(texts.version())
    elif "--help" in arguments or "-h" in arguments:
        from etlrun.cli import help as texts

        print(texts.text())
    else:
        from etlrun.cli import start

        start.main(arguments)


def _refuse_late_command(arguments: list[str]) -> None:
    """Refuse a command after other arguments, which Hydra would take for an override."""
    for before, argument in itertools.pairwise(arguments):
        if argument in COMMANDS and not before.startswith("-"):
            others = (other for other in arguments if other is not argument)
            remedy = f"write etlrun {shlex.join([argument, *others])}"
            found = "a command after other arguments"
            raise ConfigError([Fault(where=argument, found=found, expected="the command first", remedy=remedy)])
