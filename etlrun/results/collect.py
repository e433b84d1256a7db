"""Collection of a sweep's results from the runs in its folder."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from etlrun.measure.gains import Gain, Rates, gains, itself, noise_of
from etlrun.measure.neighbours import note_on_others
from etlrun.record import record as records
from etlrun.record.config import read_config
from etlrun.record.outcome import COLD, UNCACHED, WARM, Outcome, outcome, outcome_of
from etlrun.record.record import KILLED, is_nobodys
from etlrun.record.summary import COMPLETED, FAILED, INTERRUPTED, MEASURES, RUNNING, SUMMARY, finite, read_summary
from etlrun.results.decision import (
    data_of_first,
    data_of_one_seed,
    decide,
    decide_by,
    deciding,
    labels,
    model_of,
    notes_on_data,
    notes_on_machines,
    notes_on_quality,
    on_one_machine,
    qualities,
    quality_of_one_seed,
    ranked,
    tied_by,
    tied_with_best,
)
from etlrun.results.results import (
    BASELINE,
    MISSING,
    OTHER_RECORDS,
    TOO_SLOW,
    ConfigResult,
    Decision,
    Effect,
    Results,
    Run,
    are_others,
)  # fmt: skip
from etlrun.review.difference import Comparison, compare_configs
from etlrun.sweep.ledger import ATTEMPTS, SWEEP, Ledger, RunKey, left_out, own_overrides, unused
from etlrun.sweep.runs import MARGIN, as_compared


class Fills:
    """Seconds that filling each cache on disk took, known from the jobs and runs that have filled one."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        every = sorted(outcomes, key=lambda of: of.only_fills)  # those that only fill come last, and count
        self._filled = {of.cache: of for of in every if of.cache and of.fill_s is not None}

    def fill_s(self, of: Outcome) -> float | None:
        """Return the seconds that filling the cache of a run takes, whichever run has filled it; None if unknown."""
        return of.fill_by(self._filled.get(of.cache))

    def overall(self, of: Outcome) -> float | None:
        """Return the throughput of a run over all epochs, with the fill of its cache."""
        return of.with_fill(self.fill_s(of))

    def notes(
        self, configs: Sequence[ConfigResult], decision: Decision, counted: Mapping[int, Sequence[tuple[Run, Outcome]]]
    ) -> Iterator[str]:
        """Yield the note on a config that is the fastest in longer trainings, which its fill makes slower in these."""
        measured = [config for config in configs if config.examples_per_s]
        fastest = max(measured, key=lambda config: config.examples_per_s or 0.0, default=None)
        chosen = next((config for config in measured if config.number == decision.config), None)
        if fastest is None or chosen is None or not fastest.fill_s or fastest.number in decision.tied:
            return
        of = counted[fastest.number][0][1]
        each_s = of.examples / len(of.epochs) * (1 / (chosen.examples_per_s or 1) - 1 / (fastest.examples_per_s or 1))
        more_s = fastest.fill_s - (chosen.fill_s or 0.0)
        is_faster = (fastest.examples_per_s or 0.0) > MARGIN * (chosen.examples_per_s or 0.0)
        if is_faster and more_s > 0:
            least = math.floor(more_s / each_s) + 1
            yield (
                f"over {least} epoch{'s' * (least > 1)} or more config {fastest.number} is the fastest, whose cache "
                f"takes {fastest.fill_s:.2f} s to fill"
            )


def swept_keys(overrides: Sequence[Sequence[str]]) -> list[str]:
    """Return the keys whose values differ between configs with these overrides, in the order of the command line."""
    by_config = [dict(override.partition("=")[::2] for override in of) for of in overrides]
    every = dict.fromkeys(key for of in by_config for key in of)
    return [key for key in every if len({of.get(key) for of in by_config}) > 1]


def effects(configs: Sequence[ConfigResult], swept_keys: Sequence[str]) -> Iterator[Effect]:
    """Yield the effect of each value of each key, by key, the fastest first."""
    for key in swept_keys:
        rates: dict[str, list[float]] = {}
        for config in configs:
            if config.examples_per_s is not None:
                rates.setdefault(config.swept[key], []).append(config.examples_per_s)
        for value, of in sorted(rates.items(), key=lambda item: -statistics.median(item[1])):
            yield Effect(key=key, value=value, configs=len(of), examples_per_s=statistics.median(of))


