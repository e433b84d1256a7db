"""What runs measure, on real pipelines with an emulated accelerator."""

import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs
import pytest
import tensorflow as tf

from etlrun.measure.gains import note_on_others
from etlrun.measure.watched import Beside
from etlrun.results import report
from etlrun.results.collect import collect
from etlrun.run import fit, run
from tests.configs import composed, plan_of
from tests.runs import emulated, events_of, run_here, small, summary_of
from tests.texts import words_of, write_reviews


def test_a_summary_has_the_verdict_and_its_evidence(measured: tuple[Path, dict[str, Any]]) -> None:
    _, summary = measured
    assert summary["verdict"].keys() == {
        "kind", "stage", "pipeline", "max_gain", "train_max_gain", "because", "advice", "apart",
    }  # fmt: skip
    assert summary["step_floor_ms"] >= 5
    assert summary["pipeline_examples_per_s"] > 0
    assert 0 < summary["au"] <= 1
    assert 0 <= summary["input_wait_share"] < 1
    assert summary["input_wait_s"] == pytest.approx(sum(epoch["input_wait_s"] for epoch in summary["epochs"]))
    assert [row["stage"] for row in summary["stages"]] == [planned.stage.path for planned in plan_of().train]
    assert summary["resources"].keys() == {
        "peak_rss_bytes", "cpu_s", "cores_used", "bytes_read", "cache_bytes", "gpus", "peak_gpu_bytes",
    }  # fmt: skip
    assert summary["resources"]["cache_bytes"] == 48 * (32 * 32 * 3 + 8)
    assert "loss" not in summary["epochs"][0]


def test_an_epoch_has_its_waits(measured: tuple[Path, dict[str, Any]]) -> None:
    for epoch in measured[1]["epochs"]:
        assert epoch["steps"] == 19
        assert epoch["examples"] == 38
        assert 0 <= epoch["input_wait_ms_median"] <= epoch["input_wait_ms_p95"]
        assert epoch["wall_s"] >= 19 * 0.005 + epoch["input_wait_s"] + epoch["fill_wait_s"]
        assert "digest" not in epoch


def test_events_keep_the_stages_of_each_pass(measured: tuple[Path, dict[str, Any]]) -> None:
    stages = [event for event in events_of(measured[0]) if event["event"] == "stages"]
    assert {event["pipeline"] for event in stages} >= {"train"}
    assert stages[0]["stages"][0].keys() == {
        "stage", "examples", "cost_ms", "parallelism", "buffer_size", "buffered_bytes",
    }  # fmt: skip


def test_the_report_tells_the_verdict_and_the_stages(measured: tuple[Path, dict[str, Any]]) -> None:
    lines = (measured[0] / "report.md").read_text().splitlines()
    assert "| stage | ms/example | examples | parallelism | buffer | buffered | set by |" in lines
    verdict = measured[1]["verdict"]
    assert f"- because   {verdict['because']}" in lines
    assert any(line.startswith("- waits     input wait ") and " ms p95 per step; " in line for line in lines)
    au = "accelerator utilization (AU) of the emulated accelerator: "
    assert any(line.startswith(f"- au        {au}") for line in lines)
    assert any(line.startswith("- resources ") and "CPU seconds" in line for line in lines)


STEADY = {
    "slow decode": ("input", "transform.decode"),
    "serial map": ("input", "transform.map"),
    "cold first epoch, cached later ones": ("input", "transform.decode"),
    "slow storage, one file after the other": ("input", "extract.sequential"),
    "slow model": ("model", None),
}
"""Of the planted suite in benchmarks/planted.py those that a busy machine does not turn into others.

The model's steps are slower here than there: cores that other tests use make batches late, and a pause of 2 ms is then
no twentieth of a step.
"""


@pytest.fixture(scope="module")
def few(sample: Path) -> dict[str, str]:
    """Overrides for some examples of the sample, which a pass has read: the first one loads code from a cold disk."""
    from benchmarks.planted import run_once

    overrides = {"dataset.data_dir": str(sample), "dataset.split": "'train[:320]'"}
    run_once(overrides, {})
    return overrides


@pytest.mark.slow
@pytest.mark.parametrize("name", STEADY)
def test_a_planted_bottleneck_is_found(name: str, few: dict[str, str]) -> None:
    from benchmarks.planted import PLANTS, TRAINING, found, run_once

    plant = PLANTS[name]
    slower = {"model.step_ms": "100"} if name == "slow model" else {}
    summary = run_once({**few, **plant.config, **plant.planted, **slower}, {**plant.always_ms, **plant.sleeps_ms})
    verdict = summary["verdict"]
    kind, stage, gain = found(verdict, plant.part)
    assert (kind, stage) == STEADY[name], verdict
    if plant.kind == "input":
        assert gain > 1.2
        assert verdict["advice"] or plant.part != TRAINING


