"""Model card of an export: model, data, metrics with intervals, plan, licences to fill in, and how to make it again."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from typing import Any

from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.planning import render
from etlrun.planning.spec import parse
from etlrun.record.config import CONFIG, read_config
from etlrun.record.report import EVALUATIONS
from etlrun.stages import STAGES
from etlrun.stages.columns import Columns
from etlrun.stages.image import Decode
from etlrun.stages.rows import Rows
from etlrun.system.errors import EtlrunError
from etlrun.system.terminal import as_markdown
from etlrun.trained.load import Trained
from etlrun.trained.model import listed
from etlrun.trained.scores import Share, wilson

_TODO = "**to be filled in**"
_MOST_CLASSES = 50
Row = tuple[str, str]


def text(run: Trained, described: Mapping[str, Any]) -> str:
    """Return the card of an export, which `described` tells as its `export.json`, as Markdown."""
    spec = run.then.spec
    parts = [
        [f"# {spec.model.path.partition('.')[2]} on {run.summary.dataset.name or spec.dataset.title}"],
        ["## Model", "", *_table(_model(run, described))],
        ["## Use", "", *_use(described)],
        ["## Data", "", *_table(_data(run))],
        ["## Metrics", "", *_metrics(run)],
        ["## Licences", "", *_table(_licences(run))],
        ["## Training", "", *_again(run)],
        ["## Plan", "", "```", *render.text(run.then).splitlines(), "```"],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _table(rows: list[Row], header: Row = ("", "")) -> list[str]:
    return as_markdown(header, [tuple(" ".join(cell.split()) for cell in row) for row in rows]).splitlines()


def _model(run: Trained, described: Mapping[str, Any]) -> list[Row]:
    spec, classes, check = run.then.spec, described["classes"], described["check"]
    noun, drawn = next(iter(check.items()))
    versions = ", ".join(f"{name} {version}" for name, version in described["versions"].items())
    size = run.summary.parameters
    differs = f"{check['largest_difference']:.1e}, of {check['tolerance']:g} allowed"
    return [
        ("network", f"{spec.model.path}{f', {size:,} parameters' if size else ''}"),
        ("format", f"{described['format']}, written with {versions}"),
        ("classes", "none" if classes is None else f"{len(classes)}: {listed(classes, _MOST_CLASSES)}"),
        ("precision", run.precision or "float32"),
        ("check", f"{drawn} drawn {noun}: predictions differ from the model's by up to {differs}"),
        ("check on examples", of_examples(check["validation"])),
        *([("pixels", described["pixels"])] if "pixels" in described else []),
    ]


def of_examples(found: Mapping[str, Any] | str) -> str:
    """Return what the comparison of an export with `predict` has found, or why there is none, for people."""
    if isinstance(found, str):
        return f"not compared on examples of the validation: {found}"
    of = f"{found['examples']} of {found['split']}, predictions differ from those of predict"
    return f"{of} by up to {found['largest_difference']:.1e}"


def _use(described: Mapping[str, Any]) -> Iterator[str]:
    given = [("input", _input(described["input"]))] if "input" in described else []
    yield from _table(
        [
            *given,
            ("inside", ", ".join(described["inside"]) or "no step"),
            *(("output", _output(of)) for of in described.get("outputs", (described.get("output"),))),
        ]
    )
    yield from _inputs(described)
    for name, steps in groupby(described["before"], lambda step: step.get("input")):
        what = "The input" if name is None else f"`{name}`"
        yield from ("", f"{what} is made by these steps, in this order:", "")
        for number, step in enumerate(steps, 1):
            values = ", ".join(f"{name}={_parameter(value)}" for name, value in step["parameters"].items())
            yield f"{number}. `{step['step']}`: {step['does']}{f' ({values})' if values else ''}"


def _parameter(value: Any) -> str:
    is_long = isinstance(value, list) and len(value) > _MOST_CLASSES
    return f"{len(value):,} values, which `export.json` has" if is_long else json.dumps(value)


def _input(given: Mapping[str, Any]) -> str:
    return f"{given['content']}: {given['dtype']} ({_shape(given)}){_ends(given)}{_called(given['name'])}"


def _output(of: Mapping[str, Any]) -> str:
    classes = f" ({listed(of['classes'])})" if of.get("classes") else ""
    target = f" of {of['target']}" if "target" in of else ""
    return f"{of['content']}{target}{classes}, {of['dtype']}{_called(of['name'])}"


def _inputs(described: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of several inputs by name."""
    rows = [
        (
            f"`{of['name']}`",
            of["column"],
            f"{of['dtype']} ({_shape(of)})",
            f"{of['content']}{_ends(of)}",
            "no" if of["missing"] is None else f"`{json.dumps(of['missing'])}`",
            f"`{json.dumps(of['example'])}`",
        )
        for of in described.get("inputs", ())
    ]
    if rows:
        header = ("input", "column", "dtype", "content in the training", "may be missing, as", "example")
        yield from ("", *as_markdown(header, rows).splitlines())
    needed = [of for of in described.get("inputs", ()) if of["missing"] is None and of["example"] is not None]
    if any(of["dtype"].startswith("float") and None not in of["shape"][1:] for of in needed):
        is_inside = Columns.path in described["inside"]
        what = "ends in an error" if is_inside else "is not refused, and its prediction means nothing: leave it out"
        yield from ("", f"A row with NaN where no value may be missing {what}.")
    if any(None in of["shape"][1:] for of in described.get("inputs", ())):
        yield from ("", "Lists may have any length from 1: padding behind the shorter ones of a batch changes nothing.")
    yield from _vocabularies(described)


