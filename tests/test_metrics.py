"""The table of metrics: one row of it is all that a metric takes, beside the figures that evaluations compute."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import etlrun
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.stages import STAGES, keras_objects, objectives
from etlrun.stages.made import Made
from etlrun.stages.objectives import ERROR, METRICS, Metric, Scale, scale_of
from tests.configs import composed, plan_of, refusal_of_plan

PACKAGE = Path(etlrun.__file__).parent
EVALUATED = {"trained", "cli"}
"""Packages of evaluations, whose figures have intervals of their own."""


def named_in(path: Path) -> set[str]:
    """The words of all texts of a module but its docstrings."""
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = (node for node in nodes if isinstance(node, ast.Constant) and id(node) not in docs)
    return {word for node in texts if isinstance(node.value, str) for word in node.value.split()}


def test_a_metric_is_named_in_one_file() -> None:
    texts = {str(path.relative_to(PACKAGE)): named_in(path) for path in PACKAGE.rglob("*.py")}
    for name in ("auc", "mae", "rmse", "r2"):
        files = [path for path, words in texts.items() if name in words and path.partition("/")[0] not in EVALUATED]
        own = ["run/custom_objects.py"] if name == "r2" else []  # the default name of its class
        assert sorted(files) == [*own, "stages/objectives.py"], name


def test_a_row_is_all_that_a_metric_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made("keras.metrics.LogCoshError", (), {"name": "log_cosh"})
    row = Metric(name="log_cosh", kinds=("number",), made=lambda *_, **_mixes: made, scale=ERROR)
    monkeypatch.setattr(objectives, "METRICS", (*METRICS, row))
    config = composed(
        "dataset=tfds", "dataset.name=own", "+dataset.features={image: image}", "+dataset.target={answer: float32}",
        "dataset.eval_split=test", "trainer.metrics=[mae,log_cosh]", "trainer.checkpoint_best=val_log_cosh",
    )  # fmt: skip
    trainer = plan(parse(config, STAGES)).spec.fit
    assert trainer is not None
    assert made in keras_objects.objective(trainer, None)["metrics"]
    assert scale_of("val_answer_log_cosh") == ERROR


@pytest.mark.parametrize(
    ("measure", "scale"),
    [
        ("val_loss", ERROR),
        ("price_rmse", ERROR),
        ("val_r2", Scale(high=1.0)),
        ("top_5_accuracy", objectives.SHARE),
        ("val_recall_of_loss", objectives.SHARE),
    ],
)
def test_each_measure_has_a_scale(measure: str, scale: Scale) -> None:
    assert scale_of(measure) == scale


OWN = ("dataset=tfds", "dataset.name=own", "+dataset.features={image: image}")
DRAINED = ("trainer=drain", "model=emulated")


def with_target(declared: str) -> tuple[str, ...]:
    return (*OWN, f"+dataset.target={{answer: {declared}}}")


WITHOUT_HEAD = {
    "image": ("encoded image", "images"),
    "text": ("text", "text"),
    "int64 40": ("int64 [40]", "several labels of one example"),
    "bool 3": ("bool [3]", "several labels of one example"),
    "bool": ("bool", "truth values"),
    "uint8 28x28": ("uint8 [28, 28]", "arrays of several dimensions"),
    "float32 8x8x1": ("float32 [8, 8, 1]", "arrays of several dimensions"),
}


@pytest.mark.parametrize("declared", WITHOUT_HEAD)
@pytest.mark.parametrize("model", ["mobilenet_v2", "keras_application"])
def test_a_target_without_a_head_is_refused_in_the_plan(model: str, declared: str) -> None:
    shown, kind = WITHOUT_HEAD[declared]
    assert refusal_of_plan(*with_target(declared), f"model={model}", "transform=imagenet_224") == (
        f"dataset.target: found answer: {shown}; expected a class, or numbers such as float32, since no model predicts "
        f"{kind}\n"
        "    -> predict another feature, or read the dataset without training a model: trainer=drain"
    )


@pytest.mark.parametrize("declared", WITHOUT_HEAD)
def test_it_is_read_where_no_model_learns(declared: str) -> None:
    assert plan_of(*with_target(declared), *DRAINED).train
    assert plan_of(*with_target(declared), "model=emulated").train


@pytest.mark.parametrize("declared", ["float32", "float32 4", "float64", "int64", "uint8"])
def test_numbers_are_trained_with_a_loss_that_a_note_names(declared: str) -> None:
    note = "answer is not a class: its loss is the mean squared error, and there is no metric."
    assert note in plan_of(*with_target(declared)).remarks
    assert note not in plan_of(*with_target("class")).remarks
    assert note not in plan_of(*with_target(declared), *DRAINED).remarks
