"""Steps on columns: their outputs beside those of Keras's layers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from etlrun.stages.column_categories import Bucketize, Cross, Hash, Identity, Lookup, OneHot, Quantiles
from etlrun.stages.column_numbers import Clip, ColumnStep, Fill, Log1p, MinMax, Missing, Part, Robust, Standardize
from etlrun.stages.flow import MISSING, MISSING_TIME

NUMBERS = np.array([-1.5, 0.0, 1.0, 2.0, 2.5, 7.25])
COUNTS = np.array([3, 1, 2, 9, -4, 1])
WORDS = np.array([b"good", b"ideal", b"fair", b"poor", b"", b"good"], object)
LAYERS: list[tuple[ColumnStep, Any, Any]] = [
    (Standardize(mean=1.5, std=2.0), keras.layers.Normalization(mean=1.5, variance=4.0), NUMBERS),
    (Bucketize(boundaries=(0.0, 1.0, 2.5)), keras.layers.Discretization(bin_boundaries=[0.0, 1.0, 2.5]), NUMBERS),
    (Lookup(values=(1, 2, 3)), keras.layers.IntegerLookup(vocabulary=[1, 2, 3]), COUNTS),
    (Lookup(values=(1, 2), oov=3), keras.layers.IntegerLookup(vocabulary=[1, 2], num_oov_indices=3), COUNTS),
    (Lookup(values=("fair", "good")), keras.layers.StringLookup(vocabulary=["fair", "good"]), WORDS),
    (Lookup(values=("fair",), oov=3), keras.layers.StringLookup(vocabulary=["fair"], num_oov_indices=3), WORDS),
    (Hash(bins=7), keras.layers.Hashing(num_bins=7), WORDS),
    (Hash(bins=7), keras.layers.Hashing(num_bins=7), COUNTS),
    (Cross(bins=11), keras.layers.HashedCrossing(num_bins=11), (WORDS, COUNTS)),
    (OneHot(categories=5), keras.layers.CategoryEncoding(5, output_mode="one_hot"), np.array([0, 4, 2, 1])),
]


@pytest.mark.parametrize(("step", "layer", "values"), LAYERS, ids=[f"{of[0].name}{at}" for at, of in enumerate(LAYERS)])
def test_outputs_equal_those_of_the_layers_of_keras(step: ColumnStep, layer: Any, values: Any) -> None:
    given = tuple(map(tf.constant, values)) if isinstance(values, tuple) else tf.constant(values)
    expected, found = layer(given), step.op(given, **step.arguments)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)
    first = tuple(of[0] for of in given) if isinstance(given, tuple) else given[0]
    np.testing.assert_array_equal(step.op(first, **step.arguments).numpy(), found.numpy()[0])


NAN = float("nan")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
VALUES: dict[str, tuple[ColumnStep, Any, Any]] = {
    "a number in the place of missing ones": (Fill(value=2.5, filled=2.5), [NAN, 1.0], [2.5, 1.0]),
    "a text in the place of missing ones": (Fill(value="x", filled="x"), [MISSING, b"a"], [b"x", b"a"]),
    "nothing is missing": (Fill(value=2, filled=2), [3, 4], [3, 4]),
    "missing numbers": (Missing(), [NAN, 1.0], [1, 0]),
    "missing texts": (Missing(), [MISSING, b"a"], [1, 0]),
    "log1p": (Log1p(), [0.0, 1.0], [0.0, np.log(2)]),
    "minmax": (MinMax(low=1.0, high=3.0), [1.0, 2.0, 5.0], [0.0, 0.5, 2.0]),
    "robust": (Robust(median=1.0, range=2.0), [1.0, 4.0], [0.0, 1.5]),
    "clip": (Clip(range=(0.0, 1.0)), [-1.0, 0.5, 2.0], [0.0, 0.5, 1.0]),
    "clip below alone": (Clip(range=(0.0, None)), [-1.0, 2.0], [0.0, 2.0]),
    "quantiles": (Quantiles(count=3, boundaries=(1.0, 2.0)), [0.0, 1.0, 3.0], [0, 1, 2]),
    "identity": (Identity(categories=3), [2.0, 0.0], [2, 0]),
    "numbers that are integers": (Lookup(values=(1, 2)), [2.0, 1.5, NAN, 1.0], [2, 0, 0, 1]),
}


@pytest.mark.parametrize(("step", "values", "expected"), VALUES.values(), ids=VALUES)
def test_steps_compute(step: ColumnStep, values: Any, expected: Any) -> None:
    found = step.op(tf.constant(values), **step.arguments).numpy()
    if isinstance(expected[0], bytes):
        assert found.tolist() == expected
    else:
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_parts_of_times_are_those_of_the_calendar() -> None:
    times = [datetime(1969, 12, 31, 23, 59, tzinfo=UTC), datetime(2000, 2, 29, 0, 5, tzinfo=UTC)]
    times += [datetime(2023, 3, 1, 13, tzinfo=UTC), datetime(1900, 1, 1, tzinfo=UTC)]
    values = tf.constant([*((of - _EPOCH) // timedelta(microseconds=1) for of in times), MISSING_TIME])
    for part in ("year", "month", "day", "hour", "minute"):
        found = Part.op(values, part=part).numpy()
        assert found[:-1].tolist() == [getattr(of, part) for of in times]
        assert np.isnan(found[-1])
    assert Part.op(values, part="weekday").numpy()[:-1].tolist() == [of.weekday() for of in times]


def test_a_value_that_is_no_category_ends_the_run() -> None:
    for step, values in ((Identity(categories=3), [3]), (Lookup(values=(1,), oov="error"), [2])):
        with pytest.raises(tf.errors.InvalidArgumentError):
            step.op(tf.constant(values), **step.arguments)
