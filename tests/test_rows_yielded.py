"""Values that functions of installed packages return or yield, whose types are those of all rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etlrun.sources.base import open_source
from etlrun.stages.flow import MISSING
from tests.configs import plan_of
from tests.test_rows_python import installed, refusal

LATER = 4_200
"""A row behind those that are kept at once."""


def kept(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str, numbers: list[int]) -> dict[str, list[Any]]:
    source: Any = open_source(plan_of(*installed(folder, monkeypatch, body)).spec.dataset)
    return {name: source.kept.take(name, np.array(numbers)).tolist() for name in source.kept.known.columns}


def test_types_widen_behind_the_first_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = f"{{'area': n if n < {LATER} else n + 0.5, 'note': None if n < {LATER} else 'x', 'price': n}}"
    body = f"    for n in range({LATER + 10}):\n        yield {row}\n"
    assert kept(tmp_path, monkeypatch, body, [1, LATER, 3]) == {
        "area": [1.0, LATER + 0.5, 3.0],
        "note": [MISSING, b"x", MISSING],
        "price": [1, LATER, 3],
    }


def test_types_that_have_none_in_common_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = f"    for n in range({LATER}):\n        yield {{'price': n if n < 4_100 else 'x'}}\n"
    assert refusal(*installed(tmp_path, monkeypatch, body)) == (
        "dataset.of: houses: found row 4,100, price: x of type str; expected values of one type in each column: "
        "numbers of at most 64 bits, truth values, texts, or times\n    -> repair the function"
    )
    told = refusal(*installed(tmp_path, monkeypatch, body.replace("4_100", "4_096")))
    assert told.startswith(
        "dataset.of: houses: found values of another type among rows 4,096 to 4,199: Unable to merge"
    )


def test_times_of_numpy_are_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    day = "np.datetime64('1970-01-01', 'ns') + 1_000 * n"
    body = f"    for n in range(20):\n        yield {{'day': {day}, 'area': n % 7, 'price': n}}\n"
    source: Any = open_source(plan_of(*installed(tmp_path, monkeypatch, body)).spec.dataset)
    assert source.kept.known.columns["day"].feature.format == "timestamp"
    assert source.kept.take("day", np.array([5])).tolist() == [5]


MASKED = "    return {'area': np.ma.array([1.0, 2.0, 3.0] * 4, mask=[0, 1, 0] * 4), 'price': np.arange(12)}\n"


def test_masked_floats_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = kept(tmp_path, monkeypatch, MASKED, [0, 1, 2])
    assert np.isnan(found["area"][1])
    assert found["area"][::2] == [1, 3]


def test_masked_integers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(*installed(tmp_path, monkeypatch, MASKED.replace("mask=", "dtype=int, mask="))) == (
        "dataset.of: houses: found area: masked values of type int64; expected floats, or values that are all there\n"
        "    -> return x.astype(float).filled(np.nan)"
    )


def test_a_function_behind_a_decorator_is_kept_for_both_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decorator = "import functools\n\n\ndef again(of):\n    return functools.wraps(of)(lambda: of())\n"
    (tmp_path / "decorators.py").write_text(decorator)
    body = "import decorators\n\n\n@decorators.again\ndef houses():\n"
    body += "    return {'area': [1, 2] * 9, 'price': [1, 2] * 9}\n"
    words = installed(tmp_path, monkeypatch, body)
    source: Any = open_source(plan_of(*words).spec.dataset)
    paths = source.files(source.dataset)["train"]
    assert [Path(path).name for path in paths] == ["estate.py", "decorators.py"]
    words = installed(tmp_path, monkeypatch, body.replace("[1, 2]", "[3, 4]", 1))
    source = open_source(plan_of(*words).spec.dataset)
    assert source.kept.take("area", np.arange(2)).tolist() == [3, 4]
