"""`etlrun size`: the threads, machines, storage and cache that an accelerator needs, by the costs of a run."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from pydantic_core import to_json

from etlrun.cli import parsers
from etlrun.record.config import CONFIG
from etlrun.record.summary import read_summary
from etlrun.results.sizing import Need, Sizing, size
from etlrun.system.errors import WorldError
from etlrun.system.terminal import megabytes, say, say_whole

_LEAST_THREADS = 0.05
"""Threads below which a stage is not listed."""


def main(arguments: list[str]) -> None:
    """Print the size of the input.

    Raises:
        WorldError: There is no run, or it has not measured what is needed.
    """
    known = parser().parse_args(arguments)
    summary = read_summary(known.run)
    if summary is None or not (known.run / CONFIG).is_file():
        found = "no run" if known.run.is_dir() else "no such folder"
        remedy = "pass the folder that a run prints at its end"
        raise WorldError(where=str(known.run), found=found, expected="the folder of a run", remedy=remedy)
    sizing = size(known.run, summary, known.step_ms, known.au)
    if known.format == "json":
        say_whole(to_json(sizing, indent=2).decode() + "\n")
        return
    for line in lines(sizing):
        say(line)


def lines(sizing: Sizing) -> Iterator[str]:
    """Yield the lines of the text."""
    batches = f"batches of {sizing.batch_size} in steps of {sizing.step_ms:.4g} ms"
    yield f"demand    {sizing.examples_per_s:,.0f} examples/s: {batches}, at an AU of {sizing.au:g}"
    for need in sizing.needs:
        yield from _need(need, sizing)
    if sizing.cache_bytes is not None:
        yield f"cache     {megabytes(sizing.cache_bytes)}: {sizing.cache_at}"


def _need(need: Need, sizing: Sizing) -> Iterator[str]:
    busy = f"{need.busy.likely:.2f} ({need.busy.low:.2f} to {need.busy.high:.2f}) are busy"
    computing = "" if need.cores is None else f", of which {min(need.cores, need.busy.likely):.2f} compute"
    yield f"{need.passes}"
    yield f"  threads {busy}{computing}"
    listed = [f"{stage} {threads:.2f}" for stage, threads in need.threads.items() if threads >= _LEAST_THREADS]
    if listed:
        yield f"  stages  {', '.join(listed)}"
    like = f"like the one of the run ({sizing.worker_cores} cores)"
    yield f"  workers {need.workers} machine{'s' * (need.workers != 1)} {like}"
    if need.storage_bytes_per_s:
        gave = "" if need.arriving_bytes_per_s is None else f"; the store gave {need.arriving_bytes_per_s / 1e6:,.1f}"
        yield f"  storage {need.storage_bytes_per_s / 1e6:,.1f} MB/s of records{gave}"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = parsers.of_command(
        "size",
        "Print how many threads, machines, MB/s of storage and bytes of cache an accelerator "
        "of a step time needs, by the costs that a run has measured.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a completed run")
    parser.add_argument("--step-ms", type=_milliseconds, metavar="N", help="milliseconds of a step; default: the run's")
    parser.add_argument("--au", type=_share, default=0.9, metavar="SHARE", help="utilization to reach; default: 0.9")
    parsers.add_format(parser)
    return parser


def _milliseconds(text: str) -> float:
    return _between(text, 0.001, 1e6, "a number from 0.001 to 1,000,000")


def _share(text: str) -> float:
    return _between(text, 0.001, 1.0, "a number from 0.001 to 1")


def _between(text: str, low: float, high: float, expected: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"found {text}; expected {expected}")
    return value
