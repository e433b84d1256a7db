"""Skipping of records that can't be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from etlrun.stages.base import Nodes, Stage


@dataclass(frozen=True, kw_only=True)
class SkipCorrupt(Stage):
    """Skips records that can't be read, parsed or decoded, and counts the remaining ones."""

    path = "dataset.skip_corrupt"
    nodes: ClassVar[tuple[Nodes, ...]] = (
        Nodes(("Map",), is_single=True),  # removes the numbers
        Nodes(("Filter", "Concatenate", "IgnoreErrors")),
    )
    leaves_out = True


@dataclass(frozen=True, kw_only=True)
class SkippedInBatches(SkipCorrupt):
    """The same where the stage before it has done so, for whole batches: nothing is left to do."""

    nodes = ()
