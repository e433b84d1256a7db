"""The search itself: calibration, prediction, races, confirmation, and what came of them."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from etlrun.config.jobs import Job
from etlrun.record.summary import Summary
from etlrun.review.gains import BETTER, Gain, Noise
from etlrun.stages.tune import Tune
from etlrun.sweep.tune import calibrate, race
from etlrun.sweep.tune.predict import Predictor
from etlrun.sweep.tune.race import Race
from etlrun.sweep.tune.space import CACHE, POINT, Candidate, Changes, Space, autotuned
from etlrun.sweep.tune.windows import Scene, Windows
from etlrun.system import machine

MODEL, FOUND, KEEP, UNTOLD = "model", "found", "keep", "untold"
"""Ends of a search: the model is the limit, a faster config, none, or the machine is too noisy or the budget spent."""

HEADSPACE = 1.03
"""Below this ratio of a run's time to that with an ideal input pipeline, there is nothing to gain."""
NOISY = 0.10
"""Median difference of equal runs above which a search can't tell."""
_RACED, _NEIGHBOURS, _HILLS = 9, 6, 4
_OF_ONE_CACHE = 4
_RESERVED = 4 * race.CONFIRMATIONS + 2
"""Windows of the confirmation: baseline twice, winner, AUTOTUNE; and two with digests."""
_SAME = 0.005
"""Relative difference of predictions of configs that are taken for alike."""


@dataclass(kw_only=True)
class Found:
    """What a search found.

    Attributes:
        end: `model`, `found`, `keep` or `untold`.
        why: The reason for that end, a clause.
        advice: What to do if nothing can be told; empty otherwise.
        headspace: Time of the baseline over that with an ideal input pipeline; None without a model.
        scene: What all windows have in common.
        baseline: The config that the search started from.
        winner: The config that was confirmed, or the best so far; None if none was raced.
        gain: Gain of the winner over the baseline in the confirmation; None without one.
        autotune: The config that leaves all to AUTOTUNE, and the gain of the winner over it; None without one.
        noise: Difference between equal runs in the confirmation; before it, in the races.
        races: The races in order.
        candidates: All configs that ran, by number.
        left_out: Number of configs that never ran, by the reason.
        size: Number of configs in the space.
        digests: Whether baseline and winner saw the same examples; None if it was not measured.
        cache_bytes: Size of the caches of the winner in the whole run; None without a cache.
        spent_s: Seconds of all windows.
        windows: Number of windows.
        files: Options of the command line that name the folder and the name of config files.
    """

    end: str = UNTOLD
    why: str = ""
    advice: str = ""
    headspace: float | None = None
    scene: Scene | None = None
    baseline: Candidate
    winner: Candidate | None = None
    gain: Gain | None = None
    autotune: tuple[Candidate, Gain] | None = None
    noise: Noise | None = None
    races: list[Race] = field(default_factory=list)
    candidates: dict[int, Candidate] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    size: int = 0
    digests: bool | None = None
    cache_bytes: int | None = None
    spent_s: float = 0.0
    windows: int = 0
    files: list[str] = field(default_factory=list)


