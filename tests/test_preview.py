"""`etlrun plan -m`: what a multirun would do, before it does it, and without TensorFlow."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli import main as cli
from tests.runs import emulated
from tests.sweeps import QUICK, Sweep
from tests.test_unfit import RULE, SWEPT, UNFIT


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder without outputs."""
    monkeypatch.chdir(tmp_path)


def told(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    capsys.readouterr()
    cli.main(["plan", "-m", *words])
    return capsys.readouterr().out.splitlines()


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as caught:
        cli.main(["plan", *words])
    assert caught.value.code == 2
    return capsys.readouterr().err


def test_the_plan_of_a_grid_is_a_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, *SWEPT)
    plans = [line.split() for line in lines[8:11]]
    assert [*lines[:8], *lines[11:]] == [
        "sweep     99 jobs of 96 configs, of 108 combinations",
        f"left out  12 combinations with extract.cycle_length=1 extract.num_parallel_calls=2: {RULE}",
        "fill      3 before the others, of the caches on disk that 32 configs read",
        "swept     extract.cycle_length          1, 2, 4",
        "swept     extract.num_parallel_calls    1, 2, autotune",
        "swept     transform.num_parallel_calls  1, 2",
        "swept     cache                         none, memory, disk",
        "swept     load.prefetch                 0, autotune",
        "time      unknown: no completed run of these plans was found",
    ]
    assert [words[3] for words in plans] == ["0-23,", "24-59,", "60-95,"]


def test_what_is_alike_is_told_and_repeats_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    swept = ("extract=sequential,interleave", "extract.cycle_length=1,4", "cache=none", "cache.dir=null,a")
    lines = told(capsys, *swept, "sweep.repeats=3")
    assert lines[0] == "sweep     21 jobs of 6 configs, of 8 combinations"
    assert [line for line in lines if line.startswith("same")] == [
        "same      2 combinations are config 0: extract=sequential cache.dir=null",
        "same      2 combinations are config 1: extract=sequential cache.dir=a",
        "same      configs 0-1 have the same plan: their differences have no effect",
        "same      configs 2-3 have the same plan: their differences have no effect",
        "same      configs 4-5 have the same plan: their differences have no effect",
    ]


def test_a_sweep_without_axes_is_told_in_the_singular(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys)[0] == "sweep     1 job of 1 config, of 1 combination"


def test_configs_with_mappings_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, "dataset.storage={anon: true}", "load.prefetch=0,1", "cache=none", "cache.dir=null,a")
    assert lines[3:5] == [
        f"same      configs {both} have the same plan: their differences have no effect" for both in ("0-1", "2-3")
    ]


def test_earlier_runs_tell_how_long_it_takes(
    sweep: Sweep, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*emulated(tiny, *QUICK, "cache=none"), f"hydra.sweep.dir={tmp_path / 'next'}"]
    assert sweep("load.prefetch=0,1", "cache=none") == 0
    walls = [json.loads((tmp_path / "sweep" / run / "summary.json").read_text())["wall_s"] for run in "01"]
    capsys.readouterr()
    cli.main(["plan", "-m", *words, "load.prefetch=0,1,2", "sweep.max_jobs_in_flight=2", "--format", "json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    expected = [*walls, sum(walls) / 2]
    assert [config["earlier"] for config in found["configs"]] == [1, 1, 0]
    assert [config["seconds"] for config in found["configs"]] == pytest.approx(expected)
    assert found["seconds"] == pytest.approx(sum(expected) / 2)
    assert (found["jobs"], found["in_flight"], found["swept"]) == (3, 2, {"load.prefetch": ["0", "1", "2"]})
    assert told(capsys, *words, "load.prefetch=0,1,2")[-1].endswith(
        " 1 at a time, based on 2 earlier runs of 2 of these configs, and of the same plans for the others"
    )


def test_a_plan_of_a_multirun_is_refused_as_the_multirun_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "-m", *UNFIT, "sweep.unfit=refuse").startswith(f"etlrun: 1 fault\n  {RULE}\n")
    assert refused(capsys, "-m", "load.prefetch=0,1", "--format", "mermaid").endswith(
        "  --format: found mermaid; expected a format for one config\n    -> with -m choose from text, json\n"
    )
    assert refused(capsys, "-m", "sweep.resume=somewhere") == (
        "etlrun: 1 fault\n  sweep.resume: found a sweep; expected null in the plan of a new sweep\n"
        "    -> leave it out, or resume the sweep, which reports what is left\n"
    )


@pytest.mark.needs("hydra-optuna-sweeper")
def test_the_plan_of_a_search_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "-m", "hydra/sweeper=optuna", "load.prefetch=choice(0,1)") == (
        "etlrun: 1 fault\n  hydra/sweeper: found OptunaSweeper; expected a grid, whose jobs are known before they run\n"
        "    -> leave it out\n"
    )


def test_it_answers_without_tensorflow(tmp_path: Path) -> None:
    code = "import sys; from etlrun.cli import main; main.main(sys.argv[1:]); assert 'tensorflow' not in sys.modules"
    command = [sys.executable, "-c", code, "plan", "-m", "load.prefetch=0,1"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
