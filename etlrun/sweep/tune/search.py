"""The search itself: calibration, prediction, races, confirmation, and what came of them."""

import math
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from etlrun.config.grid import Job
from etlrun.measure.gains import BETTER, Gain, Noise, gains, noise_of
from etlrun.measure.gains import TIED as TIES
from etlrun.stages.cache import CACHES
from etlrun.stages.sweep import Tune
from etlrun.sweep.ledger import RunKey
from etlrun.sweep.tune import predict
from etlrun.sweep.tune.predict import Predictor, Surrogate
from etlrun.sweep.tune.space import (
    CACHE,
    CALLS,
    POINT,
    Candidate,
    Changes,
    Scene,
    SearchSpace,
    Windows,
    autotuned,
    fewer,
    value_of,
)
from etlrun.system import machine
from etlrun.system.errors import counted
from etlrun.system.values import Composed

ALIKE = 0.03
"""Difference in time that is no reason to change a config."""
TIED = 0.01
"""Difference in time within which the simpler config is taken."""
CONFIRMATIONS, _MOST_CONFIRMATIONS = 5, 15
OF_PAIRS = 0.6745 * math.sqrt(2)
"""Median difference of two values over the standard deviation of one."""
_GROUP, _WIDE, _MOST = 3, 3, 20
"""Configs between two windows of the fastest one, groups that are chosen from all configs, and groups of a race."""
Measure = Callable[[Candidate], float | None]
"""Seconds of all epochs in a new window; None if it failed."""
MODEL, FOUND, KEEP, UNTOLD = "model", "found", "keep", "untold"
"""Ends of a search: the model is the limit, a faster config, none, or the machine is too noisy or the budget spent."""
HEADSPACE = 1.03
"""Below this ratio of a run's time to that with an ideal input pipeline, there is nothing to gain."""
NOISY = 0.10
"""Median difference of equal runs above which a search can't tell."""
_FEWEST = 10
"""Windows of the smallest race."""
_UNKNOWN_S, _TIMES_AS_SLOW, _LEAST_S = 60.0, 10, 30.0
"""Longest window, at least: in seconds, as a multiple of the baseline's once that is known, and then in seconds."""
_UNKNOWN = Scene(split="", batch_size=1, buffer=1)
"""Before the first window."""


@dataclass
class Race:
    """A race of configs, whose places in a list are their names here; the first is the baseline.

    Attributes:
        known: Configs that were chosen, by place; or why their values do not fit together.
        ran: Configs that ran and did not fail, by place, and the baseline.
    """

    space: SearchSpace
    configs: Sequence[Changes]
    predicted_s: Sequence[float]
    measure: Measure

    def __post_init__(self) -> None:
        self._surrogate = Surrogate(self.configs, self.predicted_s)
        self.known, self.ran = dict[int, Candidate | str](), {0: self.space.baseline}
        self._times_s = defaultdict[int, list[float]](list)

    @property
    def noise(self) -> float:
        """Relative difference between equal runs, in the median."""
        return math.expm1(self._surrogate.expected().noise * OF_PAIRS)

    def run(self, first: Sequence[int], shuffle: random.Random, has_time: Callable[[Candidate], bool]) -> Candidate:
        """Return the winner once no config is expected to be faster, or there is no time for another window.

        First run the most promising of all configs, and those in `first`; then the neighbours of the fastest one, which
        differ from it in one parameter, beside those that ran.
        """
        for number in range(_MOST):
            over = self._fastest()

            def may_run(place: int, near: int | None = None if number < _WIDE else over) -> bool:
                is_near = near is None or place in self.ran or self._surrogate.is_near(place, near)
                return is_near and self._candidate(place) is not None

            promising = self._surrogate.promising(over, _GROUP, TIED, may_run)
            group = [*dict.fromkeys([*(() if number else first), *promising])]
            if not group:
                break
            for place in [over, *shuffle.sample(group, len(group))]:
                if not has_time(self.ran[self._fastest()]):
                    return self._winner()
                candidate = self._candidate(place)
                time_s = self.measure(candidate) if candidate else None
                if candidate and time_s is not None:
                    self.ran[place] = candidate
                    self._times_s[place].append(time_s)
                    self._surrogate.tell(place, time_s)
                elif place:
                    self.ran.pop(place, None)
        return self._winner()

    def _winner(self) -> Candidate:
        """Return the fastest config, without values of which more was expected than its own windows show."""
        best = self._fastest()
        median_s = {place: statistics.median(times_s) for place, times_s in self._times_s.items()}
        winner = self.ran[best]
        parts = (
            ran
            for place, ran in self.ran.items()
            if place and ran.changes.items() < winner.changes.items() and median_s[place] <= median_s[best]
        )
        return min(parts, key=_simplicity, default=winner)

    def _candidate(self, place: int) -> Candidate | None:
        """Return a config; None if its values do not fit together, or it has failed."""
        if place not in self.known:
            self.known[place] = self.space.candidate(self.configs[place])
        found = self.known[place]
        return None if isinstance(found, str) or found.error else found

    def _fastest(self) -> int:
        """Return the one of those tied with the fastest that changes the fewest values, then takes the least memory."""
        means = self._surrogate.expected().means
        best = max(means[place] for place in self.ran)
        return min((_simplicity(ran), place) for place, ran in self.ran.items() if best - means[place] <= TIED)[1]


