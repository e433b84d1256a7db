"""report.html: a run as one self-contained page, without network, scripts or other files.

It is made from the folder of the run alone, so that `etlrun report RUN` can make it again.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from markupsafe import Markup
from pydantic import BaseModel, StringConstraints, TypeAdapter, ValidationError

from etlrun.record import record as records
from etlrun.record import report
from etlrun.record.boxes import boxes
from etlrun.record.charts import Line, Point, bars, curves
from etlrun.record.config import CONFIG
from etlrun.record.record import Record
from etlrun.record.state import state_of
from etlrun.record.summary import RUNNING, SUMMARY, Epoch, Summary, read_summary, shown_metric
from etlrun.system import pages
from etlrun.system.errors import one_line
from etlrun.system.files import write_atomically
from etlrun.system.machine import rounded
from etlrun.system.svg import Chart
from etlrun.system.terminal import TEXTS

THUMBNAILS, EVALUATIONS = "thumbnails.json", "evaluations"
MOST_THUMBNAILS = 16
_MOST_ROWS, _MOST_NOTES, _MOST_NAMES, _MOST_METRICS = 50, 20, 30, 10
"""Epochs in the table, notes, names of classes or stages, and metrics besides loss and accuracy on the page."""
_LINE, _TEXT, _CONFIG = 300, 3_000, 8_000
"""Characters of a note or name, of an error or command, and of the config: what files hold makes no page too large."""
_PARTS = (("computing", "first"), ("waiting for input", "second"), ("start-up", "third"), ("validation", "fourth"))


class Thumbnail(BaseModel):
    """Image of the first training batch, as the model gets it."""

    url: Annotated[str, StringConstraints(pattern=r"^data:image/(png|jpeg);base64,[A-Za-z0-9+/=]{1,40000}$")]
    """Image of at most 64 pixels a side, as a data URL."""
    target: str
    """Its target: the name of a class, a value, or the classes of a mixed image with their shares."""


def write(folder: Path) -> None:
    """Write `report.html` of the run in `folder`; nothing if it has no summary."""
    text = html(folder)
    if text is not None:
        write_atomically(folder / records.PAGE, text)


def renew(record: Record) -> None:
    """Write the page of a run that goes on or ends.

    Raises:
        OSError: The folder can't be written to.
    """
    with shown(record):
        write(record.folder)


@contextmanager
def shown(record: Record) -> Iterator[None]:
    """Wrap a write for the page: an error of the page itself is an event, and no reason for the run to fail."""
    try:
        with record.writing():
            yield
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - see above
        record.event("page_failed", error=f"{type(error).__name__}: {one_line(error)}")


def html(folder: Path) -> str | None:
    """Return the page of the run in `folder` as HTML; None if it has no summary.

    Equal files give equal text: the page of a run that has not ended tells when its summary was written.
    """
    summary = read_summary(folder)
    if summary is None:
        return None
    told = dict(report.lines(summary, folder))
    verdict = told.get("verdict", "")
    title = told.get("result", verdict)
    pipeline, stages = boxes(folder, summary)
    status = state_of(folder, summary)
    return pages.rendered(
        "etlrun.record",
        "run.html.j2",
        folder=_cut(str(folder), _LINE),
        status=status,
        as_of=_as_of(folder) if summary.status == RUNNING else "",
        title=_cut(title or f"{status}, {len(summary.epochs):,} epochs", _LINE),
        kept=told.get("kept", ""),
        verdict=_cut(verdict if title != verdict else "", _LINE),
        because=_cut(told.get("because", ""), _TEXT),
        advice=_cut(told.get("advice", ""), _TEXT),
        error=_cut(summary.error or "", _TEXT),
        command=_cut(_command(summary), _TEXT),
        config=_config(folder),
        facts=[(name, _cut(value, _TEXT)) for name, value in _facts(summary, told)],
        pipeline=pipeline,
        stages=stages[:_MOST_NAMES],
        model_ms=summary.step_floor_ms,
        measures=[chart for chart in measures(summary) if chart is not None],
        times=_times(summary.epochs),
        usage=[chart for chart in _usage(summary) if chart is not None],
        thumbnails=_thumbnails(folder),
        evaluations=list(_evaluations(folder)),
        notes=[_cut(note, _LINE) for note in summary.remarks[:_MOST_NOTES]],
        more_notes=max(0, len(summary.remarks) - _MOST_NOTES),
        table=_table(summary.epochs),
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _as_of(folder: Path) -> str:
    written_s = (folder / SUMMARY).stat().st_mtime
    return f"{datetime.fromtimestamp(written_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _command(summary: Summary) -> str:
    return shlex.join(["python", "-m", "etlrun", *summary.files, *summary.overrides])


def _config(folder: Path) -> str:
    try:
        text = (folder / CONFIG).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return _cut(text, _CONFIG)


def _facts(summary: Summary, told: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each fact about a run."""
    beside = ("status", "apart", "waits", "au", "resources", "cache")
    yield from ((name, told[name]) for name in beside if name in told)
    dataset, host = summary.dataset, summary.host
    if dataset.name:
        examples = ", ".join(f"{count:,} {pipeline}" for pipeline, count in dataset.examples.items())
        files = f"{dataset.shards:,} file{'s' * (dataset.shards != 1)}, {rounded(dataset.bytes)}"
        yield ("dataset", f"{dataset.name}: {examples} examples in {files}")
    if dataset.classes:
        names = ", ".join(_cut(name, 40) for name in dataset.classes[:_MOST_NAMES])
        more = "…" if len(dataset.classes) > _MOST_NAMES else ""
        yield ("classes", f"{len(dataset.classes):,}: {names}{more}")
    if sum(summary.skipped.values()):
        yield ("skipped", ", ".join(f"{count:,} of {pipeline}" for pipeline, count in summary.skipped.items()))
    if summary.parameters is not None:
        yield ("model", f"{summary.parameters:,} parameters")
    yield from ((f"phase {phase.phase}", text) for phase, text in report.phases(summary))
    if summary.resumed_from:
        yield ("resumed from", summary.resumed_from)
    if host.cores:
        cores = f"{host.cores} cores{f' of {host.processor}' if host.processor else ''}"
        yield ("machine", f"{host.device}, {cores}, {rounded(host.memory_bytes)}, {host.system}")
    if summary.versions:
        yield ("versions", ", ".join(f"{name} {version}" for name, version in summary.versions.items()))
    if summary.plan_fingerprint:
        yield ("plan", summary.plan_fingerprint)