def frontier(configs: Sequence[ConfigResult]) -> tuple[int, ...]:
    """Return the configs that no other beats in throughput with as little memory; the fastest first."""
    found, least = [], float("inf")
    for config in sorted(configs, key=lambda config: -(config.examples_per_s or 0.0)):
        if config.peak_rss_bytes is not None and config.examples_per_s and config.peak_rss_bytes < least:
            found.append(config.number)
            least = config.peak_rss_bytes
    return tuple(found)


MEDIANS = ("examples_per_s", "au", "max_gain", "peak_rss_bytes", "cores_used", "wall_s")
"""Values of an `Outcome` that a config has the median of, over the runs whose throughput counts."""


@dataclass(frozen=True)
class _Known:
    """Config as it is known before it runs; `values` reads all its values."""

    overrides: tuple[str, ...]
    fingerprint: str
    values: Callable[[], Mapping[str, Any]]
    unused: tuple[str, ...] = ()


def collect(folder: Path) -> Results | None:
    """Return the results of the sweep in `folder`, or of the runs below it without a ledger; None without any run."""
    if (folder / SWEEP).exists():
        ledger = Ledger.open(folder)
        return of_ledger(ledger, {key: outcome_of(ledger.folder_of(key)) for key in ledger.runs})
    configs, runs = list[_Known](), list[Run]()  # each run as a config of its own
    for name in sorted(
        (path.parent.relative_to(folder) for path in folder.rglob(SUMMARY)),
        key=lambda name: [(int(part) if part.isdigit() else 0, part) for part in name.parts],  # 2 before 10
    ):
        summary = read_summary(folder / name)
        if summary is not None and not summary.only_fills and ATTEMPTS not in name.parts:
            frozen = partial(read_config, folder / name)
            configs.append(_Known(tuple(summary.overrides), summary.plan_fingerprint or "", frozen))
            runs.append(Run(name=str(name), config=len(runs), repeat=0, outcome=outcome(summary)))
    return _Collector(folder, configs, runs).results() if runs else None


def of_ledger(ledger: Ledger, outcomes: Mapping[RunKey, Outcome | None]) -> Results:
    """Return the results of a sweep from the outcomes of all its runs."""
    configs = [
        _Known(config.overrides, config.fingerprint, partial(getattr, config, "values"), config.unused)
        for config in ledger.configs
    ]
    runs: dict[bool, list[Run]] = {True: [], False: []}
    for key, found in sorted(outcomes.items(), key=lambda item: item[0]):
        now = found and as_compared(ledger, key, found)
        if now is not None and now.status == RUNNING and is_nobodys(ledger.folder_of(key)):
            now = dataclasses.replace(now, status=KILLED, error="its process has ended without an error message")
        runs[bool(key.fills)].append(Run(name=key.name, config=key.config, repeat=key.repeat, outcome=now))
    return _Collector(ledger.folder, configs, runs[False], ledger, runs[True]).results()


