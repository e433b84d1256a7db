"""Batches of rows are cut from the whole order of a pass; a pass goes on behind those that were read."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etlrun.graph.build import Pipeline
from etlrun.planning.plan import Plan
from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.stages.load import FullShuffle, SampleByClass
from tests.configs import plan_of
from tests.pipelines import training_pipeline
from tests.tables import words_of
from tests.test_skip_batches import batches_of
from tests.test_stage_costs import BATCH, seen

FULL, BY_CLASS = "load.shuffle=full", "load.sample=uniform_by_class"
CONFIGS = {
    "shuffled": (FULL,),
    "without a remainder": (FULL, "load.drop_remainder=true"),
    "one batch": (FULL, "load.batch_size=1000"),
    "by class": (FULL, BY_CLASS),
    "in order": ("load.shuffle_buffer=0",),
}
SKIPPED = 3


def planned(table: Path, *words: str) -> Plan:
    target = "{band: class}" if BY_CLASS in words else "{price: number}"
    columns = "transform.columns={area: {of: area, steps: [{fill: 0}]}}"
    return plan_of(*words_of(table, columns, *words, target=target))


def order_of(pipeline: Pipeline, words: tuple[str, ...], number: int) -> Any:
    """The rows of a pass, in their order."""
    source, split, seed = pipeline.context.source, pipeline.split, int(pipeline.context.pass_seed(number))
    assert isinstance(split, RowSplit)
    if FULL not in words:
        return split.rows
    return split.rows[
        SampleByClass.op(source.labels_of(split), seed) if BY_CLASS in words else FullShuffle.op(len(split.rows), seed)
    ]


@pytest.mark.parametrize("words", CONFIGS.values(), ids=CONFIGS)
def test_batches_are_those_of_the_order_of_the_pass(words: tuple[str, ...], table: Path) -> None:
    plan = planned(table, *words)
    load = plan.spec.load
    with training_pipeline(plan) as pipeline:
        source = pipeline.context.source
        assert isinstance(source, RowsSource)
        for number in (1, 2):
            areas = np.nan_to_num(source.kept.take("area", order_of(pipeline, words, number))).astype(np.float32)
            expected = [areas[first : first + load.batch_size] for first in range(0, len(areas), load.batch_size)]
            whole = [batch for batch in expected if len(batch) == load.batch_size or not load.drop_remainder]
            found = [area.numpy() for area, _ in pipeline.dataset]
            assert [batch.tolist() for batch in found] == [batch.tolist() for batch in whole]


@pytest.mark.parametrize("is_endless", [False, True], ids=["passes", "endless"])
@pytest.mark.parametrize("words", [CONFIGS["shuffled"], CONFIGS["in order"]], ids=["shuffled", "in order"])
def test_a_pass_goes_on_behind_the_batches_that_are_skipped(
    words: tuple[str, ...],
    table: Path,
    is_endless: bool,  # noqa: FBT001 - which dataset is read
) -> None:
    found = []
    for skipped in (0, SKIPPED):
        with training_pipeline(planned(table, *words)) as pipeline:
            pipeline.skip_passes(1)
            pipeline.skip_batches(skipped)
            passes = (
                [*islice(pipeline.endless(), 50 - skipped)] if is_endless else [*pipeline.dataset, *pipeline.dataset]
            )
            found.append(batches_of(passes))
    whole, resumed = found
    assert resumed == whole[SKIPPED:]


def test_the_order_of_a_pass_is_no_cost_of_an_example(table: Path) -> None:
    costs = seen(planned(table, FULL, f"load.batch_size={BATCH}"))
    rows = {row.stage: row for row in costs.rows}
    assert [*rows] == ["extract.sequential", "load.shuffle_full", "load.batch", "transform.map", "load.prefetch"]
    assert rows["extract.sequential"].cost_ms == rows["load.shuffle_full"].cost_ms == 0
    assert rows["extract.sequential"].examples == rows["load.shuffle_full"].examples == rows["load.batch"].examples
    assert 0 < rows["load.batch"].cost_ms < rows["transform.map"].cost_ms
    assert costs.periods.work.period_ms == pytest.approx(sum(row.cost_ms for row in costs.rows))
