"""Sweeps that change the training are decided by their validation; what diverged is recommended by none."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli import main as cli
from etlrun.report.render import RENDER
from etlrun.results import report
from etlrun.results.report import of_sweep, together
from etlrun.results.results import Results
from etlrun.stages.objectives import falls
from etlrun.sweep.ledger import RunKey
from tests.runs import small
from tests.sweeps import collected, ended, sweep_of, table

SEEDS = ("sweep.repeats=3", "sweep.vary_seed=true")


def of_accuracies(folder: Path, words: list[str], of: Mapping[int, Any]) -> Results:
    """Of completed runs, each config with a rate and a validation accuracy, which vary a little with the round."""

    def summary(run: RunKey) -> dict[str, Any]:
        rate, accuracy = of[run.config]
        turn, twin = (run.repeat, 0) if run.config else divmod(run.repeat, 2)
        rate *= 1 + 0.001 * twin
        if isinstance(accuracy, str):
            measures = {"loss": accuracy, "val_loss": accuracy}
        else:
            accuracy += 0.002 * turn + 0.001 * twin
            measures = {"loss": 1 - accuracy, "val_loss": 1 - accuracy, "val_accuracy": accuracy}
        epoch = {"examples": 1000, "examples_per_s": rate, "wall_s": 1000 / rate, "epoch": 1, **measures}
        return {"epochs": [epoch] * 2, "dataset": {"examples": {"validation": 400}}}

    return collected(sweep_of(folder, *words), summary)


RATES = "trainer.learning_rate=0.1,0.01,0.001"


def test_learning_rates_are_decided_by_the_validation_accuracy(tmp_path: Path) -> None:
    results = of_accuracies(tmp_path, [RATES, *SEEDS], {0: (900.0, 0.6), 1: (500.0, 0.9), 2: (800.0, 0.7)})
    assert results.decision.words == (
        "Use trainer.learning_rate=0.01: validation accuracy 0.902 (0.897 to 0.907), better than the baseline's 0.602 "
        "(0.601 to 0.604); 0.56 (0.56 to 0.56) times as fast."
    )
    assert (results.decision.by, results.decision.recommended) == ("val accuracy", 1)
    assert [row["config"] for row in table(results)] == ["1*", "2", "0"]
    assert results.decision.same_data == (
        "not known to be the same data: the plans agree, but the records read may differ; each round has its own seed"
    )


def test_the_fastest_of_those_tied_with_the_best_is_taken(tmp_path: Path) -> None:
    results = of_accuracies(tmp_path, [RATES, *SEEDS], {0: (900.0, 0.6), 1: (500.0, 0.9), 2: (800.0, 0.9)})
    assert results.decision.config == 2
    assert results.decision.words.endswith(" It is the fastest of 2 configs tied with the best.")


def test_the_baseline_is_kept_where_nothing_is_better_or_faster(tmp_path: Path) -> None:
    results = of_accuracies(tmp_path, [RATES, *SEEDS], {0: (900.0, 0.9), 1: (500.0, 0.9), 2: (800.0, 0.7)})
    assert results.decision.words == (
        "Keep the baseline, trainer.learning_rate=0.1: no validation accuracy is better, nor any tied with it faster."
    )


def test_runs_of_one_seed_name_the_best_and_recommend_nothing(tmp_path: Path) -> None:
    results = of_accuracies(tmp_path, [RATES], {0: (900.0, 0.6), 1: (500.0, 0.9), 2: (800.0, 0.7)})
    assert results.decision.words == (
        "Highest validation accuracy: trainer.learning_rate=0.01, 0.900 (0.867 to 0.926), at 500.0 examples/s. Runs of "
        "one seed can't separate a difference from chance; use sweep.repeats=3 or more with sweep.vary_seed=true."
    )
    assert (results.decision.config, results.decision.recommended) == (1, None)
    assert [(row["config"], row["val accuracy"]) for row in table(results)] == [
        ("1", "0.900 (0.867 to 0.926)"),
        ("2", "0.700 (0.653 to 0.743)"),
        ("0", "0.600 (0.551 to 0.647)"),
    ]


@pytest.mark.parametrize("word", ["load.prefetch=0,1,2", "transform.num_parallel_calls=1,2,autotune"])
def test_a_sweep_of_speeds_is_decided_by_speed(word: str, tmp_path: Path) -> None:
    results = of_accuracies(tmp_path, [word], {0: (900.0, 0.6), 1: (500.0, 0.9), 2: (800.0, 0.7)})
    assert (results.decision.config, results.decision.by) == (0, "with fill")


@pytest.mark.parametrize("word", [RATES, "load.prefetch=0,1,2"])
@pytest.mark.parametrize("seeds", [(), SEEDS])
def test_what_diverged_is_a_row_that_failed_and_is_recommended_by_nobody(
    word: str, seeds: tuple[str, ...], tmp_path: Path
) -> None:
    results = of_accuracies(tmp_path, [word, *seeds], {0: (500.0, 0.6), 1: (900.0, "NaN"), 2: (400.0, 0.6)})
    assert results.decision.config in {0, 2}
    last = table(results)[-1]
    assert (last["config"], last["status"], last["examples/s"]) == ("1", "failed", "-")
    assert last["reason"] == "epoch 1: found a loss of nan; expected a finite loss"
    assert report.conclude(results) == 1


def test_a_training_that_diverges_in_a_sweep_is_not_its_answer(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "sweep"
    words = (
        "trainer.optimizer=sgd",
        "trainer.learning_rate=1e-2,1e30",
        "trainer.on_nan=warn",
        "trainer.epochs=2",
        "model.trainable=true",
    )
    assert ended([*small(tiny, *words), f"hydra.sweep.dir={folder}"]) == 1
    out = capsys.readouterr().out
    results = json.loads((folder / "results.json").read_text())
    known = {config["number"]: config for config in results["configs"]}
    assert [known[number]["status"] for number in range(2)] == ["completed", "failed"]
    assert "expected a finite loss" in known[1]["error"]
    assert results["decision"]["config"] == 0
    assert "decision  Highest validation accuracy: trainer.learning_rate=0.01, " in out


UNITS = "trainer.learning_rate=0.1,0.01,0.001"
ERRORS = {0: 30_000.0, 1: 12_000.0, 2: 20_000.0, 3: 25_000.0}


def of_errors(folder: Path, *words: str, scale: float = 1.0, name: str = "mae") -> Results:
    """Of completed runs, of which those with smaller errors have larger losses."""

    def summary(run: RunKey) -> dict[str, Any]:
        turn, twin = (run.repeat, 0) if run.config else divmod(run.repeat, 2)
        error = scale * (ERRORS[run.config] + 100 * turn + 50 * twin)
        metrics = {name: error / 2, "r2": 0.5, f"val_{name}": error, "val_r2": 0.4}
        measures = {"loss": 1 / error, "val_loss": 1 / error, "metrics": metrics}
        epoch = {"examples": 1000, "examples_per_s": 500.0, "wall_s": 2.0, "epoch": 1, **measures}
        return {"epochs": [epoch] * 2, "dataset": {"examples": {"validation": 400}}}

    return collected(sweep_of(folder, *words), summary)


def test_trainings_of_numbers_are_decided_by_the_smallest_error(tmp_path: Path) -> None:
    results = of_errors(tmp_path, UNITS, *SEEDS)
    assert (results.decision.by, results.decision.recommended) == ("val mae", 1)
    assert results.decision.words.startswith(
        "Use trainer.learning_rate=0.01: validation mae 12,100 (11,852 to 12,348), better than the baseline's 30,125 "
    )
    rows = table(results)
    assert [row["config"] for row in rows] == ["1*", "2", "0"]
    assert rows[0]["val mae"] == "12,100 (11,852 to 12,348) better"
    assert "val accuracy" not in rows[0]


@pytest.mark.parametrize(("scale", "first"), [(1.0, "12,000"), (1e-8, "0.00012")])
def test_errors_of_any_size_of_runs_of_one_seed_are_shown(tmp_path: Path, scale: float, first: str) -> None:
    results = of_errors(tmp_path, UNITS, scale=scale)
    assert results.decision.words.startswith(f"Lowest validation mae: trainer.learning_rate=0.01, {first}, at 500.0")
    assert [row["config"] for row in table(results)] == ["1", "2", "0"]
    assert 'aria-sort="ascending"><button type="button">val mae' in RENDER["html"](of_sweep(results))


IS_BETTER_BELOW = {
    "val_loss": True,
    "price_mae": True,
    "val_price_rmse": True,
    "val_r2": False,
    "recall_of_weight_loss": False,
    "val_kind_f1_of_some_loss": False,
}


@pytest.mark.parametrize("name", IS_BETTER_BELOW)
def test_errors_and_losses_are_better_below(name: str) -> None:
    assert falls(name) is IS_BETTER_BELOW[name]


def test_several_targets_are_decided_by_the_first_one(tmp_path: Path) -> None:
    results = of_errors(tmp_path, UNITS, name="price_mae")
    assert results.decision.by == "val price mae"
    first = table(results)[0]
    assert (first["config"], first["val price mae"]) == ("1", "12,000")
    assert 'aria-sort="ascending"><button type="button">val price mae' in RENDER["html"](of_sweep(results))


def test_two_parameters_together_show_the_errors_in_small_units(tmp_path: Path) -> None:
    words = ("trainer.learning_rate=0.1,0.01", "trainer.epochs=2,3")
    (cells,) = together(of_errors(tmp_path, *words, scale=1e-8))
    found = {cell for column in cells.columns[1:] for cell in map(column.cell, cells.rows)}
    assert found == {"0.0003", "0.00012", "0.0002", "0.00025"}


def test_a_sweep_of_speeds_shows_the_error_of_each_config(tmp_path: Path) -> None:
    results = of_errors(tmp_path, "load.prefetch=0,1,2")
    assert results.decision.by == "with fill"
    assert {row["config"].strip("*"): row["val mae"] for row in table(results)} == {
        "0": "30,000", "1": "12,000", "2": "20,000",
    }  # fmt: skip
    rows = [*csv.DictReader(io.StringIO(RENDER["csv"](of_sweep(results))))]
    assert [float(row["val_mae"]) for row in rows] == [*ERRORS.values()][:3]


def test_the_best_of_a_sweep_is_its_smallest_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_errors(tmp_path, UNITS)
    cli.main(["runs", "ls", str(tmp_path), "--format", "json"])
    (found,) = json.loads(capsys.readouterr().out)
    assert found["best"] == {"val_mae": 12_000.0}
