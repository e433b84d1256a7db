"""Diagnosis of a dataset of images: what is in it, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.datasets.examine.doctor_pairs import near_findings
from etlrun.datasets.examine.doctor_pixels import of_pixels
from etlrun.datasets.examine.doctor_scan import Scan, scanned
from etlrun.datasets.examine.finding import NAMED, Diagnosis, Finding
from etlrun.datasets.prepare.check import identical
from etlrun.planning.plan import Plan
from etlrun.sources.base import Source, open_source
from etlrun.sources.corrupt import pillow_as_header_reader
from etlrun.sources.slices import note_of_unused
from etlrun.stages.cache import cache_bytes
from etlrun.stages.dataset import IMAGE
from etlrun.system.errors import WorldError
from etlrun.system.progress import Begin

_MEMBERS = 4
"""Identical images that a finding names."""
MOST_UNLIKE = 10
"""Ratio of the largest to the smallest class, from which on it is a finding."""
_QUANTILES = (0.0, 0.05, 0.5, 0.95, 1.0)


@dataclass(frozen=True, kw_only=True)
class SplitFigures:
    """Figures of a split.

    Attributes:
        name: Name in TFDS's slicing language.
        examples: Number of examples, and of the `files` that hold them.
        broken: Examples that can't be used.
        bytes_per_example: Mean size of the encoded images.
        classes: Examples of each class by name.
        widths: Least, 5 %, median, 95 % and largest width in pixels; `heights` and `aspect_ratios` (width / height)
            likewise.
        formats: Examples of each format; `colours` likewise.
        cache_bytes: Size of a cache at each point, by its name.
    """

    name: str
    examples: int
    files: int
    broken: int
    bytes_per_example: float
    classes: Mapping[str, int]
    widths: tuple[float, ...]
    heights: tuple[float, ...]
    aspect_ratios: tuple[float, ...]
    formats: Mapping[str, int]
    colours: Mapping[str, int]
    cache_bytes: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class ImageDiagnosis(Diagnosis):
    """What is in a dataset of images, and what is wrong with it.

    Attributes:
        splits: Figures of each split.
        scans: Scans of the splits.
        class_names: Names of the classes.
    """

    splits: tuple[SplitFigures, ...]
    scans: tuple[Scan, ...] = field(repr=False)
    class_names: tuple[str, ...]


@pillow_as_header_reader()
def diagnosed(plan: Plan, begin: Begin, *, is_whole: bool) -> ImageDiagnosis:
    """Examine the splits of a plan, or all of its dataset; `begin` is told of each task with the number of its images.

    Raises:
        WorldError: The dataset is missing, has no images with a class, or a file can't be read.
    """
    dataset = plan.spec.dataset
    flow = dataset.examples
    if flow.inputs != (IMAGE,) or not flow.features[flow.target].is_class or len(flow.targets) > 1:
        raise WorldError(
            "dataset",
            str(flow.replace(record="")),
            "images with a class, which a doctor can examine",
            "leave dataset.features and dataset.target out",
        )
    source = open_source(replace(dataset.without_download(), on_corrupt="skip"))  # what can't be used is a finding
    names = [*source.counts] if is_whole else [dataset.split, *([dataset.eval_split] if dataset.eval_split else [])]
    splits = [source.split(name, dataset.key("split")) for name in names if not is_whole or source.counts[name]]
    scans = tuple(scanned(source, split, begin(split.name, split.num_examples)) for split in splits)
    class_names = source.class_names or tuple(map(str, range(source.num_classes or 0)))
    figures = tuple(_figures(plan, source, scan, class_names) for scan in scans)
    return ImageDiagnosis(
        dataset=source.full_name,
        findings=tuple(_findings(plan, scans, figures, class_names, begin)),
        splits=figures,
        scans=scans,
        class_names=class_names,
        notes=(*source.notes, *filter(None, [None if is_whole else note_of_unused(dataset, source.counts)])),
    )


def _figures(plan: Plan, source: Source, scan: Scan, class_names: Sequence[str]) -> SplitFigures:
    looks = scan.looks[~scan.looks["is_broken"]]
    counts = np.bincount(looks["label"], minlength=len(class_names))
    ratios = looks["width"] / np.maximum(looks["height"], 1)
    return SplitFigures(
        name=scan.split.name,
        examples=scan.split.num_examples,
        files=len(scan.split.paths),
        broken=scan.lost,
        bytes_per_example=float(looks["size_bytes"].mean()) if len(looks) else 0.0,
        classes=dict(zip(class_names, map(int, counts), strict=True)),
        widths=_quantiles(looks["width"]),
        heights=_quantiles(looks["height"]),
        aspect_ratios=_quantiles(ratios),
        formats=_counted(looks["format"]),
        colours=_counted(looks["colours"]),
        cache_bytes=_cache_bytes(plan, source, looks, scan.split.num_examples),
    )


def _quantiles(values: Any) -> tuple[float, ...]:
    return tuple(round(float(value), 3) for value in np.quantile(values, _QUANTILES)) if len(values) else ()


def _counted(values: Any) -> dict[str, int]:
    names, counts = np.unique(values, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {names[place].decode() or "unknown": int(counts[place]) for place in order}


def _cache_bytes(plan: Plan, source: Source, looks: Any, count: int) -> dict[str, int]:
    """Return the size of a cache of `count` examples at each point."""
    if not len(looks):
        return {}
    flow, features = source.dataset.examples, plan.spec.model.features
    pixels = float((looks["width"].astype(np.int64) * looks["height"] * 3).mean())
    sizes = {
        "source": cache_bytes(flow, count, float(looks["size_bytes"].mean())),
        "decoded": cache_bytes(flow, count, pixels),
        "transformed": cache_bytes(plan.train[-1].gives, count),
        "features": None if features is None else cache_bytes(flow, count, 4 * features),
    }
    return {point: size for point, size in sizes.items() if size is not None}


def _findings(
    plan: Plan, scans: Sequence[Scan], figures: Sequence[SplitFigures], class_names: Sequence[str], begin: Begin
) -> Iterator[Finding]:
    for scan in scans:
        if scan.broken:
            yield Finding(
                f"{scan.lost:,} of {scan.split.num_examples:,} examples of {scan.split.name} can't be used",
                "repair or convert them"
                + (", or set dataset.on_corrupt=skip" if scan.lost < scan.split.num_examples else ""),
                tuple(f"{place}: {reason}" for place, reason in scan.broken[:NAMED]),
            )
    yield from _identical(scans)
    yield from near_findings(scans, class_names, begin)
    for scan in scans:
        yield from of_pixels(scan)
    for of in figures:
        yield from _balance(of)
    yield from _too_small(plan, scans)


def _identical(scans: Sequence[Scan]) -> Iterator[Finding]:
    """Yield the findings of the same bytes in several splits, under several labels, or several times in one split."""
    sound = [np.flatnonzero(~scan.looks["is_broken"]) for scan in scans]
    numbers = np.concatenate(sound)
    splits = np.repeat(np.arange(len(scans)), [len(of) for of in sound])
    digests, labels = (
        np.concatenate([scan.looks[name][of] for scan, of in zip(scans, sound, strict=True)])
        for name in ("digest", "label")
    )
    groups = identical(digests, labels, splits)
    is_other = ~groups.is_across & ~groups.is_conflicting
    kinds = (
        (groups.is_across, "are in several splits", "remove them from one, or prepare the images with --split"),
        (groups.is_conflicting, "have several labels", "correct the labels, or remove the images"),
        (is_other, "are several times in one split", "remove them, unless they are to count more"),
    )
    for is_chosen, text, remedy in kinds:
        chosen = np.flatnonzero(is_chosen)
        if len(chosen):
            named = [groups.members(group) for group in chosen[:NAMED]]
            yield Finding(
                f"{len(chosen):,} image{'s' * (len(chosen) > 1)} {text if len(chosen) > 1 else _singular(text)}",
                remedy,
                tuple(_equal(scans, splits[of], numbers[of]) for of in named),
                tuple((scans[splits[of[0]]], int(numbers[of[0]])) for of in named),
            )


def _equal(scans: Sequence[Scan], splits: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]) -> str:
    """Return the places of identical images; of many, the first ones and their number."""
    places = [scans[split].place(number) for split, number in zip(splits[:_MEMBERS], numbers[:_MEMBERS], strict=True)]
    return " = ".join(places) + (f" = … ({len(numbers):,} in all)" if len(numbers) > _MEMBERS else "")


def _singular(text: str) -> str:
    return text.replace("are ", "is ", 1).replace("have ", "has ", 1).replace("them", "it")


def _balance(split: SplitFigures) -> Iterator[Finding]:
    """Yield the finding of classes that are missing, or of which one is much larger than another."""
    missing = [name for name, count in split.classes.items() if not count]
    most, least = (choose(split.classes, key=split.classes.__getitem__) for choose in (max, min))
    if missing:
        text = f"{split.name} has no example of {', '.join(missing[:NAMED])}"
        yield Finding(text, "choose a larger part of the dataset, or add images")
    elif split.classes[most] > MOST_UNLIKE * split.classes[least]:
        yield Finding(
            f"{split.name} has {split.classes[most]:,} examples of {most} and {split.classes[least]:,} of {least}",
            "try load.class_weights=balanced, or load.sample=uniform_by_class with load.shuffle=full",
        )


def _too_small(plan: Plan, scans: Sequence[Scan]) -> Iterator[Finding]:
    """Yield the finding of images that the steps enlarge."""
    sizes = [step.stage.size for of in plan.train for step in of.steps if hasattr(step.stage, "size")]
    if not sizes:
        return
    height, width = sizes[0]
    text = f"have a side below the {height}x{width} pixels to which they are resized"
    for scan in scans:
        is_small = (scan.looks["height"] < height) | (scan.looks["width"] < width)
        yield from scan.found(is_small, text, "choose a smaller transform.resize.size, or replace them by larger ones")
