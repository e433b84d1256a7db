"""Examples as a page; and those before and after a change, at the points where they differ."""

import dataclasses
import difflib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.datasets.examine.show import Sheet, View, as_text, collect, is_image
from etlrun.planning.plan import Plan
from etlrun.report.doc import Col, Doc, Lines, Picture, Table
from etlrun.stages.flow import Feature
from etlrun.stages.image import Decode
from etlrun.system.thumbnails import data_url, thumbnail

BEFORE, AFTER, DIFFERENCE = "before", "after", "difference"


def first_examples(plan: Plan, pipeline: str, examples: int) -> Sheet:
    """Return those of one plan, after each of its steps."""
    dataset = plan.spec.dataset.as_it_is()
    return collect(
        dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, dataset=dataset)), pipeline, examples, passes=1
    )


def compared(old: Sheet, new: Sheet) -> Sheet:
    """Return the examples of two sheets side by side, in the columns where they differ."""
    targets = tuple(itertools.starmap(_either, zip(old.targets, new.targets, strict=False)))
    return Sheet(
        title="Examples before and after",
        source=_either(old.source, new.source),
        targets=targets,
        views=tuple(_views(old, new, len(targets))),
        notes=tuple(_notes(old, new)),
    )


def _notes(old: Sheet, new: Sheet) -> Iterator[str]:
    yield (
        "Only steps after which an example differs are shown, in the first pass. The difference of two images "
        "is that of each value, with its mean: black is none, and the brightest is the largest of the column."
    )
    one, other = old.views[0], new.views[0]
    if one.features == other.features and not _are_same(one, other):
        yield "The two sides begin with different examples, so that a row is not one example."


def _either(old: str, new: str) -> str:
    return new if old == new else f"{old} -> {new}"


def _views(old: Sheet, new: Sheet, rows: int) -> Iterator[View]:
    """Yield the views of both sides after each step where they differ, and of steps that one side alone has."""
    paths, others = ([view.path for view in sheet.views] for sheet in (old, new))
    for tag, *ends in difflib.SequenceMatcher(None, paths, others, autojunk=False).get_opcodes():
        sides = (BEFORE, old.views[ends[0] : ends[1]]), (AFTER, new.views[ends[2] : ends[3]])
        one, other = (
            [dataclasses.replace(view, name=name, cells=view.cells[:rows]) for view in views] for name, views in sides
        )
        if tag != "equal":
            yield from (*one, *other)
            continue
        for before, after in zip(one, other, strict=True):
            if not _are_same(before, after):
                yield from (before, after, *_difference(before, after))


def _difference(old: View, new: View) -> Iterator[View]:
    """Yield how far the images of both sides are apart, each with the mean, if all have the same sizes."""
    names = [name for name, of in new.features.items() if is_image(of) and of.format is None and name in old.features]
    apart: list[dict[str, Any]] = []
    for cells in zip(old.cells, new.cells, strict=True):
        one, other = ({name: np.asarray(of[name], np.float64) for name in names} for of in cells)
        if any(one[name].shape != other[name].shape for name in names):
            return
        apart.append({name: np.abs(other[name] - one[name]) for name in names})
    if not names or not apart:
        return
    largest = {name: max(float(of[name].max()) for of in apart) for name in names}
    means = {name: "mean difference" if len(names) == 1 else f"mean difference of {name}" for name in names}
    features: dict[str, Feature] = {}
    for name in names:
        features[name] = new.features[name].replace(dtype="float64", low=0.0, high=largest[name] or 1.0)
        features[means[name]] = Feature(dtype="float64")
    shown = [{**of, **{means[name]: np.round(of[name].mean(), 4) for name in names}} for of in apart]
    yield dataclasses.replace(new, name=DIFFERENCE, features=features, cells=tuple(shown))


def _are_same(one: View, other: View) -> bool:
    cells = zip(one.cells, other.cells, strict=False)
    return one.features == other.features and all(
        np.array_equal(before[name], after[name]) for before, after in cells for name in before
    )


def pixels_of(view: View, name: str, place: int) -> npt.NDArray[np.uint8]:
    """Return the image of one cell as uint8 (height, width, 1 or 3), mapped from the range of its feature.

    If the range is unknown, it is that of all cells of the view. Values out of range are clipped; NaN is black.
    """
    feature, value = view.features[name], view.cells[place][name]
    if feature.format == "image":
        return np.asarray(Decode.op(value), np.uint8)
    ends = view.ends(name) if feature.low is None or feature.high is None else (feature.low, feature.high)
    low, high = ends or (0.0, 255.0)
    scaled = (np.asarray(value, np.float64) - low) * (255 / (high - low) if high > low else 0.0)
    return np.rint(np.clip(np.nan_to_num(scaled), 0, 255)).astype(np.uint8)


def of_sheet(sheet: Sheet, made_by: str) -> Doc:
    """Return examples as a document, which was `made_by` a command or a change."""
    columns = []
    for view in sheet.views:
        cells = [[*_pictures(target, place, view)] for place, target in enumerate(sheet.targets)]
        lines = ["applied by the model"] if view.is_of_model else []
        for name, feature in view.features.items():
            lines += [f"{name}: {feature}" if len(view.features) > 1 else str(feature), f"shown: {view.shown(name)}"]
        title = ", ".join(filter(None, [view.path, view.name]))
        is_long = not all(map(is_image, view.features.values()))
        columns.append(Col(title, cells.__getitem__, note="\n".join(lines), is_long=is_long))
    head = Col("example", lambda place: f"{sheet.targets[place]}, example {place + 1}", is_head=True)
    features = [(view, name) for view in sheet.views for name in view.features]
    return Doc(
        sheet.title,
        [
            Table(features, _FEATURES, only=["text"]),
            Lines([("note", note) for note in sheet.notes], only=["text"]),
            Table(range(len(sheet.targets)), [head, *columns], note=" ".join((_NOTE, *sheet.notes)), only=["html"]),
        ],
        over=sheet.source,
        foot=made_by,
    )


_NOTE = (
    "A row is an example, in the order of the data. A column is the output of a step, as the plan says, with the range "
    "of the values that are shown."
)
_FEATURES = (
    Col("stage", lambda of: of[0].path),
    Col("feature", lambda of: of[1] if len(of[0].features) > 1 else ""),
    Col("result", lambda of: str(of[0].features[of[1]])),
    Col("pass", lambda of: of[0].name),
    Col("values shown", lambda of: of[0].shown(of[1])),
)


def _pictures(target: str, place: int, view: View) -> Iterator[Picture]:
    """Yield each feature in a cell: an image with its size, or a text."""
    for name, feature in view.features.items():
        value = view.cells[place][name]
        if not is_image(feature):
            yield Picture("", f"{name} {as_text(value, feature)}")
            continue
        pixels = pixels_of(view, name, place)
        size = "x".join(map(str, pixels.shape[:2]))
        encoded = f", {len(value):,} bytes" if feature.format == "image" else ""
        alt = ", ".join(filter(None, [f"{name} after {view.path}", view.name, target, f"example {place + 1}"]))
        image = thumbnail(pixels)
        yield Picture(data_url(image), f"{size}{encoded}", alt, image.width, image.height)
