"""Report of a sweep: one document, on the terminal and as files in its folder.

report.html for a browser, report.md for a pull request, results.json for everything else
"""

import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate, chain
from pathlib import Path

from etlrun.measure.gains import UNTOLD
from etlrun.record.record import KILLED, PAGE, REPORT, RESULTS
from etlrun.record.summary import FAILED, INTERRUPTED, SUMMARY
from etlrun.report.doc import Chart, Code, Col, Doc, Lines, Series, Table, worded
from etlrun.report.render import RENDER, show
from etlrun.results.collect import collect
from etlrun.results.listing import TOO_SLOW
from etlrun.results.results import BASELINE, ConfigResult, Results, shown_as
from etlrun.stages.objectives import falls
from etlrun.sweep.ledger import describe
from etlrun.system.errors import WorldError, counted
from etlrun.system.files import write_atomically
from etlrun.system.terminal import is_quiet, say
from etlrun.system.values import grouped

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
