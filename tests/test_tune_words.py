"""What a search asks for and hands over: configs of its windows, and the commands that it prints."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli import tune as command
from etlrun.cli.parsers import call
from etlrun.config import grid
from etlrun.config.folders import config_dir
from etlrun.config.request import Request
from etlrun.measure.gains import Gain
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.record.record import Record
from etlrun.record.summary import COMPLETED, Epoch, Read, Summary
from etlrun.sources.base import open_source
from etlrun.sources.sample import draw
from etlrun.stages import STAGES
from etlrun.sweep.engine import started
from etlrun.sweep.tune import predict, report
from etlrun.sweep.tune import space as windows_module
from etlrun.sweep.tune.search import Search
from etlrun.sweep.tune.space import Candidate, Scene, Windows
from etlrun.system.errors import ConfigError, WorldError
from tests.configs import raised

SCENE = Scene(split="train", examples=1000, passes=2, epochs=4, batch_size=10, buffer=10, step_ms=5.0, step_cores=0.0)
SAID: list[str] = []


def search_of(folder: Path, *overrides: str) -> Search:
    tune, job = grid.tuned(Request(overrides=[*overrides]), STAGES)
    return Search(job, tune, Windows(folder, []), SAID.append)


def candidate(search: Search, **changes: Any) -> Candidate:
    made = search.space.candidate({key.replace("__", "."): value for key, value in changes.items()})
    assert isinstance(made, Candidate)
    return made


def found(folder: Path) -> Search:
    """A search that has found something."""
    search = search_of(folder)
    search.winner, search.scene = candidate(search, load__prefetch=2), SCENE
    search.gain = Gain(ratio=2.0, low=1.5, high=2.5, call="better", rounds=5)
    return search


ONLY_WITH_A_MODEL = ["load.class_weights=balanced", "measure.au_min=0.9", "profile=trace", "++trainer.epochs=3"]


def test_the_command_of_an_overlay_names_the_config_files(tmp_path: Path) -> None:
    text = report.overlay(found(tmp_path), "fast", ["--config-dir", "my conf"])
    assert "#   etlrun --config-dir 'my conf' experiment=fast\n" in text


@pytest.mark.parametrize("word", ONLY_WITH_A_MODEL)
def test_a_window_has_no_settings_of_a_model(tmp_path: Path, word: str) -> None:
    config = SCENE.config(search_of(tmp_path, word).space.baseline.config, tmp_path)
    assert plan(parse(config, STAGES)).spec.fit is None


def test_a_search_that_was_moved_keeps_its_windows(tmp_path: Path) -> None:
    config = search_of(tmp_path).space.baseline.config
    Record.create(tmp_path / "0", SCENE.config(config, Path("outputs/caches")), []).update(status=COMPLETED, wall_s=1)
    windows = Windows(tmp_path, [])
    assert windows.run("0", SCENE.config(config, windows.caches)).wall_s == 1
    assert windows.spent_s == pytest.approx(1.3)


class Instant(Windows):
    """Windows that take no time: 50 examples, 1 ms each."""

    asked: dict[str, Mapping[str, Any]]

    def run(self, name: str, config: Mapping[str, Any]) -> Summary:
        self.asked = {**getattr(self, "asked", {}), name: config}
        epoch = Epoch(wall_s=0.05, steps=5, examples=50)
        return Summary(status=COMPLETED, overrides=[], epochs=[epoch], dataset=Read(examples={"train": 50}, shards=1))


class Failing(Windows):
    """Windows that fail at once."""

    def run(self, name: str, config: Mapping[str, Any]) -> Summary:
        return Summary(status="failed", overrides=[], error="cache.at: gone")


def test_of_few_examples_a_window_makes_several_passes(tmp_path: Path) -> None:
    windows = Instant(tmp_path, [])
    tune, job = grid.tuned(Request(overrides=["model=emulated", "model.step_ms=1", "trainer.epochs=9"]), STAGES)
    scene = predict.scene_of(job, tune, windows)
    assert (scene.passes, scene.epochs, scene.examples) == (4, 9, 50)
    assert windows.asked["look"]["load"]["shuffle_buffer"] == 0


def test_a_winner_that_fails_at_last_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = search_of(tmp_path, "load.prefetch=0")
    best = candidate(search, load__prefetch=2)
    search.candidates = {0: search.space.baseline, best.number: best}

    def measure(of: Candidate) -> float | None:
        best.error = "no memory\nis left"
        return 2.0 if of is search.space.baseline else None

    monkeypatch.setattr(search, "_measure", measure)
    search._confirm(best)
    assert (search.end, search.why) == ("keep", "load.prefetch=2 failed: no memory is left")


def test_fewer_calls_that_are_as_fast_are_told(tmp_path: Path) -> None:
    search = search_of(tmp_path, "transform.num_parallel_calls=16", "extract.num_parallel_calls=4")
    assert {4, 1} <= {*search.space.options["transform.num_parallel_calls"]}
    base, fewer = search.space.baseline, candidate(search, transform__num_parallel_calls=4)
    slower, more = candidate(search, extract__num_parallel_calls=1), candidate(search, transform__num_parallel_calls=64)
    both = candidate(search, transform__num_parallel_calls=1, load__prefetch=2)
    for of, times_s in ((base, [2.0, 2.2]), (fewer, [2.15]), (slower, [2.3]), (more, [2.0]), (both, [2.0])):
        of.times_s += times_s
        search.candidates[of.number] = of
    assert search.as_fast == [fewer]
    search.end = "keep"
    line = "transform.num_parallel_calls=4: fewer parallel calls, which keep less in memory"
    assert ("as fast", line) in [*report._lines(search)]


def test_a_budget_that_is_too_small_is_told_with_what_is_missing(tmp_path: Path) -> None:
    search = search_of(tmp_path, "tune.budget_s=40")
    base = search.space.baseline
    search.candidates, search._costs_s, search.windows.spent_s = {0: base}, {0: 2.0}, 9.0
    search._confirm(base)
    why = "the budget of 40 s is too small: 9 s were spent, and the smallest race and its confirmation take 44 s more"
    assert (search.end, search.why) == ("untold", why)
    assert search.advice == "Set tune.budget_s=53 or more."


def test_a_baseline_that_fails_later_ends_the_search(tmp_path: Path) -> None:
    search = search_of(tmp_path, "model=emulated", "model.step_ms=1")
    search.windows, search.scene = Instant(tmp_path, []), SCENE
    assert search._measure(search.space.baseline) == pytest.approx(4)
    search.windows = Failing(tmp_path, [])
    with pytest.raises(WorldError) as caught:
        search._measure(search.space.baseline)
    expected = "the baseline: found cache.at: gone; expected a config that runs"
    assert str(caught.value.faults[0]).startswith(expected)
    remedy = "make it run: etlrun with the same overrides; or set a larger tune.budget_s if a window found no end"
    assert caught.value.faults[0].remedy == remedy


def test_a_dataset_that_is_missing_is_prepared_before_the_first_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draw, "NUM_EXAMPLES", 16)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    search = search_of(tmp_path, f"dataset.data_dir={tmp_path}")
    predict.prepare(search.job.plan.spec.dataset)
    assert open_source(search.job.plan.spec.dataset.as_it_is()).counts == {"train": 16}
    assert "JAX_PLATFORMS" not in os.environ  # windows may use other devices than this process


def test_a_window_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = search_of(tmp_path).space.baseline.config

    def stopped(folder: Path) -> Any:
        process = started(folder)
        os.kill(process.pid or 0, signal.SIGSTOP)  # so that SIGTERM does not end it
        hung.append(process)
        return process

    hung: list[Any] = []
    monkeypatch.setattr(windows_module, "started", stopped)
    monkeypatch.setattr(windows_module, "_GRACE_S", 0.1)
    windows = Windows(tmp_path, [])
    windows.longest_s = 0.1
    window = windows.run("0", SCENE.config(config, windows.caches))
    assert hung[0].exitcode == -signal.SIGKILL
    assert (window.status, window.error) == ("failed", "no end within 0.1 s, the longest time of a window")


def test_an_overlay_that_can_not_be_written_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorldError) as caught:
        command._hand_over("load: {}\n", tmp_path / "file" / "new.yaml")
    assert str(caught.value.faults[0]).startswith(f"--write: found {tmp_path / 'file' / 'new.yaml'}: ")
    assert capsys.readouterr().out == "load: {}\n"


def test_the_command_of_an_overlay_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine" / "experiment" / "tuned.yaml"
    own = ["--config-name", "own"]
    assert command._finding(mine, own) == [*own, "--config-dir", str(tmp_path / "mine")]
    assert command._finding(mine, ["--config-dir", "conf"]) == ["--config-dir", "conf"]
    assert command._finding(config_dir() / "experiment" / "tuned.yaml", []) == []
    assert command._finding(None, []) == []
    monkeypatch.chdir(tmp_path)
    assert command._finding(Path("conf/experiment/tuned.yaml"), []) == []
    (tmp_path / "pyproject.toml").write_text('[tool.etlrun]\nconfigs = "mine"\n')
    mine.parent.mkdir(parents=True)
    assert command._finding(mine, []) == []
    assert command._finding(Path("conf/experiment/tuned.yaml"), []) == ["--config-dir", "conf"]


def test_features_are_not_tuned(tmp_path: Path) -> None:
    words = ["cache.at=features", "model=mobilenet_v2", "model.trainable=false", f"hydra.run.dir={tmp_path / 'search'}"]
    told = raised(ConfigError, call, "tune", words)
    assert told.startswith("cache.at: found features; expected another point: the features of a frozen ")
