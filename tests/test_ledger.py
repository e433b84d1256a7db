"""A ledger that a person has edited."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli.multirun import multirun
from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.record.outcome import Outcome, outcome
from etlrun.record.summary import Summary
from etlrun.stages import STAGES
from etlrun.sweep.ledger import Ledger, RunKey, resume_command
from etlrun.sweep.runs import Pruning
from etlrun.system.errors import WorldError

REQUEST: dict[str, Any] = {"overrides": [], "config_dir": None, "config_name": None, "files": "", "multirun": {}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a sweep of two configs."""
    found = grid.of(Request(overrides=["load.prefetch=0,1"], multirun=True), STAGES)
    return Ledger.create(tmp_path / "sweep", found.sweep, found.jobs, REQUEST).folder


def without_multirun(text: str) -> str:
    known = json.loads(text)
    del known["request"]["multirun"]
    return json.dumps(known)


@pytest.mark.parametrize(
    ("file", "damage", "found"),
    [
        ("sweep.json", lambda _: "[]", "TypeError: list indices must be integers or slices, not str"),
        ("sweep.json", lambda _: "{}", "KeyError: 'configs'"),
        ("sweep.json", lambda _: "no", "JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
        ("sweep.json", without_multirun, "KeyError: 'multirun'"),
        (
            "configs.jsonl",
            lambda text: text.split("\n")[0],
            "ValueError: configs.jsonl has 1 configs, sweep.json says 2",
        ),
        ("configs.jsonl", lambda text: text[:-100], "ValueError: configs.jsonl, line 2: EOF while parsing "),
    ],
)
def test_damage_is_named(file: str, damage: Callable[[str], str], found: str, folder: Path) -> None:
    (folder / file).write_text(damage((folder / file).read_text()))
    refused = refused_resume(folder)
    assert refused.startswith(f"{folder}: found no sweep ({found}")
    assert refused.endswith(
        "); expected the folder of a sweep, with its sweep.json and configs.jsonl\n"
        "    -> pass the folder that the sweep printed, or start a new sweep without sweep.resume"
    )


def test_a_path_without_a_sweep_is_refused(tmp_path: Path) -> None:
    missing = f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path / 'sweep.json'}'"
    assert refused_resume(tmp_path).startswith(
        f"{tmp_path}: found no sweep ({missing}); expected the folder of a sweep"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["it's", "a,b=c", "[my] sweep", "my sweep"])
def test_the_command_that_resumes_is_read_whatever_the_name_of_the_folder(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    etlrun, *words = shlex.split(resume_command(folder))
    with pytest.raises(WorldError) as caught:
        multirun(words)
    assert etlrun == "etlrun"
    assert str(caught.value).startswith(f"{folder}: found no sweep (FileNotFoundError: ")


def refused_resume(folder: Path) -> str:
    """The message when the sweep in `folder` is resumed."""
    with pytest.raises(WorldError) as caught:
        multirun(["-m", f"sweep.resume={folder}"])
    return str(caught.value)


def test_an_empty_line_is_no_config(folder: Path) -> None:
    before, configs = Ledger.open(folder).configs, folder / "configs.jsonl"
    configs.write_text("\n" + configs.read_text().replace("\n", "\n\n"))
    assert Ledger.open(folder).configs == before


DONE = outcome(Summary(status="completed", overrides=[]))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Configs 0 and 1 differ in a buffer alone; 2 and 3 have another batch, 4 and 5 a quicker model."""
    overrides = ["model=emulated", "model.step_ms=12,6", "load.batch_size=32,64", "load.prefetch=0,1"]
    found = grid.of(Request(overrides=overrides, multirun=True), STAGES)
    return Ledger.create(tmp_path / "sweep", found.sweep, found.jobs[:6], {})


def ran(rate: float, ceiling: float | None) -> Outcome:
    return dataclasses.replace(DONE, examples_per_s=rate, ceiling_examples_per_s=ceiling)


def test_nothing_is_known_before_the_first_run(ledger: Ledger) -> None:
    assert Pruning(ledger).reason(RunKey(1, 0)) is None


REASON = "can't win: with an ideal input pipeline run 0 reaches at most 1020.0 examples/s; run 0 has 1000.0"


@pytest.mark.parametrize(("ceiling", "reason"), [(1020.0, REASON), (1200.0, None), (None, None)])
def test_a_config_of_which_the_verdict_says_that_it_can_not_win_is_left_out(
    ceiling: float | None, reason: str | None, ledger: Ledger
) -> None:
    pruning = Pruning(ledger)
    pruning.note(RunKey(0, 0), ran(1000.0, ceiling))
    assert pruning.reason(RunKey(1, 0)) == reason


def test_the_best_so_far_is_of_any_config(ledger: Ledger) -> None:
    pruning = Pruning(ledger)
    pruning.note(RunKey(0, 0), ran(1000.0, 1500.0))
    assert pruning.reason(RunKey(1, 0)) is None
    pruning.note(RunKey(4, 0), ran(1900.0, 2000.0))
    assert pruning.reason(RunKey(1, 0)) == (
        "can't win: with an ideal input pipeline run 0 reaches at most 1500.0 examples/s; run 4 has 1900.0"
    )


def test_a_run_without_its_cache_is_no_best_so_far(ledger: Ledger) -> None:
    pruning = Pruning(ledger)
    pruning.note(RunKey(0, 0), ran(1000.0, 1500.0))
    pruning.note(RunKey(4, 0), dataclasses.replace(ran(1900.0, 2000.0), state="uncached"))
    assert pruning.reason(RunKey(1, 0)) is None


@pytest.mark.parametrize(
    "words",
    [
        ["cache=memory", "cache.at=transformed,features", "model.trainable=false"],
        ["cache=none,memory", "cache.at=features", "model.trainable=false"],
        ["measure.digest=true,false"],
        ["profile=trace", "profile.windows=[[1,2]],[[1,3]]"],
    ],
)
def test_a_verdict_tells_nothing_of_another_loop_of_the_same_fingerprint(words: list[str], tmp_path: Path) -> None:
    found = grid.of(Request(overrides=words, multirun=True), STAGES)
    ledger = Ledger.create(tmp_path / "sweep", found.sweep, found.jobs, {})
    assert len({config.fingerprint for config in ledger.configs}) == 1
    pruning = Pruning(ledger)
    pruning.note(RunKey(0, 0), ran(1000.0, 1000.0))
    assert pruning.reason(RunKey(1, 0)) is None


def test_a_verdict_tells_nothing_of_another_training_or_another_accelerator(ledger: Ledger) -> None:
    pruning = Pruning(ledger)
    pruning.note(RunKey(0, 0), ran(1000.0, 1000.0))
    assert [pruning.reason(RunKey(config, 0)) is None for config in (1, 2, 3, 4, 5)] == [False, True, True, True, True]


def test_the_baseline_and_what_has_run_already_stay(ledger: Ledger) -> None:
    pruning = Pruning(ledger)
    pruning.note(RunKey(1, 0), ran(1000.0, 1000.0))
    assert pruning.reason(RunKey(0, 1)) is None
    assert pruning.reason(RunKey(1, 1)) is None


def test_failed_and_pruned_runs_teach_nothing(ledger: Ledger) -> None:
    pruning = Pruning(ledger)
    for status in ("failed", "pruned"):
        pruning.note(RunKey(0, 0), dataclasses.replace(ran(1000.0, 1000.0), status=status))
    assert pruning.reason(RunKey(1, 0)) is None
