"""Report of a run: the few lines at its end, and the document of its folder, which is report.md and report.html.

It is made from the folder alone, so that `etlrun report RUN` can make it again.
"""

import json
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import methodcaller
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from etlrun.record.config import CONFIG, PLAN
from etlrun.record.record import PAGE, REPORT, Record, state_of
from etlrun.record.summary import (
    COMPLETED,
    RUNNING,
    SUMMARY,
    Epoch,
    Held,
    StageCost,
    Summary,
    Verdict,
    events,
    read_summary,
    shown_metric,
)
from etlrun.report.doc import Chart, Code, Col, Doc, Lines, Section, Series, Table
from etlrun.report.render import RENDER
from etlrun.system.errors import counted, one_line
from etlrun.system.files import write_atomically
from etlrun.system.machine import rounded
from etlrun.system.terminal import megabytes, number, significant

Fact = tuple[str, str]
"""A label, of at most nine letters, and its text."""
TEXTS, PAGES, _PAGE = ("text", "md"), ("html", "notebook"), ("html",)
_FIRST, _TOP = ("result", "kept", "baseline"), ("kept", "baseline", "verdict", "because", "advice")
_RESULTS = {
    "better": "the network is better",
    "worse": "the network is worse",
    "tied": "the network is not better by more than noise",
}
_SHORT_S, _LITTLE_GAIN, _WORTH_A_WORD = 5.0, 1.02, 1.05
"""A training of fewer seconds, or a gain of less, is none that its input holds up; the last one is of other parts."""
_MOST_AT_THE_END, _MOST_ROWS, _MOST_NOTES, _MOST_NAMES, _MOST_METRICS = 6, 50, 20, 30, 10
"""Notes at the end; on the page epochs in the table, notes, names of classes or stages, and further metrics."""
_LINE, _TEXT, _CONFIG = 300, 3_000, 8_000
"""Characters of a note or name, of an error or command, and of the config: what files hold makes no page too large."""
_TAIL_BYTES = 65_536
"""Part at the end of `events.jsonl` that is searched, so that long runs are not read anew after each epoch."""
_STATES = {"completed": "good", "running": "accent", "failed": "bad", "interrupted": "bad", "killed": "bad"}


def of_end(summary: Summary, folder: Path) -> Doc:
    """Return the lines that a run ends in, which fit a screen; its folder is named from the current one."""
    shown, is_completed = [*lines(summary, folder)], summary.status == COMPLETED
    status = f"{summary.status} {'in' if is_completed else 'after'} {number(summary.wall_s, 1)} s"
    status += f", {summary.examples_per_s:,.1f} examples/s" if summary.examples_per_s else ""
    done = summary.epochs[-1].epoch if summary.epochs else 0
    status += f", {counted(done, 'epoch')} done" * (not is_completed)
    left_out, later = len(summary.remarks) - _MOST_AT_THE_END, ["verdict", "because", "advice"]
    later += ["au"] * (summary.au_min is not None)
    notes = summary.remarks[: _MOST_AT_THE_END - (left_out > 0)]
    notes += [f"{left_out + 1} more in the report"] * (left_out > 0)
    place = Path(os.path.relpath(folder)) if folder.absolute().is_relative_to(Path.cwd()) else folder
    facts = [
        *(line for line in shown if line[0] in (*_FIRST, *later)),
        *(("note", note) for note in notes),
        ("status", status),
        ("time", _spent(summary)),
        *(line for line in shown if line[0] == "cache"),
        ("page", f"{place / PAGE}" * (folder / PAGE).exists()),
        ("folder", str(place)),
        ("tables", shlex.join(["etlrun", "report", str(place)])),
    ]
    return Doc("", [Lines(facts)])


def _spent(summary: Summary) -> str:
    """Return where the time of a run went, without the epochs of the one that it resumes; empty if it is unknown."""
    if summary.imports_s is None or summary.wall_s is None:
        return ""
    own = [epoch for epoch in summary.epochs if epoch.ended_s >= (summary.created_s or 0.0)]
    startup_s = sum(epoch.startup_s + (epoch.validation_startup_s or 0.0) for epoch in own)
    epochs_s = sum(epoch.wall_s + (epoch.validation_s or 0.0) for epoch in own) - startup_s
    parts = {"imports": summary.imports_s, "start-up": startup_s, "epochs": epochs_s}
    if summary.baseline and summary.baseline.linear:
        parts["baseline"] = summary.baseline.fit_s
    parts["all else"] = max(summary.wall_s - sum(parts.values()), 0.0)
    return ", ".join(f"{name} {spent_s:.1f} s" for name, spent_s in parts.items())


