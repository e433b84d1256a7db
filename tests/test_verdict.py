"""Each gain that a report prints follows from the seconds that it prints beside it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etlrun.measure.meter import Loop, StepKind
from etlrun.measure.stage_costs import StageCosts
from etlrun.measure.verdict import Side, floors_of, judge_alone, utilisation
from etlrun.record.report import lines
from etlrun.record.summary import Apart, Summary, Verdict
from etlrun.remote.copies import Traffic
from tests.judged import BATCH, CORES, KIND, PATHS, STEP_S, approx, costs, loop, side, verdict


def test_a_run_that_never_waits_is_bound_by_its_model() -> None:
    assert verdict(side(loop())) == Verdict(
        kind="model",
        max_gain=approx(1.0),
        train_max_gain=approx(1.0),
        because="0.00 s of 10.0 s were spent waiting for data; the pipeline alone delivers 10,000 examples/s, "
        "the model consumes 100 examples/s",
    )


@pytest.mark.parametrize(
    ("wait_s", "ceiling_per_s", "kind"),
    [(0.004, 10_000.0, "model"), (0.006, 10_000.0, "balanced"), (0.0, 124.0, "balanced"), (0.0, 126.0, "model")],
)
def test_little_waiting_or_little_in_reserve_is_balanced(wait_s: float, ceiling_per_s: float, kind: str) -> None:
    assert verdict(side(loop(wait_s)), ceiling_per_s=ceiling_per_s).kind == kind


def test_the_slowest_thread_names_the_stage() -> None:
    found = verdict(side(loop(0.1), of=costs(sequential=15.0, map=20.0)))
    assert found == Verdict(
        kind="input",
        stage="extract.sequential",
        pipeline="train",
        max_gain=approx(2.0),
        train_max_gain=approx(2.0),
        because="10.0 s of 20.0 s were spent waiting for data; extract.sequential takes 15 ms per example with one "
        "thread; a step takes 10 ms per example",
    )


def test_a_prefetch_that_takes_the_longest_is_none_that_is_missing() -> None:
    found = verdict(side(loop(0.1), of=costs(map=20.0, prefetch=15.0)))
    assert found.stage == "load.prefetch"
    assert found.because == (
        "10.0 s of 20.0 s were spent waiting for data; load.prefetch takes 15 ms per example with one thread; "
        "a step takes 10 ms per example"
    )


def test_a_step_of_a_transform_that_uses_all_cores_is_named() -> None:
    found = verdict(side(loop(0.1), of=costs(map=80.0)), steps={"transform.decode": 60.0, "transform.resize": 20.0})
    assert found.stage == "transform.decode"
    assert found.because == (
        "10.0 s of 20.0 s were spent waiting for data; transform.map takes 80 ms per example with 4 threads; "
        "a step takes 10 ms per example; transform.decode is 75% of it"
    )


@pytest.mark.parametrize(
    ("threads", "map_ms", "steps"),
    [
        (CORES, 80.0, {"transform.parse": 4.0, "transform.decode": 4.0, "transform.resize": 4.0}),  # none is half of it
        (CORES, 80.0, {"transform.decode": 0.0, "transform.resize": 0.0}),  # less than the probe can tell
        (1, 20.0, {"transform.decode": 20.0}),  # more threads help first
    ],
)
def test_no_step_is_named_where_none_stands_out_or_cores_are_unused(
    threads: int, map_ms: float, steps: dict[str, float]
) -> None:
    assert verdict(side(loop(0.1), of=costs(threads=threads, map=map_ms)), steps=steps).stage == "transform.map"


@pytest.mark.parametrize(("map_ms", "stage"), [(36.0, "load.prefetch"), (44.0, "transform.map")])
def test_without_a_prefetch_a_pipeline_that_would_keep_up_lacks_one(map_ms: float, stage: str) -> None:
    paths = PATHS[:-1]
    found = verdict(side(loop(0.09), of=costs(paths, map=map_ms), paths=paths))
    assert found.stage == stage


def test_filling_the_shuffle_buffer_is_named_where_the_pipeline_would_keep_up() -> None:
    found = verdict(side(loop(fill_s=5.0), of=costs(map=20.0)))
    assert found.stage == "load.shuffle"
    assert found.because == (
        "5.00 s of 15.0 s were spent waiting for data; each pass first fills the shuffle buffer, which took "
        "5.00 s of 15.0 s"
    )
    assert verdict(side(loop(fill_s=5.0), of=costs(map=80.0))).stage == "transform.map"


@pytest.mark.parametrize("of", [costs(map=20.0), costs(prefetch=80.0), None])
def test_passes_that_take_long_to_begin_are_named_and_no_stage_that_would_keep_up(of: StageCosts | None) -> None:
    paths = tuple(path for path in PATHS if path != "load.shuffle")
    assert verdict(side(loop(0.001, fill_s=20.0), costs=(of,), paths=paths)) == Verdict(
        kind="input",
        pipeline="train",
        max_gain=approx(3.01),
        train_max_gain=approx(3.01),
        because="20.1 s of 30.1 s were spent waiting for data; the first batch of each pass takes 20,000.0 ms, "
        "and its 100 steps 10,000.0 ms",
        advice="Try trainer.steps_per_epoch=100: an epoch then has up to 1,000 examples, and begins while the one "
        "before it is trained on.",
    )


def test_a_cold_first_epoch_is_told_apart() -> None:
    found = verdict(side(loop(0.1), loop(), loop(), of=costs(map=80.0)))
    assert (found.kind, found.stage, found.max_gain) == ("model", None, approx(1.0))
    assert found.because.startswith("0.00 s of 20.0 s were spent waiting for data after the first epoch; ")
    assert found.apart == (
        Apart(
            name="first epoch", lost_s=approx(10.0), total_s=approx(20.0), max_gain=approx(2.0), stage="transform.map"
        ),
    )


def test_a_first_epoch_that_is_the_only_one_with_enough_steps_is_judged() -> None:
    short = Loop(
        waits_s=[0.0] * 7,
        steps_s=[STEP_S] * 7,
        examples=[1] * 7,
        starts_up=[False] * 7,
        wall_s=7 * STEP_S,
        kinds=[KIND] * 7,
    )
    found = verdict(side(loop(0.1), short, of=costs(map=80.0)))
    assert (found.kind, found.max_gain, found.apart) == ("input", approx(20.7 / 10.7), ())
    assert found.because.startswith("10.0 s of 20.7 s were spent waiting for data; ")


def test_the_stage_for_which_all_epochs_together_waited_most_is_named() -> None:
    slow_map, slow_files = costs(map=80.0), costs(sequential=20.0)
    found = verdict(side(loop(0.05), loop(0.03), loop(0.03), costs=(slow_map, slow_files, slow_files)))
    assert found.stage == "extract.sequential"


def test_a_validation_that_waits_is_told_apart() -> None:
    found = verdict(side(loop()), side(loop(0.1), of=costs(sequential=20.0), name="validation"))
    assert (found.kind, found.stage, found.pipeline, found.max_gain) == ("model", None, None, approx(1.0))
    assert found.because.startswith("0.00 s of 10.0 s were spent waiting for data; ")
    assert found.apart == (
        Apart(
            name="validation",
            lost_s=approx(10.0),
            total_s=approx(20.0),
            max_gain=approx(2.0),
            stage="extract.sequential",
        ),
    )


def test_the_gain_of_the_training_steps_is_told_without_the_validation() -> None:
    found = verdict(side(loop(0.1), of=costs(map=80.0)), side(*[loop()] * 8, name="validation"))
    assert (found.kind, found.max_gain, found.train_max_gain) == ("input", approx(2.0), approx(2.0))
    assert [(part.name, part.max_gain, part.stage) for part in found.apart] == [("validation", approx(1.0), None)]
    short = Loop(
        waits_s=[0.0] * 7,
        steps_s=[STEP_S] * 7,
        examples=[1] * 7,
        starts_up=[False] * 7,
        wall_s=7 * STEP_S,
        kinds=[KIND] * 7,
    )
    found = verdict(side(short), side(loop(), name="validation"))
    assert (found.kind, found.max_gain, found.train_max_gain) == ("unknown", None, None)


def test_the_gain_is_that_of_later_epochs_and_the_start_up_is_told_apart() -> None:
    begun = loop(0.1)
    begun.wall_s, begun.start_s = begun.wall_s + 30.0, 30.0
    found = verdict(side(begun, loop(0.05), loop(0.05), of=costs(map=80.0)))
    assert (found.max_gain, found.train_max_gain) == (approx(1.5), approx(1.5))
    assert [dataclasses.astuple(part) for part in found.apart] == [
        ("start-up", 30.0, approx(80.0), approx(1.6), None),
        ("first epoch", approx(10.0), approx(20.0), approx(2.0), "transform.map"),
    ]
    assert verdict(side(begun, of=costs(map=80.0))).max_gain == approx(2.0)


def test_the_handing_over_of_a_batch_that_is_there_is_no_fault_of_the_pipeline() -> None:
    found = verdict(side(loop(0.02), handover_s=0.02))
    assert (found.kind, found.max_gain) == ("model", approx(1.0))
    assert found.because.startswith(
        "2.00 s of 12.0 s were spent waiting for data, 2.00 s of it for handing over batches that were ready"
    )
    assert verdict(side(loop(0.1), of=costs(map=80.0), handover_s=0.02)).max_gain == approx(20 / 12)


def test_steps_that_wait_for_digests_hide_what_the_pipeline_would_do() -> None:
    held_up = dataclasses.replace(loop(), digest_s=1.0, wall_s=11.0)
    expected = Verdict(
        kind="unknown",
        because="inconclusive: 1.00 s of 11.0 s were spent waiting for digests, while the pipeline continued",
        advice="Run again with measure.digest=false.",
    )
    assert verdict(side(held_up)) == judge_alone(side(held_up), 1.0) == expected
    assert verdict(side(dataclasses.replace(loop(), digest_s=0.4, wall_s=10.4))).kind == "model"


def test_one_long_stall_is_no_evidence() -> None:
    found = verdict(side(loop(waits_s=[5.0] + [0.0] * 99)))
    assert found.kind == "unknown"
    assert found.because.endswith("vary so much that the gain may be anything from 1.00 to 100.00")


def test_a_validation_without_a_warm_step_does_not_hide_the_training() -> None:
    single = Loop(waits_s=[0.0], steps_s=[STEP_S], examples=[BATCH], starts_up=[True], wall_s=STEP_S, kinds=[KIND])
    sides = (side(loop(0.1), of=costs(map=80.0)), side(single, name="validation", floors={}))
    assert utilisation(sides) == pytest.approx(0.5)
    assert verdict(*sides).kind == "input"


@pytest.mark.parametrize(
    ("train", "why", "again"),
    [
        (
            side(Loop(waits_s=[1.0], steps_s=[1.0], examples=[1], starts_up=[False], wall_s=2.0, kinds=[KIND])),
            "only 1 training step was measured; a verdict needs at least 8",
            "with more steps.",
        ),
        (
            side(
                Loop(
                    waits_s=[1.0] * 7,
                    steps_s=[1.0] * 7,
                    examples=[1] * 7,
                    starts_up=[False] * 7,
                    wall_s=14.0,
                    kinds=[KIND] * 7,
                )
            ),
            "only 7 training steps were measured; a verdict needs at least 8",
            "with more steps.",
        ),
        (
            side(loop(waits_s=[0.0] * 90 + [0.12] * 10)),
            (
                "1.20 s of 11.2 s were spent waiting for data, but the waits vary so much that the gain may be "
                "anything from 1.00 to 1.47"
            ),
            "on an idle machine, or for more epochs.",
        ),
        (
            side(loop(step_s=0.13)),
            (
                "0.00 s of 13.0 s were spent waiting for data, but the steps took 13.0 s, instead of 10.0 s on batches "
                "that are ready: either the pipeline competes with the model for cores, or the machine was busy with "
                "other work"
            ),
            "on an idle machine: if the verdict is the same, the pipeline takes the cores.",
        ),
        (
            side(loop(0.1), costs=(None,)),
            "10.0 s of 20.0 s were spent waiting for data, but the passes were too short to profile",
            "with more examples.",
        ),
    ],
)
def test_what_is_no_evidence_is_told_with_how_to_get_some(train: Side, why: str, again: str) -> None:
    assert verdict(train) == Verdict(kind="unknown", because=f"inconclusive: {why}", advice=f"Run again {again}")


def test_utilisation_is_step_time_over_total() -> None:
    assert utilisation([side(loop(0.1))]) == pytest.approx(0.5)
    assert utilisation([side(loop(0.1), floors={})]) is None
    assert utilisation([side(Loop([], [], [], [], 0.0, 3.0, 0.0, 0.0, 3.1))]) is None


def of_lengths(*lengths_s: float, slower: float = 1.0, wait_s: float = 0.0, each: int = 20) -> Loop:
    """Steps of several lengths in turns, each on batches of another shape, and `slower` than on ready batches."""
    steps = [(StepKind(0, ((BATCH, number),)), length_s) for number, length_s in enumerate(lengths_s)] * each
    return Loop(
        waits_s=[wait_s] * len(steps),
        steps_s=[slower * step_s for _, step_s in steps],
        examples=[BATCH] * len(steps),
        starts_up=[False] * len(steps),
        wall_s=sum(wait_s + slower * step_s for _, step_s in steps),
        kinds=[kind for kind, _ in steps],
    )


LENGTHS_S = (0.01, 0.02, 0.05, 0.1, 0.32)


@pytest.mark.parametrize("timed", [LENGTHS_S, LENGTHS_S[:2], ()])
@pytest.mark.parametrize("slower", [1.0, 1.5])
def test_the_floor_of_each_step_is_that_of_its_shape(timed: tuple[float, ...], slower: float) -> None:
    trained = of_lengths(*LENGTHS_S, slower=slower)
    floors = floors_of([trained], [of_lengths(*timed)] if timed else [])
    expected = LENGTHS_S if timed else [slower * length_s for length_s in LENGTHS_S]
    assert [floors[kind] for kind in trained.kinds[: len(LENGTHS_S)]] == pytest.approx(expected)


def test_kinds_of_steps_that_were_timed_alone_or_seldom_have_their_floors() -> None:
    ready = of_lengths(0.04, each=3)
    assert floors_of([], [ready]) == {ready.kinds[0]: 0.04}
    trained = of_lengths(0.05, 0.01, each=1)
    assert floors_of([trained], [ready]) == dict(zip(trained.kinds, (0.04, approx(0.008)), strict=True))


def test_utilisation_and_verdict_count_each_step_by_the_floor_of_its_shape() -> None:
    floors = floors_of([of_lengths(*LENGTHS_S)], [])
    model_bound = side(of_lengths(*LENGTHS_S), floors=floors)
    assert utilisation([model_bound]) == approx(1.0)
    assert model_bound.floor_s == approx(0.1)
    assert verdict(model_bound).because == (
        "0.00 s of 10.0 s were spent waiting for data; the pipeline alone delivers 10,000 examples/s, "
        "the model consumes 100 examples/s"
    )
    input_bound = side(of_lengths(*LENGTHS_S, wait_s=0.1), of=costs(map=80.0), floors=floors)
    assert utilisation([input_bound]) == approx(0.5)
    found = verdict(input_bound)
    assert (found.kind, found.max_gain) == ("input", approx(2.0))


def test_the_utilisation_of_a_run_is_that_of_its_epochs_by_their_time() -> None:
    epochs = of_lengths(0.01, 0.09), of_lengths(0.05, wait_s=0.05)
    of_run = side(*epochs, floors=floors_of(epochs, []))
    total_s = sum(loop.measured_s for loop in epochs)
    shares = [
        loop.measured_s / total_s * (utilisation([of_run.of_epochs(n, n + 1)]) or 0.0) for n, loop in enumerate(epochs)
    ]
    assert utilisation([of_run]) == approx(sum(shares))


def fetching(of: Loop, waited_s: float, first_s: float = 0.0) -> Loop:
    """A loop whose reader waited so long for shards, in the end and before the first batch; they came at 40 MB/s."""
    traffic = Traffic(bytes=200_000_000, requests=8, busy_s=5.0, waited_s=waited_s)
    return dataclasses.replace(of, traffic=traffic, first_fetch_s=first_s)


def test_shards_that_arrive_too_slowly_limit_a_run_whatever_other_stages_take() -> None:
    slow = side(fetching(loop(0.1), 6.0), of=costs(map=80.0), example_bytes=1_000_000.0)
    assert verdict(slow) == Verdict(
        kind="input",
        stage="extract.fetch",
        pipeline="train",
        max_gain=approx(2.0),
        train_max_gain=approx(2.0),
        because="10.0 s of 20.0 s were spent waiting for data; shards arrive at 40.0 MB/s, and the model consumes "
        "100.0 MB/s",
        arriving_bytes_per_s=40e6,
        consumed_bytes_per_s=approx(100e6),
    )
    assert verdict(dataclasses.replace(slow, loops=(dataclasses.replace(slow.loops[0], costs=None),))) == verdict(slow)
    assert judge_alone(slow, 50.0).because == (
        "the pipeline alone delivers 50 examples/s, limited by extract.fetch: shards arrive at 40.0 MB/s"
    )


def test_one_long_wait_for_a_shard_is_no_accident() -> None:
    long = fetching(loop(waits_s=[5.0] + [0.0] * 99), 6.0)
    assert verdict(side(long, example_bytes=1_000_000.0)).stage == "extract.fetch"


def test_shards_that_are_there_in_time_do_not_limit_a_run() -> None:
    """The reader of shards has waited for the first one, and hardly since."""
    in_time = side(fetching(loop(0.1), 1.5, 1.0), of=costs(map=80.0), example_bytes=1_000_000.0)
    assert verdict(in_time).stage == "transform.map"
    assert judge_alone(in_time, 50.0).because == "the pipeline alone delivers 50 examples/s, limited by transform.map"


def test_the_first_shards_of_passes_are_named_where_those_behind_come_in_time() -> None:
    found = verdict(side(fetching(loop(fill_s=5.0), 4.0, 4.0), of=costs(map=20.0), example_bytes=100_000.0))
    assert (found.stage, found.arriving_bytes_per_s) == ("extract.fetch", None)
    assert found.because == (
        "5.00 s of 15.0 s were spent waiting for data; each pass first waits for shards, 4.00 s in all"
    )
    assert verdict(side(fetching(loop(fill_s=5.0), 2.0, 2.0), of=costs(map=20.0))).stage == "load.shuffle"


_WAITS, _STEPS = st.floats(0.0, 0.3), st.floats(0.001, 0.3)


@st.composite
def _loops(draw: st.DrawFn) -> Loop:
    steps = draw(st.integers(1, 30))
    waits, taken = ([draw(of) for _ in range(steps)] for of in (_WAITS, _STEPS))
    starts = [draw(st.booleans()) for _ in range(steps)]
    fill_s, start_s, tail_s, idle_s = (draw(st.floats(0.0, 5.0)) for _ in range(4))
    wall_s = sum(waits) + sum(taken) + fill_s + start_s + tail_s + idle_s
    return Loop(waits, taken, [BATCH] * steps, starts, fill_s, start_s, tail_s, 0.0, wall_s, kinds=[KIND] * steps)


_RUNS = st.lists(_loops(), min_size=1, max_size=4)


@given(_RUNS, st.none() | _RUNS, st.floats(0.001, 0.3), st.floats(0.0, 0.05))
@settings(max_examples=150)
def test_each_gain_follows_from_the_seconds_beside_it(
    train: list[Loop], validation: list[Loop] | None, floor_s: float, handover_s: float
) -> None:
    values: dict[str, Any] = {"of": costs(map=80.0), "floors": {KIND: floor_s}, "handover_s": handover_s}
    sides = [side(*train, **values), *([side(*validation, name="validation", **values)] if validation else [])]
    summary = Summary(status="completed", overrides=[], verdict=verdict(*sides))
    told = dict(lines(summary, Path("run")))
    pairs = []
    if found := re.search(r": training at most ([\d.]+)x faster", told["verdict"]):
        waited = re.match(r"([\d.]+) s of ([\d.]+) s were spent waiting for data", told["because"])
        assert waited is not None
        pairs.append((found[1], waited[1], waited[2]))
    apart = re.findall(r"(?:took|waited) ([\d.]+) of ([\d.]+) s[a-z_. ]*: ([\d.]+)x without", told.get("apart", ""))
    assert len(apart) == len(summary.verdict.apart if summary.verdict else ())
    pairs += [(gain, lost, total) for lost, total, gain in apart]
    for gain, waited_s, total_s in pairs:
        total, waiting = float(total_s) - _half(total_s), float(waited_s) + _half(waited_s)
        assert float(gain) >= 1.0
        assert waiting >= total or float(gain) - _half(gain) <= total / (total - waiting) + 1e-9


def _half(text: str) -> float:
    """Half of the last digit of a number."""
    return float(0.5 * 10.0 ** -len(text.partition(".")[2]))
