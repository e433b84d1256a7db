"""Sweeps of numbers are ranked by their first metric, of which smaller values are better."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli import main as cli
from etlrun.report.render import RENDER
from etlrun.results.report import of_sweep, together
from etlrun.results.results import Results
from etlrun.stages.objectives import falls
from etlrun.sweep.ledger import RunKey
from tests.sweeps import collected, sweep_of, table

UNITS = "trainer.learning_rate=0.1,0.01,0.001"
ERRORS = {0: 30_000.0, 1: 12_000.0, 2: 20_000.0, 3: 25_000.0}
SEEDS = ("sweep.repeats=3", "sweep.vary_seed=true")


def swept(folder: Path, *words: str, scale: float = 1.0, name: str = "mae") -> Results:
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
    results = swept(tmp_path, UNITS, *SEEDS)
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
    results = swept(tmp_path, UNITS, scale=scale)
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
    results = swept(tmp_path, UNITS, name="price_mae")
    assert results.decision.by == "val price mae"
    first = table(results)[0]
    assert (first["config"], first["val price mae"]) == ("1", "12,000")
    assert 'aria-sort="ascending"><button type="button">val price mae' in RENDER["html"](of_sweep(results))


def test_two_parameters_together_show_the_errors_in_small_units(tmp_path: Path) -> None:
    words = ("trainer.learning_rate=0.1,0.01", "trainer.epochs=2,3")
    (cells,) = together(swept(tmp_path, *words, scale=1e-8))
    found = {cell for column in cells.columns[1:] for cell in map(column.cell, cells.rows)}
    assert found == {"0.0003", "0.00012", "0.0002", "0.00025"}


def test_a_sweep_of_speeds_shows_the_error_of_each_config(tmp_path: Path) -> None:
    results = swept(tmp_path, "load.prefetch=0,1,2")
    assert results.decision.by == "with fill"
    assert {row["config"].strip("*"): row["val mae"] for row in table(results)} == {
        "0": "30,000", "1": "12,000", "2": "20,000",
    }  # fmt: skip
    rows = [*csv.DictReader(io.StringIO(RENDER["csv"](of_sweep(results))))]
    assert [float(row["val_mae"]) for row in rows] == [*ERRORS.values()][:3]


def test_the_best_of_a_sweep_is_its_smallest_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    swept(tmp_path, UNITS)
    cli.main(["runs", "ls", str(tmp_path), "--format", "json"])
    (found,) = json.loads(capsys.readouterr().out)
    assert found["best"] == {"val_mae": 12_000.0}
