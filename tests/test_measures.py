"""What runs measure, with an emulated accelerator, and what tf.data tells of running pipelines."""

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from etlrun.measure import assessment
from etlrun.measure.assessment import ceiling_per_s, settled_values, with_settled
from etlrun.measure.meter import Loop, StepKind
from etlrun.measure.stage_costs import StageCosts
from etlrun.measure.verdict import floors_of
from etlrun.measure.watched import Watch, Watched
from etlrun.planning.plan import Plan
from etlrun.results import report
from etlrun.results.report import collect
from etlrun.run import fit
from etlrun.run.epochs import held
from tests.configs import TENSORFLOW, plan_of
from tests.conftest import Once
from tests.golden import Says
from tests.pipelines import training_pipeline
from tests.runs import complete_here, emulated, events_of, run_here, small
from tests.texts import words_of, write_reviews

BATCH = 2
TFDS_DECODES = (
    "extract=tfds",
    "extract.decode=true",
    "transform.steps=[resize,scale_minus_one_one]",
    "transform.eval_steps=[resize,scale_minus_one_one]",
)


def plan_on(data_dir: Path, *overrides: str) -> Plan:
    """With steps of single examples: `turbo` would read most of the few examples at once."""
    words = (f"load.batch_size={BATCH}", "load.shuffle_buffer=4", "cache=none", TENSORFLOW, *overrides)
    return plan_of(*small(data_dir, *words))


def seen(plan: Plan, passes: int = 1) -> StageCosts:
    """The costs of the last of some passes, looked at before its end."""
    watch = Watch()
    with training_pipeline(plan) as pipeline:
        for _ in range(passes):
            watch.taken_models()
            for number, _batch in enumerate(Watched(pipeline.dataset, watch)):
                if number <= 8:  # a busy machine may have read all by then
                    watch.look(watch.iterator)
    reads = pipeline.keeper is not None and pipeline.keeper.passes[-1] == "read"
    stages = [planned.stage for planned in plan.train]
    return StageCosts(watch.taken_models()[0], stages, BATCH, threads=64, reads_disk=reads)


def test_the_utilization_of_an_epoch_is_told_by_the_last_few_epochs(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[int]()

    def counted(loops: Sequence[Loop], ready: Sequence[Loop]) -> dict[StepKind, float]:
        told.append(len(loops))
        return floors_of(loops, ready)

    monkeypatch.setattr(assessment, "_RECENT", 2)
    monkeypatch.setattr(assessment, "floors_of", counted)
    summary = complete_here(tmp_path / "run", emulated(tiny, "trainer.epochs=5"))
    assert told == [1, 2, 2, 2, 2, 5, 5]  # at last of the training and of the validation
    assert all(0 < epoch["au"] <= 1 for epoch in summary["epochs"])


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["extract=sequential"],
        ["extract=tfds"],
        [*TFDS_DECODES],
        ["load.prefetch=0"],
        ["load.shuffle_buffer=0"],
        ["load.shuffle_buffer=0", "load.prefetch=0", "transform.num_parallel_calls=null"],
        ["cache=memory"],
        ["cache=disk"],
        ["cache=memory", "cache.at=decoded"],
        ["cache=disk", "cache.at=decoded"],
        ["dataset.on_corrupt=skip"],
        ["dataset.on_corrupt=skip", "cache=memory", "transform.num_parallel_calls=null"],
        ["dataset.on_corrupt=skip", "cache=disk", "cache.at=decoded", "load.shuffle_buffer=0"],
        ["transform.steps=[decode,resize,random_flip,scale_minus_one_one]"],
        ["extract.num_parallel_calls=null"],
    ],
    ids=" ".join,
)
def test_every_stage_of_a_plan_has_its_costs(overrides: list[str], tiny: Path, tmp_path: Path) -> None:
    plan = plan_on(tiny, f"cache.dir={tmp_path}", *overrides)
    costs = seen(plan)
    assert [row.stage for row in costs.rows] == [planned.stage.path for planned in plan.train]
    by_stage = {row.stage: row for row in costs.rows}
    assert by_stage["transform.map"].cost_ms > 0
    assert by_stage["load.batch"].examples >= BATCH
    assert by_stage["transform.map"].examples >= by_stage["load.batch"].examples
    assert costs.periods.work.period_ms == pytest.approx(sum(row.cost_ms for row in costs.rows))
    assert 0 < costs.periods.slowest.period_ms <= costs.periods.work.period_ms


