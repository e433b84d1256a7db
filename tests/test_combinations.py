"""Combinations of a grid that do not fit or go unused, and `etlrun plan -m`, which tells it all before the sweep."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from etlrun.cli import main as cli
from etlrun.cli.parsers import call
from etlrun.config.grid import Unfit
from etlrun.sweep.ledger import describe, left_out
from etlrun.system.errors import ConfigError
from tests.configs import plan_of, raised, refusal_of_request, spec_of
from tests.forked import forked
from tests.golden import Case, Golden, Says, cases
from tests.runs import finish_well, small, summary_of
from tests.sweeps import Sweep, ended, results_of
from tests.test_compose import grid_of, jobs_of

RULE = "extract.num_parallel_calls: found 2; expected at most cycle_length, which is 1"
SWEPT = (
    "extract.cycle_length=1,2,4", "extract.num_parallel_calls=1,2,autotune", "transform.num_parallel_calls=1,2",
    "cache=none,memory,disk", "load.prefetch=0,autotune",
)  # fmt: skip
"""What the product is for, in one command."""
UNFIT = ("extract.cycle_length=1,2", "extract.num_parallel_calls=1,2", "load.prefetch=0,1")


def test_the_grid_of_all_knobs_runs_without_what_does_not_fit(says: Says) -> None:
    found = grid_of(*SWEPT)
    assert (len(found.jobs), len(found.unfit)) == (96, 12)
    assert all(unfit.rules == (RULE,) for unfit in found.unfit)
    says(list(describe(left_out(found.unfit, [job.overrides for job in found.jobs]))))


def test_a_sweep_lists_what_it_leaves_out(sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "sweep"
    assert sweep(*UNFIT, "dataset.version=9.9.9") == 1
    words = f"2 combinations with extract.cycle_length=1 extract.num_parallel_calls=2: {RULE}"
    out = capsys.readouterr().out.splitlines()
    assert out[:2] == [f"sweep     6 jobs of 6 configs, 6 to run, in {folder}", f"left out  {words}"]
    assert out[-2:] == [f"left out  {words}", f"report    {folder}/report.html"]
    assert f"\n- left out  {words}\n" in (folder / "report.md").read_text().replace("\\", "")
    assert f"<dd>{words}</dd>" in (folder / "report.html").read_text()
    assert [(unfit["own"], unfit["rules"]) for unfit in results_of(tmp_path)["unfit"]] == [
        (["extract.cycle_length=1", "extract.num_parallel_calls=2", f"load.prefetch={prefetch}"], [RULE])
        for prefetch in (0, 1)
    ]

    capsys.readouterr()
    assert ended([f"sweep.resume={folder}"]) == 1
    assert capsys.readouterr().out.splitlines()[1] == f"left out  {words}"
    assert len(results_of(tmp_path)["unfit"]) == 2


def test_zipped_keys_and_rules_of_ones_own_come_before(says: Says) -> None:
    exclude = "sweep.exclude=['load.prefetch=1']"
    assert [unfit.overrides[2] for unfit in grid_of(*UNFIT, exclude).unfit] == ["load.prefetch=0"]
    says(jobs_of(*UNFIT[:2], "sweep.zip=[[extract.cycle_length,extract.num_parallel_calls]]"))
    zipped = grid_of(
        "extract.cycle_length=4,1", *UNFIT[1:2], "sweep.zip=[[extract.cycle_length,extract.num_parallel_calls]]"
    )
    assert (len(zipped.jobs), [unfit.rules for unfit in zipped.unfit]) == (1, [(RULE,)])


@pytest.mark.parametrize("case", cases("requests"))
def test_what_fits_nowhere_and_what_is_wrong_by_itself_refuse_a_request(
    case: Case, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "planted")
    golden(case, refusal_of_request(*case["overrides"]))


@pytest.mark.needs("hydra-optuna-sweeper")
def test_a_search_refuses_what_does_not_fit_and_a_key_that_some_of_its_options_lack(says: Says) -> None:
    for word in ("extract.num_parallel_calls=choice(1,2)", "extract=choice(sequential,interleave)"):
        says(refusal_of_request("hydra/sweeper=optuna", "extract.cycle_length=choice(1,2)", word))


def test_hundreds_of_combinations_are_a_few_lines() -> None:
    unfit = [
        Unfit(overrides=(f"a={one}", f"b={other}"), rules=(f"a: found {one}; expected below {other}",))
        for one in range(30)
        for other in range(5)
    ]
    lines = list(describe(left_out(unfit, [])))
    assert lines[0] == "1 combination with a=0 b=0: a: found 0; expected below 0"
    assert len(lines) == 9
    assert lines[-1] == "142 combinations by 142 other rules; results.json lists all"


FIT = "trainer=fit has it, trainer.drain does not"
INTERLEAVE = "extract=interleave has it, extract.sequential does not"


def test_an_option_chosen_over_that_of_an_experiment_leaves_a_note(says: Says) -> None:
    spec = spec_of("trainer=drain", "experiment=cats_vs_dogs")
    says([(value.key, value.value) for value in spec.unused])
    without = ("~trainer.learning_rate", "~trainer.keep")
    assert spec == spec_of("trainer=drain", "experiment=cats_vs_dogs", *without)
    noted, plain = (plan_of("trainer=drain", "experiment=cats_vs_dogs", *more) for more in ((), without))
    assert noted.fingerprint == plain.fingerprint


def test_what_goes_unused_for_one_reason_is_one_note(says: Says) -> None:
    steps = ("transform.steps=[decode]", "transform.eval_steps=[decode]", "trainer=drain", "load.batch_size=1")
    assert [value.key for value in spec_of(*steps).unused] == [
        f"transform.resize.{name}" for name in ("size", "method", "antialias", "dtype")
    ]
    spec = spec_of("trainer=drain", "++trainer.early_stopping={patience: 3, monitor: loss}", "++trainer.device=cpu")
    says([value.key for value in spec.unused])


def test_a_key_counts_where_an_option_has_it() -> None:
    wanted = [["extract=interleave", "extract.cycle_length=1"], ["extract=interleave", "extract.cycle_length=4"]]
    for extracts in ("sequential,interleave", "interleave,sequential"):
        jobs = jobs_of(f"extract={extracts}", "extract.cycle_length=1,4")
        assert [words for words in jobs if "extract=interleave" in words] == wanted
        assert [words for words in jobs if "extract=interleave" not in words] == [["extract=sequential"]] * 2
    jobs_of_naive = grid_of("experiment=naive,parallel", "extract.cycle_length=1,4").jobs[:2]
    assert [job.used["extract"] for job in jobs_of_naive] == [{"name": "tfds", "decode": True}] * 2


def test_values_that_go_unused_make_no_run_of_their_own(
    sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    assert sweep("extract=sequential,interleave", "extract.cycle_length=1,4", "cache=none") == 0
    captured, results = capsys.readouterr(), results_of(tmp_path)
    assert captured.err.splitlines()[0] == "etlrun: 4 combinations, 3 distinct configs"
    says(sorted(f"{config['number']}: {' '.join(config['own'])}" for config in results["configs"]))
    assert f"note      configs 0: extract.cycle_length is unused: {INTERLEAVE}\n" in captured.out


def test_a_run_of_an_experiment_with_another_trainer_says_what_goes_unused(tiny: Path, tmp_path: Path) -> None:
    own = tmp_path / "mine" / "experiment" / "mine.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("# @package _global_\n# Mine.\ntrainer: {learning_rate: 0.01}\nload: {prefetch: 1}\n")
    words = [word for word in small(tiny, "trainer=drain", "experiment=mine") if "model" not in word]
    words += [f"hydra.run.dir={tmp_path / 'run'}", "--config-dir", str(tmp_path / "mine")]
    out, _ = finish_well(forked(words, tmp_path))
    assert summary_of(tmp_path / "run")["remarks"][0] == f"trainer.learning_rate is unused: {FIT}."
    assert f"note      trainer.learning_rate is unused: {FIT}.\n" in out


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder without outputs."""
    monkeypatch.chdir(tmp_path)


def told(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    capsys.readouterr()
    cli.main(["plan", "-m", *words])
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("case", cases("previews"))
def test_the_plan_of_a_grid_is_a_few_lines(case: Case, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    golden(case, re.sub("[0-9a-f]{16}", "#", "\n".join(told(capsys, *shlex.split(case["words"])))))


@pytest.mark.needs("hydra-optuna-sweeper")
def test_the_plan_of_a_search_is_not_known(says: Says) -> None:
    says(raised(ConfigError, call, "plan", ["-m", "hydra/sweeper=optuna", "load.prefetch=choice(0,1)"]))


def test_it_answers_without_tensorflow(tmp_path: Path) -> None:
    code = "import sys; from etlrun.cli import main; main.main(sys.argv[1:]); assert 'tensorflow' not in sys.modules"
    command = [sys.executable, "-c", code, "plan", "-m", "load.prefetch=0,1"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
