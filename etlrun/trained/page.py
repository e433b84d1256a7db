"""Page of an evaluation: figures, charts, confusions, calibration, and the worst mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from etlrun.record import report
from etlrun.stages.image import Decode
from etlrun.system import pages
from etlrun.system.terminal import significant
from etlrun.system.thumbnails import tag, thumbnail
from etlrun.trained.charts import charts
from etlrun.trained.evaluate import Evaluation, written
from etlrun.trained.figures import Figures, Mistake, is_prose
from etlrun.trained.load import Trained

_MOST_CLASSES, _MOST_PAIRS = 50, 100
"""Classes up to which the whole confusion matrix is shown, and the pairs that are shown of a larger one."""
_MOST_COLUMNS, _LONGEST_CELL, _LONGEST_PROSE = 100, 80, 400
"""Inputs of an example in a table, and characters in a cell of it, and of a text of many words."""


def html(of: Evaluation, made_by: str) -> str:
    """Return the page of an evaluation, which was `made_by` a command."""
    targets: dict[str, Figures] = of.targets or {"": of}
    return pages.rendered(
        "etlrun.trained",
        "evaluation.html.j2",
        of=of,
        targets=[(name, each, charts(each), _pairs(each), _mistakes(each)) for name, each in targets.items()],
        firsts=[(each, _image(each.image, f"First example of {each.name}")) for each in of.firsts],
        made_by=made_by,
        significant=significant,
        cell=_cell,
        is_prose=is_prose,
        most_columns=_MOST_COLUMNS,
    )


def recorded(run: Trained, evaluation: Evaluation, made_by: str) -> tuple[Path, Path]:
    """Write an evaluation and its page, to which that of the run links; return their paths."""
    paths = written(run, evaluation, html(evaluation, made_by))
    report.write(run.folder)
    return paths


def _cell(value: Any) -> str:
    """Return a value of an input for a cell of a table; empty for one that is missing."""
    text = "" if value is None else significant(value) if isinstance(value, float) else str(value)
    longest = _LONGEST_PROSE if is_prose(value) else _LONGEST_CELL
    return text if len(text) <= longest else f"{text[:longest]}…"


def _pairs(of: Figures) -> list[tuple[str, str, int]]:
    """Return the most frequent confusions, class and predicted class, where the matrix is too large to be shown."""
    if len(of.classes) <= _MOST_CLASSES or not of.confusion:
        return []
    counts = np.array(of.confusion)
    np.fill_diagonal(counts, 0)
    places = np.argsort(-counts, axis=None, kind="stable")[:_MOST_PAIRS]
    pairs = zip(*np.unravel_index(places, counts.shape), strict=True)
    names = [each.name for each in of.classes]
    return [(names[row], names[column], int(counts[row, column])) for row, column in pairs if counts[row, column]]


def _mistakes(of: Figures) -> list[tuple[Mistake, Markup]]:
    return [(each, _image(each.image, f"{each.target}, predicted as {each.predicted}")) for each in of.mistakes]


def _image(encoded: bytes | None, alt: str) -> Markup:
    """Return a thumbnail; empty for an example without a single image."""
    return Markup("") if encoded is None else tag(thumbnail(np.asarray(Decode.op(encoded), np.uint8)), alt)
