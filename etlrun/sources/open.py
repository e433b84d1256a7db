"""The source of the dataset that a config names."""

from __future__ import annotations

import importlib

from etlrun.sources.base import Source
from etlrun.sources.on_disk import OnDisk
from etlrun.stages.dataset import Dataset


def source_type(dataset: Dataset) -> type[Source]:
    """Return the class of the source of `dataset`, whose module is imported for it alone."""
    module, _, name = dataset.source.partition(":")
    found: type[Source] = getattr(importlib.import_module(module), name)
    return found


def open_source(dataset: Dataset) -> Source:
    """Return the source of `dataset`, prepared if that is necessary and allowed; `EtlrunError` if it is unavailable."""
    return source_type(dataset)(dataset)


def on_disk(dataset: Dataset) -> OnDisk:
    """Return what is known of `dataset` without opening it."""
    return source_type(dataset).on_disk(dataset)
