"""A search on real data, with real windows: one that is killed and resumed, and what its folder and its page hold."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from selenium.webdriver.common.by import By

from etlrun.cli.parsers import call
from etlrun.record.summary import read_summary
from etlrun.results.listing import entries
from etlrun.sweep.tune import search as race
from etlrun.sweep.tune import search as search_module
from etlrun.system.errors import WorldError
from tests.configs import raised
from tests.conftest import Once
from tests.disks import mounted
from tests.golden import Says
from tests.present import present
from tests.runs import emulated

pytestmark = pytest.mark.slow

SLOW = (
    "load.batch_size=4", "trainer.epochs=16", "model.step_ms=1", "cache=none", "transform.resize.size=[384,384]",
    "transform.resize.antialias=true", "transform.num_parallel_calls=1", "dataset.eval_split=null",
)  # fmt: skip
"""A pipeline that a cache makes about ten times faster over so many epochs, which no noise hides."""


def words(data_dir: Path, *more: str) -> list[str]:
    given = {word.split("=")[0] for word in more}
    slow = [word for word in SLOW if word.split("=")[0] not in given]
    return [*emulated(data_dir, *slow), "load.drop_remainder=false", *more]


class Ended:
    """A search that was killed in its second window, and resumed; and what it wrote."""

    def __init__(self, home: Path) -> None:
        self.folder, self.experiment = home / "search", home / "mine" / "experiment" / "fast.yaml"
        self.of_first, self.of_killed = self.folder / "windows" / "0" / "summary.json", home / "of_killed"
        if self.of_killed.exists():
            self.result: dict[str, Any] = json.loads((self.folder / "results.json").read_text())

    def make(self, data_dir: Path) -> None:
        settings = [*words(data_dir), "tune.budget_s=300", f"hydra.run.dir={self.folder}"]
        command = [sys.executable, "-m", "etlrun", "tune", *settings]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        for line in process.stderr:
            if "as it is: " in line:
                break
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stderr.close()
        shutil.copy2(self.of_first, self.of_killed)
        call("tune", [f"tune.resume={self.folder}", "--write", str(self.experiment)])


@pytest.fixture(scope="module")
def search(tiny: Path, once: Once) -> Iterator[Ended]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(race, "_MOST", 2)
        yield Ended(once("tune", lambda home: Ended(home).make(tiny)))


def test_a_search_that_was_killed_goes_on_and_finds_the_cache(search: Ended) -> None:
    result = search.result
    assert (result["end"], result["same_digests"]) == ("found", True)
    assert result["changes"]["cache.name"] in ("memory", "disk")
    assert result["gain"]["call"] == "better"
    assert result["gain"]["rounds"] == 5
    assert result["gain"]["low"] > 1
    assert result["noise"]["pairs"] == 4
    assert search.of_first.stat().st_mtime_ns == search.of_killed.stat().st_mtime_ns


def test_every_time_is_from_a_window_in_the_folder(search: Ended) -> None:
    of_one = {of["number"]: of["times_s"] for of in search.result["candidates"]}
    windows = [path for path in (search.folder / "windows").iterdir() if (path / "summary.json").exists()]
    runs = [path.name for path in windows if path.name[0].isdecimal()]
    assert sum(map(len, of_one.values())) == len(runs)
    for path in windows:
        summary = present(read_summary(path))
        assert summary.status == "completed", path.name
    assert not (search.folder / "windows" / "caches").exists()
    assert search.result["windows"] == len(windows)


def test_the_overlay_is_sound(search: Ended, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = search.experiment.read_text()
    assert f" --config-dir {search.experiment.parents[1]} " in text.splitlines()[2]
    nested: dict[str, Any] = {}
    for key, value in search.result["changes"].items():
        nested.setdefault(key.split(".")[0], {})[key.split(".")[1]] = value
    assert yaml.safe_load(text) == nested
    mine = tmp_path / "experiment"
    mine.mkdir()
    (mine / "fast.yaml").write_text(text)
    call("check", ["--config-dir", str(tmp_path)])
    assert capsys.readouterr().out.endswith(" s: no fault\n")


def test_the_page_tells_what_was_found(search: Ended, browser: Any) -> None:
    browser.get((search.folder / "report.html").as_uri())
    assert browser.find_element(By.TAG_NAME, "h1").text[1:] == f"{search.result['sentence'][1:]}."
    rows = browser.find_elements(By.XPATH, "//section[h2='Configs']//tbody/tr")
    assert len(rows) == len(search.result["candidates"])
    assert (search.folder / "report.html").stat().st_size < 200_000
    assert browser.get_log("browser") == []


def test_a_search_that_is_over_is_told_again_without_a_window(
    search: Ended, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(search.folder, tmp_path / "search"))
    before = sorted((copy / "windows").iterdir())
    call("tune", [f"tune.resume={copy}"])
    out = capsys.readouterr().out
    assert out.splitlines()[0] == f"result    {search.result['sentence']}"
    assert "# @package _global_\n" in out  # printed, since no file was named
    assert sorted((copy / "windows").iterdir()) == before


def test_a_model_that_is_the_limit_ends_the_search_at_once(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "search"
    long = ["model.step_ms=2000", "load.batch_size=8", "trainer.epochs=1"]  # start-up is below 3 % of it
    call("tune", [*emulated(tiny, "cache=memory", "dataset.eval_split=null", *long), f"hydra.run.dir={folder}"])
    result = json.loads((folder / "results.json").read_text())
    assert result["end"] == "model"
    assert capsys.readouterr().out.splitlines()[0] == (
        f"result    nothing to gain: the model is the limit (headspace {result['headspace']:.2f})"
    )
    assert sorted(path.name for path in (folder / "windows").iterdir()) == ["0", "look"]


def test_a_baseline_that_does_not_run_is_told(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(WorldError) as caught:
        call("tune", [*words(tiny), "dataset.split=nothing", f"hydra.run.dir={tmp_path / 'search'}"])
    (fault,) = caught.value.faults
    assert fault.where == "the baseline"
    assert fault.found.startswith("dataset.split: found 'nothing'")


def test_a_search_goes_on_once_a_full_disk_has_room(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quicker = ("transform.resize.size=[256,256]", "transform.resize.antialias=false")
    with mounted(tmp_path / "disk", "5m") as disk:
        filler = disk / "filler"
        filler.write_bytes(bytes(5_080_000))
        with pytest.raises(WorldError):
            call("tune", [*words(tiny, *quicker), "tune.budget_s=1", f"hydra.run.dir={disk / 'search'}"])
        resume = f"resume with: etlrun tune tune.resume={disk / 'search'}"
        assert capsys.readouterr().err.splitlines()[-1] == f"etlrun: the search stops; once that is mended, {resume}"
        filler.unlink()
        call("tune", [f"tune.resume={disk / 'search'}"])
        assert "the budget of 1 s is too small" in capsys.readouterr().out


def test_a_folder_has_one_search(search: Ended, tiny: Path, says: Says) -> None:
    says(raised(WorldError, call, "tune", [*words(tiny), f"hydra.run.dir={search.folder}"]), SEARCH=search.folder)


def test_ctrl_c_says_how_to_resume(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "search"
    command = [sys.executable, "-m", "etlrun", "tune", *words(tiny), f"hydra.run.dir={folder}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        while not (folder / "windows" / "look" / "output.txt").exists() and process.poll() is None:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == f"etlrun: interrupted; resume with: etlrun tune tune.resume={folder}"


def test_a_search_is_one_line_of_a_listing(search: Ended, tmp_path: Path) -> None:
    copy = tmp_path / "outputs" / "search"
    shutil.copytree(search.folder, copy)
    (one,) = entries(tmp_path / "outputs")
    assert (one.kind, one.status, one.jobs) == ("search", "completed", None)
    assert "cache=none" in one.overrides
    (copy / "results.json").unlink()
    (one,) = entries(tmp_path / "outputs")
    assert one.status == "unfinished"


def test_equal_plans_that_see_other_examples_are_no_result(
    search: Ended, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module.Search, "_see_the_same", lambda *_: False)
    copy = Path(shutil.copytree(search.folder, tmp_path / "search"))  # its result and page are written again
    call("tune", [f"tune.resume={copy}"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("result    inconclusive: cache.name=")
    assert lines[0].endswith(" saw other examples than the baseline, by its digests")
    assert [line for line in lines if line.startswith("advice    Compare both with `measure.digest=true`")]
    assert not [line for line in lines if line.startswith("# @package")]
