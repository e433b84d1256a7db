"""Columns whose vocabularies are in tables that are made once, not for each batch that is taken by itself."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, cast

from etlrun.graph.context import Context
from etlrun.stages.column_categories import Lookup
from etlrun.stages.column_numbers import ColumnStep
from etlrun.stages.columns import Columns
from etlrun.stages.lazy import tf


class _WithTable:
    """A lookup in a table."""

    applied = ColumnStep.applied

    def __init__(self, step: Lookup, table: Any) -> None:
        self.op, self.arguments = partial(type(step).op, table=table), {**step.arguments, "values": []}
        self.of_sequences = step.of_sequences


def with_tables(columns: Columns) -> tuple[Columns, list[Any]]:
    """Return columns whose lookups use tables, and these, as TensorFlow's objects that a model may track."""
    tables: list[Any] = []

    def held(step: ColumnStep) -> ColumnStep:
        if not isinstance(step, Lookup):
            return step
        tables.append(step.table())
        return cast("ColumnStep", _WithTable(step, tables[-1]))

    outputs = (dataclasses.replace(output, steps=tuple(map(held, output.steps))) for output in columns.outputs)
    return dataclasses.replace(columns, outputs=tuple(outputs)), tables


def held_by(columns: Columns, context: Context) -> tuple[Columns, Any]:
    """Return columns whose tables are made once for all passes, and these."""
    if columns not in context.traced:
        with tf.init_scope():  # they outlive the graph of a pass
            context.traced[columns] = with_tables(columns)
    held: tuple[Columns, Any] = context.traced[columns]
    return held