def test_a_pass_mark_that_is_not_reached_sets_the_exit_status(tiny: Path, tmp_path: Path) -> None:
    words = emulated(tiny, "model.step_ms=0", "measure.au_min=0.99")
    status, summary = run_here(tmp_path / "0", words)
    assert status == 3
    assert summary["status"] == "completed"
    assert "below the required 0.99" in (tmp_path / "0" / "report.md").read_text()
    assert report.conclude(collect(tmp_path)) == 3


def test_a_pass_mark_that_is_reached_does_not(tiny: Path, tmp_path: Path) -> None:
    status, _ = run_here(tmp_path, emulated(tiny, "model.step_ms=30", "measure.au_min=0.2"))
    assert status == 0
    assert "at least the required 0.2" in (tmp_path / "report.md").read_text()


def test_a_drain_reads_passes_without_a_model(tiny: Path, tmp_path: Path) -> None:
    words = [*emulated(tiny, "trainer=drain", "measure.digest=true"), "trainer.epochs=2"]
    status, summary = run_here(tmp_path, [word for word in words if word != "trainer.epochs=1"])
    assert status == 0
    assert [(epoch["epoch"], epoch["examples"]) for epoch in summary["epochs"]] == [(1, 38), (2, 38)]
    assert summary["epochs"][0]["digest"] == summary["epochs"][1]["digest"]
    assert summary["pipeline_examples_per_s"] > 0
    assert (summary["step_floor_ms"], summary["au"], summary["verdict"]["max_gain"]) == (None, None, None)
    assert not (tmp_path / "model.keras").exists()


def test_a_drain_says_which_stage_sets_the_pace(sample: Path, tmp_path: Path) -> None:
    words = ["trainer=drain", "cache=none", "extract=sequential", "transform.num_parallel_calls=1"]
    status, summary = run_here(tmp_path, [*words, f"dataset.data_dir={sample}"])
    assert status == 0
    rate = f"{summary['pipeline_examples_per_s']:,.0f}"
    advice = summary["verdict"].pop("advice")
    assert (
        advice == f"Try transform.num_parallel_calls={summary['host']['cores']}: the transform does not use all cores."
    )
    assert summary["verdict"] == {
        "kind": "input",
        "stage": "transform.turbo",
        "pipeline": "train",
        "max_gain": None,
        "train_max_gain": None,
        "because": f"the pipeline alone delivers {rate} examples/s, limited by transform.turbo",
        "apart": [],
    }


def test_a_drain_ends_when_its_time_is_up(tiny: Path, tmp_path: Path) -> None:
    words = [*emulated(tiny, "trainer=drain"), "trainer.seconds=0.5", "trainer.epochs=null"]
    status, summary = run_here(tmp_path, [word for word in words if word != "trainer.epochs=1"])
    assert status == 0
    assert 0.1 <= sum(epoch["wall_s"] for epoch in summary["epochs"]) < 5


@pytest.mark.parametrize("cache", ["disk", "memory"])
def test_epochs_that_end_within_a_pass_are_measured(cache: str, tiny: Path, tmp_path: Path) -> None:
    words = ("trainer.steps_per_epoch=12", "trainer.epochs=2", "load.shuffle_buffer=38")
    cached = (f"cache={cache}", f"cache.dir={tmp_path / 'caches'}")
    status, summary = run_here(tmp_path / "run", emulated(tiny, *words, *cached))
    assert status == 0
    assert [epoch["steps"] for epoch in summary["epochs"]] == [12, 12]
    assert summary["pipeline_examples_per_s"] > 0
    # A pass has 19 batches: the second one begins within the second epoch, and fills its shuffle buffer.
    assert all(epoch["fill_wait_s"] + epoch["startup_s"] > 0 for epoch in summary["epochs"])


def test_a_pass_without_a_batch_is_told(tiny: Path, tmp_path: Path) -> None:
    from tests.pictures import bytes_feature, damaged, with_feature

    damaged(tiny, tmp_path / "data", with_feature("image", bytes_feature(b"no picture")))
    words = emulated(
        tmp_path / "data", "dataset.on_corrupt=skip", "dataset.split='train[17:19]'", "dataset.eval_split=null"
    )
    status, summary = run_here(tmp_path / "run", words)
    assert status == 1
    assert summary["error"] == (
        "dataset.split: found an epoch without a batch; expected at least one batch: readable examples and, with "
        "load.drop_remainder=true, as many as the batch size\n"
        "    -> repair the data, choose a larger dataset.split, or set load.drop_remainder=false"
    )


