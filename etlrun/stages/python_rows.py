"""Datasets of rows that a function of an installed package returns or yields."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

from etlrun.stages.base import DATA, Text
from etlrun.stages.plugins import ROWS
from etlrun.stages.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Python(Rows):
    """Rows that a function of an installed package returns or yields.

    Attributes:
        of: Name of its entry point in the group `etlrun.datasets`. It takes no arguments, and returns arrays by name, a
            frame of pandas or polars, or anything with `__arrow_c_stream__`; or yields dictionaries. All rows are the
            split `train`.
    """

    source = "etlrun.sources.rows.python:PythonSource"
    given_by = "of"

    of: Annotated[Text, DATA]

    @property
    def entries(self) -> list[EntryPoint]:
        """Entry points of that name; one, unless packages are missing or at odds."""
        return [entry for entry in _installed(tuple(sys.path)) if entry.name == self.of]

    @property
    def printed_before(self) -> tuple[str, ...]:
        return "etlrun.eject.printed.rows_made", *super().printed_before

    @property
    def constants(self) -> dict[str, Any]:
        return {**super().constants, "FUNCTION": self.entries[0].value, "STRIP": False}

    @property
    def restore(self) -> str:
        return "restore the package that the rows come from"

    @property
    def title(self) -> str:
        return self.of


@cache
def _installed(_paths: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the functions of the packages in these paths, which are listed once for many plans."""
    return tuple(entry_points(group=ROWS))
