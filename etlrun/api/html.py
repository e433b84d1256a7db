"""What a notebook shows of plans, runs, comparisons and sweeps: HTML of a few kilobytes, in the page's own colours."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from etlrun.planning.plan import Plan, PlannedStage, sections
from etlrun.planning.spec import bare
from etlrun.review.shown import change, file_line, groups, points, unchanged, what
from etlrun.stages.base import Stage, parameters

if TYPE_CHECKING:
    from etlrun.record.summary import Summary
    from etlrun.results.results import Decision, Results
    from etlrun.review.review import Review, Reviewed
    from etlrun.system.svg import Chart

_MOST_ROWS, _MOST_EPOCHS, _MOST_CHARTS, _MOST_NOTES, _LONGEST = 30, 10, 2, 10, 200
"""Rows of a table, epochs, charts, notes, and characters of a text."""
_STYLE = Markup("""<style>
.etlrun{font:13px/1.5 system-ui,sans-serif;max-width:70em}.etlrun p{margin:.3em 0}
.etlrun table{border-collapse:collapse;margin:.5em 0;font-size:12px;background:none;color:inherit}
.etlrun th,.etlrun td{padding:.2em .7em .2em 0;text-align:left;vertical-align:top;background:none;color:inherit;
border:0;border-bottom:1px solid #80808055;max-width:44em;overflow-wrap:anywhere;white-space:normal}
.etlrun .soft{opacity:.7}.etlrun figure{display:inline-block;width:26em;max-width:100%;margin:.5em 1em .5em 0}
.etlrun svg{width:100%;height:auto}.etlrun svg text{font:11px system-ui,sans-serif;fill:currentColor;opacity:.75}
.etlrun svg .grid{stroke:#80808055}.etlrun svg .line{fill:none;stroke-width:1.8;stroke:#3f8fdd}
.etlrun svg .dot{fill:#3f8fdd}.etlrun svg .line.second{stroke:#d07a3c;stroke-dasharray:6 3}
.etlrun svg .dot.second{fill:#d07a3c}
</style>""")
Cells = Sequence[str]


def of_plan(plan: Plan) -> str:
    """Return a plan: its stages with their parameters, and its notes."""
    named = [("train", plan.train), ("validation", plan.evaluation)]
    rows: list[Cells] = [("dataset", plan.spec.dataset.title, _values(plan.spec.dataset), "")]
    rows += [row for title, stages in named for row in _stages(title, stages)]
    rows += [(_group(of), of.path, _values(of), "") for of in sections(plan.spec)]
    title = f"{plan.spec.dataset.title} to {plan.spec.model.path}, fingerprint {plan.fingerprint}"
    return _page(title, _table(("", "stage", "parameters", "gives"), rows, most=2 * _MOST_ROWS), _notes(plan.remarks))


def _stages(title: str, stages: Iterable[PlannedStage]) -> Iterator[Cells]:
    for planned in stages:
        yield title, planned.stage.path, _values(planned.stage), str(planned.gives)
        for step in planned.steps:
            yield title, f"  {step.stage.path}", _values(step.stage), str(step.gives)


def _group(stage: Stage) -> str:
    return stage.path.partition(".")[0]


def _values(stage: Stage) -> str:
    return ", ".join(f"{of.name}={bare(of.value)}" for of in parameters(stage) if not of.is_idle)


def of_run(folder: Path, summary: Summary) -> str:
    """Return a run: its result, its verdict, the course of loss and metric, its last epochs, and where its page is."""
    from etlrun.record import record as records
    from etlrun.record import report
    from etlrun.record.page import measures

    told = dict(report.lines(summary, folder))
    title = told.get("result") or told.get("verdict") or told["status"]
    names = ("kept", "status", *["verdict"] * ("result" in told), "because", "advice", "cache", "error")
    lines = [(name, told[name]) for name in names if name in told]
    charts = [chart for chart in measures(summary) if chart is not None and chart.svg][:_MOST_CHARTS]
    header, rows = report.epoch_table(summary.epochs[-_MOST_EPOCHS:])
    page = folder / records.PAGE
    places = [("page" if page.is_file() else "folder", str(page if page.is_file() else folder))]
    parts = [_lines(lines), *map(_figure, charts), _table(*_filled(header, rows)), _lines(places)]
    return _page(title, *parts, _notes(summary.remarks))


def of_review(review: Review) -> str:
    """Return a comparison: what differs, what each difference changes, and the caches that it fills."""
    parts: list[Markup] = []
    found = groups(review)
    for names, reviewed in found[:_MOST_ROWS]:
        parts += _reviewed(", ".join(filter(None, names)), reviewed)
    if rest := unchanged(review):
        parts.append(_lines([("", f"{', '.join(rest)}: no difference" if rest != [""] else "no difference")]))
    parts.append(_lines([("", file_line(file, review)) for file in review.files[:_MOST_ROWS]]))
    return _page(f"{review.old} -> {review.new}", *parts)


def _reviewed(names: str, reviewed: Reviewed) -> list[Markup]:
    rows = [(of.path, change(of), what(of)) for of in reviewed.comparison.differences]
    notes = [*(f"note: {note}" for note in reviewed.comparison.notes), *points(reviewed), *map(str, reviewed.faults)]
    head = _lines([(names, reviewed.headline)])
    return [head, _table(("", "change", "changes"), rows), _lines([("", note) for note in notes[:_MOST_NOTES]])]


def of_decision(decided: Decision) -> str:
    """Return what a sweep recommends: its words, the overrides to copy, and whether the data stays the same."""
    return _page(decided.words, _lines([("overrides", shlex.join(decided.overrides)), ("data", decided.same_data)]))


def of_sweep(results: Results) -> str:
    """Return a sweep: what it recommends, and the table of its configs, the best first."""
    from etlrun.results.report import HTML, lines, table

    decided = results.decision
    told = [("overrides", shlex.join(decided.overrides)), *(of for of in lines(results) if of[0] != "decision")]
    shown = _table(*_filled(*table(results)), many=len(results.configs))
    page = ("page", str(Path(results.folder) / HTML))
    return _page(decided.words, shown, _lines([*told[:_MOST_NOTES], page]))


def _page(title: str, *parts: Markup) -> str:
    head = Markup('<div class="etlrun">{}<p><strong>{}</strong></p>').format(_STYLE, _cut(title))
    return head + Markup("").join(parts) + Markup("</div>")


def _lines(lines: Iterable[tuple[str, str]]) -> Markup:
    line = Markup('<p><span class="soft">{}</span> {}</p>')
    return Markup("").join(line.format(_cut(name), _cut(text, 3 * _LONGEST)) for name, text in lines if text)


def _notes(notes: Sequence[str]) -> Markup:
    more = [f"{len(notes) - _MOST_NOTES:,} more"] if len(notes) > _MOST_NOTES else []
    return _lines([("note", note) for note in [*notes[:_MOST_NOTES], *more]])


def _filled(header: Cells, rows: Sequence[Cells]) -> tuple[list[str], list[list[str]]]:
    """Return a table without columns that are empty."""
    filled = [place for place in range(len(header)) if any(row[place].strip("-") for row in rows)]
    return [header[place] for place in filled], [[row[place] for place in filled] for row in rows]


def _table(header: Cells, rows: Sequence[Cells], *, most: int = _MOST_ROWS, many: int = 0) -> Markup:
    """Return a table of the first rows, and how many more there are of `many`, or of these."""
    if not rows:
        return Markup("")
    lines = [_row("th", header), *(_row("td", row) for row in rows[:most])]
    left = max(many, len(rows)) - most
    more = _lines([("", f"{left:,} more")]) if left > 0 else Markup("")
    return Markup("<table>{}</table>{}").format(Markup("").join(lines), more)


def _row(tag: str, cells: Cells) -> Markup:
    cell = Markup("<{0}>{1}</{0}>")
    return Markup("<tr>{}</tr>").format(Markup("").join(cell.format(tag, _cut(of)) for of in cells))


def _figure(chart: Chart) -> Markup:
    names = " and ".join(name for name, _ in chart.legend)
    return Markup('<figure>{}<figcaption class="soft">{} of {}</figcaption></figure>').format(
        chart.svg, chart.title, names
    )


def _cut(text: str, most: int = _LONGEST) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
