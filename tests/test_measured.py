from pathlib import Path
from typing import Any

import pytest

from etlrun.cli import diff
from etlrun.record import record as records
from etlrun.record.summary import COMPLETED
from etlrun.system.errors import WorldError
from tests.configs import composed


def measured_run(folder: Path, words: list[str], examples_per_s: float, **measures: float) -> None:
    record = records.Record.create(folder, composed(*words), words)
    rates = (examples_per_s / 9, examples_per_s, examples_per_s)  # the first epoch is no warm one
    epochs = [{"examples": int(10 * rate), "wall_s": 10.0, "examples_per_s": rate, **measures} for rate in rates]
    record.update(status=COMPLETED, epochs=epochs, examples_per_s=examples_per_s / 2, au=0.5, input_wait_share=0.0)


def test_measured_runs_are_told_with_an_interval(told: Any, tmp_path: Path) -> None:
    for number, rate in enumerate([100.0, 102.0, 98.0, 101.0]):
        measured_run(tmp_path / f"old{number}", ["load.prefetch=0"], rate)
        measured_run(tmp_path / f"new{number}", ["load.prefetch=2"], 1.5 * rate)
    measured_run(tmp_path / "another", ["load.prefetch=2", "load.batch_size=8"], 1.0)
    lines = told("load.prefetch=0", "load.prefetch=2", "--runs", str(tmp_path)).splitlines()
    assert [line for line in lines if "measured" in line] == [
        "  measured examples/s: 100.5 (4 runs) -> 150.8 (4 runs), 1.50x (95% interval 1.45 to 1.55)",
        "  measured au: 0.5 (4 runs) -> 0.5 (4 runs), 1.00x (95% interval 1.00 to 1.00)",
        "  measured input wait share: 0 (4 runs) -> 0 (4 runs)",
    ]


@pytest.mark.parametrize(
    ("seeds", "difference"),
    [
        (range(4), "4.5 (4 runs) -> 3.95 (4 runs), -0.55 (95% interval -0.7753 to -0.3247, 4 seeds)"),
        (range(2), "3.5 (2 runs) -> 3.05 (2 runs), -0.45; fewer than 3 seeds on both sides have no interval"),
    ],
)
def test_losses_are_compared_by_seed(told: Any, tmp_path: Path, seeds: Any, difference: str) -> None:
    for seed in seeds:
        for name, prefetch, value in (("old", 0, 3.0 + seed), ("new", 2, 2.6 + 0.9 * seed)):
            words = [f"load.prefetch={prefetch}", f"trainer.seed={seed}"]
            measured_run(tmp_path / f"{name}{seed}", words, 100.0, val_loss=value)
    lines = told("load.prefetch=0", "load.prefetch=2", "--runs", str(tmp_path)).splitlines()
    assert [line for line in lines if "val_loss" in line] == [f"  measured val_loss: {difference}"]


def test_runs_that_have_not_read_the_same_records_are_told_so(told: Any, tmp_path: Path) -> None:
    for number, digest in enumerate("aab"):
        measured_run(tmp_path / str(number), [f"load.prefetch={number}"], 100.0)
        record = records.Record(tmp_path / str(number))
        record.update(dataset={"name": "mine", "examples": {"train": 1}, "digest": {"train": digest}})
    figures = "  measured examples/s: 100 (1 run) -> 100 (1 run), 1.00x; a single run has no spread"
    same = told("load.prefetch=0", "load.prefetch=1", "--runs", str(tmp_path)).splitlines()
    assert [line for line in same if "examples/s" in line] == [figures]
    other = told("load.prefetch=0", "load.prefetch=2", "--runs", str(tmp_path)).splitlines()
    others = f"{figures}; these runs have not all read the same records"
    assert [line for line in other if "examples/s" in line] == [others]


def test_one_run_has_no_interval_and_no_run_is_refused(told: Any, tmp_path: Path) -> None:
    measured_run(tmp_path / "old", ["load.prefetch=0"], 100.0)
    measured_run(tmp_path / "new", ["load.prefetch=2"], 90.0)
    assert "  measured examples/s: 100 (1 run) -> 90 (1 run), 0.90x; a single run has no spread\n" in told(
        "load.prefetch=0", "load.prefetch=2", "--runs", str(tmp_path)
    )
    with pytest.raises(WorldError) as caught:
        diff.main(["", "cache=none", "--runs", str(tmp_path / "none")])
    assert str(caught.value) == (
        f"--runs {tmp_path / 'none'}: found no such folder; expected a folder with completed runs below it\n"
        "    -> give the folder of a run or of a sweep"
    )
