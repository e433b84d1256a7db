"""The baseline beside a result: what it is fitted on, equal to scikit-learn's, resumed, told, and evaluated again."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet
import pytest
import tensorflow as tf

from etlrun.graph.build import Pipeline
from etlrun.measure.gains import BETTER, TIED, WORSE, call_of_shares
from etlrun.measure.watched import Watch
from etlrun.planning.plan import given_to_model
from etlrun.run import baseline
from etlrun.run.callbacks import EpochRecorder
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.stages.flow import Feature, Flow
from etlrun.stages.objectives import kind_of
from tests.kinds import Made, made_of
from tests.present import present
from tests.quick import quick_jax
from tests.runs import complete_here, finish_well, resumed_after, start, summary_of
from tests.tables import several, words_of, write_houses
from tests.trained import said

Array = npt.NDArray[Any]
_DRAW = np.random.default_rng(0)
X, WEIGHTS = _DRAW.normal(size=(60, 3)), _DRAW.integers(1, 4, 60).astype(float)
TWO = (X @ [1.0, -2, 0.5] + _DRAW.logistic(size=60) > 0).astype(int)
THREE = np.digitize(X @ [1.0, 1, 0] + _DRAW.normal(size=60), [-0.7, 0.7])
NUMBERS = X @ [3.0, 0, -1] + _DRAW.normal(size=60) + 5


def coefficients(kind: Any, wanted: Array) -> Array:
    found, is_done = baseline.coefficients(kind, X, wanted.astype(float), WEIGHTS)
    assert is_done
    return found


MEAN = np.average(X, axis=0, weights=WEIGHTS)
SCALE = np.sqrt(np.average((X - MEAN) ** 2, axis=0, weights=WEIGHTS))


def plain(found: Any) -> Array:
    """Coefficients of standardized columns and their intercepts as those of the columns."""
    given = np.reshape(found, (4, -1))
    of = given[:3] / SCALE[:, None]
    return np.vstack([of, given[3] - MEAN @ of])


def test_coefficients_of_classes_are_those_of_scikit_learn() -> None:
    """`LogisticRegression(tol=1e-10, max_iter=10000).fit((X - MEAN) / SCALE, ..., WEIGHTS)` of scikit-learn 1.9."""
    wanted: Any = [0.5548254418, -1.2632040938, 0.7204081278, -0.3362650639]
    np.testing.assert_allclose(coefficients("binary", TWO[:, None]), plain(wanted), atol=1e-4)
    wanted = [
        [-1.772361913, 0.1215372167, 1.6508246963],
        [-1.2845341938, 0.4166123064, 0.8679218875],
        [-0.161912589, 0.1724711962, -0.0105586072],
        [-0.3419104235, 0.5768974512, -0.2349870278],
    ]
    np.testing.assert_allclose(coefficients("class", np.eye(3)[THREE]), plain(wanted), atol=1e-4)
    both = np.stack([TWO, THREE > 1], axis=1)
    each = [coefficients("binary", both[:, [place]]) for place in range(2)]
    np.testing.assert_allclose(coefficients("labels", both), np.hstack(each), atol=1e-4)


def test_coefficients_of_numbers_are_those_of_scikit_learn() -> None:
    """`Ridge().fit((X - MEAN) / SCALE, NUMBERS, WEIGHTS)` of scikit-learn 1.9."""
    wanted = [3.497153552249361, 0.10521512058699443, -0.7797365836547782, 4.144678100880251]
    np.testing.assert_allclose(coefficients("number", NUMBERS[:, None]), plain(wanted), rtol=1e-8)


def test_columns_that_are_all_the_same_have_no_coefficient() -> None:
    same = np.hstack([X, np.full((60, 1), 1e6)])
    found, _ = baseline.coefficients("number", same, NUMBERS[:, None], WEIGHTS)
    assert found[3, 0] == 0
    np.testing.assert_allclose(np.delete(found, 3, axis=0), coefficients("number", NUMBERS[:, None]))


@pytest.mark.parametrize(
    ("new", "old", "of", "call"),
    [(0.8, 0.6, 70, BETTER), (0.6, 0.8, 70, WORSE), (0.8, 0.7, 70, TIED), (1.0, 0.9, 20, TIED), (1.0, 0.9, 60, BETTER)],
)
def test_a_share_is_better_than_another_one_if_their_interval_says_so(
    new: float, old: float, of: float, call: str
) -> None:
    assert call_of_shares(new, old, of) == call


def test_few_of_the_accuracies_that_differ_by_chance_are_called_better_or_worse() -> None:
    draw = np.random.default_rng(0)
    for of, share in ((30, 0.5), (100, 0.9), (1_000, 0.7)):
        pairs = draw.binomial(of, share, (2_000, 2)) / of
        calls = [call_of_shares(new, old, of) for new, old in pairs]
        assert 0.02 < 1 - calls.count(TIED) / len(calls) < 0.07


FLOW = Flow(features={"x": Feature(dtype="float32"), "y": Feature(dtype="float32")}, targets=("y",))


def a_sample(inputs: list[str], batches: int, most: int, watch: Watch) -> baseline.Sample:
    of: Any = SimpleNamespace(watch=watch, batches=batches)
    return baseline.Sample(of, FLOW, inputs, most)


def test_a_sample_has_one_pass_at_most_and_no_part_of_another_one() -> None:
    watch, batch = Watch(), tf.constant([1.0, 2.0])
    sample = a_sample(["x"], 2, 100, watch)
    assert sample.taken() is None
    watch.resumed_batches = 3
    sample.add(batch, batch)
    watch.resumed_batches = 0
    for of in (1, 2, 3):
        sample.add(of * batch, of * batch)
    inputs, targets, weights = present(sample.taken())
    assert inputs["x"].tolist() == targets["y"].tolist() == [1, 2, 2, 4]
    assert weights.tolist() == [1, 1, 1, 1]
    few = a_sample([], 9, 3, watch)
    for _ in range(9):
        few.add({"x": batch}, {"y": batch}, batch)
    inputs, targets, weights = present(few.taken())
    assert (inputs, targets["y"].tolist(), weights.tolist()) == ({}, [1, 2, 1], [1, 2, 1])


def read(made: Made, name: str) -> tuple[dict[str, Array], dict[str, Array], Array]:
    """Inputs, targets and weights of a pipeline, in its order."""
    planned = made.plan("measure.digest=false")
    flow, parts = given_to_model(planned.train), list[Any]()
    context = contexts_of(planned, open_source(planned.spec.dataset))[name]
    for inputs, targets, *weight in Pipeline(planned.pipelines[name], context).dataset:
        by_name = inputs if isinstance(inputs, dict) else {flow.inputs[0]: inputs}
        wanted = targets if isinstance(targets, dict) else {flow.target: targets}
        parts.append((by_name, wanted, np.ravel(weight[0]) if weight else np.ones(len(wanted[flow.target]))))
    names = () if flow.sequences else flow.inputs  # whose batches have different lengths
    inputs, targets = (
        {key: np.concatenate([part[place][key] for part in parts]) for key in keys}
        for place, keys in enumerate((names, flow.targets))
    )
    return inputs, targets, np.concatenate([part[2] for part in parts]).astype(float)


OF_COLUMNS = ("rows", "several", "heads")


@pytest.fixture(params=OF_COLUMNS)
def made(request: pytest.FixtureRequest, once: Callable[[str, Callable[[Path], object]], Path]) -> Made:
    return made_of(request.param, once)


def test_a_baseline_is_fitted_on_what_the_network_read_and_judged_on_its_validation(made: Made) -> None:
    inputs, targets, weights = read(made, "train")
    flow, simple = given_to_model(made.plan().train), present(baseline.loaded(made.run))
    told = summary_of(made.run)["baseline"]
    assert (told["examples"], told["note"]) == (len(weights), "")
    columns = simple.columns(inputs, len(weights))
    for name, of in targets.items():
        kind = kind_of(flow.features[name])
        wanted = np.eye(len(simple.constant[name]))[of] if kind == "class" else of.reshape(len(of), -1).astype(float)
        assert simple.constant[name] == pytest.approx((weights @ wanted / weights.sum()).tolist(), rel=1e-6)
        found, _ = baseline.coefficients(kind, columns, wanted, weights * len(weights) / weights.sum())
        np.testing.assert_allclose(simple.linear[name], found, rtol=1e-3, atol=0.02)
    inputs, targets, weights = read(made, "validation")
    predicted = simple.predictions(flow, inputs, len(weights))
    for model, by_name in predicted.items():
        for name, of in by_name.items():
            prefix = f"val_{name}_" if len(by_name) > 1 else "val_"
            if kind_of(flow.features[name]) == "number":
                errors = np.abs(of[:, 0] - targets[name])
                assert told[model][f"{prefix}mae"] == pytest.approx(np.average(errors, weights=weights), rel=1e-4)
            else:
                wanted = targets[name].reshape(len(weights), -1)
                said_of = of.argmax(axis=1)[:, None] if kind_of(flow.features[name]) == "class" else of > 0.5
                is_right = (said_of == wanted).mean(axis=1)
                assert told[model][f"{prefix}accuracy"] == pytest.approx(
                    np.average(is_right, weights=weights), rel=1e-5
                )


def test_an_evaluation_has_the_baseline_of_the_run_on_its_split(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    told = summary_of(made.run)["baseline"]
    for split, is_own in (("train[80%:]", True), ("train[:50%]", False)):
        found = json.loads(said(capsys, "evaluate", made.run, f"dataset.split={split!r}", "--format", "json"))
        for name, of in (found["targets"] or {"": found}).items():
            prefix, metric = f"val_{name}_" if name else "val_", "accuracy" if of["accuracy"] else "mae"
            assert [each["name"] for each in of["baseline"]] == ["constant", "linear"]
            for each in of["baseline"]:
                value = told[each["name"]][f"{prefix}{metric}"]
                assert (each["value"]["value"] == pytest.approx(value, rel=1e-4)) == is_own
                assert each["lead"]["value"] == pytest.approx(of[metric]["value"] - each["value"]["value"], abs=1e-4)
                is_more, is_less = each["lead"]["low"] > 0, each["lead"]["high"] < 0
                better, worse = (is_more, is_less) if metric == "accuracy" else (is_less, is_more)
                assert each["result"] == (BETTER if better else WORSE if worse else TIED)


@pytest.mark.parametrize("name", ["images", "arrays", "text", "sequences", "photos in rows"])
def test_images_sequences_and_matrices_have_a_constant_alone(
    name: str, once: Callable[[str, Callable[[Path], object]], Path]
) -> None:
    made = made_of(name, once)
    told, simple = summary_of(made.run)["baseline"], present(baseline.loaded(made.run))
    _, targets, weights = read(made, "train")
    assert (told["linear"], told["note"], simple.linear) == ({}, "", {})
    for target, of in targets.items():
        kind = kind_of(given_to_model(made.plan().train).features[target])
        wanted = np.eye(len(simple.constant[target]))[of] if kind == "class" else of.reshape(len(of), -1)
        assert simple.constant[target] == pytest.approx((weights @ wanted / weights.sum()).tolist(), rel=1e-5)
    assert np.isfinite([*told["constant"].values()]).all()


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("baseline")
    write_houses(folder)
    return [*words_of(folder, "model=linear", target="{band: binary}"), "trainer.epochs=3"]


@pytest.fixture(scope="module")
def whole(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    complete_here(folder, words)
    return folder


@pytest.mark.parametrize(("epoch", "examples"), [(1, 160), (2, 160 - 2 * 7)], ids=["in an epoch", "in the last one"])
def test_a_resumed_run_fits_it_on_a_whole_epoch_if_there_is_one(
    epoch: int, examples: int, whole: Path, words: list[str], tmp_path: Path
) -> None:
    after = EpochRecorder.on_train_batch_end

    def stops(self: EpochRecorder, batch: int, logs: Any = None) -> None:
        after(self, batch, logs)
        if len(self.record.summary.epochs) == epoch and batch == 2:
            raise KeyboardInterrupt

    given = [*words, "trainer.checkpoint_every_steps=2"]
    resumed = resumed_after(tmp_path, given, "on_train_batch_end", stops)
    assert "baseline" not in summary_of(tmp_path / "stopped")
    found, wanted = (summary_of(folder)["baseline"] for folder in (resumed, whole))
    assert found["examples"] == examples
    if examples == wanted["examples"]:
        assert found["linear"] == pytest.approx(wanted["linear"], rel=1e-3)
        assert found["constant"] == wanted["constant"]


def test_a_run_that_has_nothing_left_to_train_has_the_baseline_of_the_one_that_it_resumes(
    whole: Path, words: list[str], tmp_path: Path
) -> None:
    left, again = shutil.copytree(whole, tmp_path / "left"), tmp_path / "again"
    complete_here(again, [*words, f"trainer.resume={left}"])
    assert summary_of(again)["baseline"] == summary_of(whole)["baseline"]
    assert baseline.loaded(again) == baseline.loaded(whole)


def test_a_baseline_that_fails_is_a_note_and_no_error(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise np.linalg.LinAlgError("no such matrix\nat all")

    monkeypatch.setattr(baseline, "coefficients", fails)
    told = complete_here(tmp_path / "failed", words)["baseline"]
    assert told["note"] == "It could not be fitted: LinAlgError: no such matrix"
    assert not (tmp_path / "failed/baseline.json").exists()


def test_a_linear_model_that_has_not_converged_or_would_take_long_says_so(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baseline, "_MOST_STEPS", 1)
    monkeypatch.setattr(baseline, "_MOST_EXAMPLES", 50)
    monkeypatch.setattr(baseline, "_FEWEST_EXAMPLES", 10)
    told = complete_here(tmp_path / "short", words)["baseline"]
    assert (told["examples"], told["note"]) == (50, "The linear model has not converged in 1 iterations.")
    monkeypatch.setattr(baseline, "_MOST_VALUES", 100)
    told = complete_here(tmp_path / "wide", words)["baseline"]
    assert (told["linear"], told["note"]) == ({}, "13 columns by 1 output are too many for a linear model.")


def test_categories_with_many_values_are_left_out(words: list[str], tmp_path: Path) -> None:
    hashed = (
        "transform.columns={area: {of: area, steps: [{fill: median}]}, bin: {of: kind, steps: [{hash: 300}, embed]}}"
    )
    told = complete_here(tmp_path / "run", [*words, hashed])["baseline"]
    assert told["note"] == "the linear model leaves out bin (over 256 categories)."
    assert present(baseline.loaded(tmp_path / "run")).widths == {"area": 1}
    alone = "transform.columns={bin: {of: kind, steps: [{hash: 300}, embed]}}"
    told = complete_here(tmp_path / "alone", [*words, alone])["baseline"]
    assert told["note"] == "no linear model, which would leave out bin (over 256 categories)."
    assert told["linear"] == {}


def test_without_a_validation_it_is_judged_on_the_training(words: list[str], tmp_path: Path) -> None:
    summary = complete_here(tmp_path / "run", [*words, "dataset.eval_split=null", "dataset.split=train"])
    told = summary["baseline"]
    assert {"loss", "accuracy"} <= told["constant"].keys() == told["linear"].keys()
    assert (told["examples"], told["results"]) == (200, {"accuracy": None})


def test_a_baseline_of_labels_does_not_trace_anew_for_each_step(tmp_path: Path) -> None:
    """TensorFlow would say so in the middle of the result; it counts the traces of a process, this one's too."""
    pyarrow.parquet.write_table(several(), tmp_path / "houses.parquet")
    sets = "dataset.eval_splits={one: 'train[80%:]', two: 'train[90%:]'}"
    words = list(words_of(tmp_path, "model=linear", sets, target="{tags: {labels: ','}}"))
    out, _ = finish_well(start(words, tmp_path))  # which has TensorFlow's warnings, too: Hydra logs them
    assert "baseline  two.accuracy" in out
    assert "retracing" not in out


def test_a_run_without_a_baseline_is_evaluated_without_one(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = shutil.copytree(whole, tmp_path / "older")
    (older / "baseline.json").write_text("{")
    assert json.loads(said(capsys, "evaluate", older, "--format", "json"))["baseline"] == []


@pytest.mark.slow
@pytest.mark.needs("jax")
def test_another_backend_has_the_same_baseline(whole: Path, words: list[str], tmp_path: Path) -> None:
    cache = quick_jax(Path(os.environ["XDG_CACHE_HOME"]) / "jax")
    finish_well(start([*words, f"hydra.run.dir={tmp_path / 'run'}"], tmp_path, "tests.quick_jobs", **cache))
    found, wanted = (summary_of(folder)["baseline"] for folder in (tmp_path / "run", whole))
    for kind in ("constant", "linear"):
        assert found[kind] == pytest.approx(wanted[kind], rel=1e-3)
