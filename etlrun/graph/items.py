"""Sequences of rows whose items are kept, in the place of the steps that make them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, cast

from etlrun.graph.context import Context
from etlrun.graph.held import held_by
from etlrun.sources.base import Example
from etlrun.sources.rows.sequences import items_of
from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.stages.columns import Columns
from etlrun.stages.lazy import tf
from etlrun.stages.step import Map, RowsMap, Step


def columns_in(stage: Map) -> Columns | None:
    """Return the columns that a map makes of the numbers of rows; None for any other map."""
    second = stage.steps[1] if isinstance(stage, RowsMap) and stage.steps[1:] else None
    return second if isinstance(second, Columns) else None


def with_items(stage: Map, context: Context) -> tuple[list[Callable[[Any], Example]], Sequence[Step]]:
    """Return the function from numbers of rows to their columns that takes what is kept, and the steps behind it.

    Where nothing is kept, there is no function, and all steps are left.
    """
    columns = columns_in(stage)
    if columns is None:
        return [], stage.steps
    source, split = cast("RowsSource", context.source), cast("RowSplit", context.split)
    with tf.init_scope():  # files are mapped now, even where a graph is traced
        kept = items_of(source, split, columns)
    if not kept:
        return [], stage.steps
    others = dataclasses.replace(columns, outputs=tuple(of for of in columns.outputs if of.name not in kept))
    given, parse = held_by(others, context)[0].given, source.parser({name for of in others.outputs for name in of.of})

    def take(record: tf.Tensor) -> Example:
        items = {name: gather(record) for name, gather in kept.items()}
        return {**items, **given({**items, **parse(record)})}

    return [take], stage.steps[2:]
