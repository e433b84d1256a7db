"""Report of a sweep: one document, on the terminal and as files in its folder.

report.html for a browser, report.md for a pull request, results.json and results.csv for everything else
"""

import math
import shlex
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, combinations, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

from etlrun.measure.gains import UNTOLD
from etlrun.record.record import KILLED, PAGE, REPORT, RESULTS
from etlrun.record.report import STAGES, StageLine
from etlrun.record.summary import COMPLETED, FAILED, INTERRUPTED, SUMMARY
from etlrun.report.doc import Chart, Choice, Code, Col, Doc, Line, Lines, Series, Table
from etlrun.report.render import RENDER, show
from etlrun.results.collect import collect
from etlrun.results.results import BASELINE, TOO_SLOW, ConfigResult, Results, Run, shown_as
from etlrun.stages.objectives import falls
from etlrun.sweep.ledger import describe
from etlrun.sweep.runs import write
from etlrun.system.errors import WorldError
from etlrun.system.files import write_atomically
from etlrun.system.terminal import is_quiet, say, significant
from etlrun.system.values import grouped

_MOST_LABELS, _MOST_BARS, _MOST_VALUES = 40, 12, 12
_NEAR = 3
"""A ceiling of so many times the largest throughput is not drawn, since the configs would be at the bottom."""


def throughput(results: Results) -> Chart:
    """Return throughput against memory, with intervals, the frontier and the ceiling."""
    known = [
        (of.peak_rss_bytes / 1e6, of.examples_per_s, of)
        for of in results.configs
        if of.examples_per_s and of.peak_rss_bytes
    ]
    special = {BASELINE, results.decision.recommended, *results.frontier}
    labelled = {of.number for _, _, of in known if len(known) <= _MOST_LABELS or of.number in special}
    known.sort(key=lambda place: place[2].number not in special)
    ceiling, note = results.ceiling_examples_per_s, "A vertical bar is the 95 % interval of the gain."
    steps = sorted((memory, rate) for memory, rate, of in known if of.number in results.frontier)
    rises = [corner for (_, before), at in pairwise(steps) for corner in ((at[0], before), at)]
    if rises:
        note += " No config beats those on the line in throughput with as little memory."
    if len(labelled) < len(known):
        note += " Only the frontier, the baseline and the recommended config are labelled, with their intervals."
    intervals = [
        (memory, rate * end / of.gain.ratio)
        for memory, rate, of in known
        if of.number in labelled - {BASELINE} and of.gain.ratio
        for end in (of.gain.low, of.gain.high)
        if end is not None
    ]
    series = [
        Series("", intervals, "other", "range"),
        *([Series("frontier", [*steps[:1], *rises])] if rises else []),
        *_roles([(memory, rate, of.number) for memory, rate, of in known], results, labelled),
    ]
    if ceiling is not None and known:
        words = f"ideal input pipeline: {ceiling:,.0f}"
        if ceiling < _NEAR * max(rate for _, rate, _ in known):
            series.append(Series(words, [(0, ceiling)], "ideal", "level"))
        else:
            note += f" Above the chart: {words} examples/s."
    return Chart(series, title="Throughput against memory", x="memory, MB", y="examples/s", note=note, only=_PAGE)


def _roles(
    points: Sequence[tuple[float, float, int]], results: Results, labelled: Collection[int] = ()
) -> Iterator[Series]:
    """Yield the dots of configs by what they are, the last ones on top; all shapes differ."""
    roles = {results.decision.recommended: "recommended", BASELINE: "baseline"}
    looks = ("other configs", "other", "dot"), ("baseline", "second", "diamond"), ("recommended", "first", "star")
    for role, look, mark in looks:
        own = [(x, y, str(of) * (of in labelled)) for x, y, of in points if roles.get(of, "other configs") == role]
        labels = [label for _, _, label in own] if labelled else ()
        yield Series(role, [(x, y) for x, y, _ in own], look, mark, labels)


def effects(results: Results) -> Iterator[Table]:
    """Yield for each swept key the median throughput of the configs with each of its values, the fastest first."""
    for key, every in grouped((effect.key, effect) for effect in results.effects).items():
        if len(every) > 1:
            left_out = f"The {_MOST_BARS} fastest of {len(every):,} values. " if len(every) > _MOST_BARS else ""
            yield Table(
                every[:_MOST_BARS],
                [
                    Col(key, lambda of: short(of.value), is_head=True),
                    Col("examples/s", "examples_per_s", ",.0f", bar=True),
                    Col("configs"),
                ],
                title=f"Effect of {key}",
                note=f"{left_out}Medians over all configs with a value, whatever their other values.",
                only=_PAGE,
            )


