from typing import Any

import pytest

from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.record.summary import Caches, Epoch, Summary
from etlrun.stages import STAGES
from etlrun.sweep.tune.predict import Costs, Predictor
from etlrun.sweep.tune.space import Candidate, Space, autotuned, words
from etlrun.sweep.tune.windows import Scene


def space_of(*overrides: str) -> Space:
    tune, job = grid.tuned(Request(overrides=list(overrides)), STAGES)
    return Space(job, tune, cores=2)


def test_a_space_of_speed_holds_one_fingerprint() -> None:
    space = space_of("cache=none", "load.shuffle_at=before_batch")
    assert space.options == {
        "transform.num_parallel_calls": [1, 2, 4, 8],
        "extract.num_parallel_calls": [1, 2, 8],
        "load.prefetch": [2],
        "load.num_parallel_calls": [None],
        "load.shuffle_at": ["auto"],
    }
    assert [words(cache) for cache in space.caches] == [
        "as it is",
        "cache.name=memory cache.at=transformed",
        "cache.name=memory cache.at=source",
        "cache.name=disk cache.at=transformed",
        "cache.name=disk cache.at=source",
    ]
    assert len(space) == len([*space]) == 5 * 5 * 4 * 2 * 2 * 2
    found = [space.candidate(changes) for changes in [*space][::17]]
    plans = {candidate.plan.fingerprint for candidate in found if isinstance(candidate, Candidate)}
    assert plans == {space.baseline.plan.fingerprint}


def test_order_and_data_are_changed_where_that_is_allowed() -> None:
    space = space_of("tune.allow=[speed,order,data]", "cache=none")
    assert space.options["extract.cycle_length"] == [1, 16, "all"]
    assert space.options["transform.decode.fast"] == [True]
    plain = space_of("tune.allow=[speed,data]", "transform.decode.library=tensorflow")
    assert plain.options["transform.decode.library"] == ["turbo"]
    assert {"cache.name": "disk", "cache.at": "transformed", "cache.codec": "jpeg95"} in space.caches
    assert "extract.cycle_length" not in space_of("tune.allow=[speed,data]").options


def test_a_cache_is_put_before_the_first_random_step() -> None:
    steps = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"
    points = {cache.get("cache.at") for cache in space_of("cache=none", steps).caches[1:]}
    assert points == {"resize", "source"}


def test_the_same_changes_are_the_same_candidate() -> None:
    space = space_of("cache=none")
    one = space.candidate({"load.prefetch": 2, "cache.name": "memory"})
    assert one is space.candidate(
        {"cache.name": "memory", "load.prefetch": 2, "transform.num_parallel_calls": "autotune"}
    )
    assert space.candidate({"load.prefetch": "autotune"}) is space.baseline
    assert isinstance(one, Candidate)
    assert (one.number, one.words) == (1, "load.prefetch=2 cache.name=memory")


def test_values_that_do_not_fit_together_are_told() -> None:
    space = space_of("cache=none", "extract.cycle_length=1", "extract.num_parallel_calls=1")
    assert space.candidate({"extract.num_parallel_calls": 2}) == (
        "extract.num_parallel_calls: found 2; expected at most cycle_length, which is 1"
    )


def test_what_autotune_sets_is_left_to_it() -> None:
    space = space_of("extract.num_parallel_calls=1", "load.prefetch=0")
    assert autotuned(space) == dict.fromkeys(
        ["extract.num_parallel_calls", "load.num_parallel_calls", "load.prefetch", "transform.num_parallel_calls"],
        "autotune",
    )


SCENE = Scene(split="train", examples=1000, passes=2, epochs=4, batch_size=10, buffer=10, step_ms=5.0, step_cores=0.0)
COSTS = Costs(read_ms=0.4, map_ms=2.0, rest_ms=0.1, fastest_ms=0.9, cached_ms=0.05, cached_bytes=1e6, source_bytes=1e5)


def predicted(scene: Scene, changes: dict[str, Any], *overrides: str) -> float:
    space = space_of("cache=none", "load.prefetch=2", "transform.num_parallel_calls=1", *overrides)
    return Predictor(scene, COSTS, space.baseline.config, cores=2).seconds(changes)[1]


def test_predictions_know_threads_caches_and_steps() -> None:
    assert predicted(SCENE, {}) == pytest.approx(4 * 2.0)  # one thread of the map
    assert predicted(SCENE, {"transform.num_parallel_calls": 8}) == pytest.approx(4 * 0.9)  # all threads together
    cached = {"cache.name": "memory", "cache.at": "transformed"}
    assert predicted(SCENE, cached) == pytest.approx(2.0 + 3 * 0.5)  # the step, once the cache is filled
    assert predicted(SCENE, {**cached, "cache.at": "source"}) > predicted(SCENE, cached)
    serial = {"transform.num_parallel_calls": None}
    assert predicted(SCENE, serial) == pytest.approx(4 * 2.1)
    assert predicted(SCENE, {**serial, "load.prefetch": 0}) == pytest.approx(4 * (2.1 + 0.5))
    assert predicted(SCENE, {"load.prefetch": 0}) == pytest.approx(4 * 2.0)  # the map itself works ahead


