"""The experiment that trains on a table, and what runs measure of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from etlrun.datasets.examine.compare import of_sheet
from etlrun.datasets.examine.show import Wanted, as_text, collect, points
from etlrun.graph.numbered import rows_drawn
from etlrun.measure.assessment import step_costs_ms
from etlrun.report.html import html
from etlrun.stages.load import FullShuffle
from tests.configs import plan_of
from tests.pipelines import training_pipeline
from tests.tables import houses, words_of


@pytest.mark.parametrize("target", ["{price: number}", "{band: class}", "{rooms: class}"])
def test_steps_of_rows_are_timed_one_by_one_whatever_the_target_is_before_them(table: Path, target: str) -> None:
    inputs = "dataset.inputs=[area,kind]"
    with training_pipeline(plan_of(*words_of(table, inputs, target=target))) as pipeline:
        costs = step_costs_ms(pipeline, "transform.map", seconds=0.03)
    assert [*costs] == ["transform.parse", "transform.columns"]


def test_rows_are_drawn_in_the_order_of_their_numbers() -> None:
    rows = np.random.default_rng(1).permutation(1_000)
    assert rows_drawn(rows, FullShuffle(seed=0), 1_000, 3).tolist() == rows[FullShuffle.op(1_000, 3)].tolist()


def test_rows_are_shown_after_each_step_of_their_columns(table: Path) -> None:
    columns = (
        "{area: {of: area, steps: [{fill: median}, log1p, standardize]}, "
        "day: {of: sold, steps: [{part: weekday}, {identity: 7}]}, "
        "size: {of: area, steps: [{fill: 0}, standardize]}, both: {of: [rooms, day], steps: [{cross: 5}, one_hot]}}"
    )
    words = words_of(table, "dataset.inputs=null", f"transform.columns={columns}", "dataset.order=file")
    plan = plan_of(*words)
    assert [(point.path, [*point.features]) for point in points(plan, "train")] == [
        ("transform.parse", ["area", "band", "garden", "kind", "rooms", "sold"]),
        ("transform.columns after step 1", ["area", "both", "size"]),
        ("transform.columns after step 2", ["area"]),
        ("transform.columns", ["area", "both", "day", "size"]),
    ]
    sheet = collect(plan, "train", Wanted(batches=4, examples=7))
    areas = houses()["area"].to_numpy()[:28]
    shown = {column.path: [cell["area"] for cell in column.views[0].cells] for column in sheet.columns}
    filled = np.where(np.isnan(areas), np.nanmedian(houses()["area"].to_numpy()[:160]), areas)
    np.testing.assert_allclose(shown["transform.parse"], areas)
    np.testing.assert_allclose(shown["transform.columns after step 1"], filled, rtol=1e-6)
    np.testing.assert_allclose(shown["transform.columns after step 2"], np.log1p(filled), rtol=1e-6)
    parsed = sheet.columns[0].views[0]
    missing = int(np.isnan(areas).sum())
    assert parsed.shown("area") == f"{np.nanmin(areas):.4g} to {np.nanmax(areas):.4g}, {missing} of 28 missing"
    first = int(np.flatnonzero(np.isnan(areas))[0])
    assert "<p>area missing</p>" in html(of_sheet(sheet, "etlrun show"))
    assert as_text(parsed.cells[first]["area"], parsed.features["area"]) == "missing"
    times = [str(day)[:10] for day in houses()["sold"].to_pylist()[:28]]
    assert parsed.shown("sold") == f"{min(times)} to {max(times)}"
    assert as_text(parsed.cells[0]["sold"], parsed.features["sold"]) == times[0]
