"""Evaluations of rows: figures equal to scikit-learn's, what columns are worth, and the page."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import binomtest
from selenium.webdriver.common.by import By

from etlrun.planning.plan import Plan
from etlrun.report.render import RENDER
from etlrun.sources.rows.source import RowsSource
from etlrun.stages.columns import Columns
from etlrun.stages.flow import Feature, Flow
from etlrun.trained import importance, scores
from etlrun.trained import model as models
from etlrun.trained.documents import document
from etlrun.trained.evaluate import WEIGHTED, Evaluation, Mistake, TargetOutputs, of_classes, of_labels, of_numbers
from etlrun.trained.importance import Importance
from etlrun.trained.predict import opened as opened_split
from tests.configs import plan_of
from tests.conftest import Once
from tests.golden import Says
from tests.kinds import made_of
from tests.pages import chromium, opened
from tests.runs import emulated
from tests.tables import houses, words_of
from tests.trained import said


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
    found = scores.of_class("yes", labels == 1, predicted == 1, np.ones(400)).f1
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(samples, [0.025, 0.975])), abs=0.01)


def outputs_of(predictions: Any, targets: Any, weights: Any = None, logits: Any = None) -> TargetOutputs:
    """The predictions of examples for a target, which all count the same without weights."""
    given = np.asarray(predictions, np.float32)
    return TargetOutputs(
        is_weighted=weights is not None,
        predictions=given,
        logits=given if logits is None else logits,
        targets=np.asarray(targets),
        numbers=np.arange(len(given)),
        weights=np.ones(len(given)) if weights is None else weights,
    )


def test_figures_of_classes_are_counts_of_the_confusion_matrix() -> None:
    labels, predicted = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 0, 1])
    found = of_classes(outputs_of(np.eye(4)[predicted], labels), ["a", "b", "c", "d"], None).figures
    assert found["confusion"] == [[2, 1, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    first, second, third, fourth = found["classes"]
    assert (first.examples, first.predicted) == (3, 3)
    assert (first.precision.value, first.recall.value) == (2 / 3, 2 / 3)
    assert (second.precision.value, second.recall.value, second.f1.value) == (1 / 3, 1 / 2, 2 / 5)
    assert (third.precision.value, third.recall.value, third.f1.value) == (None, 0.0, 0.0)
    assert (fourth.precision.value, fourth.recall.value, fourth.f1.value) == (None, None, None)


def test_calibration_is_the_mean_gap_of_confidence_and_accuracy() -> None:
    confidence = np.array([0.51, 0.52, 0.95, 1.0])
    bins, error = scores.calibration(confidence, np.array([True, False, True, True]), np.ones(4))
    filled: list[object] = [(of.low, of.high, of.examples, of.confidence, of.accuracy) for of in bins if of.examples]
    assert filled == [
        (pytest.approx(7 / 15), pytest.approx(8 / 15), 2, pytest.approx(0.515), 0.5),
        (pytest.approx(14 / 15), 1.0, 2, pytest.approx(0.975), 1.0),
    ]
    assert error == pytest.approx(0.5 * 0.015 + 0.5 * 0.025)
    bins, _ = scores.calibration(np.array([0.0, 1 / 3, 1.0]), np.array([True, True, True]), np.ones(3))
    assert [place for place, of in enumerate(bins) if of.examples] == [0, 4, 14]  # the end of a bin belongs to it


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
    share = scores.averaged([scores.Ranked(found, labels, np.ones(60))], scores.auc)
    assert share.value == pytest.approx(np.mean(pairs))
    assert share.low is not None
    assert share.high is not None
    assert 0 < share.low < np.mean(pairs) < share.high < 1
    assert scores.averaged([scores.Ranked(found, np.ones(60, int), np.ones(60))], scores.auc) == scores.Share(None)


def test_intervals_of_errors_are_those_of_resampled_examples() -> None:
    draw = np.random.default_rng(1)
    wanted = draw.normal(5, 2, (400, 1))
    errors = draw.normal(0, 1, (400, 1))
    found = scores.of_numbers(wanted, errors, np.ones(400))
    assert found["rmse"].value == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert found["r2"].value == pytest.approx(1 - np.sum(errors**2) / np.sum((wanted - wanted.mean()) ** 2))
    mae, half = np.abs(errors).mean(), 1.96 * np.abs(errors).std() / 20
    assert [found["mae"].low, found["mae"].high] == pytest.approx([mae - half, mae + half], abs=half / 5)
    assert scores.of_numbers(np.ones((3, 1)), np.ones((3, 1)), np.ones(3))["r2"] == scores.Share(None)
    of_one = scores.of_numbers(np.ones((1, 1)), np.full((1, 1), 2.0), np.ones(1))  # of which all samples are equal
    assert of_one["mae"] == of_one["rmse"] == scores.Share(2.0)


LABELS = np.array([0, 0, 1, 1, 0, 1, 1, 0, 1, 0])
FOUND = np.array([0.1, 0.4, 0.35, 0.8, 0.4, 0.7, 0.4, 0.2, 0.9, 0.6], np.float32)
ONES = np.ones(10)
RANKED = scores.Ranked(FOUND, LABELS, ONES)


def test_figures_of_two_classes_are_those_of_scikit_learn() -> None:
    assert scores.averaged([RANKED], scores.auc).value == pytest.approx(0.8)
    assert scores.averaged([RANKED], scores.average_precision).value == pytest.approx(0.8392857142857143)


WEIGHTS = np.array([1, 2, 0.5, 1, 3, 0, 1, 1, 2, 0.25])


def test_figures_of_weighted_examples_are_those_of_scikit_learn() -> None:
    ranked = scores.Ranked(FOUND, LABELS, WEIGHTS)
    assert scores.averaged([ranked], scores.auc).value == pytest.approx(0.8352490421455938)
    assert scores.averaged([ranked], scores.average_precision).value == pytest.approx(0.814044814044814)
    is_of, is_predicted = LABELS == 1, FOUND > scores.HALF
    found = scores.of_class("", is_of, is_predicted, WEIGHTS)
    accuracy = scores.wilson(*scores.counted(is_of == is_predicted, slice(None), WEIGHTS))
    figures = (accuracy.value, found.precision.value, found.recall.value, found.f1.value)
    assert figures == pytest.approx((0.851063829787234, 12 / 13, 2 / 3, 0.7741935483870968))
    wanted, errors = np.array([[1.0], [2], [3], [5]]), np.array([[0.5], [0], [-1], [2]])
    values = {name: of.value for name, of in scores.of_numbers(wanted, errors, np.array([2, 1, 1, 2.0])).items()}
    assert values == pytest.approx({"mae": 1.0, "rmse": 1.2583057392117916, "r2": 0.4356435643564356})


def test_equal_weights_have_the_intervals_of_no_weights() -> None:
    equal = np.full(10, 2.0)
    assert scores.counted(LABELS == 1, slice(None), equal) == (5, 10) == scores.counted(LABELS == 1, slice(None), ONES)
    assert scores.averaged([scores.Ranked(FOUND, LABELS, equal)], scores.average_precision) == scores.averaged(
        [RANKED], scores.average_precision
    )


def test_figures_of_one_class_alone_are_not_defined() -> None:
    none = scores.Ranked(FOUND, np.zeros(10, int), ONES)
    assert scores.averaged([none], scores.average_precision) == scores.Share(None)


def test_the_interval_of_the_average_precision_is_that_of_resampled_examples() -> None:
    draw = np.random.default_rng(1)
    labels = draw.integers(0, 2, 300)
    found = (labels * 0.3 + draw.random(300) * 0.7).astype(np.float32).round(2)
    samples = []
    for _ in range(400):
        some = draw.integers(0, 300, 300)
        hits, wrongly = scores.Ranked(found[some], labels[some], np.ones(300)).counts(np.ones(300))
        added = np.diff(hits, prepend=0) / hits[-1]
        samples.append((added * hits / (hits + wrongly)).sum())
    ranked = scores.Ranked(found, labels, np.ones(300))
    share = scores.averaged([ranked], scores.average_precision)
    assert (share.low, share.high) == pytest.approx(tuple(np.quantile(samples, [0.025, 0.975])), abs=0.02)
    assert scores.averaged([ranked], scores.average_precision) == share


def test_figures_of_numbers_are_those_of_scikit_learn() -> None:
    wanted, found = np.array([[1.0], [2], [3], [5]]), np.array([[1.5], [2], [2], [7]])
    values = {name: of.value for name, of in scores.of_numbers(wanted, found - wanted, np.ones(4)).items()}
    assert values == pytest.approx({"mae": 0.875, "rmse": 1.14564392373896, "r2": 0.4})
    wanted, found = np.hstack([wanted, 2 * wanted[::-1]]), np.hstack([found, found[::-1]])
    values = {name: of.value for name, of in scores.of_numbers(wanted, found - wanted, np.ones(4)).items()}
    assert values == pytest.approx({"mae": 1.625, "rmse": 2.0766559657295187, "r2": 0.28214285714285714})


def test_saturated_predictions_are_those_of_the_file_and_their_losses_those_of_logits() -> None:
    draw = np.random.default_rng(1)
    given = draw.normal(size=(2_000, 4)).astype(np.float32)
    labels = (given.sum(axis=1) + draw.normal(size=2_000) * 2 > 0).astype(np.int64)
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid", dtype="float32", name="probability")(inputs))
    model.set_weights([np.full((4, 1), 9.0), np.zeros(1)])
    model.compile(loss=keras.losses.BinaryCrossentropy())
    specs = tf.TensorSpec((None, 4), "float32"), tf.TensorSpec((None,), "int64")
    flow = Flow(features={"y": Feature(dtype="int64", is_class=True, is_binary=True)}, targets=("y",))
    predictions, loss, of_target = models.tester(model, flow, *specs)(given, labels)
    found, logits, of_file = predictions["y"], of_target["y"], models.tester(model, flow, specs[0])(given)[0]["y"]
    assert np.array_equal(found, of_file)
    assert (found[:, 1] == 1).sum() > 100
    one, other = (scores.Ranked(of[:, 1], labels, np.ones(2_000)) for of in (found, of_file))
    assert scores.averaged([one], scores.auc) == scores.averaged([other], scores.auc)
    both = np.concatenate([np.zeros_like(logits), logits], axis=1)
    exact = np.log1p(np.exp(np.where(labels == 1, -9.0, 9.0) * given.sum(axis=1, dtype=np.float64)))
    losses = scores.crossentropies(both, labels)
    assert losses == pytest.approx(exact, rel=1e-4, abs=1e-12)
    assert losses.mean() == pytest.approx(loss, rel=1e-5)
    assert len(set(losses[np.argsort(-losses)[:24]].tolist())) == 24


def test_a_model_of_its_own_head_has_no_logits() -> None:
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Softmax()(keras.layers.Dense(2)(inputs)))
    flow = Flow(features={"y": Feature(dtype="int64", is_class=True)}, targets=("y",))
    found, _, logits = models.tester(model, flow, tf.TensorSpec((None, 4), "float32"))(np.ones((3, 4), np.float32))
    assert (found["y"].shape, logits) == ((3, 2), {})


def test_the_text_has_the_columns_of_mistakes(says: Says) -> None:
    texts = ("one two three four five six", "short")
    mistakes = [
        Mistake(
            place=f"rows.csv, row {place}", target="no", predicted="yes", probability=0.75, loss=1.5,
            columns={"text": text, "stars": place}, image=None,
        )
        for place, text in enumerate(texts)
    ]  # fmt: skip
    found = of_rows(accuracy=scores.Share(0.5, 0.25, 0.75), mistakes=mistakes)
    says(RENDER["text"](document(found, "a test")).splitlines()[-3:])


COLUMNS = (
    "transform.columns={area: {of: area, steps: [{fill: 0}]}, again: {of: area, steps: [{fill: 0}]}, "
    "rooms: {of: rooms}}"
)


def model_of(planned: Plan, output: Any) -> keras.Model:
    """A model of the outputs of a plan by name, of which `output` makes the prediction."""
    flow = planned.evaluation[-1].gives
    inputs = {name: keras.Input((), name=name, dtype=flow.features[name].dtype) for name in flow.inputs}
    cast = {name: keras.ops.cast(of, "float32") for name, of in inputs.items()}
    given = inputs if len(inputs) > 1 else next(iter(inputs.values()))
    return keras.Model(given, keras.ops.reshape(output(cast), (-1, 1)))


def importance_of(folder: Path, output: Any, repeats: int | None = None) -> Importance:
    planned = plan_of(*words_of(folder, COLUMNS))
    split = opened_split(planned, "dataset.eval_split")
    return importance.importance(planned, model_of(planned, output), split, repeats)["price"]


def test_a_column_is_worth_what_the_error_grows_without_it(table: Path) -> None:
    found = importance_of(table, lambda of: 3_000 * of["area"], repeats=3)
    assert [of.name for of in found.columns] == ["area", "rooms"]
    area, rooms = (of.importance for of in found.columns)
    assert rooms == scores.Share(0.0, 0.0, 0.0)
    split = opened_split(plan_of(*words_of(table, COLUMNS)), "")
    rows = split.numbers
    given = houses()["area"].fill_null(0).to_numpy()[rows]
    wanted = houses()["price"].to_numpy()[rows]
    errors = [
        np.abs(3_000 * given[np.random.default_rng((0, 0, repeat)).permutation(40)] - wanted).mean()
        for repeat in range(3)
    ]
    value = np.abs(3_000 * given - wanted).mean()
    assert found.value == pytest.approx(value)
    assert area.value == pytest.approx(np.mean(errors) - value, rel=1e-5)
    half = 4.302653 * np.std(errors, ddof=1) / 3**0.5
    assert (area.low, area.high) == pytest.approx((np.mean(errors) - value - half, np.mean(errors) - value + half))
    assert (found.measure, found.examples, found.repeats, found.predictions) == ("mae", 40, 3, 40 * 7)


def test_all_outputs_of_a_column_change_places_together(table: Path) -> None:
    found = importance_of(table, lambda of: of["area"] - of["again"] + 100_000 * of["rooms"])
    by_name = {of.name: of.importance.value for of in found.columns}
    assert by_name["area"] == 0.0
    assert by_name["rooms"] != 0.0


def test_a_column_of_an_output_of_several_changes_places_alone(table: Path) -> None:
    planned = plan_of(*words_of(table, "transform.columns={pair: {of: [rooms, kind], steps: [{cross: 50}]}}"))
    split = opened_split(planned, "dataset.eval_split")
    model = model_of(planned, lambda of: 20_000 * of["pair"])
    found = importance.importance(planned, model, split, 2)["price"]
    columns = next(step for step in planned.spec.eval_transform.steps if isinstance(step, Columns))
    source = split.source
    assert isinstance(source, RowsSource)
    stored = {name: source.kept.take(name, split.numbers) for name in ("rooms", "kind", "price")}

    def error(**moved: Any) -> float:
        example = {name: tf.constant(of) for name, of in {**stored, **moved}.items()}
        return float(np.abs(20_000 * columns.given(example)["pair"].numpy() - stored["price"]).mean())

    assert found.value == pytest.approx(error(), rel=1e-5)
    for place, name in enumerate(("rooms", "kind")):
        orders = [np.random.default_rng((0, place, repeat)).permutation(40) for repeat in range(2)]
        wanted = np.mean([error(**{name: stored[name][order]}) for order in orders]) - error()
        assert {of.name: of.importance.value for of in found.columns}[name] == pytest.approx(wanted, rel=1e-4)


def test_many_rows_have_the_importance_of_a_sample(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importance, "_LEAST_PREDICTIONS", 250)
    found = importance_of(table, lambda of: of["rooms"])
    assert (found.examples, found.predictions) == (25, 25 * 11)
    assert importance_of(table, lambda of: of["rooms"], repeats=1).examples == 40


def of_rows(**figures: Any) -> Evaluation:
    return Evaluation(
        name="a", run="/runs/a", dataset="rows.csv", split="test", overrides=[], examples=2, skipped=[], loss=1.5,
        then={}, **figures,
    )  # fmt: skip


def test_the_page_holds_any_columns_and_values(tmp_path: Path) -> None:
    values: dict[str, Any] = {f"column_{place}": place + 0.123456789 for place in range(120)}
    values |= {"<b>bold</b>": "<script>alert(1)</script>"}
    values = {"text": "<img src=x onerror=alert(1)>", "long": "x" * 1_000, "none": None, **values}
    mistake = Mistake(
        place="rows.csv, row 1", target="1", predicted="2", probability=None, loss=1.0, columns=values, image=None
    )
    share, columns = (
        scores.Share(0.5, 0.25, 0.75),
        [importance.OfColumn(name=name, importance=scores.Share(0.5, 0.25, 0.75)) for name in values],
    )
    worth = Importance(measure="mae", value=1.0, examples=2, repeats=5, seed=0, predictions=2_470, columns=columns)
    errors = {"mae": share, "rmse": share, "r2": share}
    found = of_rows(**errors, mistakes=[mistake], importance=worth)
    page = tmp_path / "page.html"
    page.write_text(RENDER["html"](document(found, "etlrun evaluate a")))
    with chromium() as browser, opened(browser, page):
        worst = browser.find_element(By.XPATH, "//h2[text()='Largest errors']/..")
        heads = [cell.text for cell in worst.find_elements(By.CSS_SELECTOR, "thead th")]
        assert heads == ["squared error", "value", "predicted", "place", "columns"]
        cells = [cell.text for cell in worst.find_elements(By.CSS_SELECTOR, "tbody td")]
        assert cells[:4] == ["1", "1", "2", "rows.csv, row 1"]
        assert cells[4].startswith(f"text=<img src=x onerror=alert(1)>, long={'x' * 400}…, none=, column_0=0.12346, ")
        assert cells[4].endswith(", column_96=96.123")
        width = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert browser.execute_script(width) == 0


def test_columns_beside_images_change_places_where_they_are_asked_for(tiny: Path) -> None:
    columns = "+transform.columns={number: {steps: [{standardize: {mean: 20, std: 10}}]}}"
    features = "dataset.features={image: image, number: int64}"
    planned = plan_of(*emulated(tiny, "cache=none", features, "dataset.target={label: class}", columns))
    flow = planned.evaluation[-1].gives
    inputs = {name: keras.Input(of.shape, name=name) for name, of in flow.features.items() if name in flow.inputs}
    odd = keras.ops.reshape(keras.ops.mod(keras.ops.round(inputs["number"] * 10 + 20), 2), (-1, 1))
    model = keras.Model(inputs, keras.ops.concatenate([1 - odd, odd], axis=-1))
    split = opened_split(planned, "dataset.eval_split")
    assert importance.importance(planned, model, split, None) == {}
    found = importance.importance(planned, model, split, 4)["label"]
    assert ([of.name for of in found.columns], found.measure, found.value) == (["number"], "accuracy", 1.0)
    assert found.columns[0].importance.value is not None
    assert 0 < found.columns[0].importance.value < 1


@pytest.fixture(scope="module")
def run(once: Once, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a run that has learned four targets of houses with weights."""
    return Path(shutil.copytree(made_of("several", once).run, tmp_path_factory.mktemp("several") / "run"))


