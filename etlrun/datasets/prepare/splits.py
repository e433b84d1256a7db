"""Order and splits of images, by their content and a seed; images that occur more than once."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal

from etlrun.datasets.prepare.source import Entry

_WHOLE = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """An image that can be used.

    Attributes:
        entry: Where it is.
        digest: Hash of its bytes.
        label: Index of its class.
        split: Split that it belongs to.
    """

    entry: Entry
    digest: str
    label: int
    split: str


@dataclass(frozen=True, kw_only=True)
class Duplicates:
    """Images with the same bytes.

    Attributes:
        across: Groups of them in several splits.
        conflicting: Groups of them with several labels.
        within: Number of images with the bytes and the label of another one in their split.
    """

    across: Sequence[Sequence[Image]]
    conflicting: Sequence[Sequence[Image]]
    within: int


def duplicates(images: Sequence[Image]) -> Duplicates:
    """Return which of the images occur more than once."""
    groups = [group for group in _by_digest(images).values() if len(group) > 1]
    return Duplicates(
        across=[group for group in groups if len({image.split for image in group}) > 1],
        conflicting=[group for group in groups if len({image.label for image in group}) > 1],
        within=sum(len(group) - len({(image.split, image.label) for image in group}) for group in groups),
    )


def ordered(images: Iterable[Image], seed: int) -> dict[str, list[Image]]:
    """Return the images of each split in an order that depends on their bytes, their labels and the seed alone."""
    found: dict[str, list[Image]] = defaultdict(list)
    for image in images:
        found[image.split].append(image)
    for chosen in found.values():
        chosen.sort(key=lambda image: (_drawn(seed, "order", image.digest), image.label))
    return dict(found)


def assigned(images: Sequence[Image], percents: Mapping[str, Decimal], seed: int) -> list[Image]:
    """Return the images with splits of these percents of each class; identical ones are in the same split.

    Splits depend on the images' bytes, their labels and the seed alone. What percents leave over in one class goes to
    the next one, so that the splits have their sizes as a whole; the first split has an image of each class.
    """
    classes: dict[int, list[list[Image]]] = defaultdict(list)
    for group in _by_digest(images).values():
        classes[min(image.label for image in group)].append(group)
    split_of: dict[str, str] = {}
    before = 0
    for _, groups in sorted(classes.items()):
        groups.sort(key=lambda group: _drawn(seed, "split", group[0].digest))
        ends = _ends(before, sum(map(len, groups)), percents)
        place = 0
        for group in groups:
            split_of[group[0].digest] = next(name for name, end in ends.items() if place < end)
            place += len(group)
        before += place
    return [replace(image, split=split_of[image.digest]) for image in images]


def _ends(before: int, count: int, percents: Mapping[str, Decimal]) -> dict[str, int]:
    """Return where each split ends among the `count` images of a class with `before` images in classes before it."""
    ends, share, end = {}, Decimal(0), 1
    for name, percent in percents.items():
        share += percent
        end = max(end, _part(before + count, share) - _part(before, share))
        ends[name] = end
    return ends


def _part(count: int, percent: Decimal) -> int:
    return int((count * percent / _WHOLE).to_integral_value(ROUND_HALF_UP))


def _by_digest(images: Iterable[Image]) -> dict[str, list[Image]]:
    found: dict[str, list[Image]] = defaultdict(list)
    for image in images:
        found[image.digest].append(image)
    return found


def _drawn(seed: int, what: str, digest: str) -> bytes:
    """Return bytes that order images at random, by their content."""
    return hashlib.sha256(f"{seed} {what} {digest}".encode()).digest()