class _Collector:
    """Collector of the results of one sweep."""

    def __init__(
        self,
        folder: Path,
        configs: Sequence[_Known],
        runs: Sequence[Run],
        ledger: Ledger | None = None,
        fills: Sequence[Run] = (),
    ) -> None:
        self.folder, self.configs, self.runs, self.ledger, self.fills = folder, configs, runs, ledger, fills
        self.costs = Fills([run.outcome for run in (*runs, *fills) if run.outcome is not None])
        self.pairs = ledger is not None and ledger.is_paired
        self.has_seeds = ledger is not None and ledger.sweep.vary_seed
        self.of: dict[int, list[Run]] = {number: [] for number in range(len(configs))}
        for run in runs:
            self.of[run.config].append(run)
        self.own = own_overrides([config.overrides for config in configs])
        self.keys = swept_keys([config.overrides for config in configs])
        self.models: dict[int | None, str] = {of: model_of(known.values) for of, known in enumerate(configs)}
        self.completed = {
            number: [(run, of) for run in every if (of := run.outcome) is not None and of.status == COMPLETED]
            for number, every in self.of.items()
        }
        self.alike = on_one_machine(self.completed)
        self.counted = {number: _counted(of) for number, of in self.alike.items()}
        self.diverged = {run.config: of.diverged for run in runs if (of := run.outcome) and of.diverged}
        self.counted |= {number: [] for number in self.diverged}
        self.measure = deciding(self.completed) if self._train_differently() else None
        self.quality = qualities(self.completed) if self.has_seeds else {}
        if self.measure and not self.has_seeds:
            self.quality = quality_of_one_seed(self.completed, self.measure)
        self.read = {number: _common(of.records for _, of in every) for number, every in self.completed.items()}

    def results(self) -> Results:
        rates = {number: self._rates(number) for number in self.of}
        twins = [(one, other) for one, other in self._twins(self.counted[BASELINE]).values() if one and other]
        noise = noise_of(twins)
        over_baseline = gains({number: of for number, of in rates.items() if number}, rates[BASELINE], noise)
        over_baseline[BASELINE] = itself(rates[BASELINE])
        seen = labels(data_of_one_seed(self.completed) if self.has_seeds else data_of_first(self.completed))
        configs = [self._config(number, over_baseline[number], seen.get(number, "")) for number in self.of]
        configs.sort(key=lambda config: -(config.overall_examples_per_s or -1.0))
        if self.measure:
            configs = ranked(configs, self.measure)
            tied = tied_by(self.completed, self.measure)
            decision = decide_by(self.measure, configs, tied, self._compared, has_seeds=self.has_seeds)
        else:
            tied = tied_with_best(configs, rates, noise)
            decision = decide(configs, tied, self._compared, has_seeds=self.has_seeds)
        of_model = [of for of in configs if self.models[of.number] == self.models.get(decision.config)]
        return Results(
            folder=str(self.folder),
            decision=decision,
            configs=tuple(configs),
            unfit=left_out(self.ledger.unfit if self.ledger else (), [of.overrides for of in self.configs]),
            runs=tuple(self.runs),
            fills=tuple(self.fills),
            noise=noise,
            ceiling_examples_per_s=self._ceiling(),
            frontier=frontier(configs),
            effects=tuple(effects(configs, self.keys)),
            remarks=(*self._notes(configs), *self.costs.notes(of_model, decision, self.counted)),
        )

    def _train_differently(self) -> bool:
        """Return whether the plan of a config changes the data or the training of the baseline."""
        first = {known.fingerprint: number for number, known in reversed([*enumerate(self.configs)])}
        others = (self._compared(number) for number in sorted(first.values()) if number != BASELINE)
        has_measures = any(of.measures for every in self.completed.values() for _, of in every)
        return has_measures and any(
            found is not None and (found.changes_data or found.changes_training) for found in others
        )

    def _compared(self, number: int) -> Comparison | None:
        """Compare the plan of a config with the baseline's, as `etlrun diff` does."""
        return compare_configs(self.configs[BASELINE].values, self.configs[number].values)

    def _rates(self, number: int) -> Rates:
        """Return throughput by round; for the two runs of the baseline in a round, their mean."""
        if number == BASELINE and self.pairs:
            rounds = {turn: [rate for rate in pair if rate] for turn, pair in self._twins(self.counted[number]).items()}
            return {turn: statistics.geometric_mean(pair) for turn, pair in rounds.items() if pair}
        return {run.repeat: rate for run, of in self.counted[number] if (rate := self.costs.overall(of))}

    def _twins(self, counted: Sequence[tuple[Run, Outcome]]) -> dict[int, tuple[float | None, float | None]]:
        rates = {run.repeat: self.costs.overall(of) for run, of in counted} if self.pairs else {}
        return {turn: (rates.get(2 * turn), rates.get(2 * turn + 1)) for turn in {repeat // 2 for repeat in rates}}

    def _config(self, number: int, gain: Gain, seen: str) -> ConfigResult:
        known, counted = self.configs[number], [of for _, of in self.counted[number]]
        values = {key: value for key, _, value in (override.partition("=") for override in known.overrides)}
        completed = self.completed[number]
        ended = [run.outcome for run in self.of[number] if run.outcome is not None]
        unfinished = [of for of in ended if of.status != COMPLETED]
        status = COMPLETED if completed else unfinished[-1].status if unfinished else MISSING
        diverged = self.diverged.get(number, "")
        medians = {figure: _median(getattr(of, figure) for of in counted) for figure in MEDIANS}
        return ConfigResult(
            number=number,
            overrides=known.overrides,
            own=self.own[number],
            swept={key: values.get(key, "") for key in self.keys},
            status=FAILED if diverged else TOO_SLOW if any(of.is_too_slow for _, of in completed) else status,
            runs=tuple(run.name for run, _ in completed),
            state=counted[0].state if counted else "",
            first_examples_per_s=_median(of.first_examples_per_s for _, of in self.alike[number]),
            fill_s=_median(self.costs.fill_s(of) for of in counted),
            overall_examples_per_s=_median(self.costs.overall(of) for of in counted),
            gain=gain,
            bound_by=statistics.mode([of.bound_by for of in counted]) if counted else "",
            val_accuracy=None if diverged else _median(of.val_accuracy for _, of in completed),
            quality=self.quality.get(number, {}),
            measures={} if diverged else _others([of.measures for _, of in completed]),
            data=seen or (OTHER_RECORDS if are_others(self.read[number], self.read[BASELINE]) else ""),
            records=self.read[number],
            fingerprint=known.fingerprint,
            error=diverged or (unfinished[-1].error if unfinished else ""),
            **medians,
        )

    def _sessions(self, counted: Sequence[tuple[Run, Outcome]]) -> dict[int, set[float]]:
        """Return by round the start times of the processes that ran it."""
        found: dict[int, set[float]] = {}
        for run, of in counted:
            turn = run.repeat // 2 if self.pairs and run.config == BASELINE else run.repeat
            found.setdefault(turn, set()).add(of.sitting_s)
        return found if len(found) > 1 else {}

    def _ceiling(self) -> float | None:
        """Return the throughput with an ideal input pipeline; None if a config contradicts it or has another model."""
        if len({self.models[number] for number, counted in self.counted.items() if counted}) > 1:
            return None
        known = [_median(of.ideal_examples_per_s for _, of in counted) for counted in self.counted.values()]
        ceiling = max((limit for limit in known if limit is not None), default=None)
        fastest = max(_median(of.examples_per_s for _, of in counted) or 0.0 for counted in self.counted.values())
        return None if ceiling is None or fastest > MARGIN * ceiling else ceiling

    def _notes(self, configs: Sequence[ConfigResult]) -> Iterator[str]:
        counted = [(run, of) for several in self.counted.values() for run, of in several]
        jobs = [run.outcome for run in (*self.runs, *self.fills)]
        left = sum(job is None or job.status in (RUNNING, KILLED, INTERRUPTED) for job in jobs)
        if self.ledger and left:
            have, again = "has" if left == 1 else "have", self.ledger.resume_command
            yield f"{left} of {len(jobs)} jobs {have} not come to an end; those that are left run with: {again}"
        if self.has_seeds:
            yield from notes_on_quality(self.completed)
        in_flight = min(max((of.in_flight for _, of in counted), default=1), len(counted))
        if in_flight > 1:
            yield f"up to {in_flight} jobs ran at a time and competed for the machine (sweep.max_jobs_in_flight)"
        if any(len(sessions) > 1 for sessions in self._sessions(counted).values()):
            yield "some rounds were run in more than one session: their ratios include changes of the machine"
        yield from notes_on_machines(self.completed)
        yield from note_on_others([(run.name, of.remarks) for of_run in self.completed.values() for run, of in of_run])
        without = [run.name for several in self.completed.values() for run, of in several if of.state == UNCACHED]
        if without:
            again = f"; repeat them with: {self.ledger.resume_command}" if self.ledger else ""
            yield (
                f"runs {', '.join(without)} ran without their cache on disk, since another process was filling it, it "
                f"had gone or could not be written (see the {records.REPORT} of each), and are excluded from "
                f"comparison{again}"
            )
        left_out = [
            str(number)
            for number, of in self.counted.items()
            if of and len(of) < sum(one.state != UNCACHED for _, one in self.alike[number])
        ]
        if left_out:
            yield f"for configs {', '.join(left_out)} only runs that read a filled cache from the start are compared"
        if len({config.state for config in configs if config.state}) > 1:
            yield "some throughputs are from first epochs without a filled cache (cold), others from later ones (warm)"
        seeded = [config.values for config in self.configs] if self.has_seeds else []
        yield from notes_on_data(self.completed, seeded)
        yield from unused([config.unused for config in self.configs])


def _counted(completed: Sequence[tuple[Run, Outcome]]) -> list[tuple[Run, Outcome]]:
    """Return the runs with comparable throughput: warm ones if there are any, never those without their cache."""
    warm = [(run, of) for run, of in completed if of.state == WARM]
    return warm or [(run, of) for run, of in completed if of.state == COLD]


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _others(measures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each measure that is neither an accuracy nor a loss."""
    names = dict.fromkeys(name for of in measures for name in of if name not in MEASURES)
    medians = {name: _median(finite(of.get(name)) for of in measures) for name in names}
    return {name: value for name, value in medians.items() if value is not None}


def _common(values: Iterable[Mapping[str, str]]) -> Mapping[str, str]:
    """Return the common value of all; empty if they differ."""
    found = list(values)
    return found[0] if found and all(value == found[0] for value in found) else {}
