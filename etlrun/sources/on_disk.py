"""Number of examples of a split, from the metadata of TFDS or the files of others, without a slow import."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from etlrun.errors import EtlrunError
from etlrun.sources.globbed import files_of
from etlrun.sources.listing import listed
from etlrun.sources.slices import slices
from etlrun.stages.dataset import Dataset, Folder, TfdsDataset, TFRecords


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


def read_bytes(dataset: Dataset) -> float | None:
    """Return the mean size of a training example in its file; None if the dataset is not on this disk."""
    known = examples(dataset, dataset.split)
    return None if known is None else known.encoded_bytes


def _sizes(dataset: Dataset) -> dict[str, tuple[int, int]]:
    """Return the number of examples of each split, and their size in bytes; none if the dataset is not here."""
    if isinstance(dataset, TfdsDataset):
        entries = (_info(dataset) or {}).get("splits", [])
        return {
            entry["name"]: (sum(map(int, entry.get("shardLengths", []))), int(entry.get("numBytes", 0)))
            for entry in entries
        }
    try:
        return {name: (count, sum(path.stat().st_size for path in paths)) for name, count, paths in _files(dataset)}
    except (EtlrunError, OSError):
        return {}


def _files(dataset: Dataset) -> Iterator[tuple[str, int, list[Path]]]:
    """Yield each split of a dataset that is not of TFDS, with the number of its examples, and its files."""
    if isinstance(dataset, Folder):
        listing = listed(Path(dataset.dir).expanduser(), dataset.key("dir"))
        for name, images in listing.splits.items():
            yield name, len(images), [listing.folder / image.path for image in images]
    elif isinstance(dataset, TFRecords):
        for name, counts in files_of(dataset).items():
            yield name, sum(counts.values()), [*map(Path, counts)]


def _info(dataset: TfdsDataset) -> Mapping[str, Any] | None:
    """Return TFDS's metadata of the newest version that matches."""
    home = dataset.data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    folder = Path(home).expanduser() / dataset.name
    try:
        versions = {
            tuple(int(number) for number in path.parent.name.split(".")): path
            for path in folder.glob("*/dataset_info.json")
            if re.fullmatch(r"\d+\.\d+\.\d+", path.parent.name) and fnmatch(path.parent.name, dataset.version or "*")
        }
        info: Mapping[str, Any] = json.loads(versions[max(versions)].read_text(encoding="utf-8"))
    except (OSError, ValueError):  # also if there is no version at all
        return None
    return info
