"""The short table of a run, and the table of a folder of runs: on the terminal and as `report.md`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from etlrun import record as records
from etlrun.errors import WorldError

Rows = Sequence[Sequence[str]]

EPOCH_HEADER = (
    "epoch", "seconds", "examples/s", "loss", "accuracy", "val loss", "val accuracy",
)  # fmt: skip
JOB_HEADER = (
    "job", "overrides", "status", "examples/s", "seconds", "val accuracy", "reason",
)  # fmt: skip


def show(folder: Path) -> None:
    """Print the table of the run in `folder`, or of the runs below it; `WorldError` where there is none."""
    summary = records.read_summary(folder)
    if summary is not None:
        _print(EPOCH_HEADER, _epoch_rows(summary))
        for line in _lines(summary, folder):
            Console(soft_wrap=True).print(line, markup=False, highlight=False)
        return
    jobs = list(_jobs(folder))
    if not jobs:
        raise WorldError(
            where=str(folder),
            found="no run" if folder.is_dir() else "no such folder",
            expected=f"a folder with a {records.SUMMARY}, or one of such folders",
            remedy="give the folder that a run or a multirun printed at its end",
        )
    _print(JOB_HEADER, _job_rows(jobs))


def write(folder: Path) -> None:
    """Write `report.md` of the run in `folder`."""
    summary = records.read_summary(folder) or {}
    text = "\n".join([_markdown(EPOCH_HEADER, _epoch_rows(summary)), *_lines(summary, folder)])
    records.write_atomically(folder / records.REPORT, f"# Run\n\n{text}\n")


def sweep(folder: Path) -> bool:
    """Print the table of a multirun and write it into its folder; whether every job was completed."""
    jobs = list(_jobs(folder))
    if jobs:
        text = _markdown(JOB_HEADER, _job_rows(jobs))
        records.write_atomically(folder / records.REPORT, f"# Sweep\n\n{text}")
        _print(JOB_HEADER, _job_rows(jobs))
    Console(soft_wrap=True).print(f"report    {folder / records.REPORT}", highlight=False, markup=False)
    return all(summary["status"] == records.COMPLETED for _, summary in jobs)


def _jobs(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The runs below `folder`, at any depth, by their paths."""
    for path in sorted(folder.rglob(records.SUMMARY)):
        summary = records.read_summary(path.parent)
        if summary is not None:
            yield str(path.parent.relative_to(folder)), summary


def _job_rows(jobs: list[tuple[str, dict[str, Any]]]) -> Rows:
    """Best first: by examples a second; what was not completed comes last. Overrides of all jobs are left out."""

    def rank(entry: tuple[str, dict[str, Any]]) -> tuple[bool, float]:
        summary = entry[1]
        return summary["status"] != records.COMPLETED, -(summary.get("examples_per_s") or 0.0)

    shared = set.intersection(*(set(summary["overrides"]) for _, summary in jobs)) if len(jobs) > 1 else set()
    return [
        [
            name,
            " ".join(word for word in summary["overrides"] if word not in shared),
            summary["status"],
            _number(summary.get("examples_per_s"), 1),
            _number(summary.get("wall_s"), 1),
            _number(_last(summary, "val_accuracy"), 3),
            " ".join((summary.get("error") or "").split()),
        ]
        for name, summary in sorted(jobs, key=rank)
    ]


def _last(summary: dict[str, Any], measure: str) -> float | None:
    epochs = summary.get("epochs") or [{}]
    value: float | None = epochs[-1].get(measure)
    return value


def _epoch_rows(summary: dict[str, Any]) -> Rows:
    return [
        [
            str(epoch["epoch"]),
            _number(epoch["wall_s"], 2),
            _number(epoch["examples_per_s"], 1),
            *(_number(epoch.get(key), 4) for key in ("loss", "accuracy", "val_loss", "val_accuracy")),
        ]
        for epoch in summary.get("epochs", [])
    ]


def _lines(summary: dict[str, Any], folder: Path) -> Iterator[str]:
    yield (
        f"status    {summary['status']}, {summary.get('examples', 0)} examples at "
        f"{_number(summary.get('examples_per_s'), 1)} a second, {_number(summary.get('wall_s'), 1)} s in all"
    )
    yield f"folder    {folder}"
    for remark in summary.get("remarks", []):
        yield f"remark    {remark}"
    if summary.get("error"):
        yield f"error     {summary['error']}"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _filled(header: Sequence[str], rows: Rows) -> list[int]:
    """The columns in which some row has something to say."""
    return [index for index in range(len(header)) if not rows or any(row[index] for row in rows)]


def _print(header: Sequence[str], rows: Rows) -> None:
    if not rows:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = _filled(header, rows)
    for index in columns:
        is_text = header[index] in {"overrides", "status", "reason"}
        table.add_column(
            header[index],
            justify="left" if is_text else "right",
            overflow="fold",
            no_wrap=header[index] not in {"overrides", "reason"},
        )
    for row in rows:
        table.add_row(*(escape(row[index]) for index in columns))
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(table)


def _markdown(header: Sequence[str], rows: Rows) -> str:
    columns = _filled(header, rows)
    lines = [[header[index] for index in columns], ["---"] * len(columns)]
    lines += [[row[index].replace("|", "\\|") for index in columns] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
