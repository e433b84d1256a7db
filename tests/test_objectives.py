"""What a search is given of a job."""

import math
from typing import Any

import pytest

from etlrun.cli.launch import _objectives
from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.record.outcome import outcome
from etlrun.record.summary import Summary
from etlrun.stages import STAGES

SWEEP = grid.of(Request(overrides=["sweep.objectives=[throughput,utilisation,peak_memory]"]), STAGES).sweep
EPOCH = {"fill_wait_s": 0.0, "input_wait_s": 0.0, "wall_s": 2.0, "startup_s": 0.0, "startup_examples": 0}
DONE: dict[str, Any] = {
    "status": "completed",
    "overrides": [],
    "epochs": [{**EPOCH, "examples": 100, "examples_per_s": 50.0}] * 2,
    "au": 0.5,
    "resources": {"peak_rss_bytes": 1000},
}


def cached(*passes: str) -> dict[str, Any]:
    return {"cache": {"pipelines": {"train": {"passes": list(passes)}}}}


@pytest.mark.parametrize(
    ("changes", "given"),
    [
        ({}, (50.0, 0.5, 1000.0)),
        (cached("filled", "read"), (50.0, 0.5, 1000.0)),
        (cached("uncached", "uncached"), (0.0, 0.0, math.inf)),
        ({"status": "failed"}, (0.0, 0.0, math.inf)),
        ({"status": "interrupted"}, (0.0, 0.0, math.inf)),
        ({"au": None}, (50.0, 0.0, 1000.0)),
    ],
)
def test_a_run_that_did_not_measure_its_config_gets_the_worst_values(
    changes: dict[str, Any], given: tuple[float, ...]
) -> None:
    assert _objectives(outcome(Summary.model_validate({**DONE, **changes})), SWEEP) == given


def test_a_run_without_a_summary_gets_them_too() -> None:
    assert _objectives(None, SWEEP) == (0.0, 0.0, math.inf)
