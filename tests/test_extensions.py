"""Models, losses, metrics and callbacks of installed packages, from plans to trained models."""

import json
from pathlib import Path
from typing import Any

import pytest

from etlrun.eject.program import ejected
from etlrun.planning.plan import Plan
from etlrun.planning.planner import plan
from etlrun.planning.render import text
from etlrun.planning.spec import parse
from etlrun.record.record import Record
from etlrun.review.difference import compare
from etlrun.run import run
from etlrun.stages.installed import Registry
from etlrun.system.errors import ConfigError
from tests.configs import composed, raised
from tests.golden import Case, Golden, Says, cases
from tests.grove import load, load_grove
from tests.runs import are_equal, summary_of, variables_of
from tests.tables import words_of, write_houses

OWN = (
    "trainer.loss=quantile", "trainer.metrics=[mae,off,log_cosh]", "trainer.callbacks=[plateau]",
    "trainer.early_stopping.monitor=val_off",
)  # fmt: skip
TARGET = "{price: {number: standardize}}"


@pytest.fixture
def grove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The registry with the package, until the end of a test."""
    return load_grove(tmp_path / "site", monkeypatch)


def config_of(folder: Path, *words: str, units: int = 8, target: str = TARGET) -> dict[str, Any]:
    """The config of a run of the houses in `folder` on the model of the package."""
    given = [word for word in words_of(folder, target=target) if not word.startswith("model")]
    return composed(*given, *words) | {"model": {"name": "tower", "units": units}}


def planned(folder: Path, registry: Registry, *words: str, **others: Any) -> Plan:
    if not (folder / "houses.parquet").exists():
        write_houses(folder)
    return plan(parse(config_of(folder, *words, **others), registry))


def ran(folder: Path, rows: Path, registry: Registry, *words: str, target: str = TARGET) -> dict[str, Any]:
    """The summary of a run of the houses in `rows` in this process."""
    Record.create(folder, config_of(rows, *words, target=target), list(words))
    assert run.run(folder, registry) == 0
    return summary_of(folder)


def test_plans_and_programs_have_what_a_package_adds(tmp_path: Path, grove: Registry, says: Says) -> None:
    made = planned(tmp_path, grove, *OWN)
    lines = text(made).splitlines()
    start = lines.index("code of installed packages") + 1
    says([line.partition(", code ")[0] for line in lines[start : start + 5]])
    assert made.remarks[-1] == "target `price` is a number: loss quantile; metrics mae, off, log_cosh."
    program = ejected(made, [], {})
    for line in (
        "def pooled(values, units):",
        "    features = network(vectors(inputs, embedded={}), units=8)",
        '            OwnMetric(off, name="off"),',
        '            OwnMetric(log_cosh, is_metric=True, name="log_cosh"),',
        "plateau()",
    ):
        assert line in program
    compile(program, "program.py", "exec")


def test_what_differs_is_compared_by_kind_and_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grove: Registry, says: Says
) -> None:
    one = planned(tmp_path, grove, *OWN)
    other = planned(tmp_path, grove, *OWN, units=9)
    found = [(each.path, each.old, each.new, each.kind) for each in compare(one, other).differences]
    says(found)
    again = load_grove(tmp_path / "other", monkeypatch, ("(share - 1.0)", "(share - 2.0)"))
    edited = planned(tmp_path, again, *OWN)
    assert edited.fingerprint != one.fingerprint
    (difference,) = compare(one, edited).differences
    assert (difference.path, difference.kind) == ("code of the loss quantile", "training")
    assert {text.partition(", code ")[0] for text in (difference.old or "", difference.new or "")} == {"grove 1.0"}


@pytest.mark.parametrize("case", cases("extensions"))
def test_values_that_a_package_lacks_are_faults(case: Case, golden: Golden, tmp_path: Path, grove: Registry) -> None:
    golden(case, raised(ConfigError, planned, tmp_path, grove, *case["overrides"], target=case.get("target", TARGET)))


@pytest.mark.slow
def test_a_run_on_a_package_is_resumed_to_the_bit_by_the_same_code_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grove: Registry
) -> None:
    write_houses(tmp_path)
    whole = ran(tmp_path / "whole", tmp_path, grove, *OWN, "trainer.epochs=2", "trainer.callbacks=[]")
    assert [*whole["epochs"][0]["metrics"]] == ["log_cosh", "mae", "off", "val_log_cosh", "val_mae", "val_off"]
    ran(tmp_path / "left", tmp_path, grove, *OWN, "trainer.epochs=1", "trainer.callbacks=[]")
    resumed = (*OWN, "trainer.epochs=2", "trainer.callbacks=[]", f"trainer.resume={tmp_path / 'left'}")
    assert ran(tmp_path / "resumed", tmp_path, grove, *resumed)["epochs"][1]["loss"] == whole["epochs"][1]["loss"]
    assert are_equal(*(variables_of(tmp_path / name) for name in ("whole", "resumed")))

    edited = load_grove(tmp_path / "other", monkeypatch, ('activation="relu")(keras', 'activation="tanh")(keras'))
    Record.create(tmp_path / "refused", config_of(tmp_path, *resumed), [])
    assert run.run(tmp_path / "refused", edited) == 2
    error = summary_of(tmp_path / "refused")["error"]
    assert error.startswith("code of model.tower: found 'grove 1.0, code ")
    assert f"', as in {tmp_path / 'left'}\n    -> resume with the same values" in error


def test_a_callback_acts_and_a_class_or_a_single_input_has_its_head(
    tmp_path: Path, grove: Registry, says: Says
) -> None:
    write_houses(tmp_path)
    words = ("dataset.inputs=[garden]", "trainer.callbacks=[plateau]")
    still = ("trainer.learning_rate=1.0e-30", "trainer.epochs=3")
    found = ran(tmp_path / "run", tmp_path, grove, *words, *still, target="{band: class}")
    says(sorted(json.loads((tmp_path / "run" / "plan.json").read_text())["code"]))
    assert [epoch["learning_rate"] for epoch in found["epochs"]] == pytest.approx([1e-30, 1e-30, 1e-31])
    resumed = (*words, *still, "trainer.epochs=4", f"trainer.resume={tmp_path / 'run'}")
    again = ran(tmp_path / "resumed", tmp_path, grove, *resumed, target="{band: class}")
    assert again["epochs"][3]["learning_rate"] == pytest.approx(1e-31)
    assert "trainer.callbacks start anew, since Keras doesn't save their state: plateau." in again["remarks"]


@pytest.mark.parametrize(
    "edit",
    [
        ('activation="relu")(keras.layers.Concatenate()(parts))', 'activation="no")(parts)'),
        ("keras.layers.Flatten()(pooled(values, units))", "keras.layers.Lambda(lambda x: 2.0 * x)(values)"),
    ],
    ids=["no features", "not loaded"],
)
def test_a_network_that_gives_no_features_or_can_not_be_loaded_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edit: tuple[str, str], says: Says
) -> None:
    registry = load_grove(tmp_path / "site", monkeypatch, edit)
    write_houses(tmp_path)
    Record.create(tmp_path / "run", config_of(tmp_path, "dataset.inputs=[garden]"), [])
    assert run.run(tmp_path / "run", registry) == 1
    says(summary_of(tmp_path / "run")["error"])


@pytest.mark.parametrize("case", cases("plugins"))
def test_what_can_not_be_used_is_a_fault(
    case: Case, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fault,) = faults_in(tmp_path, monkeypatch, case["group"], f"own = {case['of']}", case["body"])
    golden(case, fault)


@pytest.mark.parametrize(("group", "name"), [("losses", "huber"), ("metrics", "recall"), ("metrics", "val_off")])
def test_names_of_etlrun_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, name: str, says: Says
) -> None:
    says(faults_in(tmp_path, monkeypatch, group, f"{name} = m:f", "def f(y_true, y_pred):\n    return y_true\n"))


def test_a_dataset_among_the_models_is_a_fault_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "from etlrun.stages.dataset import Dataset\n\n\nclass A(Dataset):\n    source = 'm:A'\n"
    (fault,) = faults_in(tmp_path, monkeypatch, "models", "own = m:A", body)
    assert "which is not a dataclass derived from Network; expected a dataclass derived from Network with a " in fault


def faults_in(folder: Path, monkeypatch: pytest.MonkeyPatch, group: str, line: str, body: str) -> list[str]:
    """The faults of a package with one entry point."""
    (folder / "m.py").write_text(body)
    (folder / "m-1.0.dist-info").mkdir()
    (folder / "m-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: m\nVersion: 1.0\n")
    (folder / "m-1.0.dist-info" / "entry_points.txt").write_text(f"[etlrun.{group}]\n{line}\n")
    return [str(fault) for fault in load(folder, monkeypatch, "m")[1]]