def lines(summary: Summary, folder: Path) -> Iterator[Fact]:
    """Yield the lines beside the tables: the result of the training, then the speed and all else; some say nothing."""
    result = _result(summary)
    yield "result", result
    yield "kept", summary.kept_text
    yield from (("baseline", line) for line in _baseline(summary))
    at = f"{state_of(folder, summary)}, {counted(summary.examples, 'example')} at "
    at += f"{number(summary.examples_per_s, 1)} examples/s"
    yield "status", f"{at}, {number(summary.wall_s, 1)} s in total"
    if summary.verdict:
        trained_s, gain = sum(epoch.wall_s for epoch in summary.epochs), summary.verdict.max_gain
        has_little = trained_s < _SHORT_S or (gain is not None and gain < _LITTLE_GAIN)
        if result and has_little and summary.au_min is None:  # no time is to be had from the input, and none asked for
            yield "verdict", f"the input pipeline is not the bottleneck ({number(trained_s, 1)} s of training)"
        else:
            yield from _verdict_lines(summary.verdict)
        yield from _usage_lines(summary)
    if (cache := summary.cache) and cache.pipelines:
        sizes = [f"{name} {megabytes(of.held_bytes)}{_passes(of)}" for name, of in cache.pipelines.items()]
        yield "cache", f"{cache.target.removeprefix('cache.')}, {cache.at}: {'; '.join(sizes)}"
    yield from (("phase", text) for text in _phases(summary))
    yield "folder", str(folder)
    yield from (("note", note) for note in summary.remarks)
    yield "error", summary.error or ""


def _result(summary: Summary) -> str:
    """Return what the training came to, as numbers; empty for a run without any."""
    epoch, metric = summary.kept_epoch, shown_metric(summary.epochs)
    if not epoch:
        return ""

    def told(*names: str) -> str:
        values = [(name.replace("_", " "), epoch.measure(name)) for name in names]
        return ", ".join(f"{name} {significant(value)}" for name, value in values if value is not None)

    sets = [told(f"{name}.{metric}", f"{name}.loss") for name in summary.sets]
    each = [name for name in (summary.baseline.results if summary.baseline else ()) if name.startswith("val_")]
    own = told(*dict.fromkeys((f"val_{metric}", *each)), "val_loss")  # of several targets one measure each
    found = [*filter(None, (own, *sets))] or [*filter(None, [told(metric, "loss")])]
    return f"{'; '.join(found)} in epoch {epoch.epoch}" if found else ""


def _baseline(summary: Summary) -> Iterator[str]:
    """Yield what simple predictions come to in the first measure of each target, and what the network is to them."""
    if (of := summary.baseline) is None:
        return
    for name, result in of.results.items():
        models = {"a linear model": of.linear, "a constant prediction": of.constant}
        each = [f"{significant(found[name])} of {model}" for model, found in models.items() if name in found]
        yield f"{name.replace('_', ' ')} {', '.join(each)}{f': {_RESULTS[result]}' if result else ''}"
    whole = summary.dataset.examples.get("train", 0)
    yield f"fitted on {of.examples:,} of {whole:,} examples" * (0 < of.examples < whole)
    yield of.note


def _phases(summary: Summary) -> Iterator[str]:
    """Yield the number of each phase that has begun, with its epochs, layers and learning rate."""
    for phase in summary.phases:
        many = phase.first_epoch != phase.last_epoch
        text = f"{phase.phase}: epoch{'s' * many} {phase.first_epoch}{f' to {phase.last_epoch}' * many}"
        layers = (phase.unfreeze or "").replace("_", " ")
        layers = f"last {layers} layers" if layers.isdigit() else layers
        text += f", base {f'trained: {layers}' if layers else 'frozen'}"
        text += f", {phase.trainable_parameters:,} parameters, learning rate {phase.learning_rate:g}"
        yield text


