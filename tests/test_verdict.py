"""Each gain that a report prints follows from the seconds that it prints beside it, and advice on it can be pasted."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etlrun.measure.assessment import cached_bytes, fewer_calls, with_calls
from etlrun.measure.meter import Loop, StepKind, StepTimes
from etlrun.measure.verdict import Fewer, advice, floors_of, judge_alone, told, utilisation
from etlrun.record.report import lines
from etlrun.record.summary import StageCost, Summary, Verdict
from etlrun.remote.copies import Traffic
from tests.configs import plan_of
from tests.golden import Case, Golden, Says, cases
from tests.judged import BATCH, CORES, KIND, PATHS, approx, costs, loop, side, verdict
from tests.pipelines import as_bytes, training_pipeline
from tests.present import present
from tests.runs import small
from tests.tables import words_of


@pytest.mark.parametrize("case", cases("advice"))
def test_advice_can_be_pasted(case: Case, golden: Golden) -> None:
    overrides, stage = case["overrides"], case["stage"]
    base = ["cache=none", *overrides] if not any(word.startswith("cache") for word in overrides) else overrides
    serial = stage in {"transform.map", "load.mix"}
    rows = [StageCost(stage="transform.map", examples=1, cost_ms=1, parallelism=1 if serial else 4)]
    conditions = {"cores": 4, "shards": 8, "cached_bytes": 10**6, "epochs": 4}
    text = advice(stage, plan_of(*base), rows, conditions) or ""
    head, _, _ = text.removeprefix("Try ").partition(":")
    golden(case, head)
    pasted = head.split()
    keys = {word.split("=")[0] for word in pasted}
    plan_of(*(word for word in base if word.split("=")[0] not in keys), *pasted)


@pytest.mark.parametrize(
    ("ratio", "stage", "text"),
    [
        (
            2.5,
            "transform.decode",
            (
                "Try transform.num_parallel_calls=4: the pipeline alone is then 2.5 times as fast as with 16 "
                "calls, which wait for each other."
            ),
        ),
        (
            1.0,
            "transform.decode",
            "Try cache=memory: later epochs then read 1 MB from it. transform.num_parallel_calls=4 is as fast as 16.",
        ),
        (
            1.0,
            "transform.map",  # which would be advised more calls
            "Try cache=memory: later epochs then read 1 MB from it. transform.num_parallel_calls=4 is as fast as 16.",
        ),
    ],
)
def test_fewer_calls_are_advised_where_they_are_as_fast(ratio: float, stage: str, text: str) -> None:
    rows = [StageCost(stage="transform.map", examples=1, cost_ms=1, parallelism=16)]
    fewer = Fewer(key="transform.num_parallel_calls", calls=4, than=16, ratio=ratio)
    conditions = {"cores": 32, "shards": 8, "cached_bytes": 10**6, "epochs": 4, "fewer": fewer}
    assert advice(stage, plan_of("cache=none"), rows, conditions) == text


@pytest.mark.parametrize(
    ("rates", "found", "tried"),
    [
        ({16: 100.0, 4: 26.0}, None, [16, 4]),  # more calls help
        ({16: 100.0, 4: 99.0, 1: 30.0}, (4, 0.99), [16, 4, 4, 16, 1]),
        ({16: 100.0, 4: 100.0, 1: 100.0}, (1, 1.0), [16, 4, 4, 16, 1, 1, 16]),
        ({16: 100.0, 4: 300.0, 1: 200.0}, (4, 3.0), [16, 4, 4, 16, 1, 1, 16, 1, 16]),  # fewer still are slower
        ({2: 100.0, 1: 55.0}, None, [2, 1]),
        ({3: 100.0, 1: 75.0}, None, [3, 1, 1, 3, 1, 3]),
    ],
)
def test_fewer_calls_are_measured_in_turns(
    rates: dict[int, float], found: tuple[int, float] | None, tried: list[int]
) -> None:
    asked = list[int]()

    def rate(calls: int) -> float:
        asked.append(calls)
        return rates[calls]

    assert fewer_calls(max(rates), rate) == found
    assert asked == tried


def test_no_fewer_calls_are_tried_than_asked_for() -> None:
    assert fewer_calls(16, lambda _: 1.0, least=2) == (2, 1.0)


def test_fewer_calls_are_those_of_the_key_alone() -> None:
    stages = plan_of("cache=none", "transform.num_parallel_calls=8", "extract.num_parallel_calls=4").train
    found = with_calls(stages, "transform.num_parallel_calls", 2)
    values = {of.stage.path: getattr(of.stage, "num_parallel_calls", None) for of in found}
    assert (values["transform.turbo"], values["extract.interleave"]) == (2, 4)
    assert with_calls(stages, "transform.num_parallel_calls", 8) == [*stages]


def test_phases_behind_those_of_cached_features_are_advised_no_cache_which_is_set() -> None:
    unfrozen = present(plan_of("model=mobilenet_v2", "trainer=fine_tune", "cache=memory", "cache.at=features").unfrozen)
    conditions = {"cores": 1, "shards": 1, "cached_bytes": 10**6, "epochs": 4}
    text = advice("transform.decode", unfrozen, [], conditions)
    assert text == "No override helps: transform.decode needs less work, faster storage, or more cores."


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("Try trainer.steps_per_epoch=63: why", " (changes the training)"),
        ("Try load.shuffle_buffer=128: why", " (changes the training)"),
        ("Try extract=interleave extract.cycle_length=8: why", " (changes the order)"),
        ("Try load.prefetch=autotune: why", ""),
        ("Try cache=disk cache.at=resize: why", ""),
    ],
)
def test_advice_says_what_it_changes_beside_the_speed(text: str, changes: str) -> None:
    spec = plan_of("model.trainable=true").spec
    assert told(f"{text}. More is as fast.", spec) == f"{text}{changes}. More is as fast."


def test_another_order_is_as_another_seed_to_a_model_without_batch_norms() -> None:
    text = "Try load.shuffle_buffer=128: why."
    assert told(text, plan_of("model.trainable=false").spec) == f"{text[:-1]} (changes the order)."


def test_the_steps_of_each_epoch_are_walked_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    walked, warm = list[Loop](), Loop.warm.fget  # type: ignore[attr-defined]

    def counted(loop: Loop) -> Any:
        walked.append(loop)
        return warm(loop)

    monkeypatch.setattr(Loop, "warm", property(counted))
    assert verdict(side(*[loop(0.2)] * 40, of=costs(decode=80.0, map=80.0))).kind == "input"
    assert len(walked) <= 5 * 40


@pytest.mark.parametrize(
    ("words", "example_bytes"),
    [
        (["cache=disk", "cache.at=decoded"], 40 * 48 * 3 + 8),
        (["cache=memory", "cache.at=decoded"], 40 * 48 * 3 + 8),
        (["cache=disk", "cache.at=resize"], 32 * 32 * 3 + 8),
        (["cache=none"], 32 * 32 * 3 + 8 + 64),  # of which the index has at most 64
    ],
)
def test_the_size_of_a_cache_is_that_of_what_it_holds(
    words: list[str], example_bytes: int, tiny: Path, tmp_path: Path
) -> None:
    plan = plan_of(*small(tiny, *words, f"cache.dir={tmp_path}"))
    with training_pipeline(plan) as pipeline:
        as_bytes(pipeline.dataset)
        assert cached_bytes(pipeline) == 38 * example_bytes


def test_rows_that_are_kept_need_no_cache(table: Path) -> None:
    conditions = {"cores": 4, "shards": 1, "cached_bytes": 10**6, "epochs": 4}
    found = advice("extract.sequential", plan_of(*words_of(table)), [], conditions)
    assert found == "No override helps: extract.sequential needs less work, faster storage, or more cores."


_PROCESSES = (
    "Try transform.decode.processes=cores, which gives the same pixels without Python's lock: 1.4 of 16 cores are busy."
)
_LIBRARY = "Try transform.decode.library=tensorflow, which changes pixels by up to 1 of 255: 1.4 of 16 cores are busy."
_NOTHING = "No override helps: transform.turbo needs less work, faster storage, or more cores."


@pytest.mark.parametrize(
    ("overrides", "used", "idle", "advised"),
    [
        ([], 1.4, 14.2, _PROCESSES),
        (["transform.decode.processes=8"], 1.4, 14.2, _LIBRARY),
        ([], 1.4, 0.3, _NOTHING),  # others use them
        ([], 12.0, 3.0, _NOTHING),
        (["transform.decode.library=tensorflow"], 1.4, 14.2, _NOTHING),
    ],
)
def test_native_decoding_that_keeps_few_cores_busy_is_advised_against(
    overrides: list[str], used: float, idle: float, advised: str
) -> None:
    conditions = {"cores": 16, "cores_used": used, "cores_idle": idle, "shards": 8, "cached_bytes": 10**6, "epochs": 1}
    rows = [StageCost(stage="transform.turbo", examples=1, cost_ms=1, parallelism=16)]
    assert advice("transform.turbo", plan_of("cache=none", *overrides), rows, conditions) == advised


def test_a_service_that_limits_a_run_wants_more_machines(says: Says) -> None:
    overrides = ("load=service", "load.service.address=localhost:5050", "load.service.trusted_network=true")
    conditions = {"cores": 4, "shards": 8, "cached_bytes": 10**6, "epochs": 4}
    says(str(advice("transform.map", plan_of("cache=none", *overrides), [], conditions)))


@pytest.mark.parametrize(
    ("overrides", "stage", "changes"),
    [
        (["cache=memory"], "transform.decode", {}),
        (["cache=memory"], "load.prefetch", {}),
        (["cache=none"], "transform.decode", {"epochs": 1}),
        (["cache=none", "load.shuffle_buffer=16"], "load.shuffle", {"epochs": 1}),
        (["cache=memory", "extract=sequential"], "extract.sequential", {"shards": 1}),
    ],
)
def test_advice_says_where_no_override_helps(overrides: list[str], stage: str, changes: dict[str, int]) -> None:
    conditions = {"cores": 1, "shards": 8, "cached_bytes": 10**6, "epochs": 4} | changes
    assert advice(stage, plan_of(*overrides), [], conditions) == (
        f"No override helps: {stage} needs less work, faster storage, or more cores."
    )


@pytest.mark.parametrize("case", cases("advice_on_stores"))
def test_advice_on_a_store_is_what_helps_by_the_evidence(case: Case, golden: Golden) -> None:
    overrides = case["overrides"]
    base = ["dataset=tfds", "dataset.name=x", "dataset.data_dir=s3://bucket/data", "dataset.copies=/", "cache=none"]
    cache = [word for word in base if not any(other.startswith("cache") for other in overrides) or word != "cache=none"]
    conditions = {"cores": 1, "shards": 64, "cached_bytes": 10**6, "fetched_bytes": 9 * 10**6, "epochs": 4}
    golden(case, advice("extract.fetch", plan_of(*cache, *overrides), [], conditions | case["changes"]) or "")


SLOW_MAP, FAST_MAP = costs(map=80.0), costs(map=20.0)
SEVEN = loop(waits_s=[0.0] * 7)
STARTED = dataclasses.replace(loop(0.1), wall_s=50.0, start_s=30.0)
UNSHUFFLED = tuple(path for path in PATHS if path != "load.shuffle")
HELD_UP = side(dataclasses.replace(loop(), digest_s=1.0, wall_s=11.0))


def fetching(of: Loop, waited_s: float, first_s: float = 0.0) -> Loop:
    """A loop whose reader waited so long for shards, in the end and before the first batch; they came at 40 MB/s."""
    traffic = Traffic(bytes=200_000_000, requests=8, busy_s=5.0, waited_s=waited_s)
    return dataclasses.replace(of, traffic=traffic, first_fetch_s=first_s)


LATE = side(fetching(loop(0.1), 6.0), of=SLOW_MAP, example_bytes=1_000_000.0)
IN_TIME = side(fetching(loop(0.1), 1.5, 1.0), of=SLOW_MAP, example_bytes=1_000_000.0)
"""The reader of shards has waited for the first one, and hardly since."""

VERDICTS: dict[str, Verdict] = {
    "a run that never waits is bound by its model": verdict(side(loop())),
    "the slowest thread names the stage": verdict(side(loop(0.1), of=costs(sequential=15.0, map=20.0))),
    "a prefetch that takes the longest is none that is missing": verdict(
        side(loop(0.1), of=costs(map=20.0, prefetch=15.0))
    ),
    "a step of a transform that uses all cores is named": verdict(
        side(loop(0.1), of=SLOW_MAP), steps={"transform.decode": 60.0, "transform.resize": 20.0}
    ),
    "filling the shuffle buffer is named where the pipeline would keep up": verdict(
        side(loop(fill_s=5.0), of=FAST_MAP)
    ),
    "a stage that would not keep up is named instead of the shuffle buffer": verdict(
        side(loop(fill_s=5.0), of=SLOW_MAP)
    ),
    **{
        f"passes that take long to begin are named and no stage that would keep up, {name}": verdict(
            side(loop(0.001, fill_s=20.0), costs=(of,), paths=UNSHUFFLED)
        )
        for name, of in {"a map": FAST_MAP, "a prefetch": costs(prefetch=80.0), "without costs": None}.items()
    },
    "a cold first epoch is told apart": verdict(side(loop(0.1), loop(), loop(), of=SLOW_MAP)),
    "a first epoch that is the only one with enough steps is judged": verdict(side(loop(0.1), SEVEN, of=SLOW_MAP)),
    "the stage for which all epochs together waited most is named": verdict(
        side(loop(0.05), loop(0.03), loop(0.03), costs=(SLOW_MAP, costs(sequential=20.0), costs(sequential=20.0)))
    ),
    "a validation that waits is told apart": verdict(
        side(loop()), side(loop(0.1), of=costs(sequential=20.0), name="validation")
    ),
    "the gain of the training steps is told without the validation": verdict(
        side(loop(0.1), of=SLOW_MAP), side(*[loop()] * 8, name="validation")
    ),
    "no gain is told of too few training steps with a validation": verdict(
        side(SEVEN), side(loop(), name="validation")
    ),
    "the gain is that of later epochs and the start-up is told apart": verdict(
        side(STARTED, loop(0.05), loop(0.05), of=SLOW_MAP)
    ),
    "the gain of a single epoch is that without its start-up": verdict(side(STARTED, of=SLOW_MAP)),
    "the handing over of a batch that is there is no fault of the pipeline": verdict(side(loop(0.02), handover_s=0.02)),
    "what is waited beyond the handing over is": verdict(side(loop(0.1), of=SLOW_MAP, handover_s=0.02)),
    "steps that wait for digests hide what the pipeline would do": verdict(HELD_UP),
    "steps that wait little for digests do not": verdict(side(dataclasses.replace(loop(), digest_s=0.4, wall_s=10.4))),
    "one long stall is no evidence": verdict(side(loop(waits_s=[5.0] + [0.0] * 99))),
    "a single step is no evidence": verdict(side(loop(waits_s=[1.0], step_s=1.0))),
    "seven steps are no evidence": verdict(side(loop(waits_s=[1.0] * 7, step_s=1.0))),
    "waits that vary are no evidence": verdict(side(loop(waits_s=[0.0] * 90 + [0.12] * 10))),
    "steps that take longer than on batches that are ready are no evidence": verdict(side(loop(step_s=0.13))),
    "passes too short to profile are no evidence": verdict(side(loop(0.1), costs=(None,))),
    "shards that arrive too slowly limit a run whatever other stages take": verdict(LATE),
    "shards that arrive too slowly limit a run without costs": verdict(
        dataclasses.replace(LATE, loops=(dataclasses.replace(LATE.loops[0], costs=None),))
    ),
    "shards limit a pipeline alone": judge_alone(LATE, 50.0),
    "one long wait for a shard is no accident": verdict(
        side(fetching(loop(waits_s=[5.0] + [0.0] * 99), 6.0), example_bytes=1_000_000.0)
    ),
    "shards that are there in time do not limit a run": verdict(IN_TIME),
    "shards that are there in time do not limit a pipeline alone": judge_alone(IN_TIME, 50.0),
    "the first shards of passes are named where those behind come in time": verdict(
        side(fetching(loop(fill_s=5.0), 4.0, 4.0), of=FAST_MAP, example_bytes=100_000.0)
    ),
    "the shuffle buffer is named where it takes longer than the first shards": verdict(
        side(fetching(loop(fill_s=5.0), 2.0, 2.0), of=FAST_MAP)
    ),
}


@pytest.mark.parametrize("case", cases("verdicts"))
def test_a_verdict_is_the_one_of_its_table(case: Case, golden: Golden) -> None:
    """With all its values, numbers to six digits."""
    found = VERDICTS[case["why"]]
    texts = [f"{of.name}: {of.lost_s:.6g} of {of.total_s:.6g} s, {of.max_gain:.6g}x, {of.stage}" for of in found.apart]
    for field in dataclasses.fields(found):
        value = getattr(found, field.name)
        if value not in (None, ()) and field.name != "apart":
            texts.append(f"{field.name}: {value:.6g}" if isinstance(value, float) else f"{field.name}: {value}")
    golden(case, "\n".join(texts))


def test_all_verdicts_are_in_the_table() -> None:
    assert [parameters.values[0]["why"] for parameters in cases("verdicts")] == [*VERDICTS]
    assert judge_alone(HELD_UP, 1.0) == verdict(HELD_UP)


@pytest.mark.parametrize(
    ("wait_s", "ceiling_per_s", "kind"),
    [(0.004, 10_000.0, "model"), (0.006, 10_000.0, "balanced"), (0.0, 124.0, "balanced"), (0.0, 126.0, "model")],
)
def test_little_waiting_or_little_in_reserve_is_balanced(wait_s: float, ceiling_per_s: float, kind: str) -> None:
    assert verdict(side(loop(wait_s)), ceiling_per_s=ceiling_per_s).kind == kind


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


@pytest.mark.smoke
@pytest.mark.parametrize(("map_ms", "stage"), [(36.0, "load.prefetch"), (44.0, "transform.map")])
def test_without_a_prefetch_a_pipeline_that_would_keep_up_lacks_one(map_ms: float, stage: str) -> None:
    paths = PATHS[:-1]
    found = verdict(side(loop(0.09), of=costs(paths, map=map_ms), paths=paths))
    assert found.stage == stage


def test_a_validation_without_a_warm_step_does_not_hide_the_training() -> None:
    single = Loop([StepTimes(0.0, 0.1, KIND, starts_up=True)], wall_s=0.1)
    sides = (side(loop(0.1), of=SLOW_MAP), side(single, name="validation", floors={}))
    assert utilisation(sides) == pytest.approx(0.5)
    assert verdict(*sides).kind == "input"


def test_utilisation_is_step_time_over_total() -> None:
    assert utilisation([side(loop(0.1))]) == pytest.approx(0.5)
    assert utilisation([side(loop(0.1), floors={})]) is None
    assert utilisation([side(Loop(start_s=3.0, wall_s=3.1))]) is None


def of_lengths(*lengths_s: float, slower: float = 1.0, wait_s: float = 0.0, each: int = 20) -> Loop:
    """Steps of several lengths in turns, each on batches of another shape, and `slower` than on ready batches."""
    steps = [(StepKind(0, ((BATCH, number),)), length_s) for number, length_s in enumerate(lengths_s)] * each
    return Loop(
        steps=[StepTimes(wait_s, slower * step_s, kind) for kind, step_s in steps],
        wall_s=sum(wait_s + slower * step_s for _, step_s in steps),
    )


LENGTHS_S = (0.01, 0.02, 0.05, 0.1, 0.32)


@pytest.mark.parametrize("timed", [LENGTHS_S, LENGTHS_S[:2], ()])
@pytest.mark.parametrize("slower", [1.0, 1.5])
def test_the_floor_of_each_step_is_that_of_its_shape(timed: tuple[float, ...], slower: float) -> None:
    trained = of_lengths(*LENGTHS_S, slower=slower)
    floors = floors_of([trained], [of_lengths(*timed)] if timed else [])
    expected = LENGTHS_S if timed else [slower * length_s for length_s in LENGTHS_S]
    assert [floors[step.kind] for step in trained.steps[: len(LENGTHS_S)]] == pytest.approx(expected)


def test_kinds_of_steps_that_were_timed_alone_or_seldom_have_their_floors() -> None:
    ready = of_lengths(0.04, each=3)
    assert floors_of([], [ready]) == {ready.steps[0].kind: 0.04}
    trained = of_lengths(0.05, 0.01, each=1)
    assert [floors_of([trained], [ready])[step.kind] for step in trained.steps] == [0.04, approx(0.008)]


def test_utilisation_and_verdict_count_each_step_by_the_floor_of_its_shape(says: Says) -> None:
    floors = floors_of([of_lengths(*LENGTHS_S)], [])
    model_bound = side(of_lengths(*LENGTHS_S), floors=floors)
    assert utilisation([model_bound]) == approx(1.0)
    assert model_bound.floor_ms == approx(100.0)
    says(verdict(model_bound).because)
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


@st.composite
def _loops(draw: st.DrawFn) -> Loop:
    times = st.tuples(st.floats(0.0, 0.3), st.floats(0.001, 0.3), st.just(KIND), st.booleans())
    steps = [StepTimes(*of) for of in draw(st.lists(times, min_size=1, max_size=12))]
    fill_s, start_s, tail_s, idle_s = (draw(st.floats(0.0, 5.0)) for _ in range(4))
    wall_s = sum(of.wait_s + of.step_s for of in steps) + fill_s + start_s + tail_s + idle_s
    return Loop(steps, fill_s, start_s, tail_s, 0.0, wall_s)


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
        waited = present(re.match(r"([\d.]+) s of ([\d.]+) s were spent waiting for data", told["because"]))
        pairs.append((found[1], waited[1], waited[2]))
    apart = re.findall(r"[\d.,]+ of [\d.,]+ s", told.get("apart", ""))
    assert len(apart) == sum(of.max_gain >= 1.05 for of in (summary.verdict.apart if summary.verdict else ()))
    for gain, waited_s, total_s in pairs:
        total, waiting = float(total_s) - _half(total_s), float(waited_s) + _half(waited_s)
        assert float(gain) >= 1.0
        assert waiting >= total or float(gain) - _half(gain) <= total / (total - waiting) + 1e-9


def _half(text: str) -> float:
    """Half of the last digit of a number."""
    return float(0.5 * 10.0 ** -len(text.partition(".")[2]))
