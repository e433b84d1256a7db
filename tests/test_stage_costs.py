"""What tf.data tells of running pipelines, matched with their plans."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from etlrun.measure.assessment import ceiling_per_s, settled_values, with_settled
from etlrun.measure.stage_costs import StageCosts
from etlrun.measure.watched import Watch, Watched
from etlrun.planning.plan import Plan
from etlrun.run.epochs import Hold
from tests.configs import TENSORFLOW, plan_of
from tests.conftest import Once
from tests.pipelines import training_pipeline
from tests.runs import emulated, run_here, small
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
    watch = Watch(with_digest=False)
    with training_pipeline(plan) as pipeline:
        for _ in range(passes):
            watch.taken_models()
            for number, _batch in enumerate(Watched(pipeline.dataset, watch)):
                if number <= 8:  # a busy machine may have read all by then
                    watch.look(watch.iterator)
    reads = pipeline.keeper is not None and pipeline.keeper.passes[-1] == "read"
    stages = [planned.stage for planned in plan.train]
    return StageCosts(watch.taken_models()[0], stages, BATCH, threads=64, reads_disk=reads)


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
    assert costs.periods.asking.shares.keys() == {"transform.map", "load.batch"}


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


@pytest.mark.parametrize("words", ["load.shuffle=full", "load.shuffle_buffer=0", "load.boundaries=[]"])
def test_batches_of_sequences_cost_what_makes_them(words: str, once: Once) -> None:
    plan = plan_of(*words_of(once("reviews", write_reviews), words))
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
    status, summary = run_here(tmp_path, emulated(tiny, *words, *many, "cache=none"))
    assert status == 0
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
    found = ceiling_per_s(pipeline, [], from_cache=False, seconds=0.05)
    assert (pipeline.count > 2) is goes_on  # one was read before, and a slow pipeline is not read for long
    assert found <= 4 * pipeline.count / late_s


@pytest.mark.parametrize(("cores", "computed_ms"), [(0, 0), (0.5, 10), (1, 20), (2.5, 50)])
def test_a_step_takes_its_time_and_its_cores(cores: float, computed_ms: float) -> None:
    with Hold(20, cores) as hold:
        hold.step()  # starts the threads
        began_s, computed_s = time.perf_counter(), time.process_time()
        hold.step()
        took_s, computed_s = time.perf_counter() - began_s, time.process_time() - computed_s
    assert took_s >= 0.02
    assert computed_s >= computed_ms / 1000


def test_no_step_takes_no_thread() -> None:
    with Hold(0, 2) as hold:
        hold.step()
        assert hold._pool is None


def test_a_batch_that_is_held_is_the_same(tiny: Path, tmp_path: Path) -> None:
    words = [word for word in small(tiny, "trainer=drain", "measure.digest=true") if not word.startswith("model.")]
    found: list[dict[str, Any]] = []
    for step in ((), ("trainer.step_ms=5",), ("trainer.step_ms=5", "trainer.step_cores=1")):
        status, summary = run_here(tmp_path / str(len(found)), [*words, *step])
        assert status == 0
        assert summary["epochs"][0]["wall_s"] >= 6 * 0.005 * bool(step)
        found.append(summary)
    assert len({summary["epochs"][0]["digest"] for summary in found}) == 1
    assert len({summary["plan_fingerprint"] for summary in found}) == 1