def test_parallelism_and_buffers_are_those_of_the_config(tiny: Path) -> None:
    words = ("extract.num_parallel_calls=3", "transform.num_parallel_calls=5", "load.prefetch=6")
    rows = {row.stage: row for row in seen(plan_on(tiny, *words, "load.num_parallel_calls=null")).rows}
    assert rows["extract.interleave"].parallelism == 3
    assert rows["transform.map"].parallelism == 5
    assert rows["load.prefetch"].buffer_size == 6
    assert rows["load.batch"].parallelism is None
    rows = {row.stage: row for row in seen(plan_on(tiny, *words, "load.num_parallel_calls=2")).rows}
    assert rows["load.batch"].parallelism == 2


def test_a_config_that_says_serial_and_no_prefetch_gets_it(tiny: Path) -> None:
    serial = (f"{group}.num_parallel_calls=null" for group in ("transform", "load"))
    costs = seen(plan_on(tiny, *serial, "load.prefetch=0", "load.shuffle_buffer=0"))
    rows = {row.stage: row for row in costs.rows}
    assert rows["transform.map"].parallelism is None
    assert "load.prefetch" not in rows
    assert costs.periods.asking.keys() == {"transform.map", "load.batch"}


@pytest.mark.parametrize("shuffle_buffer", [4, 0])
@pytest.mark.parametrize("at", ["transformed", "decoded"])
@pytest.mark.parametrize("cache", ["memory", "disk"])
def test_a_pass_that_reads_the_cache_costs_nothing_before_it(
    cache: str, at: str, shuffle_buffer: int, tiny: Path, tmp_path: Path
) -> None:
    words = (f"cache={cache}", f"cache.at={at}", f"load.shuffle_buffer={shuffle_buffer}", f"cache.dir={tmp_path}")
    plan = plan_on(tiny, *words)
    costs = seen(plan, passes=2)
    paths = [planned.stage.path for planned in plan.train]
    assert [row.stage for row in costs.rows] == paths[paths.index(f"cache.{cache}") :]
    assert costs.reads_disk is (cache == "disk")


def write_many(folder: Path) -> None:
    """Write so many reviews that no stage has read all of them when the first batch is there."""
    write_reviews(folder)
    path = folder / "reviews.jsonl"
    path.write_text(path.read_text() * 50)


@pytest.mark.parametrize("words", ["load.shuffle=full", "load.shuffle_buffer=0", "load.boundaries=[]"])
def test_batches_of_sequences_cost_what_makes_them(words: str, once: Once) -> None:
    plan = plan_of(*words_of(once("many reviews", write_many), words))
    assert [row.stage for row in seen(plan).rows] == [planned.stage.path for planned in plan.train]


def test_what_autotune_settled_on_can_be_planned(tiny: Path) -> None:
    plan = plan_on(tiny, "load.prefetch=2")
    rows = seen(plan).rows
    values = settled_values(plan.train, rows)
    assert values.keys() == {f"{group}.num_parallel_calls" for group in ("extract", "transform", "load")}
    assert all(value >= 1 for value in values.values())
    planned = plan_on(tiny, "load.prefetch=2", *(f"{key}={value}" for key, value in values.items()))
    assert [of.stage for of in with_settled(plan.train, rows)] == [item.stage for item in planned.train]


@pytest.mark.parametrize(
    ("batch_size", "batches", "examples"), [(20, 1, 20), (20, 2, 38), (20, 3, 58), (20, 4, 76), (10**12, 1, 38)]
)
def test_a_last_batch_counts_as_many_examples_as_it_holds(
    batch_size: int, batches: int, examples: int, tiny: Path
) -> None:
    plan = plan_on(tiny, f"load.batch_size={batch_size}", "load.prefetch=1")
    with training_pipeline(plan) as pipeline:
        iterator = pipeline.endless().begin()
        for _ in range(batches):
            next(iterator)
        model = tf.data.experimental.get_model_proto(iterator)
    stages = [planned.stage for planned in plan.train]
    costs = StageCosts(model, stages, batch_size, threads=64, pass_examples=pipeline.split.num_examples)
    assert {row.stage: row.examples for row in costs.rows}["load.prefetch"] == examples


def test_a_run_with_a_batch_for_more_examples_than_there_are_counts_those_that_there_are(
    tiny: Path, tmp_path: Path
) -> None:
    # Its images are so many that it is looked at many times while it fills its only batch.
    words = ("load.batch_size=1000000000000", "load.drop_remainder=false", "load.prefetch=1", "dataset.eval_split=null")
    many = (f"dataset.split={'+'.join(200 * ['train'])}", "transform.num_parallel_calls=1", "trainer.epochs=1")
    summary = complete_here(tmp_path, emulated(tiny, *words, *many, "cache=none"))
    assert {row["stage"]: row["examples"] for row in summary["stages"]}["load.prefetch"] == 200 * 48


OF_PROBE = tf.zeros([4, 2])


