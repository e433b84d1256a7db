"""Outcome of one run in a sweep: the values of its summary that comparisons and reports need."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

from etlrun.record.part import finite
from etlrun.record.summary import (
    MEASURES,
    Figure,
    Held,
    Resources,
    Summary,
    Verdict,
    rate_of,
    read_summary,
    shown_metric,
)
from etlrun.system.values import frozen

WARM, COLD, UNCACHED = "warm", "cold", "uncached"
_READ, _FILLED = "read", "filled"
FINITE_LOSS, FINITE_WEIGHTS = "a finite loss", "finite weights"
"""What was expected of a run that failed since it diverged."""


@frozen
class Outcome:
    """Outcome of a run; what is not told here is that of its summary, its verdict, or its resources.

    Attributes:
        error: Reason why the run did not complete; empty if it did.
        created_s: Start of the run, in seconds since 1970.
        wall_s: Seconds of the whole run.
        examples_per_s: Median throughput of the warm epochs: those after the first that read their cache on disk, if
            there is one. Without a warm epoch, the median of all epochs; see `state`. None if nothing was trained.
        state: State of the epochs behind `examples_per_s`: `warm`; `cold` if there are only first epochs and epochs
            that fill a cache; or `uncached` if epochs ran without the cache of their config and say nothing about it.
        first_examples_per_s: Throughput of a first epoch that found no filled cache.
        examples: Number of training examples in all epochs.
        cache: Key of the cache on disk of the training examples; empty without one.
        fill_s: Seconds by which a run that fills the cache of its training examples takes longer than one that reads
            it; of a job that only fills it, the seconds of that. None without a fill.
        fills_ahead: Whether runs fill that cache before their first epoch, and not by it.
        has_filled: Whether its first epoch filled a cache on disk.
        diverged: Why a run is no result of a training: a loss or a weight that is not finite; empty for none.
        validated: Number of validation examples; 0 without validation.
        trained: Number of training examples; 0 if it is unknown.
        bound_by: Bottleneck: a stage, or the kind of the verdict.
        measures: Loss and accuracy of the epoch whose model is kept, or the metric shown first where there is no
            accuracy, by their keys in a summary, finite or not.
        records: Digest of the records read from each split; empty if one is unknown.
        epochs: Number of epochs.
        machine: GPUs, CPU and number of cores that the run had; empty if they are unknown.
    """

    status: str
    error: str
    created_s: float
    wall_s: float
    examples_per_s: Figure
    state: str
    first_examples_per_s: Figure
    examples: int
    cache: str
    fill_s: Figure
    fills_ahead: bool
    only_fills: bool
    has_filled: bool
    diverged: str
    validated: int
    trained: int
    is_too_slow: bool
    au: Figure
    max_gain: Figure
    bound_by: str
    peak_rss_bytes: int | None
    cores_used: Figure
    measures: Mapping[str, float]
    digests: tuple[tuple[str, str], ...]
    records: Mapping[str, str]
    epochs: int
    in_flight: int
    sitting_s: float
    machine: str

    def with_fill(self, fill_s: float | None) -> float | None:
        """Return the throughput over all epochs, as warm ones, and `fill_s`; None if nothing was trained."""
        if not self.examples_per_s or not fill_s:
            return self.examples_per_s
        return self.examples / (self.examples / self.examples_per_s + fill_s)


def outcome_of(folder: Path) -> Outcome | None:
    """Read the outcome of the run in `folder` so far; None if there is no run."""
    return outcome(summary) if (summary := read_summary(folder)) else None


def outcome(summary: Summary) -> Outcome:
    """Return the outcome of a run with this summary."""
    every = [rate_of(*epoch.steady) or epoch.examples_per_s for epoch in summary.epochs]
    caches = summary.cache.pipelines if summary.cache else {}
    held = caches.get("train", Held())
    kept_passes: list[str | None] = [*held.passes] or [None]
    # With a fixed number of steps an epoch is not a pass over the data: passes are then spread over the epochs.
    passes = [kept_passes[number * len(kept_passes) // len(every)] for number in range(len(every))]
    warm = [rate for number, rate in enumerate(every) if number and passes[number] in (_READ, None)]
    verdict, used, host = summary.verdict or Verdict(kind="unknown"), summary.resources or Resources(), summary.host
    kept, metric = summary.kept_epoch, shown_metric(summary.epochs)
    of_sets = (f"{name}.{measure}" for name in summary.sets for measure in (metric, "loss"))
    names = dict.fromkeys((*MEASURES, metric, f"val_{metric}", *of_sets)) if kept else ()
    measures = {name: value for name in names if kept and (value := kept.measure(name)) is not None}
    machine = [*sorted(set(host.accelerators)), host.processor, f"{host.cores} cores"] if host.processor else []
    fill_s = None
    if summary.only_fills or held.is_filled_ahead:
        fill_s = held.filled_s
    elif "train" in caches and warm and passes[0] in (_FILLED, None):
        first = summary.epochs[0]
        filling_s, reading_s = held.filled_s or first.wall_s - first.startup_s, first.examples / median(warm)
        fill_s = max(0.0, filling_s - reading_s)
    state = WARM if warm or passes[:1] == [_READ] else UNCACHED if UNCACHED in passes else COLD
    if summary.only_fills:
        state = UNCACHED if any(UNCACHED in of.passes for of in caches.values()) else COLD
    return Outcome(
        error=summary.error or "",
        created_s=summary.created_s or 0.0,
        wall_s=summary.wall_s or 0.0,
        examples_per_s=median(warm or every) if every else None,
        state=state,
        first_examples_per_s=every[0] if every and passes[0] not in (_READ, UNCACHED) else None,
        examples=sum(epoch.examples for epoch in summary.epochs),
        cache=held.key or "",
        fill_s=fill_s,
        fills_ahead=held.is_filled_ahead,
        has_filled=passes[:1] == [_FILLED],
        diverged=next(_divergence(summary), ""),
        validated=summary.dataset.examples.get("validation", 0),
        trained=summary.dataset.examples.get("train", 0),
        bound_by=(verdict.stage or verdict.kind) if summary.verdict else "",
        measures=measures,
        records=records_read(summary),
        epochs=len(every),
        in_flight=summary.in_flight or 1,
        sitting_s=summary.sitting_s or 0.0,
        machine=", ".join(machine),
        max_gain=verdict.max_gain,
        peak_rss_bytes=used.peak_rss_bytes,
        cores_used=used.cores_used,
        **{name: getattr(summary, name) for name in ("status", "only_fills", "is_too_slow", "au", "digests")},
    )


def _divergence(summary: Summary) -> Iterator[str]:
    """Yield what of a run is not finite: losses, and what its error says of a loss or of weights."""
    for epoch in summary.epochs:
        for name in ("loss", "val_loss", *(f"{of}.loss" for of in summary.sets)):
            if finite(loss := epoch.measure(name)) != loss:
                yield f"epoch {epoch.epoch}: found a {name} of {loss:g}; expected {FINITE_LOSS}"
    error = summary.error or ""
    if any(f"expected {wanted}" in error for wanted in (FINITE_LOSS, FINITE_WEIGHTS)):
        yield error


def records_read(summary: Summary) -> dict[str, str]:
    """Return `Outcome.records`, with the number of skipped records: a corrupt one may have a valid checksum."""
    digests = summary.dataset.digest
    known = {name: f"{digest}, {summary.skipped.get(name, 0)} skipped" for name, digest in digests.items() if digest}
    return known if len(known) == len(digests) else {}
