"""Results of a sweep as plain values, the content of all its reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic_core import to_json

from etlrun.config.grid import Unfit
from etlrun.measure.gains import Gain, Lead, Noise
from etlrun.record.outcome import Outcome
from etlrun.record.summary import MEASURES, Figure, metric_of, sets_in
from etlrun.system.terminal import number, significant
from etlrun.system.values import frozen

BASELINE = 0
"""First config of the grid, which the others are compared with."""
MISSING = "missing"
"""State that no summary has: not run yet."""
OTHER_RECORDS = "other records"
"""Mark of configs that have read other records than the baseline, if there are no digests."""


def are_others(records: Mapping[str, str], than: Mapping[str, str]) -> bool:
    """Return whether a split in both has different records; see `Outcome.records`."""
    return any(records[name] != than[name] for name in records.keys() & than.keys())


@dataclass(frozen=True)
class Run:
    """One run of a config.

    Attributes:
        name: Name of the run's folder.
        config: Number of the config.
        repeat: Number of the repeat, from 0.
        outcome: Outcome of the run; None if it has not started.
    """

    name: str
    config: int
    repeat: int
    outcome: Outcome | None

    @property
    def result(self) -> Outcome:
        """Outcome of a run that has one."""
        assert self.outcome is not None  # noqa: S101 - for mypy
        return self.outcome


@frozen
class Rounds:
    """How the rounds of a sweep are compared.

    Attributes:
        varied: What each has of its own, in words; empty for nothing.
        is_paired: Whether the baseline ran twice in each.
        excess: What sharing examples adds to 1/J in the variance of a mean over them; None if they share none.
        comparisons: Number of comparisons for which intervals hold at once, if those of this sweep are fewer.
    """

    varied: str = "seed"
    is_paired: bool = True
    excess: float | None = None
    comparisons: int = 1

    def place_of(self, run: Run) -> tuple[int, int]:
        """Return the round of a run, from 0, and 1 for the second run of the baseline in it, else 0."""
        is_paired = self.is_paired and run.config == BASELINE
        return divmod(run.repeat, 2) if is_paired else (run.repeat, 0)


@dataclass(frozen=True)
class Quality:
    """A metric or the loss of the epochs whose models are kept, over rounds with other seeds or splits.

    Attributes:
        mean: Mean over the runs; None if a value is not finite.
        low: Lower end of the 95 % interval of the mean; for runs of one seed, of an accuracy on so many examples.
            None if it is unknown.
        high: Upper end of the interval.
        runs: Number of runs with a value.
        lead: Improvement over the baseline: higher accuracy, or lower loss or error. None for the baseline, and if a
            value of either is not finite.
    """

    mean: Figure
    low: Figure
    high: Figure
    runs: int
    lead: Lead | None = None

    def words_of(self, name: str) -> str:
        """Return the mean of the measure `name` with its interval, if there is one, as `0.912 (0.905 to 0.919)`."""
        interval = ""
        if self.low is not None and self.high is not None:
            interval = f" ({shown_as(name, self.low)} to {shown_as(name, self.high)})"
        return f"{shown_as(name, self.mean)}{interval}"


def shown_as(name: str, value: float | None) -> str:
    """Format a measure: accuracies and losses with three decimal places, others, of any size, by their first digits."""
    return number(value, 3) if name.removeprefix("val_").rpartition(".")[2] in MEASURES else significant(value)


@frozen
class ConfigResult:
    """Results of a config; each number is the median over its completed runs.

    Attributes:
        number: Number of the config.
        overrides: Overrides that the config was composed with.
        own: Overrides that not all configs have.
        swept: Value of each swept key.
        status: `completed` if some run did, else the status of the last one, or `missing`.
        runs: Names of the completed runs.
        examples_per_s: Throughput of warm epochs; see `Outcome`.
        state: State of the epochs behind `examples_per_s`: `warm` or `cold`.
        first_examples_per_s: Throughput of first epochs without a filled cache.
        fill_s: Seconds by which a run that fills the cache of the training examples takes longer than one that reads
            it. None without a cache, and if it was there before.
        overall_examples_per_s: Throughput over all epochs with the fill, by which configs are compared.
        gain: Gain over the baseline.
        au: Accelerator utilization (AU), from 0 to 1.
        max_gain: Speedup with an ideal input pipeline.
        bound_by: Most frequent bottleneck of the runs.
        peak_rss_bytes: Peak resident memory of a run's process.
        cores_used: Mean number of cores in use.
        wall_s: Seconds of a run.
        measures: The metric shown first, of training and validation, or the validation accuracy, and those of named
            validation sets, of the epochs that are kept, by their keys in a summary.
        quality: With `sweep.folds` or `sweep.vary`, validation accuracy, or the metric shown first, and loss by their
            keys in a summary; those of training without validation. Without them, in a sweep that changes the training,
            the one that decides.
        data: `same` or `differs`, by the digests of the epochs that it has in common with the baseline. Without these
            `other records` if the runs have not read the records of the baseline, else empty.
        records: `Outcome.records` if it is the same for all runs, else empty; by split and round if rounds have their
            own splits.
        fingerprint: Fingerprint of the plan.
        error: Error of the last run that failed.
    """

    number: int
    overrides: tuple[str, ...]
    own: tuple[str, ...]
    swept: Mapping[str, str]
    status: str
    runs: tuple[str, ...]
    examples_per_s: Figure
    state: str
    first_examples_per_s: Figure
    fill_s: Figure
    overall_examples_per_s: Figure
    gain: Gain
    au: Figure
    max_gain: Figure
    bound_by: str
    peak_rss_bytes: Figure
    cores_used: Figure
    wall_s: Figure
    quality: Mapping[str, Quality]
    data: str
    records: Mapping[str, str]
    fingerprint: str
    error: str
    measures: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The overrides that not all configs have."""
        return " ".join(self.own) or "the only config"


