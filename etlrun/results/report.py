"""Results of a sweep from the runs in its folder, and their report: one document, on the terminal and as files.

report.html for a browser, report.md for a pull request, results.json for everything else
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain
from operator import itemgetter
from pathlib import Path
from statistics import geometric_mean, median, mode
from typing import NamedTuple

from etlrun.config.rounds import told_of_time
from etlrun.measure.gains import UNTOLD, Gain, excess_of, gains, itself, noise_of
from etlrun.record.config import read_config
from etlrun.record.folders import ATTEMPTS, SWEEP
from etlrun.record.outcome import COLD, UNCACHED, WARM, Outcome, outcome, outcome_of
from etlrun.record.part import finite
from etlrun.record.record import KILLED, PAGE, REPORT, RESULTS, is_nobodys
from etlrun.record.summary import COMPLETED, FAILED, INTERRUPTED, MEASURES, RUNNING, SUMMARY, read_summary
from etlrun.report.doc import Chart, Code, Col, Doc, Lines, Series, Table, worded
from etlrun.report.render import RENDER, show
from etlrun.results.decision import (
    comparisons_of,
    data_of_first,
    decide,
    deciding,
    labels,
    labels_of_rounds,
    notes_on_data,
    notes_on_quality,
    qualities,
    quality_of_one_seed,
    ranked,
    tied_by,
    tied_with_best,
)
from etlrun.results.listing import TOO_SLOW
from etlrun.results.results import (
    BASELINE,
    MISSING,
    OTHER_RECORDS,
    ConfigResult,
    Configs,
    Results,
    Rounds,
    Run,
    are_others,
    shown_as,
)  # fmt: skip
from etlrun.review.difference import Comparison, Values, compare_configs
from etlrun.stages.objectives import falls
from etlrun.stages.sweep import Sweep
from etlrun.sweep.ledger import Ledger, RunKey, describe, left_out, own_overrides, unused
from etlrun.sweep.runs import as_compared
from etlrun.system.errors import WorldError, counted
from etlrun.system.files import write_atomically
from etlrun.system.terminal import is_quiet, say
from etlrun.system.values import grouped


class _Known(NamedTuple):
    """Config as it is known before it runs; `values` reads all its values."""

    overrides: tuple[str, ...]
    fingerprint: str
    values: Values
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
        of = read_summary(folder / name)
        if of and not of.only_fills and ATTEMPTS not in name.parts:
            runs.append(Run(str(name), len(runs), 0, outcome(of)))
            configs.append(_Known((*of.overrides,), of.plan_fingerprint or "", partial(read_config, folder / name)))
    return _Collector(folder, configs, runs).results() if runs else None


def of_ledger(ledger: Ledger, outcomes: Mapping[RunKey, Outcome | None]) -> Results:
    """Return the results of a sweep from the outcomes of all its runs."""
    configs = [
        _Known(config.overrides, config.fingerprint, partial(getattr, config, "values"), config.unused)
        for config in ledger.configs
    ]
    runs, fills = list[Run](), list[Run]()
    for key, found in sorted(outcomes.items(), key=itemgetter(0)):
        now = found and as_compared(ledger, key, found)
        if now and now.status == RUNNING and is_nobodys(ledger.folder_of(key)):
            now = replace(now, status=KILLED, error="its process has ended without an error message")
        (fills if key.fills else runs).append(Run(key.name, key.config, key.repeat, now))
    return _Collector(ledger.folder, configs, runs, ledger, fills).results()


@dataclass
class _Collector:
    """Collector of the results of one sweep."""

    folder: Path
    configs: Sequence[_Known]
    runs: Sequence[Run]
    ledger: Ledger | None = None
    fills: Sequence[Run] = ()

    def __post_init__(self) -> None:
        configs, runs, ledger = self.configs, self.runs, self.ledger
        jobs = (*runs, *self.fills)  # those that only fill count, being last
        self.filled = {of.cache: of for job in jobs if (of := job.outcome) and of.cache and of.fill_s is not None}
        self.of = grouped((run.config, run) for run in runs)
        self.own = own_overrides([config.overrides for config in configs])
        self.swept = [dict(override.partition("=")[::2] for override in own) for own in self.own]
        self.keys = [*dict.fromkeys(chain.from_iterable(self.swept))]
        self.ran = [run for run in runs if run.outcome and run.outcome.status == COMPLETED]
        self.completed = grouped((run.config, run) for run in self.ran)
        self.rounds = _rounds(ledger.sweep if ledger else None, self.ran)
        kinds = grouped((run.config == BASELINE, kind) for run in self.ran if (kind := run.result.machine))
        self.kind = mode(kinds.get(True) or kinds.get(False) or [""])
        self.alike = grouped((run.config, run) for run in self.ran if run.result.machine in {"", self.kind})
        self.diverged = {run.config: of.diverged for run in runs if (of := run.outcome) and of.diverged}
        self.counted = dict[int, list[Run]]()
        for number in self.of:  # warm runs are compared, if there are any, and never those without their cache
            alike = () if number in self.diverged else self.alike.get(number, ())
            states = grouped((run.result.state, run) for run in alike)
            self.counted[number] = states.get(WARM) or states.get(COLD) or []
        self.measure: str | None = None  # with which trainings are compared, if they differ
        first = {known.fingerprint: number for number, known in reversed([*enumerate(configs)])}
        others = (self._compared(number) for number in sorted(first.values()) if number != BASELINE)
        has_measures = any(run.result.measures for run in self.ran)
        if has_measures and any(found and (found.changes_data or found.changes_training) for found in others):
            self.measure = deciding(self.completed)
        if self.measure and self.rounds.varied:
            several = comparisons_of(len(self.of) - 1, self.rounds.comparisons)
            self.rounds = replace(self.rounds, comparisons=several)
        self.quality = qualities(self.completed, self.rounds) if self.rounds.varied else {}
        if self.measure and not self.rounds.varied:
            self.quality = quality_of_one_seed(self.completed, self.measure)
        self.records = {of: self._records(runs) for of, runs in self.completed.items()}

    def results(self) -> Results:
        rates = {
            number: {run.repeat: rate for run in counted if (rate := self._overall(run.result))}
            for number, counted in self.counted.items()
        }
        twins = list[tuple[float, float]]()
        if self.rounds.is_paired:  # the baseline has the mean of its two runs in each round
            rounds = grouped((repeat // 2, rate) for repeat, rate in rates[BASELINE].items())
            rates[BASELINE] = {turn: geometric_mean(each) for turn, each in rounds.items()}
            twins += [(each[0], each[1]) for each in rounds.values() if each[1:]]
        noise = noise_of(twins)
        others = {number: of for number, of in rates.items() if number}
        over_baseline = gains(others, rates[BASELINE], noise, comparisons=self.rounds.comparisons)
        over_baseline[BASELINE] = itself(rates[BASELINE])
        seen = labels(data_of_first(self.completed))
        if self.rounds.varied:
            seen = labels_of_rounds(self.completed, self.rounds)
        configs = [self._config(number, over_baseline[number], seen.get(number, "")) for number in self.of]
        configs.sort(key=lambda config: -(config.overall_examples_per_s or -1.0))
        if self.measure:
            configs, tied = ranked(configs, self.measure), tied_by(self.completed, self.measure, self.rounds)
        else:
            tied = tied_with_best(configs, rates, noise)
        decision = decide(configs, tied, self._compared, by=self.measure, varied=self.rounds.varied)
        return Results(
            folder=str(self.folder),
            decision=decision,
            configs=configs,
            unfit=left_out(self.ledger.unfit if self.ledger else (), [of.overrides for of in self.configs]),
            runs=self.runs,
            fills=self.fills,
            noise=noise,
            remarks=tuple(self._notes(configs)),
        )

    def _records(self, runs: Sequence[Run]) -> Mapping[str, str]:
        """Return `ConfigResult.records` of a config with these runs."""
        if self.rounds.excess is not None:
            each = ((run, run.result.records.items()) for run in runs)
            return {f"{name} of round {run.repeat}": digest for run, records in each for name, digest in records}
        first = runs[0].result.records
        return first if all(run.result.records == first for run in runs) else {}

    def _compared(self, number: int) -> Comparison | None:
        """Compare the plan of a config with the baseline's, as `etlrun diff` does."""
        return compare_configs(self.configs[BASELINE].values, self.configs[number].values)

    def _fill_s(self, of: Outcome) -> float | None:
        """Return the seconds that filling the cache of a run takes, whichever run has filled it; None if unknown."""
        job = self.filled.get(of.cache)
        if not job or job.fill_s is None:
            return of.fill_s
        epoch_s = of.examples / of.epochs / of.examples_per_s if of.examples_per_s else 0.0
        return job.fill_s if job.fills_ahead or not job.only_fills else max(0.0, job.fill_s - epoch_s)

    def _overall(self, of: Outcome) -> float | None:
        """Return the throughput of a run over all epochs, with the fill of its cache."""
        return of.with_fill(self._fill_s(of))

    def _config(self, number: int, gain: Gain, seen: str) -> ConfigResult:
        known, ran = self.configs[number], self.completed.get(number, ())
        completed, counted = [run.result for run in ran], [run.result for run in self.counted[number]]
        unfinished = [of for run in self.of[number] if (of := run.outcome) and of.status != COMPLETED]
        status = COMPLETED if completed else unfinished[-1].status if unfinished else MISSING
        diverged, records = self.diverged.get(number, ""), self.records.get(number, {})
        unlisted = {*MEASURES} - {"val_accuracy"}
        names = dict.fromkeys(name for of in completed for name in of.measures if name not in unlisted)
        others = {name: _median(finite(of.measures.get(name)) for of in completed) for name in names}
        return ConfigResult(
            number=number,
            overrides=known.overrides,
            own=self.own[number],
            swept={key: self.swept[number].get(key, "") for key in self.keys},
            status=FAILED if diverged else TOO_SLOW if any(of.is_too_slow for of in completed) else status,
            runs=tuple(run.name for run in ran),
            state=counted[0].state if counted else "",
            first_examples_per_s=_median(run.result.first_examples_per_s for run in self.alike.get(number, ())),
            fill_s=_median(map(self._fill_s, counted)),
            overall_examples_per_s=_median(map(self._overall, counted)),
            gain=gain,
            bound_by=mode([of.bound_by for of in counted]) if counted else "",
            quality=self.quality.get(number, {}),
            measures={} if diverged else {name: value for name, value in others.items() if value is not None},
            data=seen or OTHER_RECORDS * are_others(records, self.records.get(BASELINE, {})),
            records=records,
            fingerprint=known.fingerprint,
            error=diverged or (unfinished[-1].error if unfinished else ""),
            **{
                figure: _median(getattr(of, figure) for of in counted)
                for figure in ("examples_per_s", "au", "max_gain", "peak_rss_bytes", "cores_used", "wall_s")
            },
        )

    def _notes(self, configs: Configs) -> Iterator[str]:
        counted = [*chain.from_iterable(self.counted.values())]
        jobs = [run.outcome for run in (*self.runs, *self.fills)]
        left = sum(not job or job.status in (RUNNING, KILLED, INTERRUPTED) for job in jobs)
        again = f" with: {self.ledger.resume_command}" if self.ledger else ""
        if again and left:
            jobs_have = f"{len(jobs)} jobs {'has' if left == 1 else 'have'}"
            yield f"{left} of {jobs_have} not ended; go on{again}"
        if self.ledger:
            yield from self._notes_on_rounds(self.ledger)
        in_flight = min(max((run.result.in_flight for run in counted), default=1), len(counted))
        if in_flight > 1:
            yield f"up to {in_flight} jobs ran at a time and competed for the machine (sweep.max_jobs_in_flight)"
        sessions = grouped(
            (self.rounds.place_of(run)[0], run.result.sitting_s) for run in counted
        ).values()  # start times of the processes that ran each round
        if len(sessions) > 1 and any(len({*of}) > 1 for of in sessions):
            yield "some rounds ran in several sessions: their ratios include changes of the machine"
        if others := [run for run in self.ran if run.result.machine not in {"", self.kind}]:
            yield (
                f"{_named([run.name for run in others])} not compared: on another kind of machine "
                f"({'; '.join(sorted({run.result.machine for run in others}))}; the others on {self.kind})"
            )
        if without := [run.name for run in self.ran if run.result.state == UNCACHED]:
            yield (
                f"{_named(without)} not compared: without the cache on disk ({REPORT} says why)"
                f"{again and f'; repeat{again}'}"
            )
        if some := [
            str(number)
            for number, of in self.counted.items()
            if of and len(of) < sum(run.result.state != UNCACHED for run in self.alike[number])
        ]:
            configs_are = f"config{'s' * bool(some[1:])} {', '.join(some)}"
            yield f"of {configs_are} only the runs that found a filled cache are compared"
        if len({config.state for config in configs if config.state}) > 1:
            yield "some throughputs are from first epochs without a filled cache (cold), others from later ones (warm)"
        yield from notes_on_data(self.completed, self.rounds)
        yield from unused([config.unused for config in self.configs])

    def _notes_on_rounds(self, ledger: Ledger) -> Iterator[str]:
        if self.rounds.varied:
            yield from notes_on_quality(self.ran, self.rounds)
        yield from told_of_time(ledger.sweep, ledger.configs[BASELINE].values)
        if (count := ledger.sweep.comparisons) > 1:
            yield f"`better` holds for {count:,} comparisons at once (sweep.comparisons)"


