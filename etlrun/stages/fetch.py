"""Fetching of shards from URLs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from etlrun.stages.base import SPEED, Positive, Stage
from etlrun.stages.dataset import Dataset, Declared
from etlrun.stages.paths import AT_ONCE, Keep


@dataclass(frozen=True, kw_only=True)
class Fetch(Stage):
    """Fetches shards of URLs in the order in which they are read, ahead of the stage that reads them.

    Attributes:
        at_once: Shards that are fetched at once.
        keep: How much of what is fetched stays on this machine.
    """

    path = "extract.fetch"
    changes_data = False

    at_once: Annotated[Positive, SPEED]
    keep: Annotated[Keep, SPEED]


def fetch_of(dataset: Dataset) -> Iterator[Fetch]:
    """Yield the stage that fetches the shards of a dataset, if they are at URLs."""
    if isinstance(dataset, Declared) and dataset.urls:
        yield Fetch(at_once=int((dataset.storage or {}).get("at_once", AT_ONCE)), keep=dataset.keep)
