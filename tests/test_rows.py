"""Rows: read by number from kept columns, with the steps of their columns fitted and planned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
import tensorflow as tf

from etlrun.measure.digest import Digest
from etlrun.sources.base import open_source
from etlrun.sources.rows.kept import Kept
from etlrun.sources.rows.source import RowsSource
from etlrun.stages.columns import Columns
from etlrun.stages.flow import MISSING
from tests.configs import plan_of
from tests.pipelines import training_pipeline
from tests.tables import NUM_ROWS, houses, words_of


def kept_in(folder: Path) -> Kept:
    source = open_source(plan_of(*words_of(folder)).spec.dataset)
    assert isinstance(source, RowsSource)
    return source.kept


def columns_of(*words: str) -> dict[str, Any]:
    """The columns of a plan, as it shows them."""
    maps = plan_of(*words).train
    return next(step.stage.described() for stage in maps for step in stage.steps if isinstance(step.stage, Columns))


def test_kept_columns_hold_what_the_table_holds(table: Path) -> None:
    kept, rows = kept_in(table), np.array([3, 199, 0, 3])
    for name, expected in zip(houses().column_names, houses().columns, strict=True):
        values = expected.combine_chunks().take(rows)
        taken, missing = kept.take(name, rows), values.is_null().to_numpy(zero_copy_only=False)
        if name == "sold":
            assert taken.tolist() == values.cast("int64").to_pylist()
        elif name in ("kind", "band"):
            assert taken.tolist() == [MISSING if of is None else of.encode() for of in values.to_pylist()]
        else:
            np.testing.assert_array_equal(np.isnan(taken.astype(float)), missing)
            np.testing.assert_array_equal(taken[~missing], values.drop_null().to_numpy(zero_copy_only=False))
        assert kept.arrow(name).null_count == expected.null_count == kept.known.columns[name].missing
        assert kept.known.columns[name].distinct == pc.count_distinct(expected).as_py()


def test_a_plan_tells_what_the_columns_have_learned_from_the_training_split(table: Path) -> None:
    source = open_source(plan_of(*words_of(table)).spec.dataset)
    rows = source.split("train[:80%]", "").rows  # type: ignore[attr-defined]
    area = houses()["area"].take(rows)
    filled = pc.quantile(area, 0.5)[0].as_py()
    whole = area.fill_null(filled).to_numpy()
    assert len(rows) == 0.8 * NUM_ROWS
    assert columns_of(*words_of(table))["area"] == {
        "of": ["area"],
        "steps": [
            {"fill": {"filled": filled, "value": "median", "indicator": True}},
            {"standardize": {"mean": pytest.approx(whole.mean()), "std": pytest.approx(whole.std())}},
        ],
    }
    kinds = columns_of(*words_of(table))["kind"]["steps"][0]["lookup"]["values"]
    assert kinds == ["flat", "house", "loft"]


def test_a_class_is_looked_up_in_the_values_of_the_training_split(table: Path) -> None:
    planned = plan_of(*words_of(table, target="{band: class}"))
    source = open_source(planned.spec.dataset)
    assert (source.class_names, source.num_classes) == (("cheap", "dear"), 2)
    assert planned.train[-1].gives.features["band"].is_class


CACHES = {
    "rows by number": ("load.shuffle=full",),
    "a buffer": ("load.shuffle=buffer",),
    "in order": ("load.shuffle_buffer=0",),
    "in memory": ("cache=memory",),
    "on disk": ("cache=disk",),
    "on disk by number": ("cache=disk", "load.shuffle=full"),
    "before the columns": ("cache=memory", "cache.at=source"),
}


@pytest.mark.parametrize("words", CACHES.values(), ids=CACHES)
def test_all_configs_read_the_same_rows(table: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    planned = plan_of(*words_of(table, *words), f"cache.dir={tmp_path}")
    with training_pipeline(planned) as pipeline:
        digests = {digest_of(pipeline.dataset) for _ in range(2)}
    assert digests == {expected_digest(table)}


def expected_digest(folder: Path) -> str:
    """The digest of the training rows, with the outputs of the plan's columns computed once for all of them."""
    planned = plan_of(*words_of(folder))
    source, columns = open_source(planned.spec.dataset), planned.train[-2].steps[-1].stage
    assert isinstance(source, RowsSource)
    assert isinstance(columns, Columns)
    rows = source.split("train[:80%]", "").rows
    example = {name: tf.constant(source.kept.take(name, rows)) for name in ("area", "rooms", "kind", "garden", "price")}
    outputs = columns.given(example)
    price = outputs.pop("price")
    return digest_of(tf.data.Dataset.from_tensor_slices((outputs, price)).batch(7))


def digest_of(batches: Any) -> str:
    digest = Digest()
    for inputs, targets in batches:
        digest.add(inputs, targets)
    return digest.taken()