def together(results: Results) -> Iterator[Table]:
    """Yield medians by the two keys whose pairs of values differ most; nothing with fewer than two keys."""
    name, unit = results.decision.by.replace(" ", "_"), results.decision.by
    if name.startswith("val_"):
        figures = [(of.quality[name].mean, of.swept) for of in results.configs if name in of.quality]
    else:
        figures = [(of.overall_examples_per_s, of.swept) for of in results.configs]
        unit = "examples/s with the fill" if any(of.fill_s for of in results.configs) else "examples/s"
    found = []
    for keys in combinations(results.keys, 2):
        values = grouped((tuple(swept[key] for key in keys), of) for of, swept in figures if of is not None)
        cells = {pair: statistics.median(each) for pair, each in values.items()}
        sides = [sorted({pair[side] for pair in cells}, key=_by_value) for side in (0, 1)]
        counts = [*map(len, sides)]
        is_small = all(1 < count <= _MOST_VALUES for count in counts)
        if is_small and 2 * len(cells) > math.prod(counts):  # most pairs have a config
            low, high = min(cells.values()), max(cells.values())
            found.append((high / low if low > 0 else 0.0, keys, cells, sides))
    if not found:
        return
    _, keys, cells, (rows, columns) = max(found, key=itemgetter(0))
    left_out = f"The two of {len(results.keys)} keys whose values together differ most. " * (len(found) > 1)
    yield Table(
        rows,
        [Col(" \\ ".join(keys), short, is_head=True), *(_column(cells, column) for column in columns)],
        title="Two parameters together",
        note=f"{left_out}A cell is the median {unit} of its configs.",
        only=_PAGE,
    )


def _column(cells: Mapping[tuple[str, ...], float], name: str) -> Col:
    """Return the column of a value of the second key; the larger a figure, the darker its cell."""
    low, high = min(cells.values()), max(cells.values())

    def share(row: str) -> float | None:
        return (cells[row, name] - low) / (high - low) if (row, name) in cells and high > low else None

    def text(row: str) -> str:
        value = cells.get((row, name))
        return f"{value:,.0f}" if value is not None and value >= 10 else significant(value)  # noqa: PLR2004 - a rate

    return Col(short(name), lambda row: cells.get((row, name)), text=text, share=share)


def _by_value(text: str) -> tuple[bool, float, str]:
    """Return a sort key that puts numbers first, in their order."""
    try:
        return False, float(text), ""
    except ValueError:
        return True, 0.0, text


def short(text: str) -> str:
    """Return at most 22 characters: both ends of a long text."""
    text = " ".join(text.split()) or "(default)"
    return text if len(text) <= 22 else f"{text[:10]}…{text[-11:]}"  # noqa: PLR2004 - see above


def epochs(results: Results) -> Iterator[Chart]:
    """Yield throughput and input wait of each epoch over time, which show drift of the machine."""
    ran = [(run.config, of) for run in results.runs if (of := run.outcome) and of.epochs]
    ended = sorted(
        (epoch.ended_s, epoch.examples_per_s, 100 * epoch.wait_share, config)
        for config, of in ran
        for epoch in of.epochs
        if epoch.ended_s
    )
    if not ended:
        return
    started_s = min(of.created_s for _, of in ran)
    unit, unit_s = ("minutes", 60.0) if ended[-1][0] - started_s < 4 * 3600 else ("hours", 3600.0)
    note = "A dot is an epoch, at its end. If the dots of the baseline rise or fall together, the machine has drifted."
    for title, place, below in (("examples/s", 1, note), ("input wait, %", 2, "")):
        yield Chart(
            [*_roles([((epoch[0] - started_s) / unit_s, epoch[place], epoch[3]) for epoch in ended], results)],
            title=f"Epochs over time: {title}",
            x=f"{unit} since the sweep began",
            from_zero=True,
            note=below,
            only=_PAGE,
        )


WRONG = (FAILED, INTERRUPTED, KILLED, TOO_SLOW)
MOST_ROWS, MOST_RUNS = 50, 500
"""Configs on the terminal; and runs whose stage tables a page holds, for larger sweeps one of each config."""
_PAGE = ("html",)
_CALLS = {"better": "good", "worse": "bad", "baseline": "mark"}


def conclude(results: Results | None) -> int:
    """Write the reports of a sweep, print the table, and return 1 if a run failed, 3 if one was too slow, or 0."""
    if not results:
        return 0
    publish(results)
    ends = {run.outcome.status if run.outcome else FAILED for run in results.runs}
    ends |= {config.status for config in results.configs}
    return 1 if ends & {FAILED, INTERRUPTED, KILLED} else 3 if TOO_SLOW in ends else 0