class Search:
    """A search in its folder, which makes the same decisions again when it is resumed."""

    def __init__(self, job: Job, tune: Tune, windows: Windows, say: Callable[[str], None]) -> None:
        self.job, self.tune, self.windows, self.say = job, tune, windows, say
        self.cores = machine.cores()
        self.space = Space(job, tune, self.cores)
        self.found = Found(baseline=self.space.baseline, size=len(self.space))
        self._shuffle = random.Random(tune.seed)  # noqa: S311 - an order, no secret
        self._measured_s, self._measured = 0.0, 0

    def run(self) -> Found:
        """Search, and return what was found."""
        found, base = self.found, self.space.baseline
        found.scene = calibrate.scene_of(self.job, self.tune, self.windows)
        first_s = self._measure(base)
        if first_s is None:
            calibrate.completed(self._last)
        elif found.scene.step_ms:
            found.headspace = first_s / found.scene.ideal_s
        if found.headspace is not None and found.headspace < HEADSPACE:
            found.end, found.why = MODEL, "the model is the limit"
        else:
            self._searched()
        found.spent_s, found.windows = self.windows.spent_s, len(self.windows.ended)
        return found

    def _searched(self) -> None:
        costs = calibrate.costs(self.space, self._scene, self.windows, self.cores)
        self.predictor = Predictor(self._scene, costs, self.space.baseline.config, self.cores)
        rivals = self._promising()
        auto = self.space.candidate(autotuned(self.space))
        if isinstance(auto, Candidate) and auto is not self.space.baseline and auto not in rivals:
            rivals.append(auto)
        if not rivals:
            self.found.end, self.found.why = KEEP, "no other config is predicted to be faster"
            return
        best = self._raced(self.space.baseline, rivals[: self._affordable()])
        for _ in range(_HILLS):
            near = self._near(best)
            better = self._raced(best, near, rounds=2) if near and self._has_time() else best
            if better is best:
                break
            best = better
        self._confirm(best, auto if isinstance(auto, Candidate) else None)

    @property
    def _scene(self) -> Scene:
        assert self.found.scene is not None  # noqa: S101 - for mypy
        return self.found.scene

    def _measure(self, candidate: Candidate) -> float | None:
        """Return the seconds of all epochs of a config, from a new window; None if it failed."""
        if candidate.error:
            return None
        name = str(candidate.number) + (f".{len(candidate.times_s)}" if candidate.times_s else "")
        before_s = self.windows.spent_s
        window = self.windows.run(name, self._scene.config(candidate.config, self.windows.caches))
        self._measured_s, self._measured = self._measured_s + self.windows.spent_s - before_s, self._measured + 1
        self._last, time_s = window, self._scene.seconds(window)
        self.found.candidates[candidate.number] = candidate
        if time_s is None:
            candidate.error = (window.error or window.status).strip()
            self.say(f"{name:>6}  {candidate.words}: failed: {' '.join(candidate.error.split())}")
        else:
            candidate.times_s.append(time_s)
            rate = self._scene.examples * self._scene.epochs / time_s
            self.say(f"{name:>6}  {candidate.words}: {rate:,.0f} examples/s")
        return time_s

    def _promising(self) -> list[Candidate]:
        """Return the configs with the best predictions, and count the others by why they are left out."""
        base_s, picked = self.space.baseline.times_s[0], list[Candidate]()
        predicted = sorted(
            ((self.predictor.seconds(changes), changes) for changes in self.space if changes),
            key=lambda item: (item[0][1], len(item[1])),
        )
        kinds: Counter[str] = Counter()
        for bounds, changes in predicted:
            reason = self._reason(bounds, changes, base_s, picked, kinds)
            if reason:
                self.found.left_out[reason] += 1
        return picked

    def _reason(
        self,
        bounds: tuple[float, float, float],
        changes: Changes,
        base_s: float,
        picked: list[Candidate],
        kinds: Counter[str],
    ) -> str:
        """Return why a config is left out; else add it to those that are picked."""
        if bounds[0] > base_s * (1 - race.ALIKE):
            return "can't be faster, by its prediction"
        kind = _kind(changes)
        if any(_is_alike(bounds, other) and kind == _kind(other.changes) for other in picked):
            return "predicted to be as fast as a simpler one that is raced"
        if len(picked) >= _RACED or kinds[kind] >= _OF_ONE_CACHE:
            return "others are predicted to be faster"
        candidate = self.space.candidate(changes)
        if isinstance(candidate, str):
            return candidate
        unfit = self._unfit(candidate)
        if not unfit:
            candidate.predicted_s = bounds
            picked.append(candidate)
            kinds[kind] += 1
        return unfit

    def _unfit(self, candidate: Candidate) -> str:
        """Return why the caches of a config don't fit; empty if they do."""
        free = machine.free_disk_bytes(candidate.config["cache"]["dir"] or self.windows.folder)
        return self.predictor.unfit(candidate.changes, candidate.plan, free)

    def _near(self, best: Candidate) -> list[Candidate]:
        """Return neighbours of a config that have not run, the most promising first."""
        near = []
        for changes in self.space.neighbours(best):
            candidate = self.space.candidate(changes)
            if isinstance(candidate, str) or candidate.times_s or candidate.error or candidate is best:
                continue
            if not self._unfit(candidate):
                candidate.predicted_s = self.predictor.seconds(candidate.changes)
                near.append(candidate)
        unique = {candidate.number: candidate for candidate in near}
        return sorted(unique.values(), key=lambda of: (of.predicted_s or (0, 0, 0))[1])[:_NEIGHBOURS]

    def _raced(self, incumbent: Candidate, rivals: list[Candidate], rounds: int = race.MOST_ROUNDS) -> Candidate:
        self.say(f"race    {len(rivals)} configs against {incumbent.words}")
        ran = race.raced(incumbent, rivals, self._measure, self._shuffle, self._has_time, rounds)
        self.found.races.append(ran)
        return race.winner(ran, [incumbent, *rivals])

    def _has_time(self) -> bool:
        """Return whether there is time for more than the confirmation."""
        return self.windows.spent_s + _RESERVED * self._window_s() < self.tune.budget_s

    def _affordable(self) -> int:
        """Return the number of configs for which there is time in a round, with the windows between them."""
        left_s = self.tune.budget_s - self.windows.spent_s - _RESERVED * self._window_s()
        return max(0, int(left_s / self._window_s() * 2 / 3))

    def _window_s(self) -> float:
        """Return the mean seconds of a window of the race."""
        return self._measured_s / max(self._measured, 1)

    def _confirm(self, best: Candidate, auto: Candidate | None) -> None:
        """Confirm the winner in fresh pairs, against the baseline and against AUTOTUNE."""
        found, base = self.found, self.space.baseline
        found.winner = best
        if not any(of.logs for of in found.races):
            needed_s = self.windows.spent_s + (_RESERVED + 3 * _RACED) * self._window_s()
            taken = f"calibration took {self.windows.spent_s:.0f} s"
            found.why = f"the budget of {self.tune.budget_s:g} s is too small: {taken}"
            found.advice = f"Set tune.budget_s={needed_s:.0f} or more."
            return
        if best is base:
            self._keep("no config was faster in the race")
            return
        others = [best] if auto is None or auto in (best, base) or auto.error else [best, auto]
        self.say(f"confirm {best.words}")
        rounds = race.confirmed(base, others, self._measure, self._shuffle)
        found.noise, found.gain = rounds.noise, rounds.gain(best.number, base.number)
        for other in others[1:]:
            over = rounds.gain(best.number, other.number)
            found.autotune = None if over.ratio is None else (other, over)
        ratio = found.gain.ratio or 1.0
        if found.gain.call == BETTER and ratio < 1 + race.ALIKE:
            self._keep(f"{best.words} is {ratio:.2f} times as fast, a difference below {race.ALIKE:.0%}")
        elif found.gain.call == BETTER:
            found.digests = self._see_the_same(base, best)
            found.end = FOUND
            if not found.digests and best.plan.fingerprint == base.plan.fingerprint:
                found.end, found.why = UNTOLD, f"{best.words} saw other examples than the baseline, by its digests"
                found.advice = "Compare both with `measure.digest=true`: equal plans have to see equal examples."
            found.cache_bytes = self.predictor.cache_bytes(best.plan)
        else:
            self._keep(f"{best.words} is not better in the confirmation")

    def _keep(self, why: str) -> None:
        noise = self.found.noise.median if self.found.noise is not None else None
        apart = noise if noise is not None else max((of.noise * race.OF_PAIRS for of in self.found.races), default=0.0)
        self.found.end, self.found.why = KEEP, why
        if apart > NOISY:
            self.found.end, self.found.why = UNTOLD, f"two equal runs differ by {apart:.0%} in the median"
            self.found.advice = "Run it on an idle machine, or with a larger tune.budget_s."

    def _see_the_same(self, one: Candidate, other: Candidate) -> bool:
        """Return whether two configs see the same examples in each pass, by their digests."""
        bare = dataclasses.replace(self._scene, step_ms=0.0, step_cores=0.0, passes=min(self._scene.epochs, 2))
        digests = []
        for name, candidate in (("digest.baseline", one), ("digest.winner", other)):
            window: Summary = self.windows.run(name, bare.config(candidate.config, self.windows.caches, digest=True))
            digests.append([epoch.digest for epoch in window.epochs])
        return digests[0] == digests[1] and bool(digests[0]) and all(digests[0])


def _kind(changes: Changes) -> str:
    return f"{changes.get(CACHE)} {changes.get(POINT)}"


def _is_alike(bounds: tuple[float, float, float], other: Candidate) -> bool:
    return other.predicted_s is not None and abs(bounds[1] / other.predicted_s[1] - 1) < _SAME
