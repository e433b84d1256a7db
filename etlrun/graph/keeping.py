"""Keeping of the items of sequences, before a run reads them again and again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from etlrun.graph.context import Context
from etlrun.graph.datasets import map_steps
from etlrun.graph.items import columns_in
from etlrun.planning.plan import Plan, stage_of
from etlrun.sources.rows.sequences import keep_items
from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.stages.columns import Columns
from etlrun.stages.lazy import tf
from etlrun.stages.step import RowsMap


def keep_sequences(plan: Plan, contexts: Mapping[str, Context]) -> None:
    """Keep the items of the sequences of all pipelines of a run that reads all rows more than once.

    Raises:
        EtlrunError: They can't be kept.
    """
    trainer = plan.spec.trainer
    if trainer.all_epochs == 1 or trainer.steps_per_epoch is not None or trainer.seconds is not None:
        return
    for name, context in contexts.items():
        stage = stage_of(plan.pipelines[name], RowsMap)
        if stage is not None and (columns := columns_in(stage)) is not None:
            _keep(columns, dataclasses.replace(stage, at_once=0), context)


def _keep(columns: Columns, stage: RowsMap, context: Context) -> None:
    apart = dataclasses.replace(context, traced={})  # since this map has no items to take yet

    def made(rows: npt.NDArray[np.int64], count: int) -> Iterator[Mapping[str, Any]]:
        return iter(map_steps(tf.data.Dataset.from_tensor_slices(rows).batch(count), stage, apart))

    keep_items(cast("RowsSource", context.source), cast("RowSplit", context.split), columns, made)