def publish(results: Results) -> None:
    """Print the report, and write it to the sweep's folder, with TensorBoard's HParams; `WorldError` if it can't be."""
    doc, folder = of_sweep(results), Path(results.folder)
    if not is_quiet():
        show(doc)
    try:
        write_atomically(folder / RESULTS, results.as_json() + "\n")
        for name, form in (("results.csv", "csv"), (REPORT, "md"), (PAGE, "html")):
            write_atomically(folder / name, RENDER[form](doc))
        own = {config.number: config.own for config in results.configs}
        for run in results.runs:
            write(folder / run.name, run.config, own[run.config], run.outcome)
    except OSError as error:
        remedy = f"fix that, and rewrite the reports with: {shlex.join(['etlrun', 'report', str(folder)])}"
        raise WorldError(folder, str(error), "a folder that can be written to", remedy) from error
    if not is_quiet():
        say(f"report    {folder / PAGE}")


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

    names = "status examples_per_s state first_examples_per_s au max_gain bound_by peak_rss_bytes cores_used wall_s"
    names += f" val_{results.metric} created_s error"
    of_csv = [Col("run", "name"), Col("config"), Col("repeat")]
    of_csv += [Col(key, partial(lambda key, run: known[run.config].swept[key], key)) for key in results.keys]
    of_csv += [Col(name, partial(_figure, name)) for name in names.split()]
    return Doc(
        decided.words,
        [
            Lines([*_figures(results, chosen, known[BASELINE])], is_large=True, only=_PAGE),
            Lines(data, only=files),
            Code(shlex.join(decided.overrides), is_copied=True, only=files),
            throughput(results),
            *effects(results),
            *together(results),
            Table(
                results.configs,
                columns,
                title="Configs",
                note=note,
                most=MOST_ROWS,
                sort=by,
                falls=by.startswith("val ") and falls(by.replace(" ", "_")),
                mark=lambda config: config.number == decided.recommended,
                words=lambda config: " ".join(config.own),
            ),
            *epochs(results),
            _stages(results, known),
            Lines([("decision", decided.words), *data], only=["text"]),
            Lines([("note", line) for line in notes(results)], title="Notes"),
            Lines([("left out", line) for line in describe(results.unfit)], title="Left out"),
            Table(unfinished(results.runs, known), UNFINISHED, title="Not completed", only=_PAGE),
            Lines([("not run yet", ", ".join(run.name for run in results.runs if not run.outcome))], only=_PAGE),
        ],
        over=f"Sweep of {len(results.configs):,} configs, {len(results.runs):,} runs",
        foot=results.folder,
        rows=Table(results.runs, of_csv),
        json=lambda: results,
    )


def _figure(name: str, run: Run) -> Any:
    return run.outcome and getattr(run.outcome, name, run.outcome.measures.get(name))


def _figures(results: Results, chosen: ConfigResult | None, baseline: ConfigResult) -> Iterator[Line]:
    """Yield what the config of the decision reaches, beside the baseline."""
    if not chosen:
        return
    gain, is_other = chosen.gain, chosen is not baseline
    if gain.ratio is not None and results.decision.is_certain:
        beside = "" if is_other else "it is the baseline"
        if gain.low is not None:
            beside = f"{gain.low:.2f} to {gain.high:.2f}, 95 % interval over {gain.rounds} rounds"
        yield Line("gain over the baseline", f"{gain.ratio:.2f}x", beside)
    if rate := chosen.examples_per_s:
        before = f"baseline: {baseline.examples_per_s or 0.0:,.0f}"
        yield Line("examples/s", f"{rate:,.0f}", before if is_other and baseline.examples_per_s else "")
    if chosen.peak_rss_bytes:
        before = f"baseline: {_megabytes(baseline)} MB"
        yield Line("memory", f"{_megabytes(chosen)} MB", before if is_other and baseline.peak_rss_bytes else "")


