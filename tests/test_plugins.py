"""Hydra's own launchers and searches, where the extras with them are installed."""

from pathlib import Path

import pytest

from etlrun.system.errors import ConfigError
from tests.configs import raised
from tests.golden import Says
from tests.runs import emulated, finish_well, start, summary_of
from tests.sweeps import QUICK, ended, results_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "launcher",
    [
        pytest.param("joblib", marks=pytest.mark.needs("hydra-joblib-launcher")),
        pytest.param("submitit_local", marks=pytest.mark.needs("hydra-submitit-launcher")),
    ],
)
def test_other_launchers_run_the_jobs_of_a_sweep_that_goes_on(
    launcher: str, tiny: Path, tmp_path: Path, says: Says
) -> None:
    folder = tmp_path / "sweep"
    of_hydra = [f"hydra/launcher={launcher}", f"hydra.sweep.dir={folder}", "+hydra.job.env_set.A=b"]
    words = [*emulated(tiny, "load.prefetch=0,1", *QUICK), *of_hydra]
    out, _ = finish_well(start(["-m", *words], tmp_path))
    assert all(f"{number + 1}/2 {number} load.prefetch={number}: completed, " in out for number in (0, 1))
    assert [run["outcome"]["status"] for run in results_of(tmp_path)["runs"]] == ["completed"] * 2
    assert [word for word in summary_of(folder / "1")["overrides"] if "prefetch" in word] == ["load.prefetch=1"]

    out, _ = finish_well(start(["-m", f"sweep.resume={folder}", "sweep.repeats=2"], tmp_path))
    assert out.splitlines()[0] == f"sweep     4 jobs of 2 configs, 2 to run, in {folder}"

    says(raised(ConfigError, ended, [*words, "sweep.timeout_s=2"]))


@pytest.mark.needs("hydra-joblib-launcher")
def test_experiments_that_are_swept_choose_the_launcher(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "own/experiment").mkdir(parents=True)
    for number in (0, 1):
        text = "# @package _global_\ndefaults:\n  - override /hydra/launcher: joblib\n"
        (tmp_path / f"own/experiment/of_{number}.yaml").write_text(f"{text}load:\n  prefetch: {number}\n")
    own = ["--config-dir", str(tmp_path / "own"), "experiment=of_0,of_1", "hydra.launcher.n_jobs=1"]
    out, _ = finish_well(start(["-m", *own, *emulated(tiny, *QUICK)], tmp_path))
    assert all(f"{number + 1}/2 {number} experiment=of_{number}: completed, " in out for number in (0, 1))


@pytest.mark.needs("hydra-optuna-sweeper")
def test_a_search_is_given_its_objectives(tiny: Path, tmp_path: Path, says: Says) -> None:
    folder = tmp_path / "sweep"
    search = ("hydra/sweeper=optuna", "hydra.sweeper.n_trials=2", "hydra.sweeper.direction=[maximize,minimize]")
    words = [*emulated(tiny, "load.prefetch=choice(0,1)", "sweep.objectives=[throughput,peak_memory]", *QUICK)]
    out, _ = finish_well(start(["-m", *words, *search, f"hydra.sweep.dir={folder}"], tmp_path))
    found = (folder / "optimization_results.yaml").read_text()
    outcomes = [run["outcome"] for run in results_of(tmp_path)["runs"]]
    assert len(outcomes) == 2
    assert any(str(of["examples_per_s"]) in found and str(float(of["peak_rss_bytes"])) in found for of in outcomes)
    assert out.endswith(f"report    {folder}/report.html\n")

    says(raised(ConfigError, ended, [*words, *search, "sweep.repeats=3"]))
