"""A command line without a command: a run, a sweep, or an answer of Hydra's."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout

from etlrun.cli import answer, launch
from etlrun.cli.commands import collect_again
from etlrun.config import grid
from etlrun.config.composer import UNCOMPOSABLE, refusal
from etlrun.config.request import Request
from etlrun.stages import STAGES
from etlrun.system.errors import ConfigError
from etlrun.system.terminal import say_whole

HYDRA_ANSWERS = (
    "--hydra-help", "--cfg", "-c", "--info", "-i", "--resolve", "--experimental-rerun", "--config-path", "-cp",
    "--package", "-p",
)  # fmt: skip
"""Options that Hydra handles alone: it answers by itself, or uses configs from elsewhere."""
_PRINTED = {"--hydra-help", "--cfg", "-c", "--info", "-i"}
"""Those of them that print and run nothing."""


def main(arguments: list[str]) -> None:
    """Start what the command line selects.

    Raises:
        ConfigError: A config is invalid.
    """
    collect_again()
    arguments, options = answer.taken(arguments)
    with answer.answering(options):
        _start(arguments, options)


def _start(arguments: list[str], options: set[str]) -> None:
    for argument in arguments:
        if argument.split("=")[0] in HYDRA_ANSWERS:
            answer.refuse(options, argument)
            _by_hydra(arguments)
            return
    request = Request.of(arguments).resuming()
    if request.multirun:
        from etlrun.cli import multirun  # with the tables and charts of sweeps, which a single run doesn't need

        multirun.multirun(request.arguments)
    else:
        launch.start(request, *grid.to_start(request, STAGES))


def _by_hydra(arguments: list[str]) -> None:
    """Let Hydra answer; it reports some of its errors itself, and raises others."""
    prints = _PRINTED & {argument.split("=")[0] for argument in arguments}
    try:
        with _printing_whole() if prints else nullcontext():
            launch.launch(arguments)
    except UNCOMPOSABLE as error:
        raise ConfigError([refusal(error)]) from error


@contextmanager
def _printing_whole() -> Iterator[None]:
    """Print afterwards what is printed inside, since Hydra has no message for a full disk or a closed output."""
    text = io.StringIO()
    try:
        with redirect_stdout(text):
            yield
    finally:
        say_whole(text.getvalue())