def _named(runs: Sequence[str]) -> str:
    return f"runs {', '.join(runs)} are" if runs[1:] else f"run {runs[0]} is"


def _rounds(sweep: Sweep | None, ran: Sequence[Run]) -> Rounds:
    """Return how the rounds of a sweep are compared, of which these runs have completed."""
    if sweep is None:
        return Rounds(varied="", is_paired=False)
    excess = None
    if sweep.cuts:
        excess = excess_of((run.result for run in ran), has_folds=sweep.folds is not None)
    return Rounds(varied=sweep.varied, is_paired=sweep.is_paired, excess=excess, comparisons=sweep.comparisons)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


WRONG = (FAILED, INTERRUPTED, KILLED, TOO_SLOW)
MOST_ROWS = 50
"""Configs on the terminal."""
_PAGE = ("html",)
_CALLS = {"better": "good", "worse": "bad", "baseline": "mark"}


def throughput(results: Results) -> Chart:
    """Return throughput against memory."""
    roles = {results.decision.recommended: "recommended", BASELINE: "baseline"}
    points = grouped(
        (roles.get(of.number, "other configs"), (of.peak_rss_bytes / 1e6, of.examples_per_s))
        for of in results.configs
        if of.examples_per_s and of.peak_rss_bytes
    )
    looks = {"other configs": "other", "baseline": "second", "recommended": "first"}
    series = [Series(role, points.get(role, []), look, "dot") for role, look in looks.items()]
    return Chart(series, title="Throughput against memory", x="memory, MB", y="examples/s", only=_PAGE)


