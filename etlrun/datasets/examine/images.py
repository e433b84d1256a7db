"""Images of a dataset: figures of each split, and what is wrong with them."""

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from etlrun.datasets.examine.finding import NAMED, Diagnosis, Finding, apart, of_balance, of_equal
from etlrun.datasets.examine.scan import Scan, near_findings, of_pixels, scanned
from etlrun.datasets.prepare.check import identical
from etlrun.planning.plan import Plan
from etlrun.report.doc import Col, Part, Table
from etlrun.sources.base import Source, Split
from etlrun.sources.corrupt import pillow_as_header_reader
from etlrun.stages.dataset import IMAGE
from etlrun.stages.flow import Flow
from etlrun.system.errors import WorldError, counted
from etlrun.system.terminal import Begin

_QUANTILES = (0.0, 0.05, 0.5, 0.95, 1.0)


def require(flow: Flow) -> None:
    """Raise `WorldError` unless examples are images with a class."""
    if flow.inputs != (IMAGE,) or not flow.features[flow.target].is_class or len(flow.targets) > 1:
        found, expected = str(flow.replace(record="")), "images with a class, which a doctor can examine"
        raise WorldError("dataset", found, expected, "leave dataset.features and dataset.target out")


@pillow_as_header_reader()
def examined(plan: Plan, source: Source, splits: Sequence[Split], begin: Begin) -> Diagnosis:
    """Examine the images of splits; `begin` is told of tasks and their images; `WorldError` for unreadable files."""
    scans = [scanned(split.source, split, begin(split.name, split.num_examples)) for split in splits]
    class_names = source.class_names or tuple(map(str, range(source.num_classes or 0)))
    figures = [_figures(scan, class_names) for scan in scans]
    return Diagnosis(
        findings=[*_findings(plan, scans, figures, class_names, begin)], splits=figures, parts=[*_tables(figures)]
    )


def _figures(scan: Scan, class_names: Sequence[str]) -> dict[str, Any]:
    """Return the figures of a split by name: of sides the least, 5 %, median, 95 % and largest one in pixels."""
    looks = scan.looks[~scan.looks["is_broken"]]
    counts = np.bincount(looks["label"], minlength=len(class_names))
    return {
        "name": scan.split.name,
        "examples": scan.split.num_examples,
        "files": len(scan.split.paths),
        "broken": scan.lost,
        "bytes_per_example": float(looks["size_bytes"].mean()) if len(looks) else 0.0,
        "classes": dict(zip(class_names, map(int, counts), strict=True)),
        "widths": _quantiles(looks["width"]),
        "heights": _quantiles(looks["height"]),
        "formats": _frequent(looks["format"]),
        "colours": _frequent(looks["colours"]),
    }


def _quantiles(values: Any) -> tuple[float, ...]:
    return tuple(round(float(value), 3) for value in np.quantile(values, _QUANTILES)) if len(values) else ()


def _frequent(values: Any) -> dict[str, int]:
    names, counts = np.unique(values, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {names[place].decode() or "unknown": int(counts[place]) for place in order}


def _tables(figures: Sequence[dict[str, Any]]) -> Iterator[Part]:
    def sides(name: str) -> Callable[[dict[str, Any]], str]:
        return lambda of: f"{of[name][0]:g} to {of[name][-1]:g}, median {of[name][2]:g}" if of[name] else ""

    def counts(name: str) -> Callable[[dict[str, Any]], str]:
        return lambda of: ", ".join(f"{kind} {count:,}" for kind, count in of[name].items())

    columns = [
        Col("dataset", itemgetter("name"), is_head=True),
        *(Col(name, itemgetter(name)) for name in ("examples", "files", "broken")),
        Col("bytes each", itemgetter("bytes_per_example"), ",.0f"),
        *(Col(name, sides(f"{name}s")) for name in ("width", "height")),
        *(Col(name, counts(name)) for name in ("formats", "colours")),
    ]
    yield Table(figures, columns, title="Splits")
    classes = [(split, name, count) for split in figures for name, count in split["classes"].items()]
    columns = [
        Col("dataset", lambda of: of[0]["name"], is_head=True),
        Col("class", lambda of: of[1]),
        Col("examples", lambda of: of[2]),
        Col("share", lambda of: of[2] / max(sum(of[0]["classes"].values()), 1), ".1%"),
    ]
    yield Table(classes, columns, title="Examples of each class")


def _findings(
    plan: Plan, scans: Sequence[Scan], figures: Sequence[dict[str, Any]], class_names: Sequence[str], begin: Begin
) -> Iterator[Finding]:
    for scan in scans:
        if scan.broken:
            text = f"{scan.lost:,} of {counted(scan.split.num_examples, 'example')} of {scan.split.name} can't be used"
            skipped = ", or set dataset.on_corrupt=skip" if scan.lost < scan.split.num_examples else ""
            places = [f"{place}: {reason}" for place, reason in scan.broken]
            yield Finding(text, f"repair or convert them{skipped}", places)
    whole, scans = scans, [*apart(scans, [scan.split for scan in scans])]
    sound = [np.flatnonzero(~scan.looks["is_broken"]) for scan in scans]
    numbers, splits = np.concatenate(sound), np.repeat(np.arange(len(scans)), [len(of) for of in sound])
    digests, labels = (
        np.concatenate([scan.looks[name][of] for scan, of in zip(scans, sound, strict=True)])
        for name in ("digest", "label")
    )
    groups = identical(digests, labels, splits)
    is_other = ~groups.is_across & ~groups.is_conflicting
    kinds = (
        (groups.is_across, "in several splits", "remove them from one, or prepare the images with --split"),
        (groups.is_conflicting, "under several labels", "correct the labels, or remove the images"),
        (is_other, "several times in one split", "remove them, unless they are to count more"),
    )

    def where(member: int) -> str:
        scan: Scan = scans[splits[member]]
        return scan.place(int(numbers[member]))

    yield from of_equal(groups, kinds, ("image", "images"), where)
    yield from near_findings(scans, class_names, begin)
    for scan in whole:
        yield from of_pixels(scan)
    for of in figures:
        missing = [name for name, count in of["classes"].items() if not count]
        remedy = "try load.class_weights=balanced, or load.sample=uniform_by_class with load.shuffle=full"
        if missing:
            text = f"{of['name']} has no example of {', '.join(missing[:NAMED])}"
            yield Finding(text, "choose a larger part of the dataset, or add images")
        else:
            yield from of_balance(of["name"], of["classes"], "examples of", remedy)
    sizes = [step.stage.size for stage in plan.train for step in stage.steps if hasattr(step.stage, "size")]
    for scan in whole if sizes else ():
        height, width = sizes[0]
        is_small = (scan.looks["height"] < height) | (scan.looks["width"] < width)
        text = f"a side below the {height}x{width} pixels of transform.resize"
        yield from scan.found(is_small, text, "choose a smaller transform.resize.size, or replace them by larger ones")