def _verdict_lines(verdict: Verdict) -> Iterator[Fact]:
    input_bound = f"input-bound at {verdict.stage or 'the beginning of each pass'}"
    head, joint = {"input": input_bound, "model": "model-bound"}.get(verdict.kind, verdict.kind), ":"
    if verdict.arriving_bytes_per_s is not None and verdict.consumed_bytes_per_s is not None:
        arriving, consumed = (_rate(rate) for rate in (verdict.arriving_bytes_per_s, verdict.consumed_bytes_per_s))
        head, joint = f"{head}: {arriving} MB/s of the {consumed} that this model consumes", ","
    gain = verdict.max_gain
    limit = f"{joint} training at most {gain:.2f}x faster with an ideal input pipeline" if gain is not None else ""
    yield "verdict", f"{head}{limit}"
    yield "because", verdict.because
    yield "advice", verdict.advice or ""
    each = [
        f"{of.name}, {'waiting ' * (of.name != 'start-up')}{_in_two(of.lost_s)} of {_in_two(of.total_s)} s"
        f"{f' for {of.stage}' if of.stage else ''}"
        for of in verdict.apart
        if of.max_gain >= _WORTH_A_WORD
    ]
    yield "apart", f"not in the gain: {'; '.join(each)}" if each else ""


def _in_two(value: float) -> str:
    """Return a number with at least two significant digits."""
    return f"{value:,.0f}" if round(value) > 9 else f"{value:.2g}"  # noqa: PLR2004 - two significant digits


def _rate(bytes_per_s: float) -> str:
    """Return megabytes per second with at least two significant digits."""
    return _in_two(bytes_per_s / 1e6)


def _usage_lines(summary: Summary) -> Iterator[Fact]:
    others = f"{summary.input_wait_s or 0.0:.2f} s for all others"
    yield "waits", f"{summary.fill_wait_s:.2f} s for the first batches of all passes, {others}"
    required, au, of = summary.au_min, summary.au, summary.au_of
    if required is not None or au is not None:
        name = "time in model steps" if of == "the model" else f"accelerator utilization (AU) of {of}"
        result = (
            "" if required is None else f", {'below' if summary.is_too_slow else 'at least'} the required {required:g}"
        )
        yield "au", f"{name}: {'unknown' if au is None else f'{au:.1%}'}{result}"
    if (fetched := summary.fetched) and fetched.bytes:
        rate = f" at {_rate(fetched.bytes / fetched.busy_s)} MB/s" if fetched.busy_s else ""
        yield "fetched", f"{megabytes(fetched.bytes)} by {fetched.requests:,} requests{rate}"
    if used := summary.resources:
        tensors = f"; peak GPU memory for tensors {megabytes(used.peak_gpu_bytes)}" if used.peak_gpu_bytes else ""
        cpu = f"{used.cpu_s:.1f} CPU seconds on {number(used.cores_used, 1)} cores"
        yield "resources", f"peak memory {megabytes(used.peak_rss_bytes)}, {cpu}{tensors}"


def _passes(held: Held) -> str:
    """Count the passes over a cache on disk by what they did: ` (1 filled, 3 read), filled in 2.1 s`."""
    counts = ", ".join(f"{number} {kind}" for kind, number in Counter(held.passes).items())
    return f" ({counts}){f', filled in {held.filled_s:.1f} s' if held.filled_s else ''}" if counts else ""


def write(folder: Path) -> None:
    """Write `report.md` and `report.html` of the run in `folder`; nothing if it has no summary."""
    if summary := read_summary(folder):
        doc = of_run(folder, summary)
        write_atomically(folder / REPORT, RENDER["md"](doc))
        write_atomically(folder / PAGE, RENDER["html"](doc))


def renew(record: Record) -> None:
    """Write the reports of a run that goes on or ends; `OSError` if its folder can't be written to.

    An error of a report itself is an event, and no reason for the run to fail.
    """
    try:
        with record.writing():
            write(record.folder)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - see above
        record.event("page_failed", error=f"{type(error).__name__}: {one_line(error)}")