def conclude(results: Results | None) -> int:
    """Write the reports of a sweep, print the table, and return 1 if a run failed, 3 if one was too slow, or 0."""
    if not results:
        return 0
    publish(results)
    ends = {run.outcome.status if run.outcome else FAILED for run in results.runs}
    ends |= {config.status for config in results.configs}
    return 1 if ends & {FAILED, INTERRUPTED, KILLED} else 3 if TOO_SLOW in ends else 0


def publish(results: Results) -> None:
    """Print the report, and write it to the sweep's folder; `WorldError` if it can't be."""
    doc = of_sweep(results)
    if not is_quiet():
        show(doc)
    page = written(results, doc)
    if not is_quiet():
        say(f"report    {page}")


def written(results: Results, doc: Doc) -> str:
    """Write the report of a sweep to its folder, and return the path of its page; `WorldError` if it can't be."""
    folder = Path(results.folder)
    try:
        write_atomically(folder / RESULTS, results.as_json() + "\n")
        for name, form in ((REPORT, "md"), (PAGE, "html")):
            write_atomically(folder / name, RENDER[form](doc))
    except OSError as error:
        remedy = f"fix that, and rewrite the reports with: {shlex.join(['etlrun', 'report', str(folder)])}"
        raise WorldError(folder, str(error), "a folder that can be written to", remedy) from error
    return str(folder / PAGE)


