"""Rows of functions of installed packages: what they return or yield, and their faults."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etlrun.sources.base import open_source
from etlrun.system.errors import EtlrunError
from tests.configs import CONF, plan_of
from tests.runs import run_here

IMPORTS = "import numpy as np\nimport pyarrow as pa\n\n\ndef rows():\n"


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str, name: str = "houses") -> list[str]:
    """Install a package whose function has this body; the arguments of a run of it."""
    (folder / "estate.py").write_text(body if body.startswith("import") else IMPORTS + body)
    about = folder / "estate-1.0.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: estate\nVersion: 1.0\n")
    function = "houses" if body.startswith("import") else "rows"
    (about / "entry_points.txt").write_text(f"[etlrun.datasets]\n{name} = estate:{function}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "estate", raising=False)
    # Python takes its bytecode for another text of the same length and second.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    words = ["dataset=python", "dataset.of=houses", "dataset.target={price: number}", f"dataset.dir={folder / 'kept'}"]
    words += ["transform=columns", "extract=sequential", "cache=none", "load.batch_size=8"]
    return [*words, "model=emulated", "model.step_ms=0", "trainer.epochs=1"]


PRICES = "{'area': np.arange(20.0), 'kind': ['a', 'b'] * 10, 'price': np.arange(20)}"
FORMS = {
    "arrays": f"    return {PRICES}\n",
    "arrow": f"    return pa.table({PRICES})\n",
    "yielded": "    for n in range(20):\n        yield {'area': float(n), 'kind': 'ab'[n % 2], 'price': np.int64(n)}\n",
}


FRAMES = {
    name: pytest.param(f"    import {name}\n    return {name}.DataFrame({PRICES})\n", marks=pytest.mark.needs(name))
    for name in ("pandas", "polars")
}


@pytest.mark.parametrize("body", [*FORMS.values(), *FRAMES.values()], ids=[*FORMS, *FRAMES])
def test_all_forms_are_kept_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    source: Any = open_source(plan_of(*installed(tmp_path, monkeypatch, body)).spec.dataset)
    numbers = np.array([19, 0, 4])
    assert source.counts == {"train": 20}
    assert {name: source.kept.take(name, numbers).tolist() for name in source.kept.known.columns} == {
        "area": [19.0, 0.0, 4.0],
        "kind": [b"b", b"a", b"a"],
        "price": [19, 0, 4],
    }


def test_rows_are_made_once_for_the_source_of_their_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = f"    with open({str(tmp_path / 'told')!r}, 'a') as file:\n        file.write('made ')\n"
    found = []
    for body in (told + FORMS["arrays"], told + FORMS["arrays"], told + FORMS["arrow"]):
        plan = plan_of(*installed(tmp_path, monkeypatch, body))
        source: Any = open_source(plan.spec.dataset)
        found.append(source.kept.known.identity)
    assert found[0] == found[1] != found[2]
    assert (tmp_path / "told").read_text() == "made made "


ALL_ROWS = "a function that returns or yields all rows"
WHAT = "arrays by name, a frame, or anything with __arrow_c_stream__, or dictionaries that are yielded"
ONE_TYPE = "values of one type in each column: numbers of at most 64 bits, truth values, texts, or times"
NAMES = "names of columns, which are texts"
FAULTS = {
    "raises": (
        "    for n in range(9):\n        yield {'price': 1 // (5 - n)}\n",
        f"ZeroDivisionError: integer division or modulo by zero, after 5 rows; expected {ALL_ROWS}",
    ),
    "returns no such thing": (
        "    return [1, 2]\n",
        f"a value of type list; expected {WHAT}",
    ),
    "yields nothing": ("    yield from ()\n", "no rows; expected at least one row"),
    "yields other keys": (
        "    yield {'price': 1}\n    yield {'prize': 1}\n",
        "row 1 with the keys prize; expected those of the first row: price",
    ),
    "yields other types": (
        "    yield {'price': 1}\n    yield {'price': 'x'}\n",
        f"row 1, price: x of type str; expected {ONE_TYPE}",
    ),
    "yields an integer that is too large": (
        "    yield {'price': 1}\n    yield {'price': 2**70}\n",
        f"row 1, price: {2**70} of type int; expected {ONE_TYPE}",
    ),
    "yields no names": ("    yield {1: 2}\n", f"row 0 with the key 1; expected {NAMES}"),
    "yields nothing in a row": ("    yield {}\n", f"row 0 without keys; expected {NAMES}"),
    "returns lists in lists": (
        "    return {'price': [1, [2]]}\n",
        (
            "price: setting an array element with a sequence. The requested array has an inhomogeneous shape after "
            "1 dimensions. The detected shape was (2,) + inhomogeneous part.; expected an array, or lists of equal "
            "lengths"
        ),
    ),
    "yields times with and without zones": (
        ("    import datetime as of\n    yield {'day': of.datetime(1, 1, 1), 'price': 1}\n"
        "    yield {'day': of.datetime(1, 1, 1, tzinfo=of.UTC), 'price': 1}\n"),
        "row 1, day: a time with a zone; expected times without, as those before",
    ),
    "yields no dictionary": ("    yield 5\n", "row 0 of type int; expected a dictionary for each row"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "found"), FAULTS.values(), ids=FAULTS)
def test_faults_of_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, found: str) -> None:
    told = refusal(*installed(tmp_path, monkeypatch, body))
    assert told == f"dataset.of: houses: found {found}\n    -> repair the function"
    assert [path.name for path in (tmp_path / "kept").glob("rows-*") if path.is_dir()] == []


VALUES = {
    "infinite": (
        "    yield {'price': 1}\n    yield {'price': float('inf')}\n",
        "row 1, price: found inf, which is infinite as a number; expected finite numbers",
    ),
    "infinite after rows of another type": (
        (
            "    for n in range(5_000):\n"
            "        yield {'price': n if n < 4_096 else 0.5 if n < 4_999 else float('inf')}\n"
        ),
        "row 4,999, price: found inf, which is infinite as a number; expected finite numbers",
    ),
    "of the time of a day": (
        "    import datetime as of\n    yield {'price': of.time(1)}\n",
        (
            "price: found values of type time64[us]; expected numbers, truth values, texts, dates or timestamps, in "
            "one column at least"
        ),
    ),
    "one for all rows": (
        "    return {'price': 1.0}\n",
        "price: found an array of shape (); expected at least one row, and one value in each",
    ),
}


@pytest.mark.parametrize(("body", "found"), VALUES.values(), ids=VALUES)
def test_values_of_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, found: str) -> None:
    told = refusal(*installed(tmp_path, monkeypatch, body))
    assert told == f"dataset.of: houses, {found}\n    -> repair the function"


def refusal(*words: str) -> str:
    with pytest.raises(EtlrunError) as refused:
        plan_of(*words)
    return str(refused.value)


def test_arrays_in_rows_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = refusal(*installed(tmp_path, monkeypatch, "    yield {'x': np.zeros((3, 2)), 'price': 1}\n"))
    assert told == (
        "dataset.of: houses: found row 0, x: lists in a list; expected a single value, or a list of numbers, in each "
        "column of a row\n"
        "    -> return arrays by name, with all rows in each"
    )


@pytest.mark.needs("pandas")
def test_a_frame_with_an_index_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = f"    import pandas\n    return pandas.DataFrame({PRICES}).set_index('kind')\n"
    assert refusal(*installed(tmp_path, monkeypatch, frame)) == (
        "dataset.of: houses: found a frame with the index Index; expected a frame whose rows are numbered\n"
        "    -> return frame.reset_index() to have it as columns, or frame.reset_index(drop=True)"
    )


def test_arrays_of_other_lengths_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = refusal(*installed(tmp_path, monkeypatch, "    return {'x': np.zeros(3), 'price': np.zeros(4)}\n"))
    assert told == (
        "dataset.of: houses: found 3 of x, 4 of price; expected as many rows in each array\n    -> repair the function"
    )


def test_a_name_that_no_package_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = installed(tmp_path, monkeypatch, FORMS["arrays"], name="homes")
    source = "one of the entry points in etlrun.datasets of installed packages: homes"
    with pytest.raises(EtlrunError) as refused:
        open_source(plan_of(*words).spec.dataset)
    assert str(refused.value) == f"dataset.of: found houses; expected {source}\n    -> did you mean `homes`?"


def test_the_function_of_the_docs_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (CONF.parent / "docs" / "extending.md").read_text()
    block = re.search(r"```python\n(import numpy as np\n\n\ndef houses.*?)```", text, re.DOTALL)
    assert block is not None
    words = installed(tmp_path, monkeypatch, block[1])
    status, summary = run_here(tmp_path / "run", words)
    assert (status, summary["epochs"][0]["examples"]) == (0, 800)