def _is_fewer(config: Composed, key: str, calls: Any) -> bool:
    before = value_of(config, key) if key in CALLS else None
    return isinstance(before, int) and isinstance(calls, int) and calls < before


def _simplicity(candidate: Candidate) -> tuple[int, int, int]:
    return len(candidate.changes), [*CACHES].index(str(candidate.config["cache"]["name"])), candidate.number


@dataclass(frozen=True)
class Confirmation:
    """Fresh rounds of all configs: their speeds by number and round, and those of one config in successive windows."""

    rates: dict[int, dict[int, float]]
    pairs: list[tuple[float, float]] = field(default_factory=list)

    @property
    def noise(self) -> Noise:
        """Difference between two windows of one config."""
        return noise_of(self.pairs)

    def gain(self, of: Candidate, over: Candidate) -> Gain:
        """Return the gain of one config over another."""
        return gains({of.number: self.rates[of.number]}, self.rates[over.number], self.noise)[of.number]


def confirmed(
    candidates: Sequence[Candidate], measure: Measure, shuffle: random.Random, has_time: Callable[[], bool]
) -> Confirmation:
    """Measure the baseline, a winner and others in rounds, each in the reverse order of the one before.

    So a drift cancels out, and the last one of a round, which is the first of the next, tells the noise. If the first
    rounds leave open whether the winner is faster, there are more of them, as long as there is time.
    """
    order = shuffle.sample(candidates, len(candidates))
    found, before = Confirmation({of.number: {} for of in candidates}), dict[int, float]()
    for number in range(_MOST_CONFIRMATIONS):
        if number == CONFIRMATIONS:  # more of them may tell that the winner is faster
            gain = found.gain(candidates[1], candidates[0])
            if gain.call != TIES or gain.ratio is None or gain.ratio <= 1 + ALIKE / 2:
                break
        if number >= CONFIRMATIONS and not has_time():
            break
        for candidate in order:
            of, time_s, last, before = candidate.number, measure(candidate), before, {}
            if time_s is not None:
                before[of] = found.rates[of][number] = 1 / time_s
                found.pairs.extend([(last[of], before[of])] if of in last else [])
        order.reverse()
    return found


