"""Commands that print what a run has left: its report, and the values that AUTOTUNE chose."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from etlrun.cli import parsers
from etlrun.system.terminal import say, say_whole

if TYPE_CHECKING:
    from etlrun.record.summary import Summary


def report(arguments: list[str]) -> None:
    """Print the report of a run, or of a folder of runs."""
    from etlrun.record.report import of_run
    from etlrun.record.summary import read_summary
    from etlrun.report.render import show
    from etlrun.results.report import collected, publish

    folder = report_parser().parse_args(arguments).folder
    summary = read_summary(folder)
    if summary is None:
        publish(collected(folder))
    else:
        show(of_run(folder, summary))
        _say_resume(folder, summary)
        _write_page(folder)


def report_parser() -> argparse.ArgumentParser:
    """Return the parser of `etlrun report`."""
    parser = parsers.of_command("report", "Print the report of a run, of a sweep, or of a folder of runs.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of a run, of a sweep, or of runs")
    return parser


def _say_resume(folder: Path, summary: Summary) -> None:
    """Print the command that resumes a run whose process was interrupted or killed, or that starts it again."""
    from etlrun.record.record import KILLED, state_of
    from etlrun.record.summary import INTERRUPTED

    if state_of(folder, summary) in (INTERRUPTED, KILLED):
        from etlrun.config.overrides import of_path
        from etlrun.config.request import RESUME
        from etlrun.run.checkpoint import resumable

        if left := resumable(folder, summary):
            say(f"resume    etlrun {of_path(RESUME, left)}")
        else:
            again = shlex.join(["etlrun", *summary.files, *summary.overrides])
            say(f"resume    no checkpoint was written; start a new run: {again}")


def _write_page(folder: Path) -> None:
    """Write the page of a run again, and print its path; or why not, such as for the run of another user."""
    from etlrun.record import record as records
    from etlrun.record import report

    try:
        report.write(folder)
    except OSError as error:
        print(f"etlrun: {folder / records.PAGE} is as it was: {error.strerror}", file=sys.stderr)
    else:
        say(f"report    {folder / records.PAGE}")


def freeze(arguments: list[str]) -> None:
    """Print the values that AUTOTUNE chose in a run."""
    from etlrun.record import record

    say_whole(record.overlay(freeze_parser().parse_args(arguments).folder))


def freeze_parser() -> argparse.ArgumentParser:
    """Return the parser of `etlrun freeze`."""
    parser = parsers.of_command("freeze", "Print the values that AUTOTUNE chose in a run, as a YAML overlay.")
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of a completed run")
    return parser
