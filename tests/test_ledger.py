"""A ledger that a person has edited; what a sweep makes of it is in test_resumed_sweeps."""

from pathlib import Path
from typing import Any

import pytest

from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.stages import STAGES
from etlrun.sweep.ledger import Ledger
from etlrun.system.errors import WorldError

REQUEST: dict[str, Any] = {"overrides": [], "config_dir": None, "config_name": None, "files": "", "multirun": {}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a sweep of two configs."""
    found = grid.of(Request(overrides=["load.prefetch=0,1"], multirun=True), STAGES)
    return Ledger.create(tmp_path / "sweep", found.sweep, found.jobs, REQUEST).folder


def test_a_line_that_was_cut_is_named(folder: Path) -> None:
    configs = folder / "configs.jsonl"
    configs.write_text(configs.read_text()[:-100])
    with pytest.raises(WorldError) as caught:
        Ledger.open(folder)
    head, _, rest = str(caught.value).partition(" EOF while parsing ")
    assert head == f"{folder}: found no sweep (ValueError: configs.jsonl, line 2:"
    assert rest.endswith(
        "); expected the folder of a sweep, with its sweep.json and configs.jsonl\n"
        "    -> pass the folder that the sweep printed, or start a new sweep without sweep.resume"
    )


def test_an_empty_line_is_no_config(folder: Path) -> None:
    before, configs = Ledger.open(folder).configs, folder / "configs.jsonl"
    configs.write_text("\n" + configs.read_text().replace("\n", "\n\n"))
    assert Ledger.open(folder).configs == before