Configs = Sequence[ConfigResult]


@frozen
class Decision:
    """Recommendation of a config.

    Attributes:
        config: Number of the cheapest config tied with the best, by memory, then cores; None without a completed run.
        overrides: Overrides of the config, to copy.
        gain: Gain over the baseline.
        tied: Numbers of all configs tied with the best, the best first.
        same_data: Text that says whether the config trains on the examples of the baseline, and how that is known.
        words: Text of the recommendation.
        is_certain: Whether there were enough runs to separate it from noise: no tie leaves more than 1.1 times the
            speed of the baseline open.
        decide: Whether a person chooses: among tied configs, of what is better and worse, or after too few rounds.
        again: Overrides of a new sweep that has enough rounds; empty if there were enough.
        by: Column of the table that the best config is best in: `with fill`, `val accuracy` or another metric, or
            `val loss`.
    """

    config: int | None = None
    overrides: tuple[str, ...] = ()
    gain: Gain | None = None
    tied: tuple[int, ...] = ()
    same_data: str = ""
    words: str
    is_certain: bool = False
    by: str = "with fill"
    decide: bool = False
    again: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<etlrun decision: {self.words}>"

    @property
    def recommended(self) -> int | None:
        """Number of the recommended config; None if nothing is certain enough to be recommended."""
        return self.config if self.is_certain else None


@frozen
class Results:
    """Results of a sweep.

    Attributes:
        folder: Folder of the sweep.
        decision: Recommendation.
        configs: Configs, the best first and those without a completed run last.
        unfit: Combinations that are left out.
        runs: Runs in the order of their names.
        fills: Jobs that filled caches on disk.
        noise: Noise of the machine.
        remarks: Notes on the sweep, a sentence each.
    """

    folder: str
    decision: Decision
    configs: Configs
    unfit: Sequence[Unfit]
    runs: Sequence[Run]
    fills: Sequence[Run]
    noise: Noise
    remarks: tuple[str, ...]

    @property
    def metric(self) -> str:
        """The metric that is shown beside the loss: the accuracy, or the one that trainings without it have."""
        return metric_of(self._measures)

    @property
    def sets(self) -> list[str]:
        """Names of the validation sets beside the validation."""
        return sets_in(self._measures)

    @property
    def _measures(self) -> dict[str, None]:
        return dict.fromkeys(name for config in self.configs for name in config.measures)

    @property
    def keys(self) -> list[str]:
        """The swept keys."""
        return [*self.configs[0].swept] if self.configs else []

    def as_json(self) -> str:
        """Return the results as JSON; the keys are the names of the attributes."""
        return to_json(self, inf_nan_mode="null").decode()
