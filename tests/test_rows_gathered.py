"""Values of kept columns in a graph, which are those that numpy takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from etlrun.sources.rows import kept as writing
from etlrun.sources.rows.source import gathered
from etlrun.stages.lazy import tf
from tests.tables import kept_from

ROWS = (
    '{"i": 1, "j": 1, "x": 0.5, "b": true, "c": true, "t": "a", "u": "ä", "d": "2020-01-02", "e": "2021-01-01"}\n'
    '{"i": 2, "x": 1.5, "b": false, "u": "", "e": "2021-01-02"}\n'
    '{"i": 3, "j": 7, "b": true, "c": false, "t": "b", "u": "ä", "d": "1969-12-31", "e": "2021-01-03"}\n'
)
"""Columns of each type, without and with a missing value."""
CODED = "tu"


@pytest.mark.parametrize("numbers", [[2, 0, 1, 2], 1], ids=["batch", "scalar"])
def test_a_graph_takes_what_numpy_takes(numbers: int | list[int], tmp_path: Path) -> None:
    kept = kept_from(tmp_path, "a.jsonl", ROWS, columns={"d": "timestamp", "e": "timestamp"})
    for name, column in kept.known.columns.items():
        gather = gathered(kept, name)
        assert gather is not None, name
        found = tf.function(gather)(tf.constant(numbers, tf.int64))
        assert found.dtype.name == column.feature.dtype, name
        expected = kept.take(name, np.atleast_1d(np.array(numbers)))
        np.testing.assert_array_equal(np.atleast_1d(found.numpy()), expected, name)


def test_texts_of_many_values_have_no_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MOST_CODED", 1)
    kept = kept_from(tmp_path, "a.jsonl", ROWS, columns={"d": "timestamp", "e": "timestamp"})
    assert [name for name in kept.known.columns if gathered(kept, name) is None] == [*CODED]
    assert not [*kept.folder.glob("*.codes.bin")]
    assert kept.take("t", np.array([1, 2])).tolist() == [b"\xff", b"b"]
    assert {name: kept.known.columns[name].distinct for name in CODED} == {"t": None, "u": None}
