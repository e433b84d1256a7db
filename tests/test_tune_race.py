import math
import random
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.review.gains import Noise
from etlrun.stages import STAGES
from etlrun.sweep.tune import race
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


def machine(times_s: dict[int, float | None], noise: float, drift: float = 0.0) -> Callable[[Candidate], float | None]:
    """Measures configs of known times on a machine with noise, which becomes slower with each window."""
    draws, windows = dice(0), [0]

    def measure(candidate: Candidate) -> float | None:
        windows[0] += 1
        time_s = times_s[candidate.number]
        return None if time_s is None else time_s * math.exp(draws.gauss(0, noise) + drift * windows[0])

    return measure


def always() -> bool:
    return True


def test_the_fastest_config_wins_while_the_machine_drifts(space: Space) -> None:
    base, (one, two, three, four) = space.baseline, candidates(space)
    times_s: dict[int, float | None] = {0: 10.0, one.number: 8.0, two.number: 9.5, three.number: 12.0, four.number: 9.9}
    wins = 0
    for seed in range(40):
        ran = race.raced(base, [one, two, three, four], machine(times_s, 0.02, 0.03), dice(seed), always)
        wins += race.winner(ran, [base, one, two, three, four]) is one
    assert wins == 40


def test_a_steady_drift_cancels_out(space: Space) -> None:
    base, (one, two, *_) = space.baseline, candidates(space)
    measure = machine({0: 10.0, one.number: 8.0, two.number: 9.0}, 0.0, drift=0.05)
    ran = race.raced(base, [one, two], measure, dice(0), always)
    assert ran.lead(one.number) == pytest.approx(math.log(10 / 8))
    assert ran.lead(two.number) == pytest.approx(math.log(10 / 9))


def test_what_can_not_win_is_dropped_early(space: Space) -> None:
    base, (one, two, *_) = space.baseline, candidates(space)
    ran = race.raced(base, [one, two], machine({0: 10.0, one.number: 8, two.number: 30}, 0.01), dice(0), always)
    assert ran.dropped == {two.number: 1}
    assert len(ran.logs[two.number]) == 1
    assert len(ran.logs[one.number]) == 2  # the one that is left ends the race, after a second look
    assert math.exp(ran.lead(one.number)) == pytest.approx(10 / 8, rel=0.05)


def test_a_race_of_equals_ends_after_two_rounds_with_the_incumbent(space: Space) -> None:
    base, others = space.baseline, candidates(space)
    times_s: dict[int, float | None] = dict.fromkeys([0, *(of.number for of in others)], 5.0)
    ran = race.raced(base, others, machine(times_s, 0.002), dice(0), always)
    assert {len(logs) for logs in ran.logs.values()} == {2}
    assert race.winner(ran, [base, *others]) is base


def test_of_tied_configs_the_simpler_one_wins(space: Space) -> None:
    both = space.candidate({"cache.name": "none", "load.prefetch": 2})
    assert isinstance(both, Candidate)
    base, (_, one, *_) = space.baseline, candidates(space)
    measure = machine({0: 10.0, one.number: 5.0, both.number: 4.99}, 0.0001)
    ran = race.raced(base, [both, one], measure, dice(0), always)
    assert race.winner(ran, [base, both, one]) is one


def test_a_config_that_fails_is_out(space: Space) -> None:
    base, (one, two, *_) = space.baseline, candidates(space)
    measure = machine({0: 10.0, one.number: None, two.number: 8.0}, 0.001)
    ran = race.raced(base, [one, two], measure, dice(0), always)
    assert one.number not in ran.logs
    assert race.winner(ran, [base, one, two]) is two


def test_a_race_ends_when_the_time_is_up(space: Space) -> None:
    base, (one, *_) = space.baseline, candidates(space)
    ran = race.raced(base, [one], machine({0: 10.0, one.number: 8.0}, 0.01), dice(0), lambda: False)
    assert ran.logs == {}
    assert race.winner(ran, [base, one]) is base


def test_noise_is_that_of_the_incumbent(space: Space) -> None:
    base, (one, *_) = space.baseline, candidates(space)
    found = [
        race.raced(base, [one], machine({0: 1.0, one.number: 1.0}, 0.05), dice(seed), always, rounds=5).noise
        for seed in range(30)
    ]
    assert statistics.median(found) == pytest.approx(0.05, rel=0.3)


def test_a_confirmation_has_an_interval_and_knows_its_noise(space: Space) -> None:
    base, (one, two, *_) = space.baseline, candidates(space)
    measure = machine({0: 10.0, one.number: 8.0, two.number: 10.0}, 0.01)
    rounds = race.confirmed(base, [one, two], measure, dice(0))
    gain, same = rounds.gain(one.number, 0), rounds.gain(two.number, 0)
    assert (gain.call, gain.rounds, same.call) == ("better", 5, "tied")
    assert gain.low is not None
    assert gain.high is not None
    assert 1.2 < gain.low < 1.25 < gain.high < 1.3
    assert rounds.noise.pairs == 5
    assert rounds.gain(one.number, two.number).call == "better"


def test_the_time_is_looked_at_between_windows_of_the_incumbent(space: Space) -> None:
    base, others = space.baseline, candidates(space)
    times_s: dict[int, float | None] = dict.fromkeys([0, *(of.number for of in others)], 5.0)
    answers = iter([True, True, False])
    ran = race.raced(base, others, machine(times_s, 0.002), dice(0), lambda: next(answers))
    assert len(ran.logs) == 3
    assert len(ran.pairs) == 1


def test_a_gain_below_three_percent_is_no_reason_to_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune, job = grid.tuned(Request(overrides=[]), STAGES)
    search = Search(job, tune, Windows(tmp_path, []), print)
    best = search.space.candidate({"cache.name": "none"})
    assert isinstance(best, Candidate)
    search.found.races = [race.Race(incumbent=0, logs={best.number: [0.02]})]
    rates = {0: dict.fromkeys(range(5), 1.0), best.number: dict.fromkeys(range(5), 1.02)}
    still = Noise(median=0.001, largest=0.002, pairs=5)
    monkeypatch.setattr(race, "confirmed", lambda *_: race.Confirmation(rates=rates, noise=still))
    search._confirm(best, None)
    assert search.found.gain is not None
    assert search.found.gain.call == "better"
    assert (search.found.end, search.found.why) == (
        KEEP,
        "cache.name=none is 1.02 times as fast, a difference below 3%",
    )
