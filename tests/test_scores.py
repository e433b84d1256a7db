"""Figures of predictions, against SciPy, counts by hand and resampling of examples themselves."""

import numpy as np
import pytest
from scipy.stats import binomtest

from etlrun.trained import scores


@pytest.mark.parametrize(("hits", "of"), [(0, 5), (5, 5), (3, 10), (933, 1000)])
def test_intervals_of_shares_are_those_of_wilson(hits: int, of: int) -> None:
    found, wanted = scores.wilson(hits, of), binomtest(hits, of).proportion_ci(0.95, "wilson")
    assert found.value == hits / of
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), abs=1e-9)


def test_a_share_of_nothing_is_not_defined() -> None:
    assert scores.wilson(0, 0) == scores.f1(0, 0, 0) == scores.Share(None)


def test_the_interval_of_f1_is_that_of_resampled_examples() -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, 400)
    predicted = np.where(rng.random(400) < 0.8, labels, 1 - labels)
    samples = []
    for _ in range(2000):
        drawn = rng.integers(0, 400, 400)
        hits = ((labels[drawn] == 1) & (predicted[drawn] == 1)).sum()
        samples.append(2 * hits / ((labels[drawn] == 1).sum() + (predicted[drawn] == 1).sum()))
    found = scores.of_classes(labels, predicted, ["no", "yes"])[1].f1
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(samples, [0.025, 0.975])), abs=0.01)


def test_figures_of_classes_are_counts_of_the_confusion_matrix() -> None:
    labels, predicted = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 0, 1])
    counts = scores.confusion(labels, predicted, 4)
    assert counts.tolist() == [[2, 1, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    first, second, third, fourth = scores.of_classes(labels, predicted, ["a", "b", "c", "d"])
    assert (first.examples, first.predicted) == (3, 3)
    assert (first.precision.value, first.recall.value) == (2 / 3, 2 / 3)
    assert (second.precision.value, second.recall.value, second.f1.value) == (1 / 3, 1 / 2, 2 / 5)
    assert (third.precision.value, third.recall.value, third.f1.value) == (None, 0.0, 0.0)
    assert (fourth.precision.value, fourth.recall.value, fourth.f1.value) == (None, None, None)


def test_calibration_is_the_mean_gap_of_confidence_and_accuracy() -> None:
    confidence = np.array([0.51, 0.52, 0.95, 1.0])
    bins, error = scores.calibration(confidence, np.array([True, False, True, True]))
    filled: list[object] = [(of.low, of.high, of.examples, of.confidence, of.accuracy) for of in bins if of.examples]
    assert filled == [
        (pytest.approx(7 / 15), pytest.approx(8 / 15), 2, pytest.approx(0.515), 0.5),
        (pytest.approx(14 / 15), 1.0, 2, pytest.approx(0.975), 1.0),
    ]
    assert error == pytest.approx(0.5 * 0.015 + 0.5 * 0.025)
    assert len(bins) == 15


def test_the_end_of_a_bin_belongs_to_it() -> None:
    bins, _ = scores.calibration(np.array([0.0, 1 / 3, 1.0]), np.array([True, True, True]))
    assert [place for place, of in enumerate(bins) if of.examples] == [0, 4, 14]


def test_losses_of_impossible_classes_are_large_and_finite() -> None:
    found = np.array([[0.25, 0.75], [1.0, 0.0]], np.float32)
    losses = scores.crossentropies(scores.logits_of(found, is_labels=False), np.array([1, 1]))
    assert losses.tolist() == [pytest.approx(-np.log(0.75)), pytest.approx(87.34, abs=0.01)]
    labels = scores.binary_crossentropies(scores.logits_of(found, is_labels=True), np.array([[True, True]] * 2))
    assert labels.tolist() == [pytest.approx(-np.log([0.25, 0.75]).mean()), pytest.approx(87.34 / 2, abs=0.01)]


def test_losses_of_logits_are_not_clipped() -> None:
    logits = np.array([[200.0, -100.0], [0.0, 1e-3]], np.float32)
    assert scores.crossentropies(logits, np.array([1, 1])).tolist() == [300.0, pytest.approx(0.69264730556)]
    is_of = np.array([[False, True], [True, True]])
    assert scores.binary_crossentropies(logits, is_of).tolist() == [150.0, pytest.approx(0.69289722)]


def test_the_auc_is_the_share_of_pairs_in_order() -> None:
    draw = np.random.default_rng(1)
    labels, found = draw.integers(0, 2, 60), draw.integers(0, 9, 60).astype("float32")
    pairs = [(a > b) + (a == b) / 2 for a in found[labels == 1] for b in found[labels == 0]]
    share = scores.auc(found, labels)
    assert share.value == pytest.approx(np.mean(pairs))
    assert share.low is not None
    assert share.high is not None
    assert 0 < share.low < np.mean(pairs) < share.high < 1
    assert scores.auc(found, np.ones(60, int)) == scores.Share(None)


def test_intervals_of_errors_are_those_of_resampled_examples() -> None:
    draw = np.random.default_rng(1)
    wanted = draw.normal(5, 2, (400, 1))
    errors = draw.normal(0, 1, (400, 1))
    found = scores.of_numbers(wanted, errors)
    assert found["rmse"].value == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert found["r2"].value == pytest.approx(1 - np.sum(errors**2) / np.sum((wanted - wanted.mean()) ** 2))
    mae, half = np.abs(errors).mean(), 1.96 * np.abs(errors).std() / 20
    assert [found["mae"].low, found["mae"].high] == pytest.approx([mae - half, mae + half], abs=half / 5)
    assert scores.of_numbers(np.ones((3, 1)), np.ones((3, 1)))["r2"] == scores.Share(None)
