"""What a sweep has shown, as plain values: everything that its reports say stands in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic_core import to_json

from etlrun.measure.compare import Gain, Lead, Noise
from etlrun.record.outcome import Outcome
from etlrun.sweep.unfit import LeftOut

BASELINE = 0
"""The first config of the grid, with which the others are compared."""
MISSING, TOO_SLOW, KILLED = "missing", "too slow", "killed"
"""What a summary does not say: not run yet, below its pass mark, without a process while it says that it runs."""
OTHER_RECORDS = "other records"
"""For data of which no more is known than that they are not the baseline's."""


def are_others(records: Mapping[str, str], than: Mapping[str, str]) -> bool:
    """Whether a split that both name has other records: see `Outcome.records`."""
    return any(records[name] != than[name] for name in records.keys() & than.keys())


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a config.

    Attributes:
        name: Of its folder.
        config: Its number.
        repeat: From 0.
        outcome: What it came to; None where it is missing.
    """

    name: str
    config: int
    repeat: int
    outcome: Outcome | None


@dataclass(frozen=True, kw_only=True)
class Quality:
    """An accuracy or a loss after the last epoch, of runs that each have a seed of their own.

    Attributes:
        mean: Over the runs; None where one has no finite value.
        low: Lower end of the 95 % interval of the mean; None of a single run.
        high: Its upper end.
        runs: That have it.
        lead: How much better than the baseline it is: an accuracy that is higher, a loss that is lower. None for the
            baseline, and where either has a value that is not finite.
    """

    mean: float | None
    low: float | None
    high: float | None
    runs: int
    lead: Lead | None


@dataclass(frozen=True, kw_only=True)
class ConfigResult:
    """What the runs of a config come to, each figure a median of those that completed.

    Attributes:
        number: Of the config.
        overrides: With which it was made.
        own: Those that not all configs have.
        swept: The value of each swept key.
        status: `completed` where some run did, else how the last one ended, or `missing`.
        runs: Names of those that completed.
        examples_per_s: Of warm epochs; see `Outcome`.
        state: `warm` or `cold`: of what the rate tells.
        first_examples_per_s: Of first epochs without a filled cache.
        gain: Over the baseline.
        au: Part of the time that the accelerator worked.
        max_gain: How much faster any pipeline could make it, at most.
        bound_by: What bounds most of its runs.
        peak_rss_bytes: Of a run's process.
        cores_used: On average.
        wall_s: Of a run.
        val_accuracy: After the last epoch.
        quality: With `sweep.vary_seed` the accuracy and the loss of validation, by their names in a summary; of
            training where there is no validation.
        data: `same`, or a letter for each group of configs with the same digests in the epochs that they all have;
            without digests `other records` where its runs have not read those of the baseline, else empty.
        records: Of `Outcome`, where all its runs have the same; else empty.
        fingerprint: Of its plan.
        error: Of its last run that failed or was pruned.
    """

    number: int
    overrides: tuple[str, ...]
    own: tuple[str, ...]
    swept: Mapping[str, str]
    status: str
    runs: tuple[str, ...]
    examples_per_s: float | None
    state: str
    first_examples_per_s: float | None
    gain: Gain
    au: float | None
    max_gain: float | None
    bound_by: str
    peak_rss_bytes: float | None
    cores_used: float | None
    wall_s: float | None
    val_accuracy: float | None
    quality: Mapping[str, Quality]
    data: str
    records: Mapping[str, str]
    fingerprint: str
    error: str


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What one value of a swept key goes with.

    Attributes:
        key: That is swept.
        value: Of it.
        configs: With this value that completed.
        examples_per_s: Median of theirs.
    """

    key: str
    value: str
    configs: int
    examples_per_s: float


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do.

    Attributes:
        config: The cheapest of those tied with the best, by memory, then cores; None without a run that completed.
        overrides: To copy.
        gain: Over the baseline.
        tied: The numbers of all configs tied with the best, the best first.
        same_data: Whether it trains on the examples of the baseline, and how that is known, in words.
        words: In a sentence.
    """

    config: int | None
    overrides: tuple[str, ...]
    gain: Gain | None
    tied: tuple[int, ...]
    same_data: str
    words: str


@dataclass(frozen=True, kw_only=True)
class Results:
    """A sweep.

    Attributes:
        folder: Of the sweep.
        decision: What to do.
        configs: Best first; those without a completed run come last.
        unfit: The combinations that are left out.
        runs: In the order of their names.
        noise: Of the machine.
        ceiling_examples_per_s: What no pipeline can be faster than, with the model that is there.
        frontier: Numbers of configs of which no other has more throughput with less memory.
        effects: Of swept values.
        remarks: What a reader should know.
    """

    folder: str
    decision: Decision
    configs: tuple[ConfigResult, ...]
    unfit: tuple[LeftOut, ...]
    runs: tuple[Run, ...]
    noise: Noise
    ceiling_examples_per_s: float | None
    frontier: tuple[int, ...]
    effects: tuple[Effect, ...]
    remarks: tuple[str, ...]

    def as_json(self) -> str:
        """All of it, as JSON; the names are those of the attributes."""
        return to_json(self, inf_nan_mode="null").decode()
