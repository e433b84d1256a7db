"""Number of examples of a split, from TFDS's metadata on disk, without the slow import of TFDS."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from etlrun.stages.dataset import Dataset

_PART = re.compile(r"(?P<name>\w+)(?:\[(?P<start>-?\d+%?)?:(?P<end>-?\d+%?)?\])?")


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
    info = _info(dataset)
    if info is None:
        return None
    splits = {entry["name"]: entry for entry in info.get("splits", [])}
    count, size = 0, 0.0
    for part in split.split("+"):
        match = _PART.fullmatch(part.strip())
        if match is None or match["name"] not in splits:
            return None
        whole = sum(int(length) for length in splits[match["name"]].get("shardLengths", []))
        taken = max(0, _bound(match["end"], whole, whole) - _bound(match["start"], whole, 0))
        count += taken
        size += taken * int(splits[match["name"]].get("numBytes", 0)) / max(whole, 1)
    return Examples(count=count, encoded_bytes=size / max(count, 1))


def read_bytes(dataset: Dataset) -> float | None:
    """Return the mean size of a training example in its file; None if the dataset is not on this disk."""
    known = examples(dataset, dataset.split)
    return None if known is None else known.encoded_bytes


def _bound(text: str | None, whole: int, otherwise: int) -> int:
    """Return a bound of a slice in examples; TFDS rounds percentages to the nearest example."""
    if text is None:
        return otherwise
    number = round(int(text[:-1]) * whole / 100) if text.endswith("%") else int(text)
    return min(max(number + whole if number < 0 else number, 0), whole)


def _info(dataset: Dataset) -> Mapping[str, Any] | None:
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
