"""Examples before and after a change of a plan, at the points where they differ."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator
from typing import Any

import numpy as np

from etlrun.datasets.examine.sheet import Column, Sheet, View, is_image
from etlrun.datasets.examine.show import Wanted, collect
from etlrun.planning.plan import Plan
from etlrun.stages.flow import Feature

BEFORE, AFTER, DIFFERENCE = "before", "after", "difference"


def before_and_after(old: Plan, new: Plan, pipeline: str, examples: int) -> Sheet:
    """Return the first examples of a pipeline in both plans, in the first pass, at the points where they differ.

    Raises:
        WorldError: Data is missing or corrupt; nothing is prepared.
    """
    return compared(*(first_examples(plan, pipeline, examples) for plan in (old, new)))


def first_examples(plan: Plan, pipeline: str, examples: int) -> Sheet:
    """Return those of one plan, after each of its steps."""
    return collect(_as_it_is(plan), pipeline, Wanted(batches=1, examples=examples, passes=1))


def compared(old: Sheet, new: Sheet) -> Sheet:
    """Return the examples of two sheets side by side, in the columns where they differ."""
    rows = tuple(
        dataclasses.replace(after, target=_either(before.target, after.target))
        for before, after in zip(old.rows, new.rows, strict=False)
    )
    columns = [_column(*pair, len(rows)) for pair in _pairs(old.columns, new.columns)]
    return Sheet(
        title="Examples before and after",
        source=_either(old.source, new.source),
        rows=rows,
        columns=tuple(column for column in columns if column is not None),
        notes=tuple(_notes(old, new)),
    )


def _as_it_is(plan: Plan) -> Plan:
    dataset = plan.spec.dataset.as_it_is()
    return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, dataset=dataset))


def _notes(old: Sheet, new: Sheet) -> Iterator[str]:
    yield (
        "Only steps after which an example differs are shown, in the first pass. The difference of two images "
        "is that of each value, with its mean: black is none, and the brightest is the largest of the column."
    )
    one, other = old.columns[0].views[0], new.columns[0].views[0]
    if one.features == other.features and not _are_same(one, other):
        yield "The two sides begin with different examples, so that a row is not one example."


def _either(old: str, new: str) -> str:
    return new if old == new else f"{old} -> {new}"


def _pairs(old: tuple[Column, ...], new: tuple[Column, ...]) -> Iterator[tuple[Column | None, Column | None]]:
    """Yield the columns of the same step on both sides, and those of one side alone, in order."""
    paths, others = ([column.path for column in columns] for columns in (old, new))
    for tag, *ends in difflib.SequenceMatcher(None, paths, others, autojunk=False).get_opcodes():
        before, after = old[ends[0] : ends[1]], new[ends[2] : ends[3]]
        if tag == "equal":
            yield from zip(before, after, strict=True)
        else:
            yield from ((column, None) for column in before)
            yield from ((None, column) for column in after)


def _column(old: Column | None, new: Column | None, rows: int) -> Column | None:
    """Return the first views of both sides; None if they are the same."""
    sides = [(name, column) for name, column in ((BEFORE, old), (AFTER, new)) if column is not None]
    views = [dataclasses.replace(of.views[0], name=name, cells=of.views[0].cells[:rows]) for name, of in sides]
    if len(views) > 1 and _are_same(*views):
        return None
    difference = _difference(*views) if len(views) > 1 else None
    return dataclasses.replace(sides[-1][1], views=(*views, *([difference] if difference is not None else [])))


def _difference(old: View, new: View) -> View | None:
    """Return how far the images of both sides are apart, each with the mean; None unless all have the same sizes."""
    names = [name for name, of in new.features.items() if is_image(of) and of.format is None and name in old.features]
    apart: list[dict[str, Any]] = []
    for cells in zip(old.cells, new.cells, strict=True):
        one, other = ({name: np.asarray(of[name], np.float64) for name in names} for of in cells)
        if any(one[name].shape != other[name].shape for name in names):
            return None
        apart.append({name: np.abs(other[name] - one[name]) for name in names})
    if not names or not apart:
        return None
    largest = {name: max(float(of[name].max()) for of in apart) for name in names}
    means = {name: "mean difference" if len(names) == 1 else f"mean difference of {name}" for name in names}
    features: dict[str, Feature] = {}
    for name in names:
        features[name] = new.features[name].replace(dtype="float64", low=0.0, high=largest[name] or 1.0)
        features[means[name]] = Feature(dtype="float64")
    shown = [{**of, **{means[name]: np.round(of[name].mean(), 4) for name in names}} for of in apart]
    return View(name=DIFFERENCE, features=features, cells=tuple(shown))


def _are_same(one: View, other: View) -> bool:
    cells = zip(one.cells, other.cells, strict=False)
    return one.features == other.features and all(
        np.array_equal(before[name], after[name]) for before, after in cells for name in before
    )
