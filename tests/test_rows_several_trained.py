"""Runs of several targets with weights of rows: what they record, their programs and their predictions."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from etlrun.record.summary import read_summary
from tests.configs import plan_of
from tests.programs import program_of
from tests.runs import run_here
from tests.test_rows_several import LABELS, NAMES, learning, several
from tests.trained import said


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    folder = tmp_path_factory.mktemp("rows")
    pyarrow.parquet.write_table(several(), folder / "houses.parquet")
    stopping = ("trainer.early_stopping.patience=2", "trainer.early_stopping.monitor=val_price_mae")
    return learning(folder, *stopping, "load.batch_size=20")


@pytest.fixture(scope="module")
def run(words: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four targets, whose rows are weighted."""
    folder = tmp_path_factory.mktemp("run") / "run"
    status, summary = run_here(folder, [*words])
    assert (status, summary["status"]) == (0, "completed")
    return folder


def test_it_records_the_measures_of_each_target_in_turn(run: Path) -> None:
    summary = read_summary(run)
    assert summary is not None
    measured = [*summary.epochs[0].metrics]
    assert measured[:5] == ["price_mae", "price_rmse", "price_r2", "price_loss", "band_accuracy"]
    assert [name.removeprefix("val_") for name in measured[len(measured) // 2 :]] == measured[: len(measured) // 2]


@pytest.mark.slow
def test_its_program_trains_to_the_same_losses(
    run: Path, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    summary, history = read_summary(run), program_of(plan_of(*words), tmp_path).train().history
    assert summary is not None
    assert history["loss"] == [epoch.loss for epoch in summary.epochs]
    assert history["val_loss"] == [epoch.val_loss for epoch in summary.epochs]


def test_predictions_have_the_columns_of_each_target(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pyarrow.parquet.write_table(several().drop_columns([*NAMES, "times"])[:5], tmp_path / "new.parquet")
    rows = [*csv.DictReader(io.StringIO(said(capsys, "predict", run, tmp_path / "new.parquet")))]
    assert [*rows[0]] == [
        *("row", "price_value", "band_class", "band_probability_cheap", "band_probability_dear"),
        *("garden_class", "garden_probability_false", "garden_probability_true"),
        *("tags_labels", *(f"tags_probability_{label}" for label in LABELS)),
    ]
    for row in rows:
        shares = np.array([float(row[f"tags_probability_{label}"]) for label in LABELS])
        assert row["tags_labels"] == ", ".join(np.array(LABELS)[shares > 0.5])
        assert float(row["garden_probability_false"]) + float(row["garden_probability_true"]) == pytest.approx(1)
    text = said(capsys, "predict", run, tmp_path / "new.parquet", "--format", "jsonl", "--top", "1")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["price"]["value"] for line in lines] == [float(row["price_value"]) for row in rows]
    assert [[*line["band"]["probabilities"]] for line in lines] == [[row["band_class"]] for row in rows]