def test_each_target_has_what_its_inputs_are_worth(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, "evaluate", run, "--format", "json"))["targets"]
    worth = {name: of["importance"] for name, of in found.items()}
    assert {name: of["measure"] for name, of in worth.items()} == {"price": "mae"} | dict.fromkeys(
        ("band", "garden", "tags"), "accuracy"
    )
    for name, of in worth.items():
        assert of["value"] == pytest.approx(found[name][of["measure"]]["value"], rel=1e-5), name
    assert {of["name"] for of in worth["price"]["columns"]} == {"area", "rooms"}
    assert set(found["tags"]["mistakes"][0]["columns"]) == {"area", "rooms"}
    assert found["price"]["method"].endswith(WEIGHTED)


def test_the_text_and_the_page_name_each_target(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "evaluate", run).splitlines()
    names = ["price", "band", "garden", "tags"]
    assert [line for line in lines if line in names] == names
    assert sum("in the run" in line for line in lines) == 8
    figures = [found[1] for line in lines if (found := re.match(r"  (\w+) +[\d.,-]+ ?\(", line))]
    assert [of for of in figures if of[0].isupper() or of == "mAP"] == [
        *("MAE", "RMSE", "R2"), "ECE", *("AUC", "AP", "ECE"), "mAP",
    ]  # fmt: skip
    with chromium() as browser, opened(browser, run / "evaluations" / "train[80%:].html"):
        heads = [of.text for of in browser.find_elements(By.CSS_SELECTOR, "main > section > h2")]
        assert heads == names
        assert "area under the ROC curve" in browser.page_source
        labels = browser.find_elements(By.XPATH, "//h3[text()='Labels']/..//tbody/tr/th")
        assert [of.text for of in labels] == ["old", "park", "sea"]