@dataclass
class Search:
    """A search in its folder, which makes the same decisions again when it is resumed, and what it has found.

    Attributes:
        files: Options of the command line that name the folder and the name of config files.
        end: `model`, `found`, `keep` or `untold`.
        why: The reason for that end, a clause.
        advice: What to do if nothing can be told; empty otherwise.
        headspace: Gain of the baseline's training with an ideal input pipeline, as a ratio; None without a model.
        scene: What all windows have in common.
        gain: Gain of the winner over the baseline in the confirmation; None without one.
        noise: Difference between equal runs in the confirmation; before it, what the race lets expect.
        digests: Whether baseline and winner saw the same examples; None if it was not measured.
        cache_bytes: Size of the caches of the winner in the whole run; None without a cache.
        winner: The config that was confirmed, or the best so far.
        candidates: All configs that ran, by number.
        left_out: Number of configs that never ran, by the reason.
    """

    job: Job
    tune: Tune
    windows: Windows
    say: Callable[[str], None]
    files: Sequence[str] = ()
    end: str = UNTOLD
    why: str = ""
    advice: str = ""
    headspace: float | None = None
    scene: Scene = _UNKNOWN
    gain: Gain | None = None
    noise: Noise | None = None
    digests: bool | None = None
    cache_bytes: int | None = None

    def __post_init__(self) -> None:
        self.cores = machine.cores()
        self.space = SearchSpace(self.job, self.tune, self.cores)
        self.baseline = self.winner = self.space.baseline
        self.candidates, self.left_out = dict[int, Candidate](), Counter[str]()
        self._shuffle = random.Random(self.tune.seed)  # noqa: S311 - an order, no secret
        self._costs_s = dict[int, float]()

    def run(self) -> None:
        """Search."""
        windows = self.windows
        windows.longest_s = max(self.tune.budget_s, _UNKNOWN_S)
        self.scene = predict.scene_of(self.job, self.tune, windows)
        self._measure(self.baseline)
        windows.longest_s = max(_LEAST_S, min(_TIMES_AS_SLOW * self._costs_s[0], windows.longest_s))
        if self.headspace is not None and self.headspace < HEADSPACE:
            self.end, self.why = MODEL, "the model is the limit"
        else:
            self._search()

    def _search(self) -> None:
        base, space = self.baseline, self.space
        costs = predict.costs(space, self.scene, self.windows, self.cores)
        self.predictor = Predictor(self.scene, costs, base.config, self.cores)
        configs, limit_s = list[Changes]([{}]), base.times_s[0] * (1 - ALIKE)
        unfit = {(cache.get(CACHE), cache.get(POINT)): self._unfit(cache) for cache in space.caches}
        for changes in filter(None, space):
            reason = unfit[changes.get(CACHE), changes.get(POINT)]
            if not reason and self.predictor.seconds(changes)[0] > limit_s:
                reason = "can't be faster, by its prediction"
            if reason:
                self.left_out[reason] += 1
            else:
                configs.append(changes)
        if len(configs) == 1:
            self.end, self.why = KEEP, "no other config is predicted to be faster"
            return
        auto = space.candidate(autotuned(space))  # leaves all to AUTOTUNE, if these values fit
        known = [] if isinstance(auto, str) else [auto.changes]
        known += [{key: calls} for key in CALLS for calls in fewer(base.config, key)]
        first = [configs.index(changes) for changes in known if changes in configs[1:]]
        self.say(f"race    {counted(len(configs) - 1, 'config')} against {base.words}")
        running = Race(space, configs, [self.predictor.seconds(of)[1] for of in configs], self._measure)
        best = running.run(first, self._shuffle, lambda best: self._has_time([base, best]))
        self.noise = Noise(median=running.noise, largest=None, pairs=0)
        self.left_out += Counter(of for of in running.known.values() if isinstance(of, str))
        never = len(space) - len(self.candidates) - self.left_out.total()
        self.left_out += Counter({"others are expected to be faster": never})
        for candidate in self.candidates.values():
            candidate.predicted_s = self.predictor.seconds(candidate.changes)
        self._confirm(best)

    def _measure(self, candidate: Candidate) -> float | None:
        """Return the seconds of all epochs from a new window; None if it failed, `WorldError` if the baseline did."""
        if candidate.error:
            return None
        number, times_s, scene = candidate.number, candidate.times_s, self.scene
        name, before_s = RunKey(number, len(times_s)).name, self.windows.spent_s
        window = self.windows.run(name, scene.config(candidate.config, self.windows.caches))
        self._costs_s[number] = self.windows.spent_s - before_s
        if candidate is self.baseline:
            predict.completed(window)
            self.headspace = self.headspace or scene.headspace(window)
        time_s = scene.seconds(window)
        self.candidates[number] = candidate
        if time_s is None:
            candidate.error = (window.error or window.status).strip()
            came_to = f"failed: {' '.join(candidate.error.split())}"
        else:
            times_s.append(time_s)
            came_to = f"{scene.examples * scene.epochs / time_s:,.0f} examples/s"
        self.say(f"{name:>6}  {candidate.words}: {came_to}")
        return time_s

    def _unfit(self, cache: Changes) -> str:
        """Return why a cache does not fit into memory or on the disk; empty if it does."""
        candidate = self.space.candidate(cache)
        if isinstance(candidate, str):
            return ""
        folder = candidate.config["cache"]["dir"] or self.windows.folder
        return self.predictor.unfit(candidate.changes, candidate.plan, machine.free_disk_bytes(folder))

    def _has_time(self, contenders: list[Candidate], rounds: int = CONFIRMATIONS) -> bool:
        """Return whether there is time for another window, and so many rounds of the confirmation."""
        return self.windows.spent_s + self._window_s() + self._rounds_s(contenders, rounds) <= self.tune.budget_s

    def _rounds_s(self, contenders: list[Candidate], rounds: int = CONFIRMATIONS) -> float:
        """Return the seconds of rounds of the confirmation, and of the windows that compare digests."""
        costs_s = [self._costs_s.get(of.number, self._costs_s[0]) for of in contenders]
        return rounds * sum(costs_s) + sum(costs_s[:2])

    def _window_s(self) -> float:
        """Return the mean seconds of a window, of all configs that ran."""
        return sum(self._costs_s.values()) / len(self._costs_s)

    def _confirm(self, best: Candidate) -> None:
        """Confirm the winner in fresh rounds against the baseline."""
        base, self.winner = self.baseline, best
        if len(self.candidates) == 1:
            spent_s, more_s = self.windows.spent_s, self._rounds_s([base, base]) + _FEWEST * self._window_s()
            parts = f"{spent_s:.0f} s were spent, and the smallest race and its confirmation take {more_s:.0f} s more"
            self.why = f"the budget of {self.tune.budget_s:g} s is too small: {parts}"
            self.advice = f"Set tune.budget_s={spent_s + more_s:.0f} or more."
            return
        if best is base:
            self._keep("no config was faster in the race")
            return
        contenders = [base, best]
        self.say(f"confirm {best.words}")
        rounds = confirmed(contenders, self._measure, self._shuffle, lambda: self._has_time(contenders, 1))
        self.noise, self.gain = rounds.noise, rounds.gain(best, base)
        ratio = self.gain.ratio or 1.0
        if self.gain.call != BETTER:
            is_not = f"failed: {' '.join(best.error.split())}" if best.error else "is not better in the confirmation"
            self._keep(f"{best.words} {is_not}")
        elif ratio < 1 + ALIKE:
            self._keep(f"{best.words} is {ratio:.2f} times as fast, a difference below {ALIKE:.0%}")
        else:
            self.end, self.digests = FOUND, self._see_the_same(base, best)
            if not self.digests and best.plan.fingerprint == base.plan.fingerprint:
                self.end, self.why = UNTOLD, f"{best.words} saw other examples than the baseline, by its digests"
                self.advice = "Compare both with `measure.digest=true`: equal plans have to see equal examples."
            self.cache_bytes = self.predictor.cache_bytes(best.plan)

    @property
    def as_fast(self) -> list[Candidate]:
        """Configs that only make fewer calls in parallel, and whose windows are as fast as those of the baseline."""
        base, limit_s = self.baseline.config, (1 + ALIKE) * statistics.median(self.baseline.times_s or [0.0])
        fast = (of for of in self.candidates.values() if of.times_s and statistics.median(of.times_s) <= limit_s)
        return [of for of in fast if len(of.changes) == 1 and any(_is_fewer(base, *one) for one in of.changes.items())]

    def _keep(self, why: str) -> None:
        apart = (self.noise and self.noise.median) or 0.0
        self.end, self.why = KEEP, why
        if apart > NOISY:
            self.end, self.why = UNTOLD, f"two equal runs differ by {apart:.0%} in the median"
            self.advice = "Run it on an idle machine, or with a larger tune.budget_s."

    def _see_the_same(self, one: Candidate, other: Candidate) -> bool:
        """Return whether two configs see the same examples in each pass, by their digests."""
        bare = replace(self.scene, step_ms=0.0, step_cores=0.0, passes=min(self.scene.epochs, 2))
        digests = []
        for name, candidate in (("digest.baseline", one), ("digest.winner", other)):
            window = self.windows.run(name, bare.config(candidate.config, self.windows.caches, digest=True))
            digests.append([epoch.digest for epoch in window.epochs])
        return digests[0] == digests[1] != [] and all(digests[0])
