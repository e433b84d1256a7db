"""Opening of the dataset that a config names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from etlrun.sources.base import Source
from etlrun.sources.folder import FolderSource
from etlrun.sources.tfds import TfdsSource
from etlrun.sources.tfrecord import TFRecordSource
from etlrun.stages.dataset import Dataset, Folder, TfdsDataset, TFRecords

_SOURCES: dict[type[Dataset], Callable[[Any], Source]] = {
    TfdsDataset: TfdsSource,
    Folder: FolderSource,
    TFRecords: TFRecordSource,
}


def open_source(dataset: Dataset) -> Source:
    """Return the source of `dataset`, prepared if that is necessary and allowed; `EtlrunError` if it is unavailable."""
    return _SOURCES[type(dataset)](dataset)
