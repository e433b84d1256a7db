"""The short table of a run: on the terminal and as `report.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from etlrun.record import record as records
from etlrun.terminal import Rows, as_markdown, megabytes, number, plain, print_table

EPOCH_HEADER = (
    "epoch", "seconds", "waited", "examples/s", "loss", "accuracy", "val loss", "val accuracy", "data",
)  # fmt: skip
STAGE_HEADER = ("stage", "ms/example", "examples", "parallelism", "buffer", "buffered", "set by")


def show(folder: Path, summary: dict[str, Any]) -> None:
    """Print the table of the run in `folder`."""
    print_table(EPOCH_HEADER, _epoch_rows(summary))
    print_table(STAGE_HEADER, stage_rows(summary.get("stages", [])))
    for line in _lines(summary, folder):
        Console(soft_wrap=True).print(line, markup=False, highlight=False)


def write(folder: Path) -> None:
    """Write `report.md` of the run in `folder`."""
    summary = records.read_summary(folder) or {}
    tables = [
        as_markdown(EPOCH_HEADER, _epoch_rows(summary)),
        as_markdown(STAGE_HEADER, stage_rows(summary.get("stages", []))),
    ]
    lines = (line.partition(" ") for line in _lines(summary, folder))
    text = "\n".join([*tables, *(f"- {label:<9} {plain(said)}" for label, _, said in lines)])
    records.write_atomically(folder / records.REPORT, f"# Run\n\n{text}\n")


def _epoch_rows(summary: dict[str, Any]) -> Rows:
    return [
        [
            str(epoch["epoch"]),
            number(epoch["wall_s"], 2),
            number(epoch["fill_wait_s"] + epoch["input_wait_s"], 2),
            number(epoch["examples_per_s"], 1),
            *(number(records.from_summary(epoch.get(key)), 4) for key in records.MEASURES),
            epoch.get("digest", "").rpartition(":")[2][:8],
        ]
        for epoch in summary.get("epochs", [])
    ]


def stage_rows(stages: Iterable[Mapping[str, Any]]) -> Rows:
    """The table of stages, from how `summary.json` holds them."""
    return [
        [
            row["stage"],
            number(row["cost_ms"], 3),
            str(row["examples"]),
            _count(row["parallelism"]),
            _count(row["buffer_size"]),
            megabytes(row["buffered_bytes"]),
            row["set_by"],
        ]
        for row in stages
    ]


def _lines(summary: dict[str, Any], folder: Path) -> Iterator[str]:
    yield (
        f"status    {summary['status']}, {summary.get('examples', 0)} examples at "
        f"{number(summary.get('examples_per_s'), 1)} a second, {number(summary.get('wall_s'), 1)} s in all"
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
        who = summary.get("au_of", "the model")
        measure = "" if who == "the model" else "accelerator utilization (AU): "
        yield f"use       {measure}{who} worked {worked} of the time{passed}"
    used = summary.get("resources") or {}
    if used:
        read = megabytes(used["bytes_read"])
        gpus = "".join(
            f"; GPU {gpu['index']} at {gpu['utilisation_percent']:.0f} %"
            + (f", {megabytes(gpu['peak_memory_bytes'])} held at most" if gpu["peak_memory_bytes"] else "")
            for gpu in used["gpus"]
        )
        if used.get("peak_gpu_bytes"):
            gpus += f"; {megabytes(used['peak_gpu_bytes'])} of GPU memory for tensors at most"
        yield (
            f"used      {megabytes(used['peak_rss_bytes'])} of memory at most, {used['cpu_s']:.1f} CPU seconds on "
            f"{used['cores_used']:.1f} cores, {read} read{gpus}"
        )


def _cache_lines(summary: dict[str, Any]) -> Iterator[str]:
    cache = summary.get("cache") or {}
    held = [
        f"{name} {megabytes(pipeline['held_bytes'])}{_passes(pipeline.get('passes', []))}"
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
