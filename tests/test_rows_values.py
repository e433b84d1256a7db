"""Values of rows of which the types or the names were taken for others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from etlrun.sources.open import open_source
from tests.configs import plan_of
from tests.programs import program_of
from tests.tables import houses, words_of


def test_classes_that_are_truth_values_have_labels(table: Path, tmp_path: Path) -> None:
    by_class = ("load.sample=uniform_by_class", "load.shuffle=full", "dataset.inputs=[area]", "dataset.order=file")
    plan = plan_of(*words_of(table, *by_class, target="{garden: class}"))
    source: Any = open_source(plan.spec.dataset)
    gardens = np.array(houses()["garden"].to_pylist(), int)
    np.testing.assert_array_equal(source.labels_of(source.split("train", "")), gardens)
    np.testing.assert_array_equal(program_of(plan, tmp_path).labels_of("train"), gardens)
