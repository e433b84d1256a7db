"""The document of an evaluation, and the lines of an export."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from etlrun.record import record as records
from etlrun.record import report
from etlrun.record.part import finite
from etlrun.record.record import EVALUATIONS
from etlrun.report.doc import Chart, Col, Doc, Images, Line, Lines, Part, Picture, Section, Series, Table
from etlrun.report.render import RENDER
from etlrun.stages.image import Decode
from etlrun.system.errors import counted
from etlrun.system.files import write_atomically
from etlrun.system.terminal import significant
from etlrun.system.thumbnails import data_url, thumbnail
from etlrun.system.values import Block
from etlrun.trained.load import Trained
from etlrun.trained.scores import Share

if TYPE_CHECKING:  # these import TensorFlow
    from etlrun.trained.evaluate import Evaluation, Figures, Mistake
    from etlrun.trained.importance import Importance

_PAGES, _TEXTS = ("html", "notebook"), ("text", "md")
_WIDEST, _MOST_CLASSES, _MOST_MISTAKES = 20, 50, 5
"""Classes up to which terminals show the confusion matrix, and pages; and the mistakes that terminals show."""
_MOST_COLUMNS, _LONGEST_CELL = 100, 400
"""Inputs of an example in a table, and characters in a cell of it."""
_ROUNDING = 1e-6
"""Difference of a figure in float32 and in float64, in relation to it, so that both are rounded alike."""
_SHARES = (
    ("accuracy", "accuracy", ""),
    ("subset", "subset_accuracy", "examples with all labels right"),
    ("mAP", "mean_average_precision", "mean average precision"),
    ("AUC", "auc", "area under the ROC curve"),
    ("AP", "average_precision", "average precision"),
    ("ECE", "expected_calibration_error", "expected calibration error"),
)
_ERRORS = ("MAE", "mae", ""), ("RMSE", "rmse", ""), ("R2", "r2", "")
"""Labels of figures, their names, and what they are, if the label does not say it."""
_BASELINE = {"linear": "linear model", "constant": "constant prediction"}
_OF_CLASS = ("precision", "precision"), ("recall", "recall"), ("F1", "f1")
Shown = Callable[[float], str]
_four = "{:.4f}".format


def document(of: Evaluation, made_by: str) -> Doc:
    """Return the document of an evaluation, which was `made_by` a command."""
    targets: dict[str, Figures] = of.targets or {"": of}
    firsts = {name: next(_lines(figures, {})) for name, figures in targets.items()}
    result = " · ".join(f"{name} {of.label} {of.text} {of.beside}".strip() for name, of in firsts.items())
    data, skipped = f"{of.dataset} {of.split}, {counted(of.examples, 'example')}", len(of.skipped)
    by = (f", {skipped} skipped" * bool(skipped)) + (f", by the model of epoch {of.epoch}" if of.epoch else "")
    facts = [("data", data + by), ("order", of.unchecked)]
    loss = Line("loss", *_figure(of.loss, of.then.get("loss"), _four if of.accuracy is not None else significant))
    if of.targets:
        own: list[Part] = [Lines([loss], is_large=True), Lines(facts)]
        for name, figures in of.targets.items():
            then = {key.removeprefix(f"{name}_"): value for key, value in of.then.items()}
            own.append(Section(name, [Lines([*_lines(figures, then)], is_large=True), *_of_target(figures)]))
    else:
        first, *others = _lines(of, of.then)
        own = [Lines([first, loss, *others], is_large=True), Lines(facts), *_of_target(of)]
    lost = [Col("skipped", "place", is_head=True), Col("reason", "reason", is_long=True)]
    return Doc(
        result,
        [*own, Table(of.skipped, lost, title="Skipped", most=_MOST_MISTAKES)],
        over=f"{data}: {of.run}{f', epoch {of.epoch}' if of.epoch else ''}",
        foot=made_by,
        json=lambda: finite(of.plain()),
    )


def recorded(run: Trained, evaluation: Evaluation, doc: Doc) -> list[Path]:
    """Write an evaluation and its page, to which that of the run links, into its folder; return their paths."""
    folder = run.folder / EVALUATIONS
    paths = [folder / f"{evaluation.name}.{kind}" for kind in ("json", "html")]
    try:
        folder.mkdir(exist_ok=True)
        for path in paths:
            write_atomically(path, RENDER[path.suffix[1:]](doc))
    except OSError as error:
        raise records.unwritable(folder, error, "RUN") from error
    report.write(run.folder)
    return paths


def _figure(value: Share | float | None, then: float | None, shown: Shown, words: str = "") -> tuple[str, str]:
    """Return a figure, and what stands beside it: its interval, what it was in the run, and `words`."""
    share = value if isinstance(value, Share) else Share(value)
    if share.value is None:
        return "-", ""
    if then is not None and math.isclose(then, share.value, rel_tol=_ROUNDING):
        then = share.value
    ends = "" if share.low is None or share.high is None else f"{shown(share.low)} to {shown(share.high)}"
    parts = [*filter(None, [ends, "" if then is None else f"{shown(then)} in the run", words])]
    return shown(share.value), ", ".join([*(f"({of})" for of in parts[:1]), *parts[1:]])


def _share(of: Share, shown: Shown = _four) -> str:
    return " ".join(_figure(of, None, shown)).strip()


def _lines(of: Figures, then: Mapping[str, float | None]) -> Iterator[Line]:
    """Yield the figures of a target; `then` are those that the run had with it."""
    shown: Shown = significant if of.accuracy is None else _four
    for label, name, words in _ERRORS if of.accuracy is None else _SHARES:
        if (value := getattr(of, name)) is not None:
            yield Line(label, *_figure(value, then.get(name), shown, words))


def _of_target(of: Figures) -> Iterator[Part]:
    """Yield the details of a target."""
    who = f"{of.classes[1].name} is" if of.subset_accuracy is None and of.classes[1:] else "labels are"
    above = "" if of.threshold is None else f"{who} predicted above a probability of {of.threshold:g}"
    yield Lines([("method", of.method), ("threshold", above)])
    yield from _beside(of)
    if of.classes:
        yield from _of_classes(of, "class" if of.subset_accuracy is None else "label")
    yield from _mistakes(of)
    if of.importance is not None:
        yield from _importance(of.importance)


def _beside(of: Figures) -> Iterator[Part]:
    """Yield the table of simple predictions of the same examples."""
    label, shown = ("MAE", significant) if of.accuracy is None else ("accuracy", _four)
    columns = [
        Col("baseline", lambda each: _BASELINE[each.name], is_head=True),
        *(_score(name, title, shown) for title, name in ((label, "value"), ("lead", "lead"))),
        Col("network", "result"),
    ]
    note = f"The lead is the network's {label} less that of the baseline, with its interval over the same examples."
    yield Table(of.baseline, columns, title="Baseline", note=note)


def _score(name: str, label: str, shown: Shown = _four) -> Col:
    return Col(label, lambda of: getattr(of, name).value, text=lambda of: _share(getattr(of, name), shown))


def _of_classes(of: Figures, noun: str) -> Iterator[Part]:
    """Yield the figures of each class, their confusions, and the calibration."""
    is_many = len(of.classes) > _WIDEST
    columns = [
        Col(noun, "name", is_head=True),
        Col("examples", "examples"),
        Col("predicted", "predicted"),
        *(_score(name, label) for label, name in _OF_CLASS),
    ]
    rows = sorted(of.classes, key=lambda each: each.f1.value or 0.0) if is_many else of.classes
    title = "Labels" if noun == "label" else "Classes"
    yield Table(rows, columns, title=title, most=_WIDEST, sort="F1" if is_many else "", falls=True)
    names = [each.name for each in of.classes]
    if of.confusion and len(names) <= _MOST_CLASSES:
        row = Col("class / predicted", lambda row: names[row], is_head=True)
        counts = [_counts(of.confusion, at, name) for at, name in enumerate(names)]
        only = _PAGES if is_many else ()
        note = "Examples by class (row) and predicted class (column)."
        yield Table(range(len(names)), [row, *counts], title="Confusion matrix", note=note, only=only)
    if of.calibration:
        bars = [((each.low + each.high) / 2, each.accuracy) for each in of.calibration]
        series = [Series("accuracy", bars, "first", "bar"), Series("even", [(0.0, 0.0), (1.0, 1.0)], "ideal")]
        note = (
            "Accuracy of the examples in 15 bins of confidence, the probability of the predicted class. Bars below the "
            "dashed line are overconfident predictions. The expected calibration error is the mean distance from it, "
            "weighted by examples."
        )
        chart = Chart(series, x="confidence", y="accuracy", unit=True, note=note)
        yield Section("Calibration", [chart], only=_PAGES)


def _counts(confusion: Sequence[Sequence[int]], at: int, name: str) -> Col:
    """Return the column of a predicted class in a confusion matrix, whose rows are the places of the classes."""
    return Col(
        name,
        lambda row: confusion[row][at],
        style=lambda row: "" if not confusion[row][at] else "good" if row == at else "bad",
        share=lambda row: confusion[row][at] / max(1, *confusion[row]),
    )


def _mistakes(of: Figures) -> Iterator[Part]:
    """Yield the worst mistakes: their images, or a table with their inputs."""
    is_class, has_labels = of.accuracy is not None, of.subset_accuracy is not None
    title, by = ("Worst mistakes", "loss") if is_class else ("Largest errors", "squared error")
    columns = [
        Col(by, "loss", ".3f" if is_class else ""),
        Col("labels" if has_labels else "class" if is_class else "value", "target", is_long=has_labels),
        Col("predicted", "predicted", is_long=has_labels),
        Col("probability", "probability", ".3f"),
        Col("place", "place"),
    ]
    beside = Col("columns", lambda of: ", ".join(_inputs(of, "=")), is_long=True)
    has_images = bool(of.mistakes) and of.mistakes[0].image is not None
    yield Table(of.mistakes, [*columns, beside], title=title, most=_MOST_MISTAKES, only=_TEXTS if has_images else ())
    if has_images:
        yield Section(title, [Images([*map(_mistaken, of.mistakes)])], only=_PAGES)


def _inputs(of: Mistake, between: str) -> list[str]:
    return [f"{_cell(name)}{between}{_cell(value)}" for name, value in [*of.columns.items()][:_MOST_COLUMNS]]


def _mistaken(of: Mistake) -> Picture:
    share = "" if of.probability is None else f" with {100 * of.probability:.1f} %"
    lines = [f"{of.target}, predicted as {of.predicted}{share}", f"loss {of.loss:.3f}", of.place, *_inputs(of, " ")]
    image = thumbnail(np.asarray(Decode.op(of.image or b""), np.uint8))
    return Picture(data_url(image), "\n".join(lines), lines[0], image.width, image.height)


def _importance(of: Importance) -> Iterator[Part]:
    worse = "the mean absolute error grows" if of.measure == "mae" else "the accuracy falls"
    what = (
        f"how much {worse} from {significant(of.value)} when the values of a column are permuted among "
        f"{of.examples:,} examples: the mean of {of.repeats} permutations (seed {of.seed}) with its 95 % interval "
        "(Student's t)"
    )
    yield Lines([("columns", what)], only=("text",))
    columns = [
        Col("column", "name", is_head=True),
        Col("importance", lambda each: each.importance.value, text=lambda each: _share(each.importance, significant)),
    ]
    note = f"{what[:1].upper()}{what[1:]}. Columns that carry the same information each seem to matter little."
    yield Table(of.columns, columns, title="Columns", note=note, most=_WIDEST)


def _cell(value: Any) -> str:
    """Return a value of an input for a cell of a table; empty for one that is missing."""
    text = "" if value is None else significant(value) if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}…"


def checked(described: Block) -> list[tuple[str, str]]:
    """Return how far the predictions of an export are from the model's, in lines; `described` is its `export.json`."""
    check = described["check"]
    if "examples" not in check:
        text = f"not compared with the model on examples of the validation: {check['none']}"
        return [("check", text), ("pixels", described.get("pixels", ""))]
    outputs = described.get("outputs") or [described["output"]]
    kinds = {"probability" if "probability" in of["content"] else "value" for of in outputs}
    difference = f"largest difference of a {'prediction' if len(kinds) > 1 else kinds.pop()}"
    pixels, other = described.get("pixels", ""), check["classes_differ"]
    by_predict = f"{difference} {check['from_predict']:.2g}{pixels and f': {pixels}'}"
    by_predict += f"; {other} of {check['examples']} {'has' if other == 1 else 'have'} another class" if other else ""
    return [
        ("check", f"{check['examples']} examples of {check['split']}"),
        ("model", f"{difference} {check['largest_difference']:.2g}, of {check['tolerance']:g} allowed"),
        ("predict", by_predict),
    ]
