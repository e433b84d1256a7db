"""report.html: the report of a sweep as one self-contained page, without network, server or other files."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from markupsafe import Markup

from etlrun.record import report as run_report
from etlrun.record.summary import COMPLETED
from etlrun.results import heatmap, plots, shown
from etlrun.results.results import BASELINE, ConfigResult, Results, Run
from etlrun.results.shown import Cell
from etlrun.stages.objectives import falls
from etlrun.sweep.unfit import describe
from etlrun.system import pages
from etlrun.system.terminal import TEXTS

MOST_RUNS = 500
"""Number of runs whose stage tables a page holds; for larger sweeps one run of each of the fastest configs."""
_PACKAGE, _TEMPLATE = "etlrun.results", "report.html.j2"


class Column(NamedTuple):
    """Column of the table of configs.

    Attributes:
        name: Name in the table's head; `title` is the whole key of a swept one.
        kind: Kind of values: `text` or `figure`.
        cells: Cells from the first row to the last.
    """

    name: str
    kind: str
    cells: Sequence[Cell]
    title: str = ""


def html(results: Results) -> str:
    """Return the page as HTML."""
    known = {config.number: config for config in results.configs}
    decided, script = results.decision, pages.text_of(_PACKAGE, "script.js")
    columns = _columns(results)
    return pages.rendered(
        _PACKAGE,
        _TEMPLATE,
        results=results,
        chosen=None if decided.config is None else known[decided.config],
        sorted_by=decided.by if decided.by in {column.name for column in columns} else "examples/s",
        ascending=falls(decided.by.replace(" ", "_")),
        pair=heatmap.pair(results),
        baseline=known[BASELINE],
        command=shlex.join(decided.overrides),
        columns=columns,
        rows=list(zip(results.configs, _rows(columns), strict=True)),
        outcomes=[*dict.fromkeys(cell.text for column in columns if column.name == "result" for cell in column.cells)],
        throughput=plots.throughput(results),
        effects=list(plots.effects(results)),
        epochs=plots.epochs(results),
        stages=_stages(results, known),
        noise=shown.noise(results.noise),
        notes=list(shown.notes(results)),
        unfinished=_unfinished(results.runs, known),
        seeded=any(config.quality for config in results.configs),
        left_out=list(describe(results.unfit)),
        missing=[run.name for run in results.runs if run.outcome is None],
        script=script,
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _columns(results: Results) -> list[Column]:
    """Return the columns that are not empty."""
    names, keys = shown.header(results), shown.swept_keys(results)
    titles = ["", *keys, *[""] * (len(names) - 1 - len(keys))]
    columns = zip(names, zip(*shown.rows(results), strict=True), titles, strict=True)
    return [
        Column(name, "text" if name in TEXTS or title else "figure", cells, title)
        for name, cells, title in columns
        if any(cell.text.strip("-") for cell in cells)
    ]


def _rows(columns: Sequence[Column]) -> list[Markup]:
    """Return the cells of each row as HTML; a template takes four times as long for the 150,000 of a large sweep."""
    written = [[_cell(column, cell) for cell in column.cells] for column in columns]
    return [Markup("".join(cells)) for cells in zip(*written, strict=True)]  # noqa: S704 - `_cell` escapes


def _cell(column: Column, cell: Cell) -> str:
    text, kind = escape(cell.text), column.kind
    exact = "" if cell.value is None else f' data-value="{cell.value}"'
    if column.name == "config":
        return f'<th scope="row" class="{kind}"{exact}>{text}</th>'
    if column.name == "result":
        text = f'<span class="result {text}">{text}</span>'
    elif column.name == "reason":
        kind += " long"
    return f'<td class="{kind}"{exact}>{text}</td>'


def _stages(results: Results, known: Mapping[int, ConfigResult]) -> dict[str, Any]:
    """Return the stage tables to choose from; those of the baseline and of the recommended config are shown first."""
    rank = {config.number: place for place, config in enumerate(results.configs)}
    measured = sorted((run for run in results.runs if run.outcome and run.outcome.stages), key=lambda run: run.name)
    measured.sort(key=lambda run: (rank[run.config], run.repeat))
    first: dict[int, Run] = {}
    for run in measured:
        if run.name in known[run.config].runs:
            first.setdefault(run.config, run)
    held = measured
    if len(measured) > MOST_RUNS:
        held = list(first.values())[:MOST_RUNS]
        held += [first[BASELINE]] if BASELINE in first and first[BASELINE] not in held else []
    start = [first[number].name for number in (BASELINE, results.decision.config) if number in first]
    return {
        "left_out": len(measured) - len(held),
        "header": run_report.STAGE_HEADER,
        "kinds": ["text" if name in TEXTS else "figure" for name in run_report.STAGE_HEADER],
        "chosen": start or [run.name for run in held[:2]],
        "runs": [
            {
                "name": run.name,
                "label": f"{run.name}: {' '.join(known[run.config].own) or 'the default config'}",
                "rows": run_report.stage_rows(run.outcome.stages),
            }
            for run in held
            if run.outcome
        ],
    }


def _unfinished(runs: Sequence[Run], known: Mapping[int, ConfigResult]) -> dict[tuple[int, str, str, str], list[str]]:
    """Return the names of runs that did not complete, or were below `measure.au_min`.

    They are grouped by config, overrides that not all configs have, status and reason.
    """
    found: dict[tuple[int, str, str, str], list[str]] = {}
    for run in runs:
        of = run.outcome
        if of is None or (of.status == COMPLETED and not of.is_too_slow):
            continue
        status, reason = of.status, of.error
        if of.is_too_slow:
            utilization = "unknown" if of.au is None else f"{of.au:.1%}"
            status, reason = "too slow", f"accelerator utilization (AU): {utilization}, below measure.au_min"
        found.setdefault((run.config, " ".join(known[run.config].own), status, reason), []).append(run.name)
    return found