class Batches:
    """A pipeline whose batches are there, but for the first one of the probe, which takes `late_s`."""

    stages = ()

    def __init__(self, late_s: float) -> None:
        self.late_s, self.count = late_s, 0

    def repeated_alone(self, *_: Any, **__: Any) -> Iterator[Any]:
        while True:
            if self.count == 1:
                time.sleep(self.late_s)
            self.count += 1
            yield OF_PROBE


@pytest.mark.parametrize(("late_s", "goes_on"), [(0.06, True), (1.0, False)])
def test_a_late_batch_does_not_stand_for_a_pipeline(late_s: float, goes_on: bool) -> None:  # noqa: FBT001
    pipeline: Any = Batches(late_s)
    found = ceiling_per_s(pipeline, pipeline.stages, from_cache=False, seconds=0.05)
    assert (pipeline.count > 2) is goes_on  # one was read before, and a slow pipeline is not read for long
    assert found <= 4 * pipeline.count / late_s


@pytest.mark.parametrize(("cores", "computed_ms"), [(0, 0), (0.5, 10), (1, 20), (2.5, 50)])
def test_a_step_takes_its_time_and_its_cores(cores: float, computed_ms: float) -> None:
    with held(20, cores) as step:
        step()  # starts the threads
        began_s, computed_s = time.perf_counter(), time.process_time()
        step()
        took_s, computed_s = time.perf_counter() - began_s, time.process_time() - computed_s
    assert took_s >= 0.02
    assert computed_s >= computed_ms / 1000


def test_no_step_takes_no_thread() -> None:
    before = threading.active_count()
    with held(0, 2) as step:
        step()
        assert threading.active_count() == before


def test_a_batch_that_is_held_is_the_same(tiny: Path, tmp_path: Path) -> None:
    words = [word for word in small(tiny, "trainer=drain", "measure.digest=true") if not word.startswith("model.")]
    found: list[dict[str, Any]] = []
    for step in ((), ("trainer.step_ms=5",), ("trainer.step_ms=5", "trainer.step_cores=1")):
        summary = complete_here(tmp_path / str(len(found)), [*words, *step])
        assert summary["epochs"][0]["wall_s"] >= 6 * 0.005 * bool(step)
        found.append(summary)
    assert len({summary["epochs"][0]["digest"] for summary in found}) == 1
    assert len({summary["plan_fingerprint"] for summary in found}) == 1


def test_a_summary_has_the_verdict_and_its_evidence(measured: tuple[Path, dict[str, Any]], says: Says) -> None:
    _, summary = measured
    says(sorted(summary["verdict"]))
    assert summary["step_floor_ms"] >= 5
    assert summary["pipeline_examples_per_s"] > 0
    assert 0 < summary["au"] <= 1
    assert 0 <= summary["input_wait_share"] < 1
    assert summary["input_wait_s"] == pytest.approx(sum(epoch["input_wait_s"] for epoch in summary["epochs"]))
    assert [row["stage"] for row in summary["stages"]] == [planned.stage.path for planned in plan_of().train]
    says(sorted(summary["resources"]))
    assert summary["resources"]["cache_bytes"] == 480 * (32 * 32 * 3 + 8)
    assert "loss" not in summary["epochs"][0]


def test_an_epoch_has_its_waits(measured: tuple[Path, dict[str, Any]]) -> None:
    for epoch in measured[1]["epochs"]:
        assert epoch["steps"] == 19
        assert epoch["examples"] == 380
        assert epoch["wall_s"] >= 19 * 0.005 + epoch["input_wait_s"] + epoch["fill_wait_s"]
        assert "digest" not in epoch


def test_events_keep_the_stages_of_each_pass(measured: tuple[Path, dict[str, Any]], says: Says) -> None:
    stages = [event for event in events_of(measured[0]) if event["event"] == "stages"]
    assert {event["pipeline"] for event in stages} >= {"train"}
    says(sorted(stages[0]["stages"][0]))


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
    complete_here(tmp_path, emulated(tiny, "model.step_ms=30", "measure.au_min=0.2"))
    assert "at least the required 0.2" in (tmp_path / "report.md").read_text()


def test_a_drain_reads_passes_without_a_model(tiny: Path, tmp_path: Path) -> None:
    words = [*emulated(tiny, "trainer=drain", "measure.digest=true"), "trainer.epochs=2"]
    summary = complete_here(tmp_path, [word for word in words if word != "trainer.epochs=1"])
    assert [(epoch["epoch"], epoch["examples"]) for epoch in summary["epochs"]] == [(1, 38), (2, 38)]
    assert summary["epochs"][0]["digest"] == summary["epochs"][1]["digest"]
    assert summary["pipeline_examples_per_s"] > 0
    assert (summary["step_floor_ms"], summary["au"], summary["verdict"]["max_gain"]) == (None, None, None)
    assert not (tmp_path / "model.keras").exists()


