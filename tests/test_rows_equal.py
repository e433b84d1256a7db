"""Hashes of rows: equal ones have the same, and others have others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from etlrun.sources.rows import leaks
from etlrun.sources.rows.arrays import KeptArrays, write_arrays
from etlrun.sources.rows.leaks import hashes_of
from tests.tables import kept_from


def test_equal_rows_have_equal_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ["1,x,0.0,true", "1,x,-0.0,true", "1,y,0.0,true", "1,x,0.5,true", ",x,0.0,true", "NA,x,0.0,true"]
    rows += ["1,,0.0,true", "1,x,0.0,false", "0,x,1.0,true"]
    kept = kept_from(tmp_path, "a.csv", "\n".join(["a,kind,price,garden", *rows]))
    names, numbers = [*kept.known.columns], np.arange(9)
    found = hashes_of(kept, names, numbers)
    assert found[0] == found[1]
    assert found[4] == found[5]
    assert len({*found.tolist()}) == 7
    monkeypatch.setattr(leaks, "_AT_ONCE", 2)
    np.testing.assert_array_equal(hashes_of(kept, names, numbers[::-1]), found[::-1])
    assert len({*hashes_of(kept, ["garden"], numbers).tolist()}) == 2
    assert found[0] == 111092985487745740  # in any process, since splits are kept by it


def test_arrays_of_several_dimensions_are_compared_by_each_value(tmp_path: Path) -> None:
    x = np.array([[1, 2], [2, 1], [1, 2]], np.float32)
    write_arrays(tmp_path, {"x": x, "y": np.array([1, 1, 1])}, where="", identity="a", title="a")
    first, other, equal_to_first = hashes_of(KeptArrays({}, tmp_path), ["x", "y"], np.arange(3))
    assert first == equal_to_first != other
