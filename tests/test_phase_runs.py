"""Runs in phases: the same numbers whatever serves them, and wherever they are resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from etlrun.record import page as pages
from etlrun.run.callbacks import EpochRecorder
from tests.runs import are_equal, events_of, losses_of, run_here, small, summary_of, variables_of

PHASES = "trainer.phases=[{epochs: 2}, {epochs: 2, unfreeze: 6, learning_rate: 0.01}]"
BASE = ("trainer.epochs=null", PHASES, "load.batch_size=6", "trainer.checkpoint_every_steps=3")
NONE, FEATURES = ("cache=none",), ("cache=memory", "cache.at=features")
END = ("trainer.ema_momentum=0.8", "trainer.schedule.name=cosine", "trainer.checkpoint_best=val_loss")


def words(tiny: Path, *overrides: str) -> list[str]:
    return [word for word in small(tiny, *BASE, *overrides) if word != "trainer.epochs=1"]


@pytest.fixture(scope="module")
def whole(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, ...]], Path]:
    """The folder of an undisturbed run with these overrides."""
    folders: dict[tuple[str, ...], Path] = {}

    def run(overrides: tuple[str, ...]) -> Path:
        if overrides not in folders:
            folders[overrides] = tmp_path_factory.mktemp("whole")
            assert run_here(folders[overrides], words(tiny, *overrides))[0] == 0
        return folders[overrides]

    return run


def test_cached_features_serve_the_frozen_phase(whole: Callable[[tuple[str, ...]], Path]) -> None:
    plain, cached = (summary_of(whole(overrides)) for overrides in (NONE, FEATURES))
    np.testing.assert_allclose(losses_of(cached), losses_of(plain), atol=1e-4)
    assert cached["cache"]["at"] == "features"
    assert cached["cache"]["pipelines"]["train"]["held_bytes"] > 38 * 1280 * 4
    assert "The verdict and the stages are those from phase 2 on, which reads images." in cached["remarks"]