def of_run(folder: Path, summary: Summary) -> Doc:
    """Return the report of a run; terminals end in its lines, pages begin with them. Equal files give equal text."""
    shown = [*_about(summary), *lines(summary, folder)]
    told, state, epochs = dict(reversed(shown)), state_of(folder, summary), summary.epochs
    title = told.get("result") or told.get("verdict") or f"{state}, {counted(len(epochs), 'epoch')}"
    first = [line for line in shown if line[0] in _FIRST]
    top = [(name, _cut(text, _TEXT)) for of in _TOP for name, text in shown if name == of]
    facts = [(name, _cut(text, _TEXT)) for name, text in shown if name not in (*_FIRST, *_TOP, "note", "error")]
    left_out, remarks = len(summary.remarks) - _MOST_NOTES, summary.remarks[:_MOST_NOTES]
    remarks += [f"{left_out:,} more in summary.json."] * (left_out > 0)
    notes = [("", _cut(note, _LINE)) for note in remarks]
    metric, left_out = shown_metric(epochs), len(epochs) - _MOST_ROWS
    columns = [
        Col("epoch", is_head=True),
        Col("phase"),
        Col("seconds", "wall_s", ".2f"),
        Col("input wait", "waited_s", ".2f"),
        Col("examples/s", "examples_per_s", ",.1f"),
        *(
            Col(name.replace("_", " "), methodcaller("measure", name), ".4f")
            for of in ("", "val_", *(f"{name}." for name in summary.sets))
            for name in (f"{of}loss", f"{of}{metric}")
        ),
        Col("data", lambda epoch: epoch.digest.rpartition(":")[2][:8]),
    ]
    earlier = f"The last {_MOST_ROWS}; {left_out:,} earlier in summary.json." * (left_out > 0)
    command = Code(_cut(shlex.join(["python", "-m", "etlrun", *summary.files, *summary.overrides]), _TEXT))
    config = ""
    with suppress(OSError):
        config = _cut((folder / CONFIG).read_text(encoding="utf-8", errors="replace"), _CONFIG)
    start_up = "Start-up: the first steps, in which the model is compiled."
    badge = state
    if summary.status == RUNNING:
        badge += f", as of {datetime.fromtimestamp((folder / SUMMARY).stat().st_mtime, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return Doc(
        _cut(title, _LINE),
        [
            Lines(first, only=["text"]),
            Lines([line for line in first if line[1] != title], only=["md"]),
            Lines([line for line in top if line[1] != title], only=PAGES),
            Code(_cut(summary.error or "", _TEXT), style="bad", only=PAGES),
            Section("Loss and metrics", [*measures(summary)], only=PAGES),
            Section("Time of each epoch", [_times(epochs)], note=start_up, only=_PAGE),
            Table(epochs, columns, only=TEXTS),
            _stages(folder, summary),
            Lines([line for line in shown if line not in first], only=TEXTS),
            Lines(facts, title="Facts", only=_PAGE),
            Lines(notes, title="Notes", only=PAGES),
            Section("Config", [command, Code(config, title="The composed config", is_folded=True)], only=_PAGE),
            Table(epochs[-_MOST_ROWS:], columns, title="Epochs", note=earlier, only=PAGES),
        ],
        over=f"Run {_cut(str(folder), _LINE)}",
        badge=(badge, _STATES.get(state, "soft")),
        refresh_s=5 if state == RUNNING else 0,
        json=lambda: summary.written,
    )


@dataclass(frozen=True)
class StageLine:
    """A stage of a pipeline.

    Attributes:
        name: Its name in the plan.
        cost: What it cost; None if it was not measured.
        mark: Why it stands out; empty if it does not.
    """

    name: str
    cost: StageCost | None
    mark: str = ""


def _cost(name: str) -> Callable[[StageLine], Any]:
    return lambda stage: getattr(stage.cost, name, None)


def _stages(folder: Path, summary: Summary) -> Table:
    """Return the stages of the pipeline that the measurements are about, those of its plan included."""
    pipeline, rows = stages_of(folder, summary)
    total_ms = sum(row.cost.cost_ms for row in rows if row.cost)
    floor = summary.step_floor_ms
    model = f" The model takes {floor:.2f} ms per step with a batch that is ready." if floor is not None else ""
    return Table(
        rows[:_MOST_NAMES] if any(row.cost for row in rows) else [],
        [
            Col("stage", "name", is_head=True),
            Col("ms/example", _cost("cost_ms"), ".3f", bar=True),
            Col("share", lambda row: row.cost and row.cost.cost_ms / total_ms if total_ms else None, ".0%"),
            Col("", "mark", style=lambda _: "mark"),
            Col("examples", _cost("examples")),
            Col("parallelism", _cost("parallelism")),
            Col("buffer", _cost("buffer_size")),
            Col("buffered", _cost("buffered_bytes"), text=lambda row: megabytes(_cost("buffered_bytes")(row))),
            Col("set by", _cost("set_by")),
        ],
        title=f"Stages of the {'training' if pipeline == 'train' else pipeline} pipeline",
        note="Costs are summed over the threads of a stage, with waits for storage. The slowest stage is the one with "
        f"the largest cost per thread.{model}",
        mark=lambda row: bool(row.mark),
    )


