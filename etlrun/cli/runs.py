"""Commands about runs: their list, the report of one, and the values that AUTOTUNE chose in it."""

from __future__ import annotations

import dataclasses
import shlex
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from etlrun.cli.commands import Answer
from etlrun.report.doc import Col, Doc, Line, Lines, Table
from etlrun.system.errors import WorldError, counted, printable

if TYPE_CHECKING:
    from etlrun.record.summary import Summary
    from etlrun.results.listing import RunEntry


def listing(known: Namespace) -> Answer:
    """Run `etlrun runs ls`."""
    from etlrun.record.summary import MEASURES
    from etlrun.results.listing import entries
    from etlrun.system.terminal import megabytes, significant

    found = entries(known.folder)
    kinds = Counter[str](one.kind for one in found)
    shown = [kind for kind in ("run", "sweep", "search") if kinds[kind] or kind != "search"]
    numbers = " and ".join(counted(kinds[kind], kind).replace("searchs", "searches") for kind in shown)

    def best(one: RunEntry) -> str:
        shown = {name: f"{value:.4f}" if name in MEASURES else significant(value) for name, value in one.best.items()}
        return " ".join(f"{name} {value}" for name, value in shown.items())

    columns = [
        Col("folder", lambda one: printable(str(one.folder))),
        Col("created at", lambda one: time.strftime("%Y-%m-%d %H:%M", time.localtime(one.created_s))),
        Col("status", "status"),
        Col("jobs", lambda one: None if one.jobs is None else f"{one.completed}/{one.jobs}"),
        Col("bound by", "bound_by"),
        Col("max gain", "max_gain", ".2f"),
        Col("best", best),
        Col("commit"),
        Col("seconds", "wall_s", ".1f"),
        Col("MB", lambda one: one.bytes / 1e6, ",.1f"),
        Col("overrides", lambda one: " ".join(one.overrides)),
    ]
    total = f"{numbers} in {known.folder} ({megabytes(sum(one.bytes for one in found))})"
    return Answer(Doc(total, [Table(found, columns), Lines([Line("", total)])], json=lambda: found))


def report(known: Namespace) -> Answer:
    """Print the report of a run, or of a folder of runs, and write its page again."""
    from etlrun.record import record as records
    from etlrun.record.report import of_run, write
    from etlrun.record.summary import read_summary
    from etlrun.results.report import collected, of_sweep, written

    folder = known.run
    summary = read_summary(folder)
    if summary is None:
        results = collected(folder)
        doc = of_sweep(results)
        try:
            return Answer(dataclasses.replace(doc, parts=[*doc.parts, Lines([("report", written(results, doc))])]))
        except WorldError as error:
            return Answer(doc, error=error)
    doc, page = of_run(folder, summary), folder / records.PAGE
    last = [*_resume(folder, summary)]
    try:
        write(folder)
    except OSError as error:
        print(f"etlrun: {page} is as it was: {error.strerror}", file=sys.stderr)
    else:
        last += [("report", str(page))]
    return Answer(dataclasses.replace(doc, parts=[*doc.parts, Lines(last)]))


def _resume(folder: Path, summary: Summary) -> Sequence[tuple[str, str]]:
    """Return the command that resumes a run whose process was interrupted or killed, or that starts it again."""
    from etlrun.record.record import KILLED, state_of
    from etlrun.record.summary import INTERRUPTED

    if state_of(folder, summary) not in (INTERRUPTED, KILLED):
        return []
    from etlrun.config.overrides import typed
    from etlrun.config.request import RESUME
    from etlrun.run.checkpoint import resumable

    if left := resumable(folder, summary):
        return [("resume", f"etlrun {typed(RESUME, left)}")]
    again = shlex.join(["etlrun", *summary.files, *summary.overrides])
    return [("resume", f"no checkpoint was written; start a new run: {again}")]


def freeze(known: Namespace) -> Answer:
    """Print the values that AUTOTUNE chose in a run."""
    from etlrun.record import record

    return Answer(record.overlay(known.run))
