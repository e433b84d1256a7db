"""Report of a run: the few lines at its end, and tables with all lines, on the terminal and as `report.md`."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from etlrun.record import record as records
from etlrun.record.findings import Apart, GpuUse, Held, Verdict
from etlrun.record.state import state_of
from etlrun.record.summary import COMPLETED, Epoch, Summary, TrainedPhase, read_summary, shown_metric
from etlrun.system.files import write_atomically
from etlrun.system.terminal import (
    Rows,
    as_markdown,
    megabytes,
    number,
    plain,
    print_table,
    say,
    significant,
    table_text,
)

STAGE_HEADER = ("stage", "ms/example", "examples", "parallelism", "buffer", "buffered", "set by")
Line = tuple[str, str]
"""A label, of at most nine letters, and its text."""
_FIRST = ("result", "kept")
_AT_THE_END = ("verdict", "because", "advice", "cache")
"""Lines of the report that a run ends in."""
_MOST_NOTES = 6
_SHORT_S, _LITTLE_GAIN = 5.0, 1.02
"""A training of fewer seconds, or a gain of less, is none that its input holds up."""


def show(folder: Path, summary: Summary) -> None:
    """Print the report of the run in `folder`, the result first."""
    first, *others = _parts(summary, folder)
    say_lines(first)
    for header, rows in _tables(summary):
        print_table(header, rows)
    say_lines(*others)


def say_lines(shown: Iterable[Line]) -> None:
    """Print lines with their labels."""
    for label, text in shown:
        say(f"{label:<9} {text}")


def end(summary: Summary, folder: Path) -> Iterator[Line]:
    """Yield the lines that a run ends in, which fit a screen; the tables and all lines are those of `show`.

    Args:
        summary: Summary of the run.
        folder: Its folder, which is named from the current one if it is inside of it.
    """
    shown, required = [*lines(summary, folder)], {"au"} if summary.au_min is not None else set()
    yield from (line for line in shown if line[0] in _FIRST)
    yield "status", _ended(summary)
    yield from (line for line in shown if line[0] in required.union(_AT_THE_END))
    left_out = len(summary.remarks) - _MOST_NOTES
    yield from (("note", note) for note in summary.remarks[: _MOST_NOTES - (left_out > 0)])
    if left_out > 0:
        yield "note", f"{left_out + 1} more notes are in the report."
    place = Path(os.path.relpath(folder)) if folder.absolute().is_relative_to(Path.cwd()) else folder
    if (folder / records.PAGE).exists():
        yield "page", str(place / records.PAGE)
    yield "folder", str(place)
    yield "tables", shlex.join(["etlrun", "report", str(place)])


def _ended(summary: Summary) -> str:
    """Describe how a run ended: after which time and epoch, with which rate."""
    done = summary.epochs[-1].epoch if summary.epochs else 0
    parts = [f"{summary.status} {'in' if summary.status == COMPLETED else 'after'} {number(summary.wall_s, 1)} s"]
    parts += [f"{summary.examples_per_s:,.1f} examples/s"] if summary.examples_per_s else []
    if summary.status != COMPLETED:
        parts += [f"{done} epoch{'s' * (done != 1)} done"]
    return ", ".join(parts)


def text(folder: Path, summary: Summary) -> str:
    """Return the report of the run in `folder` as `show` prints it."""
    tables = [table_text(header, rows) for header, rows in _tables(summary)]
    first, others = ([f"{label:<9} {of}\n" for label, of in part] for part in _parts(summary, folder))
    return "".join([*first, *tables, *others])


def write(folder: Path) -> None:
    """Write `report.md` of the run in `folder`; nothing if it has no summary."""
    summary = read_summary(folder)
    if summary is None:
        return
    tables = [as_markdown(header, rows) for header, rows in _tables(summary)]
    first, others = ([f"- {label:<9} {plain(of)}" for label, of in part] for part in _parts(summary, folder))
    text = "\n".join([*first, *[""] * bool(first), *tables, *others])
    write_atomically(folder / records.REPORT, f"# Run\n\n{text}\n")


def _parts(summary: Summary, folder: Path) -> tuple[list[Line], list[Line]]:
    """Return the lines above the tables, and those below them."""
    shown = [*lines(summary, folder)]
    above = [line for line in shown if line[0] in _FIRST]
    return above, shown[len(above) :]


def _tables(summary: Summary) -> Iterator[tuple[tuple[str, ...], Rows]]:
    yield epoch_table(summary.epochs)
    yield STAGE_HEADER, stage_rows(dataclasses.asdict(row) for row in summary.stages)


def epoch_table(epochs: Sequence[Epoch], shown: str = "") -> tuple[tuple[str, ...], Rows]:
    """Return the header and the rows of a table of epochs with the metric `shown`, which is theirs if it is empty."""
    metric = shown or shown_metric(epochs)
    measures = ("loss", metric, "val_loss", f"val_{metric}")
    names = (name.replace("_", " ") for name in measures)
    header = ("epoch", "phase", "seconds", "input wait", "examples/s", *names, "data")
    return header, [
        [
            str(epoch.epoch),
            "" if epoch.phase is None else str(epoch.phase),
            number(epoch.wall_s, 2),
            number(epoch.waited_s, 2),
            number(epoch.examples_per_s, 1),
            *(number(epoch.measure(key), 4) for key in measures),
            epoch.digest.rpartition(":")[2][:8],
        ]
        for epoch in epochs
    ]


def stage_rows(stages: Iterable[Mapping[str, Any]]) -> Rows:
    """Return the stage table from its rows in `summary.json`."""
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


def lines(summary: Summary, folder: Path) -> Iterator[Line]:
    """Yield the lines beside the tables: the result of the training, if it has one, then the speed and all else."""
    if result := _result(summary):
        yield "result", result
    if summary.kept_text is not None:
        yield "kept", summary.kept_text
    rate, wall_s = number(summary.examples_per_s, 1), number(summary.wall_s, 1)
    state = state_of(folder, summary)
    yield "status", f"{state}, {summary.examples} examples at {rate} examples/s, {wall_s} s in total"
    if summary.verdict is not None:
        trained_s = sum(epoch.wall_s for epoch in summary.epochs)
        if result and _is_aside(summary, trained_s):
            yield "verdict", f"the input is not the bottleneck of {number(trained_s, 1)} s of training"
        else:
            yield from _verdict_lines(summary.verdict)
        if summary.verdict.apart:
            yield "apart", "; ".join(map(_apart, summary.verdict.apart))
        yield from _usage_lines(summary)
    yield from _cache_lines(summary)
    yield from (("phase", f"{phase.phase}: {text}") for phase, text in phases(summary))
    yield "folder", str(folder)
    yield from (("note", note) for note in summary.remarks)
    if summary.error:
        yield "error", summary.error


def _result(summary: Summary) -> str:
    """Return what the training came to, as numbers; empty for a run without any."""
    epoch, metric = summary.kept_epoch, shown_metric(summary.epochs)
    if epoch is None:
        return ""
    for names in ((f"val_{metric}", "val_loss"), (metric, "loss")):
        values = {name: value for name in names if (value := epoch.measure(name)) is not None}
        if values:
            told = ", ".join(f"{name.replace('_', ' ')} {significant(value)}" for name, value in values.items())
            return f"{told} in epoch {epoch.epoch}"
    return ""


def _is_aside(summary: Summary, trained_s: float) -> bool:
    """Return whether no time is to be had from the input of a training, and none is asked for."""
    gain = summary.verdict.max_gain if summary.verdict is not None else None
    return summary.au_min is None and (trained_s < _SHORT_S or (gain is not None and gain < _LITTLE_GAIN))


def phases(summary: Summary) -> Iterator[tuple[TrainedPhase, str]]:
    """Yield each phase that has begun with its description: epochs, layers, learning rate, and what it came to."""
    for phase in summary.phases:
        epochs = [epoch for epoch in summary.epochs if epoch.phase == phase.phase]
        many = phase.first_epoch != phase.last_epoch
        text = f"epoch{'s' * many} {phase.first_epoch}{f' to {phase.last_epoch}' * many}"
        text += f", base {'frozen' if phase.unfreeze is None else f'trained: {_layers(phase.unfreeze)}'}"
        text += f", {phase.trainable_parameters:,} parameters, learning rate {phase.learning_rate:g}"
        yield phase, text + "".join(_reached(epochs))


def _layers(unfreeze: str) -> str:
    return f"last {unfreeze} layers" if unfreeze.isdigit() else {"last_block": "last block"}.get(unfreeze, unfreeze)


def _reached(epochs: Sequence[Epoch]) -> Iterator[str]:
    """Yield the accuracy of the last epoch of a phase, and that of the best one; the losses without accuracies."""
    for key, best in (("val_accuracy", max), ("val_loss", min), ("accuracy", max), ("loss", min)):
        values = [(value, epoch.epoch) for epoch in epochs if (value := epoch.measure(key)) is not None]
        if values:
            value, at = best(values, key=lambda pair: pair[0])
            name = key.replace("_", " ")
            yield f": {name} {values[-1][0]:.4f} at its end, best {value:.4f} in epoch {at}"
            return


def _verdict_lines(verdict: Verdict) -> Iterator[Line]:
    head = {
        "input": f"input-bound at {verdict.stage or 'the beginning of each pass'}",
        "model": "model-bound",
        "balanced": "balanced",
        "unknown": "unknown",
    }[verdict.kind]
    if verdict.arriving_bytes_per_s is not None and verdict.consumed_bytes_per_s is not None:
        arriving, consumed = (_rate(rate) for rate in (verdict.arriving_bytes_per_s, verdict.consumed_bytes_per_s))
        head += f": {arriving} MB/s of the {consumed} that this model consumes"
    gain, joint = verdict.max_gain, "," if ": " in head else ":"
    limit = f"{joint} training at most {gain:.2f}x faster with an ideal input pipeline" if gain is not None else ""
    yield "verdict", f"{head}{limit}"
    yield "because", verdict.because
    if verdict.advice:
        yield "advice", verdict.advice


def _rate(bytes_per_s: float) -> str:
    """Return megabytes per second with at least two significant digits."""
    rate = bytes_per_s / 1e6
    return f"{rate:,.0f}" if round(rate) > 9 else f"{rate:.2g}"  # noqa: PLR2004 - two significant digits


def _apart(part: Apart) -> str:
    verb = "took" if part.name == "start-up" else "waited"
    at = f" at {part.stage}" if part.stage else ""
    return (
        f"{part.name} {verb} {number(part.lost_s, 2)} of {number(part.total_s, 2)} s{at}: {part.max_gain:.2f}x without"
    )


def _usage_lines(summary: Summary) -> Iterator[Line]:
    each = f"{summary.input_wait_ms_median:.2f} ms median, {summary.input_wait_ms_p95:.2f} ms p95 per step"
    yield "waits", f"input wait {each}; {summary.fill_wait_s:.2f} s for the first batches of all passes"
    required, au = summary.au_min, summary.au
    if required is not None or au is not None:
        has_accelerator = summary.au_of != "the model"
        name = f"accelerator utilization (AU) of {summary.au_of}" if has_accelerator else "time in model steps"
        relation = "below" if summary.is_too_slow else "at least"
        result = "" if required is None else f", {relation} the required {required:g}"
        yield "au", f"{name}: {'unknown' if au is None else f'{au:.1%}'}{result}"
    if (fetched := summary.fetched) is not None and fetched.bytes:
        rate = f" at {_rate(fetched.bytes / fetched.busy_s)} MB/s" if fetched.busy_s else ""
        yield "fetched", f"{megabytes(fetched.bytes)} by {fetched.requests:,} requests{rate}"
    used = summary.resources
    if used is not None:
        gpus = "".join(map(_gpu, used.gpus))
        if used.peak_gpu_bytes:
            gpus += f"; peak GPU memory for tensors {megabytes(used.peak_gpu_bytes)}"
        cpu = f"{used.cpu_s:.1f} CPU seconds on {number(used.cores_used, 1)} cores"
        peak, read = megabytes(used.peak_rss_bytes), megabytes(used.bytes_read)
        yield "resources", f"peak memory {peak}, {cpu}, {read} read{gpus}"


def _gpu(used: GpuUse) -> str:
    peak = f", peak memory {megabytes(used.peak_memory_bytes)}" if used.peak_memory_bytes else ""
    return f"; GPU {used.index} at {number(used.utilisation_percent, 0)} %{peak}"


def _cache_lines(summary: Summary) -> Iterator[Line]:
    cache = summary.cache
    if cache is not None and cache.pipelines:
        sizes = [f"{name} {megabytes(of.held_bytes)}{_passes(of)}" for name, of in cache.pipelines.items()]
        yield "cache", f"{cache.target.removeprefix('cache.')}, {cache.at}: {'; '.join(sizes)}"


def _passes(held: Held) -> str:
    """Count the passes over a cache on disk by what they did: ` (1 filled, 3 read), filled in 2.1 s`."""
    passes = held.passes
    counts = f" ({', '.join(f'{passes.count(kind)} {kind}' for kind in dict.fromkeys(passes))})" if passes else ""
    return counts + (f", filled in {held.filled_s:.1f} s" if held.filled_s and passes else "")


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)