def measures(summary: Summary) -> Iterator[Chart | None]:
    """Yield the charts of loss, accuracy and the other metrics, with notes on phases and on values not finite."""
    epochs = summary.epochs
    begun = [f"Phase {phase.phase} begins with epoch {phase.first_epoch}." for phase in summary.phases[1:]]
    others = dict.fromkeys(name.removeprefix("val_") for epoch in epochs for name in epoch.metrics)
    for name in ("loss", "accuracy", *[*others][:_MOST_METRICS]):
        title = name.replace("_", " ")
        series = (("train", "first", name), ("validation", "second", f"val_{name}"))
        lines = [Line(label, look, _points(epochs, key)) for label, look, key in series]
        chart = curves(title, "epoch", lines)
        lost = [f"{line.name} {title}: {_lost(line.points)}" for line in lines if _lost(line.points)]
        if chart is None and lost:
            chart = Chart(title, Markup(""), [])
        yield chart and chart._replace(note=" ".join([chart.note, *begun, *lost]).strip())


def _points(epochs: Sequence[Epoch], key: str) -> list[Point]:
    measured = (epoch for epoch in epochs if key in epoch.metrics or key in epoch.model_fields_set)
    return [(epoch.epoch, epoch.measure(key)) for epoch in measured]


def _lost(points: Sequence[Point]) -> str:
    """Describe the values that are not finite; empty if there are none."""
    lost = [x for x, y in points if y is None or not abs(y) < float("inf")]
    return f"not a finite number in {len(lost):,} of {len(points):,} epochs, first in {lost[0]:g}." if lost else ""


def _times(epochs: Sequence[Epoch]) -> Chart | None:
    rows = []
    for epoch in epochs:
        computing_s = epoch.wall_s - epoch.waited_s - epoch.startup_s
        parts = (computing_s, epoch.waited_s, epoch.startup_s, epoch.validation_s or 0.0)
        rows.append([max(0.0, part) for part in parts])
    return bars("seconds", "epoch", _PARTS, rows)


def _usage(summary: Summary) -> Iterator[Chart | None]:
    usage, label = summary.usage, "seconds of training"
    if usage is not None:
        memory = [(at_s, size / 1e6) for at_s, size in zip(usage.at_s, usage.rss_bytes, strict=False)]
        yield curves("memory, MB", label, [Line("process", "first", memory)], from_zero=True)
        cores = [*zip(usage.at_s, usage.cores, strict=False)]
        yield curves("CPU, cores in use", label, [Line("process", "first", cores)], from_zero=True)


def _thumbnails(folder: Path) -> list[Thumbnail]:
    try:
        found = TypeAdapter(list[Thumbnail]).validate_json((folder / THUMBNAILS).read_bytes())
    except (OSError, ValidationError):
        return []
    return found[:MOST_THUMBNAILS]


def _evaluations(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the relative address of the page of each evaluation of the run's model."""
    for path in sorted((folder / EVALUATIONS).glob("*.json"))[:_MOST_NAMES]:
        page = path.with_suffix(".html")
        if page.is_file():
            yield _cut(path.stem, _LINE), f"{EVALUATIONS}/{quote(page.name, errors='surrogateescape')}"


def _table(epochs: Sequence[Epoch]) -> dict[str, Any]:
    """Return the table of the last epochs, without columns that are empty."""
    names, rows = report.epoch_table(epochs[-_MOST_ROWS:], shown_metric(epochs))
    filled = [place for place in range(len(names)) if any(row[place].strip("-") for row in rows)]
    header = [names[place] for place in filled]
    return {
        "header": header,
        "kinds": ["text" if name in TEXTS else "figure" for name in header],
        "rows": [[row[place] for place in filled] for row in rows],
        "left_out": len(epochs) - len(rows),
    }
