import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.record import record as freeze
from etlrun.stages import STAGES
from etlrun.system.errors import WorldError
from tests.runs import summary_of


def test_freeze_prints_what_autotune_settled_on(measured: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = measured
    text = freeze.overlay(folder)
    assert text.startswith("# @package _global_\n# Values chosen by AUTOTUNE in ")
    values = {f"{group}.{key}": value for group, block in yaml.safe_load(text).items() for key, value in block.items()}
    assert values == summary["autotune"]
    parallel = {f"{group}.num_parallel_calls" for group in ("extract", "transform", "load")}
    assert values.keys() == {*parallel, "load.prefetch"}


def test_a_frozen_overlay_is_a_config(measured: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "frozen.yaml").write_text(freeze.overlay(measured[0]))
    frozen = resolve(Request(overrides=["experiment=frozen"], config_dir=str(tmp_path)), STAGES).plan
    settled = resolve(
        Request(overrides=[f"{key}={value}" for key, value in measured[1]["autotune"].items()]), STAGES
    ).plan
    assert frozen.train == settled.train


def message_of_freeze(folder: Path) -> str:
    with pytest.raises(WorldError) as caught:
        freeze.overlay(folder)
    return str(caught.value)


def test_there_must_be_something_to_freeze(measured: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    assert message_of_freeze(tmp_path) == (
        f"{tmp_path}: found no run; expected the folder of a completed run\n"
        "    -> pass the folder that a run prints at its end"
    )
    (tmp_path / "summary.json").write_text(json.dumps({**summary_of(measured[0]), "autotune": {}}))
    assert message_of_freeze(tmp_path) == (
        f"{tmp_path}: found a run without events.jsonl; expected the folder of a completed run\n"
        "    -> pass the folder that a run prints at its end"
    )
    (tmp_path / "events.jsonl").write_text("")
    tunable = "extract.num_parallel_calls, transform.num_parallel_calls, load.num_parallel_calls or load.prefetch"
    assert message_of_freeze(tmp_path) == (
        f"{tmp_path}: found no value set by AUTOTUNE; expected a completed run with `autotune` in {tunable}\n"
        "    -> run it with one of these set to autotune"
    )
