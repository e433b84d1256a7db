"""What a run or a sweep answers: its lines; with `--quiet` notes and errors alone; with `--json` one JSON document."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from etlrun.record.outcome import outcome
from etlrun.record.summary import COMPLETED, FAILED, INTERRUPTED, SUMMARY, Summary, finite
from etlrun.system import errors, terminal
from etlrun.system.errors import ConfigError, EtlrunError, Fault, headline

QUIET, JSON = "--quiet", "--json"


class _Answer:
    """State of the command in progress.

    Attributes:
        document: Function that returns what `--json` prints at the end; None before a run or a sweep has ended.
    """

    document: Callable[[], dict[str, Any]] | None = None


_answer = _Answer()


def taken(arguments: Sequence[str]) -> tuple[list[str], set[str]]:
    """Return the arguments without these options, and which of them there are."""
    found = {argument for argument in arguments if argument in (QUIET, JSON)}
    return [argument for argument in arguments if argument not in found], found


def refuse(options: set[str], other: str) -> None:
    """Refuse these options with another one, which Hydra answers alone."""
    if options:
        where, expected = " ".join(sorted(options)), "a run or a sweep"
        raise ConfigError([Fault(where=where, found=other, expected=expected, remedy=f"leave out {where}")])


def of_run(folder: Path) -> None:
    """Take the summary of a run that has ended as the answer, the loss and the metric of its result first."""

    def document() -> dict[str, Any]:
        try:
            summary = json.loads((folder / SUMMARY).read_bytes())
            result = finite(outcome(Summary.model_validate(summary)).measures)
        except (OSError, ValueError) as error:
            result, summary = {}, {"status": FAILED, "error": f"{folder / SUMMARY}: {headline(error)}"}
        return {"folder": str(folder), **({"result": result} if result else {}), **summary}

    _answer.document = document


def of_sweep(as_json: Callable[[], str], status: int) -> None:
    """Take the results of a sweep that has ended with this exit status as the answer."""
    name = {EtlrunError.status: FAILED, errors.INTERRUPTED: INTERRUPTED}.get(status, COMPLETED)
    _answer.document = lambda: {"status": name, **json.loads(as_json())}


@contextmanager
def answering(options: set[str]) -> Iterator[None]:
    """Print what `options` ask for; with `--json` also of a command that is refused, fails or is interrupted."""
    with terminal.quietly(is_quiet=QUIET in options):
        if JSON not in options:
            yield
            return
        _answer.document, ended = None, {"status": INTERRUPTED, "error": None}
        try:
            with _on_stderr():
                yield
        except EtlrunError as error:
            _answer.document = None
            ended = {"status": FAILED, "error": "\n".join(map(str, error.faults))}
            raise
        except SystemExit as error:
            if error.code != errors.INTERRUPTED:
                ended = {"status": FAILED, "error": str(error.code)}
            raise
        except Exception as error:
            ended = {"status": FAILED, "error": f"{type(error).__name__}: {headline(error)}"}
            raise
        finally:
            document = _answer.document() if _answer.document is not None else ended
            terminal.say_whole(json.dumps(document, indent=2) + "\n")


@contextmanager
def _on_stderr() -> Iterator[None]:
    """Have standard error print what is printed on standard output, also by libraries and by processes."""
    saved = None
    with suppress(OSError, AttributeError):  # a notebook has no such file, and a shell may close it
        if sys.stdout.fileno() == 1:
            sys.stdout.flush()
            saved = os.dup(1)
            os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if saved is not None:
            os.dup2(saved, 1)
            os.close(saved)
