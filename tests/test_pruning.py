import dataclasses
from pathlib import Path

import pytest

from etlrun import grid
from etlrun.compose import Request
from etlrun.stages import STAGES
from etlrun.sweep.ledger import Ledger, RunKey
from etlrun.sweep.outcome import Outcome, outcome
from etlrun.sweep.pruning import Pruning

DONE = outcome({"status": "completed", "overrides": []})


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Configs 0 and 1 differ in a buffer alone; 2 and 3 have another batch, 4 and 5 a quicker model."""
    overrides = ["model=emulated", "model.step_ms=12,6", "load.batch_size=32,64", "load.prefetch=0,1"]
    found = grid.of(Request(overrides=overrides, multirun=True), STAGES)
    return Ledger.create(tmp_path / "sweep", found.sweep, found.jobs[:6], {})


def ran(rate: float, max_gain: float | None) -> Outcome:
    return dataclasses.replace(DONE, examples_per_s=rate, max_gain=max_gain)


def test_nothing_is_known_before_the_first_run(ledger: Ledger) -> None:
    assert Pruning(ledger).reason(RunKey(1, 0)) is None


REASON = "can't win: run 0 had 1000.0 examples/s and 1.02 times that at most with any pipeline; run 0 has 1000.0"


@pytest.mark.parametrize(("max_gain", "reason"), [(1.02, REASON), (1.2, None), (None, None)])
def test_a_config_of_which_the_verdict_says_that_it_can_not_win_is_left_out(
    max_gain: float | None, reason: str | None, ledger: Ledger
) -> None:
    pruning = Pruning(ledger)
    pruning.note(RunKey(0, 0), ran(1000.0, max_gain))
    assert pruning.reason(RunKey(1, 0)) == reason


def test_the_best_so_far_is_of_any_config(ledger: Ledger) -> None:
    pruning = Pruning(ledger)
    pruning.note(RunKey(0, 0), ran(1000.0, 1.5))
    assert pruning.reason(RunKey(1, 0)) is None
    pruning.note(RunKey(4, 0), ran(1900.0, 1.1))
    assert pruning.reason(RunKey(1, 0)) == (
        "can't win: run 0 had 1000.0 examples/s and 1.50 times that at most with any pipeline; run 4 has 1900.0"
    )


def test_a_verdict_tells_nothing_of_another_training_or_another_accelerator(ledger: Ledger) -> None:
    pruning = Pruning(ledger)
    pruning.note(RunKey(0, 0), ran(1000.0, 1.0))
    assert [pruning.reason(RunKey(config, 0)) is None for config in (1, 2, 3, 4, 5)] == [False, True, True, True, True]


def test_the_baseline_and_what_has_run_already_stay(ledger: Ledger) -> None:
    pruning = Pruning(ledger)
    pruning.note(RunKey(1, 0), ran(1000.0, 1.0))
    assert pruning.reason(RunKey(0, 1)) is None
    assert pruning.reason(RunKey(1, 1)) is None


def test_failed_and_pruned_runs_teach_nothing(ledger: Ledger) -> None:
    pruning = Pruning(ledger)
    for status in ("failed", "pruned"):
        pruning.note(RunKey(0, 0), dataclasses.replace(ran(1000.0, 1.0), status=status))
    assert pruning.reason(RunKey(1, 0)) is None