def test_a_step_that_computes_shares_the_cores() -> None:
    busy = Scene(**{**vars(SCENE), "step_cores": 2.0})
    threads = {"transform.num_parallel_calls": 8}
    assert predicted(busy, threads) == pytest.approx(4 * (0.9 + 0.5))


def test_a_cache_that_does_not_fit_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from etlrun.system import machine

    monkeypatch.setattr(machine, "free_memory_bytes", lambda: 10_000_000)
    space = space_of("cache=memory")
    predictor = Predictor(SCENE, COSTS, space.baseline.config, cores=2)
    scene_bytes = predictor.cache_bytes(space.baseline.plan)
    assert scene_bytes is not None
    assert predictor.unfit({}, space.baseline.plan, 0) == (
        f"its cache takes {scene_bytes / 1e6:.0f} MB, with 10 MB free in memory"
    )
    disk = space.candidate({"cache.name": "disk"})
    assert isinstance(disk, Candidate)
    assert predictor.unfit(disk.changes, disk.plan, 10**9) == ""
    assert predictor.unfit(disk.changes, disk.plan, 10**6) == (
        f"its cache takes {scene_bytes / 1e6:.0f} MB, with 1 MB free on the disk"
    )


def test_the_time_of_a_window_is_scaled_to_the_whole_run() -> None:
    scene = Scene(**{**vars(SCENE), "buffer": 400})
    first = Epoch(wall_s=3.0, fill_wait_s=1.0, startup_s=0.005, startup_examples=10, examples=200, steps=20)
    later = Epoch(wall_s=1.0, fill_wait_s=0.2, examples=200, steps=20)
    window = Summary(status="completed", overrides=[], epochs=[first, later])
    # The buffer holds 400 examples of 1,000, and 200 of 200; all other time grows with the examples.
    assert scene.seconds(window) == pytest.approx((1.0 * 2 + 2.0 * 5) + 3 * (0.2 * 2 + 0.8 * 5))
    assert scene.seconds(window.model_copy(update={"status": "failed"})) is None
    assert scene.ideal_s == pytest.approx(4 * 100 * 0.005)


def test_the_headspace_is_the_gain_of_training_whatever_the_start_up_takes() -> None:
    scene = Scene(**{**vars(SCENE), "examples": 200, "epochs": 1})
    first = Epoch(wall_s=0.12, fill_wait_s=0.01, startup_s=0.005, startup_examples=10, examples=200, steps=20)
    started = first.model_copy(update={"wall_s": first.wall_s + 3, "startup_s": first.startup_s + 3})
    for epoch in (first, started):
        window = Summary(status="completed", overrides=[], epochs=[epoch])
        assert scene.headspace(window) == pytest.approx(0.12 / 0.1)
        assert Scene(**{**vars(scene), "step_ms": 0.0}).headspace(window) is None
    assert scene.seconds(window) == pytest.approx(3.12)


@pytest.mark.parametrize("read", [500, 1500])
def test_a_window_whose_examples_fit_into_the_buffer_tells_the_pace_of_filling_it(read: int) -> None:
    scene = Scene(**{**vars(SCENE), "examples": 10_000, "epochs": 1, "buffer": 1000})
    fill_s, held = 0.004 * min(read, 1000), min(read, 1000)  # 4 ms an example; the step takes 1 ms
    rest_s = 0.004 * (read - held) + 0.001 * held
    one = Epoch(wall_s=fill_s + rest_s, fill_wait_s=fill_s, examples=read, steps=read // 10)
    window = Summary(status="completed", overrides=[], epochs=[one])
    assert scene.seconds(window) == pytest.approx(0.004 * 10_000 + 0.001 * 1000, rel=0.05)


def test_a_cache_that_is_filled_before_the_first_batch_is_filled_as_a_whole() -> None:
    scene = Scene(**{**vars(SCENE), "examples": 2000, "epochs": 3, "is_by_number": True})
    first = Epoch(wall_s=1.2, fill_wait_s=1.0, examples=200, steps=20)
    later = Epoch(wall_s=0.2, fill_wait_s=0.0, examples=200, steps=20)
    held = Caches(target="cache.disk", at="transformed")
    window = Summary(status="completed", overrides=[], epochs=[first, later], cache=held)
    assert scene.seconds(window) == pytest.approx(12 + 2 * 2)


def test_a_cache_is_put_where_the_validation_has_a_point_too() -> None:
    space = space_of("experiment=cifar10")  # pads the training images alone
    points = {cache["cache.at"] for cache in space.caches[1:]}
    assert points == {"resize", "source"}
    assert isinstance(space.candidate({"cache.name": "disk"}), Candidate)
