"""Reports of a sweep, on the terminal and as files in its folder.

report.html for a browser, report.md for a pull request, results.json and results.csv for everything else
"""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import indent

from etlrun.record import record as records
from etlrun.record.outcome import Outcome
from etlrun.record.state import KILLED
from etlrun.record.summary import FAILED, INTERRUPTED, SUMMARY
from etlrun.results import page
from etlrun.results.collect import collect
from etlrun.results.results import TOO_SLOW, Results
from etlrun.results.shown import UNMEASURED, all_notes, header, rows
from etlrun.sweep import hparams
from etlrun.sweep.unfit import describe
from etlrun.system.errors import WorldError
from etlrun.system.files import write_atomically
from etlrun.system.terminal import as_markdown, is_quiet, plain, print_table, say, table_text

HTML, MARKDOWN, CSV, JSON = records.PAGE, records.REPORT, "results.csv", records.RESULTS
WRONG = (FAILED, INTERRUPTED, KILLED, TOO_SLOW)
MOST_ROWS = 50
"""Number of rows on the terminal."""


def conclude(results: Results | None) -> int:
    """Write all reports of a sweep, print the table, and return the exit status.

    The status is 1 if a config has no completed run or a run has failed, 3 if one was below `measure.au_min`, else 0.
    """
    if results is None:
        return 0
    _report(results)
    ends = {run.outcome.status for run in results.runs if run.outcome is not None}
    if (
        ends & {FAILED, INTERRUPTED, KILLED}
        or FAILED in {config.status for config in results.configs}
        or any(run.outcome is None for run in results.runs)
    ):
        return 1
    return 3 if any(config.status == TOO_SLOW for config in results.configs) else 0


def show(folder: Path) -> None:
    """Print the table of the sweep in `folder` and rewrite its reports; `WorldError` if there is no run."""
    _report(collected(folder))


def collected(folder: Path) -> Results:
    """Return the results of the sweep in `folder`, or of the runs below it; `WorldError` if there is no run."""
    results = collect(folder)
    if results is None:
        no_folder = "a file" if folder.exists() else "no such folder"
        unread = f"a {SUMMARY} that can't be read" if (folder / SUMMARY).exists() else "no run"
        raise WorldError(
            where=str(folder),
            found=unread if folder.is_dir() else no_folder,
            expected=f"a folder with a {SUMMARY}, or a folder of such folders",
            remedy="pass the folder that a run or a multirun prints at its end",
        )
    return results


def _report(results: Results) -> None:
    folder = Path(results.folder)
    if is_quiet():
        write(folder, results)
        return
    _print(results)
    write(folder, results)
    say(f"report    {folder / HTML}")


def write(folder: Path, results: Results) -> None:
    """Write the four files, each atomically, and the event files for TensorBoard's HParams tab.

    Raises:
        WorldError: The folder can't be written to.
    """
    try:
        write_atomically(folder / JSON, results.as_json() + "\n")
        write_atomically(folder / CSV, as_csv(results))
        write_atomically(folder / MARKDOWN, markdown(results))
        write_atomically(folder / HTML, page.html(results))
        own = {config.number: config.own for config in results.configs}
        for run in results.runs:
            hparams.write(folder / run.name, run.config, own[run.config], run.outcome)
    except OSError as error:
        raise WorldError(
            where=str(folder),
            found=str(error),
            expected="a folder that can be written to",
            remedy=f"fix that, and rewrite the reports with: {shlex.join(['etlrun', 'report', str(folder)])}",
        ) from error


def markdown(results: Results) -> str:
    """Return the decision and the table as Markdown, for a pull request."""
    lines = [f"# Sweep\n\n{decision(results)}\n"]
    cells = [[cell.text if cell.value is not None else plain(cell.text) for cell in row] for row in rows(results)]
    lines += [as_markdown(header(results), cells)]
    lines += [f"- {plain(line)}" for line in all_notes(results)]
    lines += [f"- Left out: {plain(line)}" for line in describe(results.unfit)]
    return "\n".join(lines) + "\n"


def decision(results: Results) -> str:
    """Return the recommendation, whether the data is the same, and the overrides to copy."""
    decided = results.decision
    if decided.config is None:
        return f"**{plain(decided.words)}**\n"
    data = decided.same_data[:1].upper() + decided.same_data[1:]
    return f"**{plain(decided.words)}** {plain(data)}.\n\n{indent(shlex.join(decided.overrides), '    ')}\n"


def as_csv(results: Results) -> str:
    """Return a CSV table with a row for each run."""
    text = io.StringIO()
    known = {config.number: config for config in results.configs}
    keys = list(results.configs[0].swept) if results.configs else []
    figures = (
        "status", "examples_per_s", "state", "first_examples_per_s", "au", "max_gain", "bound_by", "peak_rss_bytes",
        "cores_used", "wall_s", f"val_{results.metric}", "created_s", "error",
    )  # fmt: skip
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", "config", "repeat", *keys, *figures])
    for run in results.runs:
        values = [_figure(run.outcome, figure) if run.outcome is not None else None for figure in figures]
        writer.writerow([run.name, run.config, run.repeat, *known[run.config].swept.values(), *values])
    return text.getvalue()


def _figure(of: Outcome, name: str) -> object:
    return getattr(of, name) if hasattr(of, name) else of.measures.get(name)


def _print(results: Results) -> None:
    print_table(*table(results))
    for label, text in lines(results):
        say(f"{label:<9} {text}")


def text(results: Results) -> str:
    """Return the table and the lines below it as the terminal shows them."""
    return "".join([table_text(*table(results)), *(f"{label:<9} {of}\n" for label, of in lines(results))])


def table(results: Results) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the terminal, without columns that tell nothing apart."""
    names, table = header(results), [[cell.text for cell in row] for row in rows(results)]
    measured = {*names} - {*UNMEASURED, f"val {results.metric.replace('_', ' ')}"}
    told = [place for place, name in enumerate(names) if name in measured or _differs([row[place] for row in table])]
    return [names[place] for place in told], [[row[place] for place in told] for row in table[:MOST_ROWS]]


def lines(results: Results) -> Iterator[tuple[str, str]]:
    """Yield the lines below the table, each with its label."""
    if len(results.configs) > MOST_ROWS:
        yield "more", f"{len(results.configs) - MOST_ROWS} configs; {CSV} and {HTML} list all"
    decided = results.decision
    yield "decision", decided.words
    if decided.config is not None:
        yield "data", decided.same_data
    yield from (("note", line) for line in all_notes(results))
    yield from (("left out", line) for line in describe(results.unfit))


def _differs(texts: Sequence[str]) -> bool:
    """Return whether a column tells configs apart; one that is the same for all, and nothing wrong, does not."""
    return len(texts) == 1 or len(set(texts)) > 1 or texts[0] in WRONG
