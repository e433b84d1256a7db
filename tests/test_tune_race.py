import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.stages import STAGES
from etlrun.sweep.tune import search as race
from etlrun.sweep.tune.search import KEEP, Search
from etlrun.sweep.tune.space import Candidate, Space
from etlrun.sweep.tune.windows import Windows

ALL = {"transform.num_parallel_calls": 4}, {"load.prefetch": 2}, {"cache.name": "none"}, {"cache.name": "disk"}


@pytest.fixture(scope="module")
def space() -> Space:
    tune, job = grid.tuned(Request(overrides=[]), STAGES)
    return Space(job, tune, cores=2)


def candidates(space: Space) -> list[Candidate]:
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
    space: Space,
    others: Sequence[Candidate],
    measure: race.Measure,
    seed: int = 0,
    has_time: Callable[[Candidate], bool] = lambda _: True,
) -> tuple[Candidate, race.Race]:
    """Race configs whose predictions say that all are alike, and return the winner and the race."""
    configs = [{}, *(of.changes for of in others)]
    running = race.Race(space, configs, [5.0] * len(configs), measure)
    return running.run([], dice(seed), has_time), running


def test_the_fastest_config_wins_while_the_machine_drifts(space: Space) -> None:
    one, two, three, four = candidates(space)
    times_s: dict[int, float | None] = {0: 10.0, one.number: 8.0, two.number: 9.5, three.number: 12.0, four.number: 9.9}
    for seed in range(20):
        assert raced(space, [one, two, three, four], machine(times_s, 0.02, 0.03), seed)[0] is one


def test_what_can_not_win_runs_least(space: Space) -> None:
    one, two, three, _ = candidates(space)
    windows: list[int] = []
    times_s: dict[int, float | None] = {0: 10.0, one.number: 8.0, two.number: 13.0, three.number: 14.0}
    measure = machine(times_s, 0.01)
    best, _ = raced(space, [one, two, three], noting(windows, measure))
    assert best is one
    assert windows[0] == 0
    assert windows.count(two.number) == windows.count(three.number) == 1


def test_a_race_of_equals_ends_with_the_baseline(space: Space) -> None:
    others = candidates(space)
    times_s: dict[int, float | None] = dict.fromkeys([0, *(of.number for of in others)], 5.0)
    windows: list[int] = []
    measure = machine(times_s, 0.002)
    best, _ = raced(space, others, noting(windows, measure))
    assert best is space.baseline
    assert {*windows} == {*times_s}
    assert len(windows) < 20


def test_of_tied_configs_the_simpler_one_wins(space: Space) -> None:
    both = space.candidate({"cache.name": "none", "load.prefetch": 2})
    assert isinstance(both, Candidate)
    _, two, one, *_ = candidates(space)
    measure = machine({0: 10.0, one.number: 5.0, two.number: 9.9, both.number: 4.99}, 0.0001)
    assert raced(space, [both, one, two], measure)[0] is one


def test_a_value_with_which_the_windows_were_no_faster_is_left_out(space: Space) -> None:
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


def test_a_config_that_fails_is_out(space: Space) -> None:
    one, two, *_ = candidates(space)
    best, running = raced(space, [one, two], machine({0: 10.0, one.number: None, two.number: 8.0}, 0.001))
    assert best is two
    assert [*running.ran.values()] == [space.baseline, two]


def test_a_config_that_fails_in_a_later_window_is_out() -> None:
    tune, job = grid.tuned(Request(overrides=[]), STAGES)
    space = Space(job, tune, cores=2)  # whose candidates keep the error
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
    words = ["extract.cycle_length=1", "extract.num_parallel_calls=1"]
    tune, job = grid.tuned(Request(overrides=words), STAGES)
    space = Space(job, tune, cores=2)
    running = race.Race(space, [{}, {"extract.num_parallel_calls": 2}], [5.0, 1.0], machine({0: 10.0}, 0.01))
    assert running.run([], dice(0), lambda _: True) is space.baseline
    assert running.known[1] == ("extract.num_parallel_calls: found 2; expected at most cycle_length, which is 1")


def test_a_race_ends_when_the_time_is_up(space: Space) -> None:
    one, two, three, _ = candidates(space)
    windows: list[int] = []
    measure = machine({0: 10.0, one.number: 8.0, two.number: 8.0, three.number: 8.0}, 0.01)
    answers = iter([True, True, False])
    best, running = raced(space, [one, two, three], noting(windows, measure), has_time=lambda _: next(answers))
    assert windows == [0, best.number]
    best, running = raced(space, [one], measure, has_time=lambda _: False)
    assert (best, [*running.ran]) == (space.baseline, [0])


def test_a_config_of_the_first_group_runs_whatever_is_expected(space: Space) -> None:
    one, two, *_ = candidates(space)
    configs, times_s = [{}, one.changes, two.changes], machine({0: 10.0, one.number: 9.0, two.number: 50.0}, 0.001)
    running = race.Race(space, configs, [10.0, 9.0, 100.0], times_s)
    assert running.run([2], dice(0), lambda _: True) is one
    assert two in running.ran.values()


def test_neighbours_are_raced_after_the_most_promising(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_confirmation_has_an_interval_and_knows_its_noise(space: Space) -> None:
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


def test_a_drift_of_the_machine_is_no_gain(space: Space) -> None:
    base, (one, *_) = space.baseline, candidates(space)
    rounds = race.confirmed([base, one], machine({0: 10.0, one.number: 10.0}, 0.0, 0.1), dice(0), lambda: True)
    logs = [math.log(rate / rounds.rates[0][number]) for number, rate in rounds.rates[one.number].items()]
    assert [abs(log) for log in logs] == pytest.approx([0.1] * 15)
    assert abs(sum(logs)) == pytest.approx(0.1)  # each order is as frequent as the other
    assert rounds.gain(one, base).call == "tied"


def test_a_confirmation_goes_on_while_it_tells_nothing(space: Space) -> None:
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
    search.found.candidates = {0: search.space.baseline, best.number: best}
    rates = {0: dict.fromkeys(range(5), 1.0), best.number: dict.fromkeys(range(5), 1.02)}
    still = [(1.0, 1.001)] * 5
    monkeypatch.setattr(race, "confirmed", lambda *_: race.Confirmation(rates=rates, pairs=still))
    search._confirm(best, [])
    assert search.found.gain is not None
    assert search.found.gain.call == "better"
    assert (search.found.end, search.found.why) == (
        KEEP,
        "cache.name=none is 1.02 times as fast, a difference below 3%",
    )