def collected(folder: Path) -> Results:
    """Return the results of the sweep in `folder`, or of the runs below it; `WorldError` if there is no run."""
    if results := collect(folder):
        return results
    found = "no run" if folder.is_dir() else "a file" if folder.exists() else "no such folder"
    found = f"a {SUMMARY} that can't be read" if (folder / SUMMARY).exists() else found
    expected = f"a folder with a {SUMMARY}, or a folder of such folders"
    raise WorldError(folder, found, expected, "pass the folder that a run or a multirun prints at its end")


def of_sweep(results: Results) -> Doc:
    """Return the report of a sweep."""
    decided, known = results.decision, {config.number: config for config in results.configs}
    chosen, columns = known.get(-1 if decided.config is None else decided.config), columns_of(results)
    by = decided.by if decided.by in {column.name for column in columns} else "examples/s"
    star = "* is the recommended config. " * (decided.recommended is not None)
    means = ", accuracies and losses are means with their 95 % intervals"
    means *= any(config.quality for config in results.configs)
    note = (
        f"{star}Config {BASELINE} is the baseline. Numbers are medians over a config's completed runs{means}; max gain "
        "is the speedup with an ideal input pipeline, au the accelerator utilization (AU)."
    )
    data, files = [("data", decided.same_data)] * bool(chosen), ["md", "html", "notebook"]

    return Doc(
        decided.words,
        [
            Lines(data, only=files),
            Code(shlex.join(decided.overrides), is_copied=True, only=files),
            throughput(results),
            Table(
                results.configs,
                columns,
                title="Configs",
                note=note,
                most=MOST_ROWS,
                sort=by,
                falls=(by.startswith("val ") or "." in by) and falls(by.replace(" ", "_")),
                mark=lambda config: config.number == decided.recommended,
                words=lambda config: " ".join(config.own),
            ),
            Lines([("decision", decided.words), *data], only=["text"]),
            Lines([("note", line) for line in notes(results)], title="Notes"),
            Lines([("left out", line) for line in describe(results.unfit)], title="Left out"),
            Lines([("not run yet", ", ".join(run.name for run in results.runs if not run.outcome))], only=_PAGE),
        ],
        over=f"Sweep of {counted(len(results.configs), 'config')}, {counted(len(results.runs), 'run')}",
        foot=results.folder,
        json=lambda: results,
    )


