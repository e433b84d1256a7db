"""Examples of a split and of its classes, from the metadata of TFDS or the files of others, without a slow import."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import singledispatch
from pathlib import Path
from typing import Any

from etlrun.sources.globbed import files_of
from etlrun.sources.listing import listing_of
from etlrun.sources.slices import slices
from etlrun.stages.dataset import LABEL, Dataset, Folder, TfdsDataset, TFRecords
from etlrun.system.errors import EtlrunError

CLASSES = "examples_by_class"
"""Key in the `metadata.json` of a dataset: the examples of each class of the feature `label`, by split and name."""


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Examples of a split.

    Attributes:
        count: Number of examples.
        encoded_bytes: Mean size of an example in its file.
    """

    count: int
    encoded_bytes: float


def examples(dataset: Dataset, split: str) -> Examples | None:
    """Return the examples of `split`; None if the dataset is not on this disk, or the split is not a simple slice."""
    sizes = _sizes(dataset)
    found = slices(split, {name: count for name, (count, _) in sizes.items()})
    if not found:
        return None
    count = sum(end - start for _, start, end in found)
    size = sum((end - start) * sizes[name][1] / max(sizes[name][0], 1) for name, start, end in found)
    return Examples(count=count, encoded_bytes=size / max(count, 1))


def sizes_of(dataset: Dataset) -> dict[str, int]:
    """Return the number of examples of each whole split; none if the dataset is not on this disk."""
    return {name: count for name, (count, _) in _sizes(dataset).items()}


def read_bytes(dataset: Dataset) -> float | None:
    """Return the mean size of a training example in its file; None if the dataset is not on this disk."""
    known = examples(dataset, dataset.split)
    return None if known is None else known.encoded_bytes


def thinned(dataset: Dataset, split: str, count: int, parts: int) -> str:
    """Return a split of about `count` examples of `split`, in so many parts that are spread evenly over it.

    It is `split` itself if that has no more examples, or if its examples are not known.
    """
    found = slices(split, {name: number for name, (number, _) in _sizes(dataset).items()})
    total = sum(end - start for _, start, end in found)
    if total <= count or not found:
        return split
    pieces = []
    for name, start, end in found:
        own = max(1, min(round(parts * (end - start) / total), end - start))
        for place in range(own):
            begin, behind = (start + (end - start) * at // own for at in (place, place + 1))
            pieces.append(f"{name}[{begin}:{begin + max(1, (behind - begin) * count // total)}]")
    return "+".join(pieces)


@singledispatch
def examples_by_class(_dataset: Dataset, _split: str) -> dict[str, int] | None:
    """Return the number of examples of each class by its name, in the order of the classes; None if it is unknown.

    It is known of a folder, and of whole splits of datasets that `etlrun prepare` has written.
    """
    return None


@examples_by_class.register
def _(dataset: TfdsDataset, split: str) -> dict[str, int] | None:
    home = home_of(dataset)
    if home is None or dataset.keys[dataset.examples.target] != LABEL:
        return None
    known, sizes = _read(home / "metadata.json").get(CLASSES, {}), _sizes(dataset)
    parts = slices(split, {name: count for name, (count, _) in sizes.items()})
    if not parts or any(name not in known or (start, end) != (0, sizes[name][0]) for name, start, end in parts):
        return None
    return {label: sum(known[name].get(label, 0) for name, _, _ in parts) for label in known[parts[0][0]]}


@examples_by_class.register
def _(dataset: Folder, split: str) -> dict[str, int] | None:
    try:
        listing = listing_of(dataset)
    except EtlrunError:
        return None
    parts = slices(split, {name: len(images) for name, images in listing.splits.items()})
    counts = Counter(image.label for name, start, end in parts for image in listing.splits[name][start:end])
    return {label: counts[label] for label in listing.classes} if parts else None


@singledispatch
def _sizes(dataset: Dataset) -> dict[str, tuple[int, int]]:
    """Return the number of examples of each split, and their size in bytes; none if the dataset is not here."""
    raise NotImplementedError(type(dataset))


@_sizes.register
def _(dataset: TfdsDataset) -> dict[str, tuple[int, int]]:
    home = home_of(dataset)
    entries = [] if home is None else _read(home / "dataset_info.json").get("splits", [])
    return {
        entry["name"]: (sum(map(int, entry.get("shardLengths", []))), int(entry.get("numBytes", 0)))
        for entry in entries
    }


@_sizes.register
def _(dataset: TFRecords) -> dict[str, tuple[int, int]]:
    try:
        return {name: (sum(of.values()), _bytes_of(of)) for name, of in files_of(dataset).items()}
    except (EtlrunError, OSError):
        return {}


@_sizes.register
def _(dataset: Folder) -> dict[str, tuple[int, int]]:
    try:
        listing = listing_of(dataset)
        return {
            name: (len(images), _bytes_of(f"{listing.folder}/{image.path}" for image in images))
            for name, images in listing.splits.items()
        }
    except (EtlrunError, OSError):
        return {}


def _bytes_of(paths: Iterable[str]) -> int:
    return sum(os.stat(path).st_size for path in paths)  # noqa: PTH116 - of many files


def home_of(dataset: TfdsDataset) -> Path | None:
    """Return the folder of the newest version that matches; None if there is none."""
    found = [path for path in homes_of(dataset) if fnmatch(path.name, dataset.version or "*")]
    return found[-1] if found else None


def homes_of(dataset: TfdsDataset) -> list[Path]:
    """Return the folders of all versions that are prepared, the newest last."""
    home = dataset.data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    folder = Path(home).expanduser() / dataset.name
    try:
        found = [path.parent for path in folder.glob("*/dataset_info.json")]
    except OSError:
        return []
    versions = [path for path in found if re.fullmatch(r"\d+\.\d+\.\d+", path.name)]
    return sorted(versions, key=lambda path: [int(number) for number in path.name.split(".")])


def _read(path: Path) -> Mapping[str, Any]:
    """Return what a JSON file of metadata holds; nothing if it can't be read."""
    try:
        found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found
