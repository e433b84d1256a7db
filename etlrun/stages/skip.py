"""What happens to a record that can't be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from etlrun.stages.base import Stage


@dataclass(frozen=True, kw_only=True)
class SkipCorrupt(Stage):
    """Leaves out records that can't be read, parsed or decoded, and counts those that are left."""

    path: ClassVar[str] = "dataset.skip_corrupt"
    leaves_out: ClassVar[bool] = True
