"""A race of configs on a machine of known times, what is expected of a config, and the space that is searched."""

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.record.summary import Caches, Epoch, Summary
from etlrun.stages import STAGES
from etlrun.sweep.tune import search as race
from etlrun.sweep.tune.predict import Costs, Predictor, Surrogate
from etlrun.sweep.tune.search import KEEP, Search
from etlrun.sweep.tune.space import Candidate, Changes, Scene, SearchSpace, Windows, autotuned, words
from tests.golden import Says
from tests.present import present

ALL = {"transform.num_parallel_calls": 4}, {"load.prefetch": 2}, {"cache.name": "none"}, {"cache.name": "disk"}


@pytest.fixture(scope="module")
def space() -> SearchSpace:
    return space_of()


def candidates(space: SearchSpace) -> list[Candidate]:
    found = [space.candidate(changes) for changes in ALL]
    assert all(isinstance(candidate, Candidate) for candidate in found)
    return [candidate for candidate in found if isinstance(candidate, Candidate)]


def dice(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - no secret


def machine(times_s: dict[int, float | None], noise: float, drift: float = 0.0, seed: int = 0) -> race.Measure:
    """Measures configs of known times on a machine with noise, which becomes slower with each window."""
    draws, windows = dice(seed), [0]

    def measure(candidate: Candidate) -> float | None:
        windows[0] += 1
        time_s = times_s[candidate.number]
        return None if time_s is None else time_s * math.exp(draws.gauss(0, noise) + drift * windows[0])

    return measure


def noting(windows: list[int], measure: race.Measure) -> race.Measure:
    """Measures as another one does, and notes the numbers of the configs."""

    def measured(candidate: Candidate) -> float | None:
        windows.append(candidate.number)
        return measure(candidate)

    return measured


def raced(
    space: SearchSpace,
    others: Sequence[Candidate],
    measure: race.Measure,
    seed: int = 0,
    has_time: Callable[[Candidate], bool] = lambda _: True,
) -> tuple[Candidate, race.Race]:
    """Race configs whose predictions say that all are alike, and return the winner and the race."""
    configs = [{}, *(of.changes for of in others)]
    running = race.Race(space, configs, [5.0] * len(configs), measure)
    return running.run([], dice(seed), has_time), running


def test_the_fastest_config_wins_while_the_machine_drifts(space: SearchSpace) -> None:
    one, two, three, four = candidates(space)
    times_s: dict[int, float | None] = {0: 10.0, one.number: 8.0, two.number: 9.5, three.number: 12.0, four.number: 9.9}
    for seed in range(20):
        assert raced(space, [one, two, three, four], machine(times_s, 0.02, 0.03), seed)[0] is one


def test_what_can_not_win_runs_least(space: SearchSpace) -> None:
    one, two, three, _ = candidates(space)
    windows: list[int] = []
    times_s: dict[int, float | None] = {0: 10.0, one.number: 8.0, two.number: 13.0, three.number: 14.0}
    measure = machine(times_s, 0.01)
    best, _ = raced(space, [one, two, three], noting(windows, measure))
    assert best is one
    assert windows[0] == 0
    assert windows.count(two.number) == windows.count(three.number) == 1


def test_a_race_of_equals_ends_with_the_baseline(space: SearchSpace) -> None:
    others = candidates(space)
    times_s: dict[int, float | None] = dict.fromkeys([0, *(of.number for of in others)], 5.0)
    windows: list[int] = []
    measure = machine(times_s, 0.002)
    best, _ = raced(space, others, noting(windows, measure))
    assert best is space.baseline
    assert {*windows} == {*times_s}
    assert len(windows) < 20


def test_of_tied_configs_the_simpler_one_wins(space: SearchSpace) -> None:
    both = space.candidate({"cache.name": "none", "load.prefetch": 2})
    assert isinstance(both, Candidate)
    _, two, one, *_ = candidates(space)
    measure = machine({0: 10.0, one.number: 5.0, two.number: 9.9, both.number: 4.99}, 0.0001)
    assert raced(space, [both, one, two], measure)[0] is one


def test_a_value_with_which_the_windows_were_no_faster_is_left_out(space: SearchSpace) -> None:
    """Of both values together more was expected than of one."""
    both = space.candidate({"cache.name": "none", "load.prefetch": 2})
    assert isinstance(both, Candidate)
    _, two, one, *_ = candidates(space)
    configs = [{}, both.changes, one.changes, two.changes]
    for seed in range(20):
        measure = machine({0: 10.0, one.number: 5.0, two.number: 9.9, both.number: 5.2}, 0.0001, seed=seed)
        running = race.Race(space, configs, [10.0, 4.0, 6.0, 9.0], measure)
        assert running.run([], dice(seed), lambda _: True) is one
    measure = machine({0: 10.0, one.number: 5.3, two.number: 9.9, both.number: 5.0}, 0.0001)
    assert race.Race(space, configs, [10.0, 4.0, 6.0, 9.0], measure).run([], dice(0), lambda _: True) is both


def test_a_config_that_fails_is_out(space: SearchSpace) -> None:
    one, two, *_ = candidates(space)
    best, running = raced(space, [one, two], machine({0: 10.0, one.number: None, two.number: 8.0}, 0.001))
    assert best is two
    assert [*running.ran.values()] == [space.baseline, two]


def test_a_config_that_fails_in_a_later_window_is_out() -> None:
    space = space_of()  # whose candidates keep the error
    one, two, *_ = candidates(space)
    usual = machine({0: 10.0, one.number: 7.0, two.number: 7.1}, 0.05)

    def measure(of: Candidate) -> float | None:
        if of is one and of.times_s:
            of.error = "no memory is left"
            return None
        of.times_s.append(usual(of) or 0.0)
        return of.times_s[-1]

    best, running = raced(space, [one, two], measure)
    assert best is two
    assert len(one.times_s) == 1
    assert [*running.ran.values()] == [space.baseline, two]


def test_values_that_do_not_fit_together_never_run() -> None:
    space = space_of("extract.cycle_length=1", "extract.num_parallel_calls=1")
    running = race.Race(space, [{}, {"extract.num_parallel_calls": 2}], [5.0, 1.0], machine({0: 10.0}, 0.01))
    assert running.run([], dice(0), lambda _: True) is space.baseline
    assert running.known[1] == ("extract.num_parallel_calls: found 2; expected at most cycle_length, which is 1")


def test_a_race_ends_when_the_time_is_up(space: SearchSpace) -> None:
    one, two, three, _ = candidates(space)
    windows: list[int] = []
    measure = machine({0: 10.0, one.number: 8.0, two.number: 8.0, three.number: 8.0}, 0.01)
    answers = iter([True, True, False])
    best, running = raced(space, [one, two, three], noting(windows, measure), has_time=lambda _: next(answers))
    assert windows == [0, best.number]
    best, running = raced(space, [one], measure, has_time=lambda _: False)
    assert (best, [*running.ran]) == (space.baseline, [0])


def test_a_config_of_the_first_group_runs_whatever_is_expected(space: SearchSpace) -> None:
    one, two, *_ = candidates(space)
    configs, times_s = [{}, one.changes, two.changes], machine({0: 10.0, one.number: 9.0, two.number: 50.0}, 0.001)
    running = race.Race(space, configs, [10.0, 9.0, 100.0], times_s)
    assert running.run([2], dice(0), lambda _: True) is one
    assert two in running.ran.values()


def test_neighbours_are_raced_after_the_most_promising(space: SearchSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "_WIDE", 1)
    monkeypatch.setattr(race, "_GROUP", 1)
    values: list[dict[str, Any]] = [
        {"load.prefetch": 2},
        {"load.prefetch": 2, "cache.name": "disk"},
        {"cache.name": "disk"},
        {"cache.name": "none", "transform.num_parallel_calls": 8},
    ]
    found = [space.candidate(changes) for changes in values]
    times_s: dict[int, float | None] = {0: 10.0}
    for candidate in found:
        assert isinstance(candidate, Candidate)
        times_s[candidate.number] = 9.0
    running = race.Race(space, [{}, *values], [10.0, 4.0, 9.0, 9.0, 9.0], machine(times_s, 0.001))
    running.run([], dice(0), lambda _: True)
    assert 4 not in running.ran  # two values apart from the fastest one


def test_a_confirmation_has_an_interval_and_knows_its_noise(space: SearchSpace) -> None:
    base, (one, two, *_) = space.baseline, candidates(space)
    measure = machine({0: 10.0, one.number: 8.0, two.number: 10.0}, 0.01)
    rounds = race.confirmed([base, one, two], measure, dice(0), lambda: True)
    gain, same = rounds.gain(one, base), rounds.gain(two, base)
    assert (gain.call, gain.rounds, same.call) == ("better", 5, "tied")
    assert gain.low is not None
    assert gain.high is not None
    assert 1.2 < gain.low < 1.25 < gain.high < 1.3
    assert rounds.noise.pairs == 4  # a window at the end of a round, and one at the beginning of the next
    assert rounds.gain(one, two).call == "better"


def test_a_drift_of_the_machine_is_no_gain(space: SearchSpace) -> None:
    base, (one, *_) = space.baseline, candidates(space)
    rounds = race.confirmed([base, one], machine({0: 10.0, one.number: 10.0}, 0.0, 0.1), dice(0), lambda: True)
    logs = [math.log(rate / rounds.rates[0][number]) for number, rate in rounds.rates[one.number].items()]
    assert [abs(log) for log in logs] == pytest.approx([0.1] * 15)
    assert abs(sum(logs)) == pytest.approx(0.1)  # each order is as frequent as the other
    assert rounds.gain(one, base).call == "tied"


def test_a_confirmation_goes_on_while_it_tells_nothing(space: SearchSpace) -> None:
    base, (one, *_) = space.baseline, candidates(space)
    times_s: dict[int, float | None] = {0: 10.0, one.number: 9.4}
    rounds = race.confirmed([base, one], machine(times_s, 0.05), dice(0), lambda: True)
    assert len(rounds.rates[0]) == len(rounds.rates[one.number]) == 15
    answers = iter([True, True, False])
    rounds = race.confirmed([base, one], machine(times_s, 0.05), dice(0), lambda: next(answers))
    assert len(rounds.rates[0]) == 7
    rounds = race.confirmed([base, one], machine({0: 10.0, one.number: 10.1}, 0.01), dice(0), lambda: True)
    assert len(rounds.rates[0]) == 5  # a gain that could count is out of reach


def test_a_gain_below_three_percent_is_no_reason_to_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune, job = grid.tuned(Request(overrides=[]), STAGES)
    search = Search(job, tune, Windows(tmp_path, []), print)
    best = search.space.candidate({"cache.name": "none"})
    assert isinstance(best, Candidate)
    search.candidates = {0: search.space.baseline, best.number: best}
    rates = {0: dict.fromkeys(range(5), 1.0), best.number: dict.fromkeys(range(5), 1.02)}
    still = [(1.0, 1.001)] * 5
    monkeypatch.setattr(race, "confirmed", lambda *_: race.Confirmation(rates=rates, pairs=still))
    search._confirm(best)
    assert search.gain is not None
    assert search.gain.call == "better"
    assert (search.end, search.why) == (
        KEEP,
        "cache.name=none is 1.02 times as fast, a difference below 3%",
    )


MEMORY, DISK = {"cache.name": "memory"}, {"cache.name": "disk"}
BOTH = [{**cache, "load.prefetch": value} for cache in (MEMORY, DISK) for value in (2, 8)]
CONFIGS: list[Changes] = [{}, MEMORY, DISK, *BOTH, {"load.prefetch": 2}, {"load.prefetch": 8}]


def told(times_s: Sequence[tuple[int, float]], noise: float = 0.0, seed: int = 0) -> Surrogate:
    """Tell a surrogate, which expects no difference, of windows."""
    surrogate, draws = Surrogate(CONFIGS, [10.0] * len(CONFIGS)), random.Random(seed)  # noqa: S311 - no secret
    for place, time_s in times_s:
        surrogate.tell(place, time_s * math.exp(draws.gauss(0, noise)))
    return surrogate


def always(_: int) -> bool:
    return True


def test_without_a_window_the_prediction_is_expected() -> None:
    surrogate = Surrogate(CONFIGS, [10.0, 5.0, *[10.0] * 7])
    means = surrogate.expected().means
    assert means[1] - means[0] == pytest.approx(math.log(2))
    assert surrogate.promising(0, 1, 0.0, always) == [1]


def test_a_window_tells_about_configs_that_share_a_value() -> None:
    means = told([(0, 10.0), (1, 7.0)]).expected().means
    leads = means - means[0]
    assert 0.25 < leads[1] < -math.log(0.7) + 0.05
    assert 0.2 < leads[3] < leads[1]  # in memory, too, with another prefetch
    assert leads[2] < 0.6 * leads[1]  # on the disk: it may be the baseline alone that is slower than predicted


def test_what_is_chosen_tells_different_things() -> None:
    chosen = told([(0, 10.0)]).promising(0, 3, 0.0, always)
    assert len(chosen) == 3
    assert chosen[:2] == [3, 6]  # first one cache and prefetch, then the others
    assert told([(0, 10.0)]).promising(0, 3, 0.0, lambda place: place == 8) == [8]
    assert told([(0, 10.0)]).promising(0, 3, 1.0, always) == []


def test_noise_is_that_of_equal_runs() -> None:
    windows = [(place, 10.0) for _ in range(12) for place in (0, 1, 2)]
    assert told(windows, 0.04).expected().noise == 0.04
    assert told(windows, 0.005).expected().noise <= 0.01


def test_a_drift_of_the_machine_tells_nothing_of_configs() -> None:
    windows = [(place, 10.0 * 1.05**number) for number, place in enumerate([0, 1, 2, 0, 3, 4, 0, 5, 6, 0, 1, 0, 2])]
    means = told(windows, 0.003).expected().means
    assert means - means[0] == pytest.approx(0.0, abs=0.04)


def test_one_slow_window_of_several_is_not_taken_for_the_config() -> None:
    windows = [(0, 10.0), (1, 9.0), (2, 10.0), (0, 10.1), (1, 9.1), (2, 10.1), (0, 9.9), (1, 16.0), (0, 10.0), (1, 8.9)]
    means = told(windows).expected().means
    assert means[1] - means[0] == pytest.approx(math.log(10 / 9), abs=0.04)


def test_neighbours_differ_in_one_parameter() -> None:
    surrogate = told([])
    assert surrogate.is_near(0, 1)
    assert surrogate.is_near(1, 2)  # another cache is one parameter
    assert surrogate.is_near(3, 1)
    assert surrogate.is_near(3, 4)
    assert not surrogate.is_near(0, 3)
    assert not surrogate.is_near(3, 2)


def space_of(*overrides: str) -> SearchSpace:
    tune, job = grid.tuned(Request(overrides=list(overrides)), STAGES)
    return SearchSpace(job, tune, cores=2)


def test_a_space_of_speed_holds_one_fingerprint(says: Says) -> None:
    space = space_of("cache=none", "load.shuffle_at=before_batch")
    says(space.options)
    says([words(cache) for cache in space.caches])
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


def test_values_that_do_not_fit_together_are_told(says: Says) -> None:
    space = space_of("cache=none", "extract.cycle_length=1", "extract.num_parallel_calls=1")
    says(str(space.candidate({"extract.num_parallel_calls": 2})))


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
    scene_bytes = present(predictor.cache_bytes(space.baseline.plan))
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