@pytest.mark.smoke
def test_a_drain_says_which_stage_sets_the_pace(sample: Path, tmp_path: Path, says: Says) -> None:
    words = ["trainer=drain", "cache=none", "extract=sequential", "transform.num_parallel_calls=1"]
    summary = complete_here(tmp_path, [*words, f"dataset.data_dir={sample}"])
    cores = f"calls={summary['host']['cores']}"
    says(summary["verdict"], RATE=f"{summary['pipeline_examples_per_s']:,.0f}", CALLS=cores)


def test_a_drain_ends_when_its_time_is_up(tiny: Path, tmp_path: Path) -> None:
    words = [*emulated(tiny, "trainer=drain"), "trainer.seconds=0.5", "trainer.epochs=null"]
    summary = complete_here(tmp_path, [word for word in words if word != "trainer.epochs=1"])
    assert 0.1 <= sum(epoch["wall_s"] for epoch in summary["epochs"]) < 5


def test_a_drain_reads_however_short_its_time_is(tiny: Path, tmp_path: Path) -> None:
    words = [*emulated(tiny, "trainer=drain"), "trainer.seconds=1e-9"]
    (epoch,) = complete_here(tmp_path, words)["epochs"]
    assert epoch["steps"] == 1


@pytest.mark.parametrize("cache", ["disk", "memory"])
def test_epochs_that_end_within_a_pass_are_measured(cache: str, tiny: Path, tmp_path: Path) -> None:
    words = ("trainer.steps_per_epoch=12", "trainer.epochs=2", "load.shuffle_buffer=38")
    cached = (f"cache={cache}", f"cache.dir={tmp_path / 'caches'}")
    summary = complete_here(tmp_path / "run", emulated(tiny, *words, *cached))
    assert [epoch["steps"] for epoch in summary["epochs"]] == [12, 12]
    assert summary["pipeline_examples_per_s"] > 0
    # A pass has 19 batches: the second one begins within the second epoch, and fills its shuffle buffer.
    assert all(epoch["fill_wait_s"] + epoch["startup_s"] > 0 for epoch in summary["epochs"])


def test_a_pass_without_a_batch_is_told(tiny: Path, tmp_path: Path, says: Says) -> None:
    from tests.pictures import damaged, feature_of, with_feature

    damaged(tiny, tmp_path / "data", with_feature("image", feature_of(b"no picture")))
    words = emulated(
        tmp_path / "data", "dataset.on_corrupt=skip", "dataset.split='train[17:19]'", "dataset.eval_split=null"
    )
    status, summary = run_here(tmp_path / "run", words)
    assert status == 1
    says(summary["error"])


def test_a_resumed_run_sums_the_waits_of_all_its_epochs(
    measured: tuple[Path, dict[str, Any]], many: Path, tmp_path: Path
) -> None:
    words = ("load.batch_size=20", f"trainer.resume={measured[0]}")
    summary = complete_here(tmp_path / "more", emulated(many, "trainer.epochs=4", *words))
    assert summary["epochs"][:3] == measured[1]["epochs"]
    assert summary["input_wait_s"] == pytest.approx(sum(epoch["input_wait_s"] for epoch in summary["epochs"]))
    _, nothing_left = run_here(tmp_path / "again", emulated(many, "trainer.epochs=3", *words))
    assert nothing_left["verdict"] == measured[1]["verdict"]
    assert nothing_left["au"] == measured[1]["au"]


def test_a_profile_holds_its_windows_and_no_more(tiny: Path, tmp_path: Path) -> None:
    words = small(tiny, "profile=trace", "profile.windows=[[1,2],[3,4]]")
    complete_here(tmp_path, words)
    written = [path.relative_to(tmp_path / "profile").parts[0] for path in tmp_path.rglob("*.xplane.pb")]
    assert sorted(written) == ["steps_000001_000002", "steps_000003_000004"]


def test_a_window_past_the_run_is_refused_before_training(tiny: Path, tmp_path: Path, says: Says) -> None:
    status, summary = run_here(tmp_path, emulated(tiny, "profile=trace", "profile.windows=[[18,20]]"))
    assert status == 2
    says(summary["error"])
    assert summary["epochs"] == []


@pytest.mark.parametrize("load", ["bucketed", "padded"])
def test_steps_of_several_lengths_are_counted_by_their_own_floors(
    load: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_reviews(tmp_path)
    monkeypatch.setattr(fit, "_slept", _slept_by_length)
    words = words_of(tmp_path, f"load={load}", "trainer.epochs=3", "cache=none", "dataset.eval_split=null")
    words = tuple(word for word in words if load == "bucketed" or not word.startswith("load.boundaries"))
    summary = complete_here(tmp_path / "run", [*words])
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