def columns_of(results: Results) -> list[Col]:
    """Return the columns of the table of configs: a narrow one for each swept key, by the end of its name."""
    metric = f"val_{results.metric}"
    is_repeated = any(config.gain.call != UNTOLD for config in results.configs)
    has_fill = any(config.fill_s is not None for config in results.configs)
    repeated = [
        Col("gain", lambda config: config.gain.ratio, text=lambda config: config.gain.words),
        Col("result", _result, style=lambda config: _CALLS.get(_result(config), "soft"), is_choice=True),
    ]
    figures = [
        Col("status", differs=WRONG),
        *[Col("runs", lambda config: len(config.runs), differs=())] * is_repeated,
        Col("examples/s", "examples_per_s", ",.1f"),
        Col("first epoch", lambda config: config.first_examples_per_s or "", ",.1f"),
        Col("fill s", lambda config: "" if config.fill_s is None else config.fill_s, ".2f"),
        *[Col("with fill", "overall_examples_per_s", ",.1f")] * has_fill,
        *repeated * is_repeated,
        Col("MB", "peak_rss_bytes", text=_megabytes),
        Col("cores", "cores_used", ".1f"),
        Col("au", "au", ".2f"),
        Col("bound by", "bound_by"),
        Col("max gain", "max_gain", ".2f"),
        Col("seconds", "wall_s", ".1f"),
        *(_of_quality(name, metric) for name in (metric, "val_loss", results.metric, "loss")),
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


def _megabytes(config: ConfigResult) -> str:
    return "-" if config.peak_rss_bytes is None else f"{config.peak_rss_bytes / 1e6:,.0f}"


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
        return (config.val_accuracy if name == "val_accuracy" else config.measures.get(name)) if name == first else None

    def text(config: ConfigResult) -> str:
        if (of := config.quality.get(name)) is None:
            return shown_as(name, read(config))
        return f"{of.words_of(name)}{'' if of.lead is None or of.lead.call == UNTOLD else f' {of.lead.call}'}"

    return Col(name.replace("_", " "), read, text=text, differs=() if name == first else None)


def notes(results: Results) -> Iterator[str]:
    """Yield the notes on the sweep: the noise of the machine, the upper bound of the throughput, and what else is."""
    if (noise := results.noise).pairs:
        ends = f"{noise.median:.1%} median, {noise.largest:.1%} maximum, over {noise.pairs} pairs"
        yield f"noise of the machine: two runs of the baseline differ by {ends}"
    if results.ceiling_examples_per_s is not None:
        rate = results.ceiling_examples_per_s
        yield f"with an ideal input pipeline this model reaches at most about {rate:,.0f} examples/s"
    yield from results.remarks


def _stages(results: Results, known: Mapping[int, ConfigResult]) -> Choice:
    """Return the stage tables to choose from; those of the baseline and of the recommended config are shown first."""
    rank = {config.number: place for place, config in enumerate(results.configs)}
    measured = [run for run in results.runs if run.outcome and run.outcome.stages]
    measured.sort(key=lambda run: (rank[run.config], run.repeat, run.name))
    first: dict[int | None, Run] = {}
    for run in measured:
        if run.name in known[run.config].runs:
            first.setdefault(run.config, run)
    start = [first[of] for of in (BASELINE, results.decision.config) if of in first]
    held, note = measured, ""
    if len(measured) > MOST_RUNS:
        held = [*first.values()][:MOST_RUNS]
        held += [run for run in start[:1] if run.config == BASELINE and run not in held]
        note = f"The first completed run of each of the {len(held)} fastest configs; "
        note += f"{len(measured) - len(held):,} more stage tables are in results.json and in the folders of the runs."
    names = {run.name: f"{run.name}: {' '.join(known[run.config].own) or 'the default config'}" for run in held}
    tables = {names[run.name]: Table([StageLine(row.stage, row) for row in run.result.stages], STAGES) for run in held}
    chosen = [names[run.name] for run in start if run.name in names]
    return Choice(tables, chosen, title="Stages of two runs", note=note)


UNFINISHED = (
    Col("runs", itemgetter(0), is_head=True),
    Col("status", itemgetter(1), style=lambda _: "bad"),
    Col("overrides", itemgetter(2), is_code=True, is_long=True),
    Col("reason", itemgetter(3), is_long=True),
)
"""Columns of `unfinished`."""


def unfinished(runs: Sequence[Run], known: Mapping[int, ConfigResult]) -> list[tuple[str, ...]]:
    """Return the runs that did not complete, or were below `measure.au_min`, by config, status and reason."""
    found = []
    for run in runs:
        if (of := run.outcome) and of.is_too_slow:
            utilization = "unknown" if of.au is None else f"{of.au:.1%}"
            reason = f"accelerator utilization (AU): {utilization}, below measure.au_min"
            found.append(((run.config, TOO_SLOW, reason), run.name))
        elif of and of.status != COMPLETED:
            found.append(((run.config, of.status, of.error or "unknown reason"), run.name))
    return [
        (", ".join(names), status, " ".join(known[config].own), reason)
        for (config, status, reason), names in grouped(found).items()
    ]
