"""A ledger that a person has edited."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from etlrun.cli.multirun import multirun
from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.record.outcome import Outcome, outcome
from etlrun.record.summary import Summary
from etlrun.stages import STAGES
from etlrun.sweep.ledger import Ledger, RunKey, resume_command
from etlrun.sweep.runs import Pruning
from etlrun.system.errors import EtlrunError, WorldError
from tests.golden import Case, Golden, cases
from tests.sweeps import sweep_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a sweep of two configs."""
    return sweep_of(tmp_path, "load.prefetch=0,1").folder


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


def refused_resume(folder: Path, *words: str) -> str:
    """The message when the sweep in `folder` is resumed."""
    with pytest.raises(EtlrunError) as caught:
        multirun(["-m", f"sweep.resume={folder}", *words])
    return str(caught.value)


@pytest.mark.parametrize("case", cases("resumed_sweeps"))
def test_what_a_sweep_began_with_stays(case: Case, golden: Golden, tmp_path: Path) -> None:
    ledger = sweep_of(tmp_path, *case["began"])
    golden(case, refused_resume(ledger.folder, *case["words"]).replace(str(tmp_path), "DIR"))


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


SLOW, FAST = ran(1000.0, 1500.0), ran(1900.0, 2000.0)


@pytest.mark.parametrize(
    ("known", "run", "reason"),
    [
        pytest.param({}, (1, 0), None, id="nothing is known"),
        pytest.param({(0, 0): ran(1000.0, 1020.0)}, (1, 0), (0, 1020.0, 0, 1000.0), id="it can not win"),
        pytest.param({(0, 0): ran(1000.0, 1200.0)}, (1, 0), None, id="it can win"),
        pytest.param({(0, 0): ran(1000.0, None)}, (1, 0), None, id="no ceiling is known"),
        pytest.param({(0, 0): SLOW}, (1, 0), None, id="the best can be beaten"),
        pytest.param({(0, 0): SLOW, (4, 0): FAST}, (1, 0), (0, 1500.0, 4, 1900.0), id="the best is of any config"),
        pytest.param(
            {(0, 0): SLOW, (4, 0): dataclasses.replace(FAST, state="uncached")},
            (1, 0),
            None,
            id="a run without its cache is no best",
        ),
        pytest.param({(1, 0): ran(1000.0, 1000.0)}, (0, 1), None, id="the baseline stays"),
        pytest.param({(1, 0): ran(1000.0, 1000.0)}, (1, 1), None, id="what has run already stays"),
        *(
            pytest.param({(0, 0): dataclasses.replace(ran(1000.0, 1000.0), status=status)}, (1, 0), None, id=status)
            for status in ("failed", "pruned")
        ),
    ],
)
def test_a_config_of_which_the_verdicts_say_that_it_can_not_win_is_left_out(
    known: dict[tuple[int, int], Outcome], run: tuple[int, int], reason: tuple[float, ...] | None, ledger: Ledger
) -> None:
    pruning = Pruning(ledger)
    for key, outcome_of_run in known.items():
        pruning.note(RunKey(*key), outcome_of_run)
    words = "can't win: with an ideal input pipeline run {} reaches at most {} examples/s; run {} has {}"
    assert pruning.reason(RunKey(*run)) == (reason and words.format(*reason))


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
    ledger = sweep_of(tmp_path, *words)
    assert len({config.fingerprint for config in ledger.configs}) == 1
    pruning = Pruning(ledger)
    pruning.note(RunKey(0, 0), ran(1000.0, 1000.0))
    assert pruning.reason(RunKey(1, 0)) is None


def test_a_verdict_tells_nothing_of_another_training_or_another_accelerator(ledger: Ledger) -> None:
    pruning = Pruning(ledger)
    pruning.note(RunKey(0, 0), ran(1000.0, 1000.0))
    assert [pruning.reason(RunKey(config, 0)) is None for config in (1, 2, 3, 4, 5)] == [False, True, True, True, True]