def _vocabularies(described: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the files of vocabularies have, each of which belongs to an input."""
    found = [of["vocabulary"] for of in described.get("inputs", ()) if of.get("vocabulary")]
    if found:
        yield from ("", "The line of an index in its vocabulary, counted from 0, is the value in JSON, or `null`:", "")
    for of in found:
        unknown = (
            f"{listed([*map(str, of['unknown'])], 3)} for unknown values"
            if of["unknown"]
            else "no value may be unknown"
        )
        yield f"- `{of['file']}`: {'0 for padding, ' if of['padding'] == 0 else ''}{unknown}"


def _shape(given: Mapping[str, Any]) -> str:
    first, *others = given["shape"]
    return ", ".join(["batch" if first is None else str(first), *("items" if of is None else str(of) for of in others)])


def _ends(given: Mapping[str, Any]) -> str:
    return "" if given["range"] is None else f" in [{given['range'][0]:g}, {given['range'][1]:g}]"


def _called(name: str) -> str:
    return f", named `{name}`" if name else ""


def _data(run: Trained) -> list[Row]:
    data, spec = run.summary.dataset, run.then.spec.dataset
    splits = {"train": spec.split, "validation": spec.eval_split}
    rows = [("dataset", data.name or spec.title), ("files", f"{data.shards:,}, {data.bytes / 1e6:,.1f} MB")]
    for pipeline, split in splits.items():
        if split is not None:
            count, digest = data.examples.get(pipeline), data.digest.get(pipeline)
            counted = "unknown number of examples" if count is None else f"{count:,} examples"
            skipped = run.summary.skipped.get(pipeline, 0)
            left_out = f", {skipped:,} of them skipped as corrupt" if skipped else ""
            rows.append((pipeline, f"`{split}`, {counted}{left_out}{f', digest {digest}' if digest else ''}"))
    return rows


def _metrics(run: Trained) -> Iterator[str]:
    """Yield the measures and the evaluations of the epoch of the model; shares with Wilson's interval."""
    rows, kept = list[Row](), run.summary.kept_epoch and run.summary.kept_epoch.epoch
    if run.epoch is not None:
        of = run.summary.dataset.examples.get("validation", 0)
        of -= run.summary.skipped.get("validation", 0)
        for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
            value = run.epoch.measure(name)
            if value is not None:
                is_share = name == "val_accuracy" and of > 0 and math.isfinite(value)
                share = wilson(round(value * of), of) if is_share else Share(value)
                rows.append((f"{name}, epoch {run.epoch.epoch}", _shown(share)))
        others = run.epoch.metrics.items()
        rows += [(f"{name}, epoch {run.epoch.epoch}", _shown(Share(value))) for name, value in others]
    for path in sorted((run.folder / EVALUATIONS).glob("*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            evaluated = json.loads(path.read_text(encoding="utf-8"))
            if evaluated.get("epoch", kept) == (run.epoch and run.epoch.epoch):
                rows += _evaluated(evaluated)
    yield from _table(rows, ("metric", "value (95 % interval)"))
    yield from (
        "",
        "Intervals: Wilson's score interval of shares, and of F1 that of TP / (TP + FP + FN), as 2 p / (1 + p).",
    )
    if not (run.folder / EVALUATIONS).is_dir():
        yield f"`{shlex.join(['etlrun', 'evaluate', str(run.folder)])}` adds precision, recall and F1 of each class."


def _evaluated(of: Mapping[str, Any]) -> list[Row]:
    place = f"{of['dataset']} {of['split']}, {of['examples']:,} examples"
    rows = [(f"loss on {place}", _shown(Share(of["loss"])))]
    for name, figures in (of.get("targets") or {"": of}).items():
        rows += _of_target(f"{name}: " if name else "", figures, place)
    return rows


def _of_target(name: str, of: Mapping[str, Any], place: str) -> list[Row]:
    """Return the figures of a target, which may have a name."""
    if of["accuracy"] is None:
        return [(f"{name}mean absolute error on {place}", _shown(Share(**of["mae"])))]
    rows = [(f"{name}accuracy on {place}", _shown(Share(**of["accuracy"])))]
    for each in of["classes"][:_MOST_CLASSES]:
        figures = ("precision", "recall", "f1")
        rows += [(f"{name}{figure} of {each['name']}", _shown(Share(**each[figure]))) for figure in figures]
    return rows


def _shown(of: Share) -> str:
    if of.value is None:
        return "not defined"
    return f"{of.value:.4f}" if of.low is None else f"{of.value:.4f} ({of.low:.4f} to {of.high:.4f})"


def _licences(run: Trained) -> list[Row]:
    weights = getattr(run.then.spec.model, "weights", None)  # which models of other packages do not have
    begun = [("initial weights", f"{weights}: {_TODO}")] if weights else []
    fields = ("this model", f"dataset {run.summary.dataset.name or run.then.spec.dataset.title}")
    more = ("intended use", "limits, and known biases of the data", "contact")
    return [*((name, _TODO) for name in fields), *begun, *((name, _TODO) for name in more)]


def _again(run: Trained) -> Iterator[str]:
    """Yield the command that makes the run again, and whether the configs still say the same."""
    summary = run.summary
    yield from ("```", shlex.join(["python", "-m", "etlrun", *summary.overrides, *summary.files]), "```", "")
    yield f"The plan has the fingerprint {run.then.fingerprint}, and `{run.folder / CONFIG}` all of its values."
    if not _is_same(run):
        yield "The config files have changed since, or another config was named: today the command makes another plan."
    if summary.resumed_from:
        yield f"The run resumed {summary.resumed_from}."
    versions = ", ".join(f"{name} {version}" for name, version in summary.versions.items())
    yield f"Trained on {summary.host.device} with {versions}; decoded by {_decoder(run)}."


def _is_same(run: Trained) -> bool:
    """Return whether the overrides of the run make the same plan today; of rows, whether they make the same config."""
    then = run.summary
    request = Request(overrides=then.overrides, config_dir=then.config_dir, config_name=then.config_name)
    try:
        job = grid.resolve(request, STAGES)
    except EtlrunError:
        return False
    if isinstance(run.then.spec.dataset, Rows):  # which may be gone, or others
        return parse(job.config, STAGES) == parse(read_config(run.folder), STAGES)
    return job.plan.fingerprint == run.then.fingerprint


def _decoder(run: Trained) -> str:
    steps = [step for step in run.then.spec.eval_transform.steps if isinstance(step, Decode)]
    return steps[0].library if steps else "its source"
