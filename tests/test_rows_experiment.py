"""The experiment that trains on a table, and what runs measure of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from etlrun.datasets.examine.points import points
from etlrun.graph.numbered import rows_drawn
from etlrun.measure.probes import step_costs_ms
from etlrun.stages.load import FullShuffle
from tests.configs import plan_of
from tests.pipelines import training_pipeline
from tests.tables import words_of


@pytest.mark.parametrize("target", ["{price: number}", "{band: class}", "{rooms: class}"])
def test_steps_of_rows_are_timed_one_by_one_whatever_the_target_is_before_them(table: Path, target: str) -> None:
    inputs = "dataset.inputs=[area,kind]"
    with training_pipeline(plan_of(*words_of(table, inputs, target=target))) as pipeline:
        costs = step_costs_ms(pipeline, "transform.map", seconds=0.03)
    assert [*costs] == ["transform.parse", "transform.columns"]


def test_rows_are_drawn_in_the_order_of_their_numbers() -> None:
    rows = np.random.default_rng(1).permutation(1_000)
    assert rows_drawn(rows, FullShuffle(seed=0), 1_000, 3).tolist() == rows[FullShuffle.op(1_000, 3)].tolist()


def test_rows_are_shown_after_their_columns(table: Path) -> None:
    found = points(plan_of(*words_of(table)), "train")
    steps = [(point.path, {*point.features} - {"area_missing"}) for point in found]
    names = {"area", "garden", "kind", "rooms"}
    assert steps == [("transform.parse", names), ("transform.columns", names)]
