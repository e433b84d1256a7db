"""The Python API of those who have not read its docs: wrong kinds of arguments, and Keras set up before."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import etlrun
from tests.runs import emulated

STRINGS = 'expected a string for each override, such as "load.prefetch=1"'
SIDES = "expected overrides in a string or a list, a path, a git revision, or what plan or load returns"
FOLDER = "expected the path of a folder, which a run or a sweep prints at its end"
INPUTS = "expected paths, overrides, images as bytes, or rows as mappings from columns to values"
GRAMMAR = "expected KEY=VALUE in Hydra's grammar"
TWO = "trainer.epochs=2 load.prefetch=1"
ANY: Any = etlrun
WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a mapping": (lambda: ANY.plan({"trainer.epochs": 2}), f"overrides: found a dict; {STRINGS}"),
    "sides": (lambda: ANY.diff(1), f"diff: found a int; {SIDES}"),
    "a side of keys": (lambda: ANY.diff({"trainer.epochs": 2}), f"diff: found a dict; {SIDES}"),
    "a side of numbers": (lambda: ANY.diff([1]), f"overrides: found a int; {STRINGS}"),
    "no folder": (lambda: ANY.load(None), f"folder: found a NoneType; {FOLDER}"),
    "one string": (
        lambda: etlrun.plan(TWO),
        f"{TWO}: found mismatched input '=' expecting <EOF>; {GRAMMAR}\n    -> pass each override by itself: {TWO}",
    ),
    "an empty string": (lambda: etlrun.plan(""), f": found an empty word; {GRAMMAR}\n    -> leave it out"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_told_what_is_expected(name: str) -> None:
    call, message = WRONG[name]
    with pytest.raises(etlrun.ConfigError) as refused:
        call()
    assert str(refused.value) == message


def test_a_run_says_what_it_can_not_predict_or_evaluate(run: Path) -> None:
    loaded: Any = etlrun.load(run)
    for wrong in (np.zeros((2, 4, 4, 3)), tf.data.Dataset.range(2), None, 5):
        with pytest.raises(etlrun.ConfigError) as refused:
            loaded.predict(wrong)
        assert str(refused.value) == (
            f"predict: found a {type(wrong).__name__}; {INPUTS}\n    -> pass a path, or a list of rows"
        )
    with pytest.raises(etlrun.ConfigError) as refused:
        loaded.evaluate(["dataset.split=test"])
    remedy = "of a list pass its items: run.evaluate(*overrides)"
    assert str(refused.value) == f"overrides: found a list; {STRINGS}\n    -> {remedy}"


def test_load_tells_a_file_and_a_summary_that_is_torn(tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    summary.write_text("{")
    for path, found in ((summary, "a file"), (tmp_path, "a summary.json that can't be read")):
        with pytest.raises(etlrun.EtlrunError) as refused:
            etlrun.load(path)
        assert str(refused.value) == (
            f"{path}: found {found}; expected a folder with a summary.json, or a folder of such folders\n"
            "    -> pass the folder that a run or a multirun prints at its end"
        )


@pytest.fixture
def mixed() -> Iterator[str]:
    """A policy of Keras that a cell of a notebook has set for all layers."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    yield keras.config.dtype_policy().name
    keras.config.set_dtype_policy(before)


def test_a_run_has_the_precision_of_its_plan(mixed: str, tiny: Path, tmp_path: Path) -> None:
    fitted = etlrun.plan(*emulated(tiny, "trainer.epochs=1")).fit(tmp_path / "run")
    assert fitted.summary.host is not None
    assert (fitted.summary.host.precision, keras.config.dtype_policy().name) == ("float32", mixed)
