"""Sweeps in this process, so that all their jobs are forked from one server that has imported TensorFlow."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli.launch import multirun
from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.results.report import collect, columns_of
from etlrun.results.results import Results
from etlrun.stages import STAGES
from etlrun.sweep.ledger import Ledger, RunKey
from tests.present import present

REQUEST: dict[str, Any] = {"overrides": [], "config_dir": None, "config_name": None, "files": "", "multirun": {}}
QUICK = ("model.step_ms=1", "model.eval_step_ms=1", "trainer.epochs=1", "dataset.eval_split=null")
Sweep = Callable[..., int]


def ended(words: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        multirun(Request.of(["-m", *words]))
    assert isinstance(caught.value.code, int)
    return caught.value.code


def results_of(tmp_path: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((tmp_path / "sweep" / "results.json").read_text())
    return results


def sweep_of(folder: Path, *words: str) -> Ledger:
    """A sweep that has not run."""
    found = grid.of(Request(overrides=[*words], multirun=True), STAGES)
    return Ledger.create(folder / "sweep", found.sweep, found.jobs, REQUEST)


def collected(ledger: Ledger, summary: Callable[[RunKey], dict[str, Any]]) -> Results:
    """The results of completed runs with these summaries."""
    for run in ledger.runs:
        folder = ledger.folder_of(run)
        folder.mkdir()
        (folder / "summary.json").write_text(json.dumps({"status": "completed", "overrides": [], **summary(run)}))
    return present(collect(ledger.folder))


def table(results: Results) -> list[dict[str, str]]:
    """The table of a sweep's configs, the best first: the text of each cell by the name of its column."""
    columns = columns_of(results)
    return [{column.name: column.cell(config) for column in columns} for config in results.configs]