OF_LABELS = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [0, 0, 1]])
OF_FOUND = np.array([[0.9, 0.2, 0.6], [0.4, 0.7, 0.3], [0.8, 0.4, 0.5], [0.1, 0.3, 0.8]], np.float32)


def test_figures_of_labels_are_those_of_scikit_learn() -> None:
    names = ("old", "park", "sea")
    found = of_labels(outputs_of(OF_FOUND, OF_LABELS), names, 0.5).figures
    assert found["mean_average_precision"].value == pytest.approx(0.9722222222222222)
    assert [of.f1.value for of in found["classes"]] == pytest.approx([1, 2 / 3, 0.8])
    weights = np.array([1, 2, 1, 0.5])
    found = of_labels(outputs_of(OF_FOUND, OF_LABELS, weights), names, 0.5).figures
    assert found["mean_average_precision"].value == pytest.approx(0.9576719576719577)


def test_labels_that_no_example_has_count_for_no_mean() -> None:
    some, none = (of_labels(outputs_of(OF_FOUND, OF_LABELS * of), "abc", 0.5).figures for of in ([1, 1, 0], 0))
    assert some["mean_average_precision"].value == pytest.approx(1.0, abs=0.05)
    assert none["mean_average_precision"] == scores.Share(None)


def test_figures_of_examples_without_any_weight_are_not_defined() -> None:
    targets, none = OF_LABELS[:, 0], np.zeros(4)
    of_two = of_classes(outputs_of(OF_FOUND[:, :2], targets, none), ("no", "yes"), 0.5).figures
    of_number = of_numbers(outputs_of(OF_FOUND[:, :1], targets, none)).figures
    assert of_two["accuracy"] == of_two["auc"] == of_two["average_precision"] == of_number["mae"] == scores.Share(None)
    for figures in (of_two, of_number):
        doc = document(of_rows(**figures), "a test")
        assert RENDER["html"](doc)
        assert "NaN" not in RENDER["json"](doc)


def test_calibration_counts_examples_by_their_weights() -> None:
    confidence, is_right = np.array([0.51, 0.52, 0.95]), np.array([True, False, True])
    bins, error = scores.calibration(confidence, is_right, np.array([3.0, 1.0, 0.0]))
    filled = [(of.examples, of.confidence, of.accuracy) for of in bins if of.examples]
    assert filled == [(2, pytest.approx(0.5125), 0.75), (1, None, None)]
    assert error == pytest.approx(0.75 - 0.5125)
