"""Sweeps in this process, so that all their jobs are forked from one server that has imported TensorFlow."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli.multirun import multirun

QUICK = ("model.step_ms=1", "model.eval_step_ms=1", "trainer.epochs=1", "dataset.eval_split=null")
Sweep = Callable[..., int]


def ended(words: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        multirun(["-m", *words])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def results_of(tmp_path: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((tmp_path / "sweep" / "results.json").read_text())
    return results


def needs(plugin: str) -> None:
    """Skip a test where a plugin of Hydra is not installed."""
    pytest.importorskip(f"hydra_plugins.hydra_{plugin}", reason=f"hydra_{plugin} is not installed")
