"""Resumed sweeps: remaining jobs are run, and sweeps grow; a damaged ledger is in test_ledger."""

import json
from pathlib import Path

import pytest

from etlrun.cli.multirun import multirun
from etlrun.sweep.ledger import Ledger
from etlrun.system.errors import ConfigError, WorldError
from tests.sweeps import Sweep, ended, results_of


def test_a_sweep_grows_and_what_is_done_stays(sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("load.prefetch=0,1") == 0
    before = (tmp_path / "sweep" / "0" / "events.jsonl").read_text()
    capsys.readouterr()
    assert ended([f"sweep.resume={tmp_path / 'sweep'}", "load.prefetch=1,2", "sweep.on_error=stop"]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines()[0].startswith("config 2 is new: dataset=tfds ")
    assert captured.out.splitlines()[0] == f"sweep     3 jobs of 3 configs, 1 to run, in {tmp_path / 'sweep'}"
    assert (tmp_path / "sweep" / "0" / "events.jsonl").read_text() == before
    assert Ledger.open(tmp_path / "sweep").sweep.on_error == "stop"

    with pytest.raises(WorldError) as caught:
        multirun(["-m", f"sweep.resume={tmp_path / 'sweep'}", "load.batch_size=7"])
    assert str(caught.value).startswith(f"sweep.resume={tmp_path / 'sweep'}: found another sweep: dataset=tfds ")
    assert str(caught.value).endswith(
        "; expected a sweep with at least one job of this command line\n"
        "    -> keep only the overrides of `sweep`, or start a new sweep without sweep.resume"
    )


def test_a_config_is_known_by_what_its_overrides_mean(
    sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Overrides given anew go to the end of the command line, and all configs are others since the file was edited."""
    option = tmp_path / "mine" / "load" / "mine.yaml"
    option.parent.mkdir(parents=True)
    text = "# Mine.\ndefaults: [plain, _self_]\nprefetch: {}\n"
    option.write_text(text.format(3), encoding="utf-8")
    words = ["cache=none", "load=mine", "dataset.version=9.9.9", "--config-dir", str(tmp_path / "mine")]
    assert sweep(*words) == 1
    (before,) = results_of(tmp_path)["configs"]
    option.write_text(text.format(7), encoding="utf-8")
    capsys.readouterr()
    assert ended([f"sweep.resume={tmp_path / 'sweep'}", "cache=none,memory"]) == 1
    words = [word for word in before["overrides"] if word != "cache=none"]
    assert capsys.readouterr().err.splitlines() == [
        "config 0 has changed since: load.prefetch 3 -> 7; the sweep keeps its own values",
        f"config 1 is new: {' '.join([*words, 'cache=memory'])}",
    ]
    after = {config["number"]: config["overrides"] for config in results_of(tmp_path)["configs"]}
    assert after == {0: before["overrides"], 1: [*words, "cache=memory"]}


def test_a_sweep_grows_by_the_rules_with_which_it_began(
    sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = ("sweep.zip=[[load.prefetch,load.shuffle_buffer]]", "sweep.exclude=['load.prefetch=0 cache=none']")
    zipped = ("load.prefetch=0,1", "load.shuffle_buffer=4,5")
    assert sweep(*zipped, "cache=none,memory", "dataset.version=9.9.9", *rules) == 1
    capsys.readouterr()
    more = ["load.prefetch=0,1,2", "load.shuffle_buffer=4,5,6"]
    assert ended([f"sweep.resume={tmp_path / 'sweep'}", *more]) == 1
    captured = capsys.readouterr()
    assert [line.split(":")[0] for line in captured.err.splitlines()] == ["config 3 is new", "config 4 is new"]
    assert captured.out.splitlines()[0] == f"sweep     5 jobs of 5 configs, 5 to run, in {tmp_path / 'sweep'}"


def test_settings_given_with_a_resume_stay(sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("load.prefetch=0,1", "dataset.version=9.9.9") == 1
    assert ended([f"++sweep.resume={tmp_path / 'sweep'}", "sweep.repeats=2", "sweep.on_error=stop"]) == 1
    capsys.readouterr()
    assert ended([f"sweep.resume={tmp_path / 'sweep'}"]) == 1
    assert capsys.readouterr().out.splitlines()[0].startswith("sweep     4 jobs of 2 configs, 4 to run, in ")
    settings = json.loads((tmp_path / "sweep" / "sweep.json").read_text())["sweep"]
    assert (settings["repeats"], settings["on_error"], settings["resume"]) == (2, "stop", None)


def test_the_rules_of_a_sweep_stay_as_they_were(sweep: Sweep, tmp_path: Path) -> None:
    assert sweep("load.prefetch=0,1", "dataset.version=9.9.9") == 1
    with pytest.raises(ConfigError) as caught:
        multirun(["-m", f"sweep.resume={tmp_path / 'sweep'}", "sweep.exclude=['load.prefetch=1']"])
    assert str(caught.value) == (
        "sweep.exclude: found different rules; expected the rules that the sweep started with\n    -> leave it out"
    )
