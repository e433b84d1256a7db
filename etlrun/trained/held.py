"""Columns whose vocabularies are in tables that are made once, not for each batch that is taken by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from etlrun.stages.column_categories import Lookup
from etlrun.stages.column_step import ColumnStep
from etlrun.stages.columns import Columns, Output


class _WithTable:
    """A lookup in a table."""

    def __init__(self, step: Lookup, table: Any) -> None:
        self.op, self.arguments = partial(type(step).op, table=table), {**step.arguments, "values": []}


class Held:
    """Columns that keep their tables.

    Attributes:
        columns: The columns, whose lookups use the tables.
        tables: The tables, as TensorFlow's objects that a model may track.
    """

    def __init__(self, columns: Columns) -> None:
        self.tables: list[Any] = []
        self.columns = dataclasses.replace(columns, outputs=tuple(map(self._held, columns.outputs)))

    def given(self, example: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs by name, for a batch of features by name."""
        return self.columns.given(example)

    def _held(self, output: Output) -> Output:
        return dataclasses.replace(output, steps=tuple(map(self._step, output.steps)))

    def _step(self, step: ColumnStep) -> ColumnStep:
        if not isinstance(step, Lookup):
            return step
        self.tables.append(step.table())
        return cast("ColumnStep", _WithTable(step, self.tables[-1]))