def test_a_resumed_run_sums_the_waits_of_all_its_epochs(
    measured: tuple[Path, dict[str, Any]], tiny: Path, tmp_path: Path
) -> None:
    words = emulated(tiny, "trainer.epochs=4", f"trainer.resume={measured[0]}")
    status, summary = run_here(tmp_path / "more", words)
    assert status == 0
    assert summary["epochs"][:3] == measured[1]["epochs"]
    assert summary["input_wait_s"] == pytest.approx(sum(epoch["input_wait_s"] for epoch in summary["epochs"]))
    again = emulated(tiny, "trainer.epochs=3", f"trainer.resume={measured[0]}")
    _, nothing_left = run_here(tmp_path / "again", again)
    assert nothing_left["verdict"] == measured[1]["verdict"]
    assert nothing_left["au"] == measured[1]["au"]


def test_a_profile_holds_its_windows_and_no_more(tiny: Path, tmp_path: Path) -> None:
    words = small(tiny, "profile=trace", "profile.windows=[[1,2],[3,4]]")
    status, _ = run_here(tmp_path, words)
    assert status == 0
    written = [path.relative_to(tmp_path / "profile").parts[0] for path in tmp_path.rglob("*.xplane.pb")]
    assert sorted(written) == ["steps_000001_000002", "steps_000003_000004"]


def test_a_window_past_the_run_is_refused_before_training(tiny: Path, tmp_path: Path) -> None:
    status, summary = run_here(tmp_path, emulated(tiny, "profile=trace", "profile.windows=[[18,20]]"))
    assert status == 2
    assert summary["error"] == (
        "profile.windows: found [[18, 20]]; expected windows within the 19 steps of the run\n"
        "    -> end the last one at step 19 or earlier, or train longer"
    )
    assert summary["epochs"] == []


@pytest.mark.parametrize("load", ["bucketed", "padded"])
def test_steps_of_several_lengths_are_counted_by_their_own_floors(
    load: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_reviews(tmp_path)
    monkeypatch.setattr(fit, "_slept", _slept_by_length)
    words = words_of(tmp_path, f"load={load}", "trainer.epochs=3", "cache=none", "dataset.eval_split=null")
    words = tuple(word for word in words if load == "bucketed" or not word.startswith("load.boundaries"))
    status, summary = run_here(tmp_path / "run", [*words])
    assert status == 0
    steady = summary["epochs"][1:]
    waited = sum(epoch["fill_wait_s"] + epoch["input_wait_s"] for epoch in steady)
    wall = sum(epoch["wall_s"] for epoch in steady)
    for epoch in steady:  # each step sleeps, so what is no wait is nearly all of the time
        shares = (epoch["fill_wait_s"] + epoch["input_wait_s"]) / epoch["wall_s"]
        assert epoch["au"] == pytest.approx(1 - shares, abs=0.15)
    assert summary["au"] == pytest.approx(1 - waited / wall, abs=0.15)


def _slept_by_length(_seconds: float) -> Any:
    """A step that sleeps 1 ms for each item of the longest sequence."""

    def function(batches: Any) -> dict[str, Any]:
        inputs, *_ = next(batches)
        time.sleep(0.001 * max(value.shape[1] for value in tf.nest.flatten(inputs) if value.shape.rank > 1))
        return {}

    return function


def test_two_that_measure_at_once_on_one_machine_note_each_other(tiny: Path, tmp_path: Path) -> None:
    searching = tmp_path / "search" / "windows"
    words = emulated(tiny)
    run.freeze(tmp_path / "run", composed(*words), words)
    with measuring(str(searching)):
        assert run.run(tmp_path / "run") == 0
    note = f"It was measured beside other runs of etlrun on this machine: {searching}."
    assert note in summary_of(tmp_path / "run")["remarks"]
    assert [*note_on_others([("0", [note]), ("1", [])])] == [
        f"runs 0 were measured beside other runs of etlrun on this machine, which take from their speed: {searching}"
    ]


def test_jobs_of_one_sweep_and_runs_that_were_killed_are_not_noted() -> None:
    with measuring("sweep"), Beside("sweep") as beside:
        assert not beside.seen
        place = Path(platformdirs.user_cache_path("etlrun")) / "measuring" / platform.node()
        (place / "999999999").write_text("killed")
    with Beside("other") as beside:
        assert not beside.seen
    assert not list(place.iterdir())


@contextmanager
def measuring(own: str) -> Iterator[None]:
    """Another process that measures."""
    program = f"from etlrun.measure.watched import Beside\nwith Beside({own!r}): print(flush=True); input()"
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.communicate("\n")