def stages_of(folder: Path, summary: Summary) -> tuple[str, list[StageLine]]:
    """Return the measured pipeline and its stages in order; without a verdict, with the costs of its last epoch."""
    verdict = summary.verdict
    pipeline = (verdict and verdict.pipeline) or "train"
    costs, names = [*summary.stages] or list[StageCost](), list[str]()
    if not costs:
        last = [
            of.get("stages")
            for of in events(folder, _TAIL_BYTES)
            if (of.get("event"), of.get("pipeline")) == ("stages", pipeline)
        ]
        with suppress(ValidationError, IndexError):
            costs = TypeAdapter(list[StageCost]).validate_python(last[-1])
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        names = [str(of["stage"]) for of in json.loads((folder / PLAN).read_bytes())[pipeline]]
    by_name = {row.stage: row for row in costs}
    marks: dict[str, str] = {}
    if any(row.cost_ms > 0 for row in costs):
        marks[max(costs, key=lambda row: row.cost_ms / (row.parallelism or 1)).stage] = "slowest"
    if verdict and verdict.kind == "input" and verdict.stage:
        marks = {verdict.stage: "limits the run"}
    return pipeline, [StageLine(of, by_name.get(of), marks.get(of, "")) for of in dict.fromkeys([*names, *by_name])]


def measures(summary: Summary) -> Iterator[Chart]:
    """Yield the charts of loss, accuracy and the other metrics, with notes on phases."""
    epochs = summary.epochs
    begun = " ".join(f"Phase {of.phase} begins with epoch {of.first_epoch}." for of in summary.phases[1:])
    of_sets, looks = tuple(f"{name}." for name in summary.sets), ("third", "fourth")
    known = dict.fromkeys(name for epoch in epochs for name in epoch.metrics if not name.startswith(of_sets))
    others = [*dict.fromkeys(name.removeprefix("val_") for name in known)]
    for name in ("loss", "accuracy", *others[:_MOST_METRICS]):
        series = []
        sets = [(of, f"{of}.{name}", looks[place % 2]) for place, of in enumerate(summary.sets)]
        for label, key, look in (("train", name, "first"), ("validation", f"val_{name}", "second"), *sets):
            points = [(of.epoch, of.measure(key)) for of in epochs if key in of.metrics or key in of.model_fields_set]
            series.append(Series(label, points, look))
        yield Chart(series, title=name.replace("_", " "), x="epoch", note=begun)


def _times(epochs: Sequence[Epoch]) -> Chart:
    parts = (
        ("computing", "first", [max(0.0, of.wall_s - of.waited_s - of.startup_s) for of in epochs]),
        ("waiting for input", "second", [of.waited_s for of in epochs]),
        ("start-up", "third", [of.startup_s for of in epochs]),
        ("validation", "fourth", [of.validation_s or 0.0 for of in epochs]),
    )
    at = [of.epoch for of in epochs]
    bars = [Series(name, [*zip(at, values, strict=True)], look, "bar") for name, look, values in parts if any(values)]
    return Chart(bars, title="seconds", x="epoch")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _about(summary: Summary) -> Iterator[Fact]:
    """Yield what a run had to work with: dataset, model and machine; some say nothing."""
    dataset, host = summary.dataset, summary.host
    if dataset.name:
        examples = ", ".join(f"{count:,} {pipeline}" for pipeline, count in dataset.examples.items())
        files = counted(dataset.shards, "file")
        yield "dataset", f"{dataset.name}: {examples} examples in {files}, {rounded(dataset.bytes)}"
    names = [_cut(name, 40) for name in dataset.classes or ()]
    listed = f"{', '.join(names[:_MOST_NAMES])}{'…' * (len(names) > _MOST_NAMES)}"
    yield "classes", f"{len(names):,}: {listed}" if names else ""
    skipped = ", ".join(f"{count:,} of {pipeline}" for pipeline, count in summary.skipped.items())
    yield "skipped", skipped if any(summary.skipped.values()) else ""
    yield "model", "" if summary.parameters is None else f"{summary.parameters:,} parameters"
    yield "continues", summary.resumed_from or ""
    if commit := summary.commit:
        yield "commit", commit.told
        yield "plugins", "; ".join(f"{name}: {of.package}, sources {of.digest}" for name, of in commit.plugins.items())
    cores = f"{host.cores} cores{f' of {host.processor}' if host.processor else ''}"
    yield "machine", f"{host.device}, {cores}, {rounded(host.memory_bytes)}, {host.system}" if host.cores else ""
    yield "versions", ", ".join(f"{name} {version}" for name, version in summary.versions.items())
    yield "plan", summary.plan_fingerprint or ""
