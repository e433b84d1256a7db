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
    deciding,
    kind_of_machine,
    labels,
    model_of,
    notes_on_data,
    notes_on_quality,
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
        jobs = [run.outcome for run in (*runs, *fills) if run.outcome is not None]
        jobs.sort(key=lambda of: of.only_fills)  # those that only fill come last, and count
        self.filled = {of.cache: of for of in jobs if of.cache and of.fill_s is not None}
        self.pairs = ledger is not None and ledger.is_paired
        self.has_seeds = ledger is not None and ledger.sweep.vary_seed
        self.of = {number: [run for run in runs if run.config == number] for number in range(len(configs))}
        self.own = own_overrides([config.overrides for config in configs])
        self.swept = [dict(override.partition("=")[::2] for override in known.overrides) for known in configs]
        every = dict.fromkeys(key for of in self.swept for key in of)
        self.keys = [key for key in every if len({of.get(key) for of in self.swept}) > 1]
        self.models: dict[int | None, str] = {of: model_of(known.values) for of, known in enumerate(configs)}
        self.completed = {
            number: [(run, of) for run in every if (of := run.outcome) is not None and of.status == COMPLETED]
            for number, every in self.of.items()
        }
        self.kind = kind_of_machine(self.completed)
        self.alike = {
            number: [(run, of) for run, of in every if of.machine in {"", self.kind}]
            for number, every in self.completed.items()
        }
        self.diverged = {run.config: of.diverged for run in runs if (of := run.outcome) and of.diverged}
        self.counted = {number: [] if number in self.diverged else _counted(of) for number, of in self.alike.items()}
        self.measure = deciding(self.completed) if self._train_differently() else None
        self.quality = qualities(self.completed) if self.has_seeds else {}
        if self.measure and not self.has_seeds:
            self.quality = quality_of_one_seed(self.completed, self.measure)
        self.read: dict[int, Mapping[str, str]] = {}
        for number, completed in self.completed.items():
            first = completed[0][1].records if completed else {}
            self.read[number] = first if all(of.records == first for _, of in completed) else {}

    def results(self) -> Results:
        rates = {number: self._rates(number) for number in self.of}
        twins = [(one, other) for one, other in self._twins().values() if one and other]
        noise = noise_of(twins)
        over_baseline = gains({number: of for number, of in rates.items() if number}, rates[BASELINE], noise)
        over_baseline[BASELINE] = itself(rates[BASELINE])
        seen = labels(data_of_one_seed(self.completed) if self.has_seeds else data_of_first(self.completed))
        configs = [self._config(number, over_baseline[number], seen.get(number, "")) for number in self.of]
        configs.sort(key=lambda config: -(config.overall_examples_per_s or -1.0))
        if self.measure:
            configs = ranked(configs, self.measure)
            tied = tied_by(self.completed, self.measure)
        else:
            tied = tied_with_best(configs, rates, noise)
        decision = decide(configs, tied, self._compared, by=self.measure, has_seeds=self.has_seeds)
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
            effects=tuple(self._effects(configs)),
            remarks=(*self._notes(configs), *self._note_on_longer(configs, decision)),
        )

    def _train_differently(self) -> bool:
        """Return whether the plan of a config changes the data or the training of the baseline."""
        first = {known.fingerprint: number for number, known in reversed([*enumerate(self.configs)])}
        others = (self._compared(number) for number in sorted(first.values()) if number != BASELINE)
        has_measures = any(of.measures for every in self.completed.values() for _, of in every)
        return has_measures and any(found and (found.changes_data or found.changes_training) for found in others)

    def _compared(self, number: int) -> Comparison | None:
        """Compare the plan of a config with the baseline's, as `etlrun diff` does."""
        return compare_configs(self.configs[BASELINE].values, self.configs[number].values)

    def _fill_s(self, of: Outcome) -> float | None:
        """Return the seconds that filling the cache of a run takes, whichever run has filled it; None if unknown."""
        return of.fill_by(self.filled.get(of.cache))

    def _overall(self, of: Outcome) -> float | None:
        """Return the throughput of a run over all epochs, with the fill of its cache."""
        return of.with_fill(self._fill_s(of))

    def _rates(self, number: int) -> Rates:
        """Return throughput by round; for the two runs of the baseline in a round, their mean."""
        if number == BASELINE and self.pairs:
            rounds = {turn: [rate for rate in pair if rate] for turn, pair in self._twins().items()}
            return {turn: statistics.geometric_mean(pair) for turn, pair in rounds.items() if pair}
        return {run.repeat: rate for run, of in self.counted[number] if (rate := self._overall(of))}

    def _twins(self) -> dict[int, tuple[float | None, float | None]]:
        """Return the throughputs of both runs of the baseline by round; empty where it has one."""
        rates = {run.repeat: self._overall(of) for run, of in self.counted[BASELINE]} if self.pairs else {}
        return {turn: (rates.get(2 * turn), rates.get(2 * turn + 1)) for turn in {repeat // 2 for repeat in rates}}

    def _config(self, number: int, gain: Gain, seen: str) -> ConfigResult:
        known, counted, completed = self.configs[number], [of for _, of in self.counted[number]], self.completed[number]
        unfinished = [of for run in self.of[number] if (of := run.outcome) is not None and of.status != COMPLETED]
        status = COMPLETED if completed else unfinished[-1].status if unfinished else MISSING
        diverged = self.diverged.get(number, "")
        names = dict.fromkeys(name for _, of in completed for name in of.measures if name not in MEASURES)
        others = {name: _median(finite(of.measures.get(name)) for _, of in completed) for name in names}
        medians = {figure: _median(getattr(of, figure) for of in counted) for figure in MEDIANS}
        return ConfigResult(
            number=number,
            overrides=known.overrides,
            own=self.own[number],
            swept={key: self.swept[number].get(key, "") for key in self.keys},
            status=FAILED if diverged else TOO_SLOW if any(of.is_too_slow for _, of in completed) else status,
            runs=tuple(run.name for run, _ in completed),
            state=counted[0].state if counted else "",
            first_examples_per_s=_median(of.first_examples_per_s for _, of in self.alike[number]),
            fill_s=_median(map(self._fill_s, counted)),
            overall_examples_per_s=_median(map(self._overall, counted)),
            gain=gain,
            bound_by=statistics.mode([of.bound_by for of in counted]) if counted else "",
            val_accuracy=None if diverged else _median(of.val_accuracy for _, of in completed),
            quality=self.quality.get(number, {}),
            measures={} if diverged else {name: value for name, value in others.items() if value is not None},
            data=seen or (OTHER_RECORDS if are_others(self.read[number], self.read[BASELINE]) else ""),
            records=self.read[number],
            fingerprint=known.fingerprint,
            error=diverged or (unfinished[-1].error if unfinished else ""),
            **medians,
        )

    def _effects(self, configs: Sequence[ConfigResult]) -> Iterator[Effect]:
        """Yield the effect of each value of each key, by key, the fastest first."""
        for key in self.keys:
            rates: dict[str, list[float]] = {}
            for config in configs:
                if config.examples_per_s is not None:
                    rates.setdefault(config.swept[key], []).append(config.examples_per_s)
            for value, of in sorted(rates.items(), key=lambda item: -statistics.median(item[1])):
                yield Effect(key=key, value=value, configs=len(of), examples_per_s=statistics.median(of))

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
        completed = [(run, of) for several in self.completed.values() for run, of in several]
        jobs = [run.outcome for run in (*self.runs, *self.fills)]
        left = sum(job is None or job.status in (RUNNING, KILLED, INTERRUPTED) for job in jobs)
        again = f" with: {self.ledger.resume_command}" if self.ledger else ""
        if again and left:
            have = "has" if left == 1 else "have"
            yield f"{left} of {len(jobs)} jobs {have} not come to an end; those that are left run{again}"
        if self.has_seeds:
            yield from notes_on_quality(self.completed)
        in_flight = min(max((of.in_flight for _, of in counted), default=1), len(counted))
        if in_flight > 1:
            yield f"up to {in_flight} jobs ran at a time and competed for the machine (sweep.max_jobs_in_flight)"
        sessions: dict[int, set[float]] = {}  # start times of the processes that ran each round
        for run, of in counted:
            turn = run.repeat // 2 if self.pairs and run.config == BASELINE else run.repeat
            sessions.setdefault(turn, set()).add(of.sitting_s)
        if len(sessions) > 1 and any(len(of) > 1 for of in sessions.values()):
            yield "some rounds were run in more than one session: their ratios include changes of the machine"
        if others := [(run, of) for run, of in completed if of.machine not in {"", self.kind}]:
            yield (
                f"runs {', '.join(run.name for run, _ in others)} ran on another kind of machine "
                f"({'; '.join(sorted({of.machine for _, of in others}))}) than those that are compared ({self.kind}), "
                "and are excluded from comparison"
            )
        yield from note_on_others([(run.name, of.remarks) for run, of in completed])
        if without := [run.name for run, of in completed if of.state == UNCACHED]:
            yield (
                f"runs {', '.join(without)} ran without their cache on disk, since another process was filling it, it "
                f"had gone or could not be written (see the {records.REPORT} of each), and are excluded from "
                f"comparison{again and f'; repeat them{again}'}"
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

    def _note_on_longer(self, configs: Sequence[ConfigResult], decision: Decision) -> Iterator[str]:
        """Yield the note on a config that is the fastest in longer trainings, which its fill makes slower in these."""
        rates = {of.number: of.examples_per_s for of in configs if of.examples_per_s}
        chosen = next((config for config in configs if config.number == decision.config), None)
        if chosen is None or chosen.number not in rates:
            return
        rate, model = rates[chosen.number], self.models[chosen.number]
        of_model = (config for config in configs if self.models[config.number] == model)
        fastest = max(of_model, key=lambda config: rates.get(config.number, 0.0))
        more_s = (fastest.fill_s or 0.0) - (chosen.fill_s or 0.0)
        is_faster = rates[fastest.number] > MARGIN * rate
        if fastest.fill_s and fastest.number not in decision.tied and is_faster and more_s > 0:
            of = self.counted[fastest.number][0][1]
            each_s = of.examples / len(of.epochs) * (1 / rate - 1 / rates[fastest.number])
            least = math.floor(more_s / each_s) + 1
            yield (
                f"over {least} epoch{'s' * (least > 1)} or more config {fastest.number} is the fastest, whose cache "
                f"takes {fastest.fill_s:.2f} s to fill"
            )


def frontier(configs: Sequence[ConfigResult]) -> tuple[int, ...]:
    """Return the configs that no other beats in throughput with as little memory; the fastest first."""
    found, least = [], float("inf")
    for config in sorted(configs, key=lambda config: -(config.examples_per_s or 0.0)):
        if config.peak_rss_bytes is not None and config.examples_per_s and config.peak_rss_bytes < least:
            found.append(config.number)
            least = config.peak_rss_bytes
    return tuple(found)


def _counted(completed: Sequence[tuple[Run, Outcome]]) -> list[tuple[Run, Outcome]]:
    """Return the runs with comparable throughput: warm ones if there are any, never those without their cache."""
    warm = [(run, of) for run, of in completed if of.state == WARM]
    return warm or [(run, of) for run, of in completed if of.state == COLD]


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
