"""What one run of a sweep came to: of its summary what comparisons and reports need, and no more."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etlrun.record import summary as summaries
from etlrun.record.findings import Resources, finite
from etlrun.record.summary import MEASURES, Summary, from_summary, read_summary, steady_rate

WARM, COLD, UNCACHED = "warm", "cold", "uncached"
_READ = "read"


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """One epoch of a run.

    Attributes:
        ended_s: In seconds since 1970.
        examples_per_s: Of its training steps, without the first one of a process, which compiles.
        wait_share: Part of its time spent waiting for data, from 0 to 1.
    """

    ended_s: float
    examples_per_s: float
    wait_share: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A run.

    Attributes:
        status: Of its summary.
        error: Why it did not complete; empty where it did.
        created_s: When it was started, in seconds since 1970.
        wall_s: Of the whole run.
        examples_per_s: The median of its warm epochs: those after the first that read their cache on disk, if they have
            one. Of a run without one that of all its epochs; see `state`. None where nothing was trained.
        state: Of what `examples_per_s` tells: `warm`; `cold` where no epoch was but first ones and those that fill a
            cache; or `uncached` where epochs went without the cache of their config, of which they tell nothing.
        first_examples_per_s: Of a first epoch that found no cache filled, and filled it if it was to be.
        is_too_slow: Whether it was below its pass mark.
        au: Part of the time that the accelerator worked, from 0 to 1.
        max_gain: How much faster any pipeline could make it, at most.
        train_max_gain: The same of its training alone; see `Verdict`.
        ceiling_examples_per_s: What no pipeline could make its training faster than: `train_max_gain` times the rate of
            the same epochs. None without one, beside other jobs, or where its epochs are not all its own.
        bound_by: The stage, or what else, that bounds it.
        peak_rss_bytes: Of its process.
        cores_used: On average.
        cpu_s: Of its process.
        val_accuracy: After its last epoch.
        measures: Accuracy and loss of its last epoch, by their names in a summary, finite or not.
        digests: Of each epoch, of its training and of its validation; empty where they were not asked for.
        records: A digest of the records of each split that it has read; empty where one is not known.
        epochs: In order.
        stages: Rows of its stage table, as in `summary.json`.
        remarks: What a reader should know.
        in_flight: Jobs at a time, as it was started.
        sitting_s: When the process that started it began, in seconds since 1970.
    """

    status: str
    error: str
    created_s: float
    wall_s: float
    examples_per_s: float | None
    state: str
    first_examples_per_s: float | None
    is_too_slow: bool
    au: float | None
    max_gain: float | None
    train_max_gain: float | None
    ceiling_examples_per_s: float | None
    bound_by: str
    peak_rss_bytes: int | None
    cores_used: float | None
    val_accuracy: float | None
    measures: Mapping[str, float]
    digests: tuple[tuple[str, str], ...]
    records: Mapping[str, str]
    epochs: tuple[Epoch, ...]
    stages: tuple[Mapping[str, Any], ...]
    remarks: tuple[str, ...]
    in_flight: int
    sitting_s: float


def outcome_of(folder: Path) -> Outcome | None:
    """What the run in `folder` came to so far; None where there is none."""
    summary = read_summary(folder)
    return None if summary is None else outcome(summary)


def outcome(summary: Summary) -> Outcome:
    """What a run with this summary came to so far."""
    epochs = [_epoch(epoch) for epoch in summary.epochs]
    every = [epoch.examples_per_s for epoch in epochs]
    passes = _passes(summary, len(every))
    warm = [rate for number, rate in enumerate(every) if number and passes[number] in (_READ, None)]
    verdict, used = summary.verdict, summary.resources or Resources()
    train_max_gain = verdict.train_max_gain if verdict else None
    measures = _measures(summary)
    return Outcome(
        status=summary.status,
        error=summary.error or "",
        created_s=summary.created_s or 0.0,
        wall_s=summary.wall_s or 0.0,
        examples_per_s=statistics.median(warm or every) if every else None,
        state=WARM if warm or passes[:1] == [_READ] else UNCACHED if UNCACHED in passes else COLD,
        first_examples_per_s=every[0] if every and passes[0] not in (_READ, UNCACHED) else None,
        is_too_slow=summary.is_too_slow,
        au=summary.au,
        max_gain=verdict.max_gain if verdict else None,
        train_max_gain=train_max_gain,
        ceiling_examples_per_s=_ceiling(summary, train_max_gain),
        bound_by=(verdict.stage or verdict.kind) if verdict else "",
        peak_rss_bytes=used.peak_rss_bytes,
        cores_used=used.cores_used,
        val_accuracy=finite(measures.get("val_accuracy")),
        measures=measures,
        digests=summary.digests,
        records=records_read(summary),
        epochs=tuple(epochs),
        stages=tuple(dataclasses.asdict(row) for row in summary.stages),
        remarks=tuple(summary.remarks),
        in_flight=summary.in_flight or 1,
        sitting_s=summary.sitting_s or 0.0,
    )


def _epoch(epoch: summaries.Epoch) -> Epoch:
    return Epoch(
        ended_s=epoch.ended_s,
        examples_per_s=steady_rate([epoch]) or epoch.examples_per_s,
        wait_share=epoch.waited_s / epoch.wall_s if epoch.wall_s else 0.0,
    )


def records_read(summary: Summary) -> dict[str, str]:
    """See `Outcome.records`. With how many were skipped, since a broken record may have the checksum of a sound one."""
    digests = summary.dataset.digest
    known = {name: f"{digest}, {summary.skipped.get(name, 0)} skipped" for name, digest in digests.items() if digest}
    return known if len(known) == len(digests) else {}


def _measures(summary: Summary) -> dict[str, float]:
    """Those of the last epoch."""
    if not summary.epochs:
        return {}
    last = summary.epochs[-1]
    return {name: value for name in MEASURES if (value := from_summary(getattr(last, name))) is not None}


def _ceiling(summary: Summary, gain: float | None) -> float | None:
    """Of the epochs that the verdict's gain is of: those after the first, where there are some.

    Other jobs take the cores of a model's steps, so that what bounds this run bounds no other.
    """
    rate = steady_rate(summary.epochs[1:] or summary.epochs)
    is_alone = (summary.in_flight or 1) == 1 and not summary.resumed_from
    return rate * gain if rate and gain and is_alone else None


def _passes(summary: Summary, epochs: int) -> list[str | None]:
    """What each epoch of training did with a cache on disk: `filled`, `read`, `uncached`; None where there is none.

    An epoch of so many steps is no pass: the passes are spread over the epochs.
    """
    held = summary.cache.pipelines.get("train") if summary.cache else None
    passes: list[str | None] = [*held.passes] if held and held.passes else [None]
    return [passes[number * len(passes) // epochs] for number in range(epochs)]
