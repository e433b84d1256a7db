"""The experiment that trains on a table, and what runs measure of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from etlrun.measure.probes import step_costs_ms
from tests.configs import plan_of
from tests.pipelines import training_pipeline
from tests.tables import words_of


@pytest.mark.parametrize("target", ["{price: number}", "{band: class}", "{rooms: class}"])
def test_steps_of_rows_are_timed_one_by_one_whatever_the_target_is_before_them(table: Path, target: str) -> None:
    inputs = "dataset.inputs=[area,kind]"
    with training_pipeline(plan_of(*words_of(table, inputs, target=target))) as pipeline:
        costs = step_costs_ms(pipeline, "transform.map", seconds=0.03)
    assert [*costs] == ["transform.parse", "transform.columns"]