def columns_of(results: Results) -> list[Col]:
    """Return the columns of the table of configs: a narrow one for each swept key, by the end of its name."""
    metric, measures = f"val_{results.metric}", (results.metric, "loss")
    is_repeated = any(config.gain.call != UNTOLD for config in results.configs)
    has_fill = any(config.fill_s is not None for config in results.configs)
    repeated = [
        Col("gain", lambda config: config.gain.ratio, text=lambda config: config.gain.words),
        Col("result", _result, style=lambda config: _CALLS.get(_result(config), "soft")),
    ]
    figures = [
        Col("status", differs=WRONG),
        *[Col("runs", lambda config: len(config.runs), differs=())] * is_repeated,
        Col("examples/s", "examples_per_s", ",.1f"),
        Col("first epoch", lambda config: config.first_examples_per_s or "", ",.1f"),
        Col("fill s", lambda config: "" if config.fill_s is None else config.fill_s, ".2f"),
        *[Col("with fill", "overall_examples_per_s", ",.1f")] * has_fill,
        *repeated * is_repeated,
        Col("MB", "peak_rss_bytes", text=lambda of: worded(of.peak_rss_bytes and of.peak_rss_bytes / 1e6, ",.0f")),
        Col("cores", "cores_used", ".1f"),
        Col("au", "au", ".2f"),
        Col("bound by", "bound_by"),
        Col("max gain", "max_gain", ".2f"),
        Col("seconds", "wall_s", ".1f"),
        *(_of_quality(name, metric) for name in (metric, "val_loss", results.metric, "loss")),
        *(_of_quality(f"{of}.{name}", f"{of}.{results.metric}") for of in results.sets for name in measures),
        Col("data", differs=()),
        Col("reason", lambda config: " ".join(config.error.split()), is_long=True),
    ]
    star = Col(
        "config",
        "number",
        text=lambda of: f"{of.number}{'*' * (of.number == results.decision.recommended)}",
        is_head=True,
    )
    names = _short(results.keys, ["config", *(column.name for column in figures)])
    return [
        star,
        *(Col(name, partial(lambda key, config: config.swept[key], key), title=key) for key, name in names.items()),
        *figures,
    ]


def _short(keys: Sequence[str], others: Sequence[str]) -> dict[str, str]:
    """Return the shortest end of each key that no other one has, nor is one of `others`."""
    ends = {key: [*accumulate(reversed(key.lstrip("+~").split(".")), "{1}.{0}".format)] for key in keys}
    every = [*chain.from_iterable(ends.values()), *others]
    return {key: next((name for name in ends[key] if every.count(name) == 1), key) for key in keys}


def _result(config: ConfigResult) -> str:
    if config.number == BASELINE:
        return "baseline"
    return "unknown" if config.gain.call == UNTOLD else config.gain.call


def _of_quality(name: str, first: str) -> Col:
    """Return the column of a quality, such as `0.912 (0.905 to 0.919) better`, or what runs of one seed measured."""

    def read(config: ConfigResult) -> float | None:
        if of := config.quality.get(name):
            return of.mean
        return config.measures.get(name) if name == first else None

    def text(config: ConfigResult) -> str:
        if (of := config.quality.get(name)) is None:
            return shown_as(name, read(config))
        return f"{of.words_of(name)}{'' if of.lead is None or of.lead.call == UNTOLD else f' {of.lead.call}'}"

    return Col(name.replace("_", " "), read, text=text, differs=() if name == first else None)


def notes(results: Results) -> Iterator[str]:
    """Yield the notes on the sweep: the noise of the machine, and what else is."""
    if (noise := results.noise).pairs:
        ends = f"{noise.median:.1%} median, {noise.largest:.1%} maximum, over {noise.pairs} pairs"
        yield f"noise of the machine: two runs of the baseline differ by {ends}"
    yield from results.remarks
