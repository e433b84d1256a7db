"""The short table of a run, and the table of a folder of runs: on the terminal and as `report.md`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from etlrun import record as records
from etlrun.errors import WorldError
from etlrun.tables import Rows, as_markdown, print_table

EPOCH_HEADER = (
    "epoch", "seconds", "waited", "examples/s", "loss", "accuracy", "val loss", "val accuracy", "data",
)  # fmt: skip
STAGE_HEADER = ("stage", "ms/example", "examples", "parallelism", "buffer", "buffered", "set by")
JOB_HEADER = (
    "job", "overrides", "status", "examples/s", "seconds", "au", "bound by", "gain", "val accuracy", "data", "reason",
)  # fmt: skip


def show(folder: Path) -> None:
    """Print the table of the run in `folder`, or of the runs below it; `WorldError` where there is none."""
    summary = records.read_summary(folder)
    if summary is not None:
        print_table(EPOCH_HEADER, _epoch_rows(summary))
        print_table(STAGE_HEADER, _stage_rows(summary))
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
    print_table(JOB_HEADER, _job_rows(jobs))


def write(folder: Path) -> None:
    """Write `report.md` of the run in `folder`."""
    summary = records.read_summary(folder) or {}
    tables = [as_markdown(EPOCH_HEADER, _epoch_rows(summary)), as_markdown(STAGE_HEADER, _stage_rows(summary))]
    text = "\n".join([*tables, *(f"- {line}" for line in _lines(summary, folder))])
    records.write_atomically(folder / records.REPORT, f"# Run\n\n{text}\n")


def sweep(folder: Path) -> set[int]:
    """Print the table of a multirun and write it into its folder.

    Returns the exit statuses that its jobs ask for: 1 where one was not completed, 3 where one was below its pass mark.
    """
    jobs = list(_jobs(folder))
    if jobs:
        text = as_markdown(JOB_HEADER, _job_rows(jobs))
        records.write_atomically(folder / records.REPORT, f"# Sweep\n\n{text}")
        print_table(JOB_HEADER, _job_rows(jobs))
    Console(soft_wrap=True).print(f"report    {folder / records.REPORT}", highlight=False, markup=False)
    failed = {1 for _, summary in jobs if summary["status"] != records.COMPLETED}
    return failed | {3 for _, summary in jobs if records.is_too_slow(summary)}


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
    data = _data_groups([summary for _, summary in jobs])
    return [
        [
            name,
            " ".join(word for word in summary["overrides"] if word not in shared),
            "too slow" if records.is_too_slow(summary) else summary["status"],
            _number(summary.get("examples_per_s"), 1),
            _number(summary.get("wall_s"), 1),
            _number(summary.get("au"), 2),
            _bound_by(summary),
            _number((summary.get("verdict") or {}).get("max_gain"), 2),
            _number(_last(summary, "val_accuracy"), 3),
            data.get(_digests(summary), ""),
            " ".join((summary.get("error") or "").split()),
        ]
        for name, summary in sorted(jobs, key=rank)
    ]


def _bound_by(summary: dict[str, Any]) -> str:
    verdict = summary.get("verdict") or {}
    return str(verdict.get("stage") or verdict.get("kind") or "")


def _digests(summary: dict[str, Any]) -> tuple[str, ...]:
    """Of all epochs, training and validation; empty where they were not asked for."""
    keys = ("digest", "validation_digest")
    return tuple(epoch[key] for epoch in summary.get("epochs", []) for key in keys if epoch.get(key))


def _data_groups(summaries: list[dict[str, Any]]) -> dict[tuple[str, ...], str]:
    """A word for each sequence of digests: `same` where there is one; else a letter, so that what differs is marked."""
    found = [_digests(summary) for summary in summaries if _digests(summary)]
    distinct = list(dict.fromkeys(found))
    if len(distinct) == 1:
        return {distinct[0]: "same" if len(found) > 1 else ""}
    return {digests: f"differs: {_letters(number)}" for number, digests in enumerate(distinct)}


def _letters(number: int) -> str:
    """A to Z, then AA, AB and so on."""
    head, last = divmod(number, 26)
    return (_letters(head - 1) if head else "") + chr(ord("A") + last)


def _last(summary: dict[str, Any], measure: str) -> float | None:
    epochs = summary.get("epochs") or [{}]
    value: float | None = epochs[-1].get(measure)
    return value


def _epoch_rows(summary: dict[str, Any]) -> Rows:
    return [
        [
            str(epoch["epoch"]),
            _number(epoch["wall_s"], 2),
            _number(epoch["fill_wait_s"] + epoch["input_wait_s"], 2),
            _number(epoch["examples_per_s"], 1),
            *(_number(epoch.get(key), 4) for key in ("loss", "accuracy", "val_loss", "val_accuracy")),
            epoch.get("digest", "").rpartition(":")[2][:8],
        ]
        for epoch in summary.get("epochs", [])
    ]


def _stage_rows(summary: dict[str, Any]) -> Rows:
    return [
        [
            row["stage"],
            _number(row["cost_ms"], 3),
            str(row["examples"]),
            _count(row["parallelism"]),
            _count(row["buffer_size"]),
            _megabytes(row["buffered_bytes"]),
            row["set_by"],
        ]
        for row in summary.get("stages", [])
    ]


def _lines(summary: dict[str, Any], folder: Path) -> Iterator[str]:
    yield (
        f"status    {summary['status']}, {summary.get('examples', 0)} examples at "
        f"{_number(summary.get('examples_per_s'), 1)} a second, {_number(summary.get('wall_s'), 1)} s in all"
    )
    yield from _verdict_lines(summary)
    yield from _cache_lines(summary)
    yield f"folder    {folder}"
    for remark in summary.get("remarks", []):
        yield f"remark    {remark}"
    if summary.get("error"):
        yield f"error     {summary['error']}"


def _verdict_lines(summary: dict[str, Any]) -> Iterator[str]:
    verdict = summary.get("verdict")
    if not verdict:
        return
    gain = verdict["max_gain"]
    head = {
        "input": f"bound by its input, {verdict['stage']}",
        "model": "bound by its model",
        "balanced": "balanced",
        "unknown": "unknown",
    }[verdict["kind"]]
    limit = f": {gain:.2f} times faster at most with any pipeline" if gain is not None else ""
    yield f"verdict   {head}{limit}"
    yield f"because   {verdict['because']}"
    if verdict["advice"]:
        yield f"advice    {verdict['advice']}"
    yield (
        f"waits     {summary['input_wait_ms_median']:.2f} ms before a step in the median, "
        f"{summary['input_wait_ms_p95']:.2f} ms in the 95th percentile; "
        f"{summary['fill_wait_s']:.2f} s for the first batches of passes"
    )
    mark, share = summary.get("au_min"), summary.get("au")
    if mark is not None or share is not None:
        worked = "for an unknown part" if share is None else f"{share:.1%}"
        passed = (
            "" if mark is None else f", {'below' if records.is_too_slow(summary) else 'at least'} the mark of {mark:g}"
        )
        yield f"use       the accelerator worked {worked} of the time{passed}"
    used = summary.get("resources") or {}
    if used:
        read = "-" if used["bytes_read"] is None else _megabytes(used["bytes_read"])
        gpus = "".join(
            f"; GPU {gpu['index']} at {gpu['utilisation_percent']:.0f} %"
            + (f", {_megabytes(gpu['peak_memory_bytes'])}" if gpu["peak_memory_bytes"] else "")
            for gpu in used["gpus"]
        )
        yield (
            f"used      {_megabytes(used['peak_rss_bytes'])} of memory at most, {used['cpu_s']:.1f} CPU seconds on "
            f"{used['cores_used']:.1f} cores, {read} read{gpus}"
        )


def _cache_lines(summary: dict[str, Any]) -> Iterator[str]:
    cache = summary.get("cache") or {}
    held = [
        f"{name} {_megabytes(pipeline['held_bytes'])}{_passes(pipeline.get('passes', []))}"
        for name, pipeline in cache.get("pipelines", {}).items()
    ]
    if held:
        target = cache["target"].removeprefix("cache.")
        yield f"cache     {target}, {cache['at']}: {'; '.join(held)}"


def _passes(passes: list[str]) -> str:
    """What the passes over a cache on disk did, each kind once."""
    return f" ({', '.join(f'{passes.count(kind)} {kind}' for kind in dict.fromkeys(passes))})" if passes else ""


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
