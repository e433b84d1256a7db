"""What finds the fastest config with fewer windows: the race of `etlrun tune`, or Optuna?

    python -m benchmarks.tune_engines [--seeds 5]

Windows are simulated, so that the true speed of each config is known and a loaded machine tells nothing: those of the
plants of `benchmarks.tune_plants`, in their own spaces, from costs that differ from what the predictor is told, with
noise and a drift of the machine. Both engines get the same candidates, predictions and number of windows. Optuna is
asked and told: its sampler (TPE, multivariate) begins with the baseline, AUTOTUNE and what is predicted to be best;
a trial is up to four windows of a config, which successive halving prunes.
"""

from __future__ import annotations

import argparse
import logging
import math
import random
import statistics
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import optuna

from benchmarks.tune import WITHIN, job_of
from benchmarks.tune_plants import PLANTS, READ, Plant
from etlrun.sweep.tune import search
from etlrun.sweep.tune.predict import Costs, Predictor
from etlrun.sweep.tune.space import (
    BATCH_CALLS,
    CACHE,
    EXTRACT_CALLS,
    POINT,
    PREFETCH,
    TRANSFORM_CALLS,
    Candidate,
    Changes,
    Scene,
    SearchSpace,
    autotuned,
    value_of,
)

CORES, EXAMPLES = 2, 2000
CPU_MS = {READ: 0.05, "Decode": 0.35, "Resize": 0.15, "RandomFlip": 0.03, "rest": 0.05}
"""What an example costs in one thread, beside what a plant adds."""
NOISE, DRIFT, QUIRK = 0.02, 0.01, 0.01
"""Standard deviations of a window and of the drift, and of what is peculiar to a config or a value."""
WINDOWS = 55
"""Windows of a race: those of a search of 120 s, less its calibration and confirmation."""
STARTED, RUNGS, _MOST_TRIALS = 10, 4, 1000
"""Trials that Optuna gets before its sampler decides; windows of a trial and trials, at most."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """True milliseconds of a plant's pipeline, by a model with softer limits than the predictor's."""

    plant: Plant
    config: dict[str, Any]
    step_ms: float
    epochs: int
    seed: int

    def seconds(self, changes: Changes) -> float:
        """Seconds of all epochs of a config, without noise."""

        def value(key: str) -> Any:
            return changes[key] if key in changes else value_of(self.config, key)

        target, point = value(CACHE), value(POINT)
        steps = ["Decode", "Resize", *(["RandomFlip"] if "RandomFlip" in self.plant.sleeps_ms else [])]
        held = {"source": [], "resize": ["Decode", "Resize"]}.get(point, steps)
        first = self._period(value, READ, steps) + (0.15 if target == "disk" else 0.02 if target == "memory" else 0.0)
        later = first
        if target != "none":
            later = self._period(value, "held", [step for step in steps if step not in held])
            later += (0.08 if target == "disk" else 0.0) + (0.01 if held else 0.0)
        start_s = 0.02 + (0.05 if "autotune" in (value(TRANSFORM_CALLS), value(EXTRACT_CALLS)) else 0.0)
        total_s = (first + (self.epochs - 1) * later) * EXAMPLES / 1000 + self.epochs * start_s
        return float(total_s * math.exp(self._quirks(changes)))

    def _quirks(self, changes: Changes) -> float:
        alone = random.Random(f"{self.seed} {sorted(map(str, changes.items()))}").gauss(0, QUIRK)  # noqa: S311
        return alone + sum(random.Random(f"{self.seed} {item}").gauss(0, QUIRK) for item in changes.items())  # noqa: S311

    def _period(self, value: Callable[[str], Any], reads: str, steps: Sequence[str]) -> float:
        """Milliseconds per example: a soft maximum of what each stage, the cores and the model take."""
        sleeps = self.plant.sleeps_ms
        threads = {key: _threads(value(key)) for key in (EXTRACT_CALLS, TRANSFORM_CALLS)}
        cpu = sum(CPU_MS[step] for step in steps)
        asleep = sum(sleeps.get(step, 0.0) for step in steps)
        read_cpu, read_asleep = (CPU_MS[READ], sleeps.get(READ, 0.0)) if reads == READ else (0.01, 0.0)
        mapped, read = threads[TRANSFORM_CALLS], threads[EXTRACT_CALLS]
        crowd = 1 + 0.01 * max(0, (mapped or 0) + (read or 0) - 2 * CORES)
        rest = CPU_MS["rest"] * (0.7 if value(BATCH_CALLS) == "autotune" else 1.0)
        step_ms = self.step_ms / 8
        if self.plant.is_locked:
            maps = (asleep * (1 + 0.1 * ((mapped or 1) - 1)) + cpu / min(mapped or 1, CORES)) * crowd
        else:
            maps = max((cpu + asleep) / (mapped or 1), cpu / min(mapped or 1, CORES)) * crowd
        reading = (read_cpu + read_asleep) / (read or 1) if reads == READ else read_cpu
        stages, asking = [(cpu + read_cpu + rest) / CORES * crowd], rest
        for ms, own in ((reading, read is not None and reads == READ), (maps, mapped is not None)):
            if own:
                stages.append(ms)
            else:
                asking += ms
        if value(PREFETCH) in (0, None):
            asking += step_ms
        else:
            stages.append(step_ms + (0.01 if value(PREFETCH) == "autotune" else 0.0))
        return float(sum(ms**6 for ms in [*stages, asking]) ** (1 / 6))


def _threads(value: Any) -> int | None:
    return None if value is None else 3 * CORES if value == "autotune" else CORES if isinstance(value, str) else value


@dataclass(kw_only=True)
class Contest:
    """A simulated search: its candidates, what is predicted of them, and windows that are counted."""

    plant: Plant
    seed: int

    def __post_init__(self) -> None:
        """Make the space and the predictions."""
        tune, job = job_of(self.plant)
        self.space = SearchSpace(job, tune, CORES)
        spec, draws = job.plan.spec, random.Random(self.seed)  # noqa: S311 - no secret
        epochs, step_ms = spec.trainer.all_epochs, spec.model.step_ms
        self.truth = Truth(plant=self.plant, config=job.config, step_ms=step_ms, epochs=epochs, seed=self.seed)
        common = {"passes": 2, "epochs": epochs, "batch_size": 8, "buffer": 8}
        scene = Scene(split="train", examples=EXAMPLES, step_ms=step_ms, step_cores=0.0, **common)
        self.predictor = Predictor(scene, self._costs(draws), job.config, CORES)
        base_s = self.truth.seconds({})
        rivals = [of for of in self.space if of and self._fits(of)]
        self.configs = [{}, *(of for of in rivals if self.predictor.seconds(of)[0] <= base_s * (1 - search.ALIKE))]
        self.predicted_s = [self.predictor.seconds(of)[1] for of in self.configs]
        made = (self.space.candidate(of) for of in self.configs)
        self.best_s = min(self.truth.seconds(of.changes) for of in made if isinstance(of, Candidate))
        self.draws, self.windows, self.drift = draws, 0, 0.0

    def _fits(self, changes: Changes) -> bool:
        return self.plant.free_bytes is None or changes.get(CACHE, "none") == "none"

    def _costs(self, draws: random.Random) -> Costs:
        """What a calibration would measure, with an error of a tenth."""
        sleeps, alone = self.plant.sleeps_ms, dict(CPU_MS)
        off = [math.exp(draws.gauss(0, 0.1)) for _ in range(5)]
        cpu = alone["Decode"] + alone["Resize"]
        asleep = sum(ms for name, ms in sleeps.items() if name != READ)
        together = asleep * (1.7 if self.plant.is_locked else 1 / 8)
        fastest = max((cpu + alone[READ]) / CORES, together, sleeps.get(READ, 0.0) / 8)
        return Costs(
            read_ms=(alone[READ] + sleeps.get(READ, 0.0)) * off[0],
            map_ms=(cpu + asleep) * off[1],
            rest_ms=alone["rest"] * off[2],
            fastest_ms=fastest * off[3],
            cached_ms=0.1 * off[4],
            cached_bytes=None,
            source_bytes=20_000.0,
        )

    def measure(self, candidate: Candidate) -> float:
        """Seconds of a window."""
        self.windows += 1
        self.drift = 0.9 * self.drift + self.draws.gauss(0, DRIFT * 0.44)
        return self.truth.seconds(candidate.changes) * math.exp(self.draws.gauss(0, NOISE) + self.drift)

    def first(self) -> list[int]:
        """Places of what runs first: AUTOTUNE."""
        auto = self.space.candidate(autotuned(self.space))
        is_there = isinstance(auto, Candidate) and auto.changes in self.configs
        return [self.configs.index(auto.changes)] if isinstance(auto, Candidate) and is_there else []

    def regret(self, winner: Candidate) -> float:
        """True time of what a search ends with over that of the best, less one: the confirmation keeps the baseline."""
        base_s, time_s = self.truth.seconds({}), self.truth.seconds(winner.changes)
        return (time_s if time_s < base_s / (1 + search.ALIKE) else base_s) / self.best_s - 1


class OptunaRace:
    """A race by Optuna, with the arguments and results of `race.Race`."""

    def __init__(
        self, space: SearchSpace, configs: Sequence[Changes], predicted_s: Sequence[float], measure: search.Measure
    ) -> None:
        """Take what the race of `tune` takes."""
        self._space, self._configs, self._predicted_s, self._measure = space, configs, predicted_s, measure
        self._places = {_key(changes): place for place, changes in enumerate(configs)}
        self._times_s = dict[int, list[float]]()
        self.known, self.noise = dict[int, Candidate | str](), 0.0

    def run(self, first: Sequence[int], shuffle: random.Random, has_time: Callable[[Candidate], bool]) -> Candidate:
        """Return the winner, once there is no time for another window."""
        optuna.logging.set_verbosity(logging.ERROR)
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=shuffle.randrange(1000), multivariate=True, n_startup_trials=STARTED)
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2)
        study = optuna.create_study(sampler=sampler, pruner=pruner)
        best = sorted(range(1, len(self._configs)), key=lambda place: self._predicted_s[place])
        for place in [0, *first, *best[: STARTED - 2]]:
            study.enqueue_trial(self._parameters(self._configs[place]))
        for _ in range(_MOST_TRIALS):
            if not has_time(self._space.baseline):
                break
            self._ran(study.ask(), study, has_time)
        return self._winner()

    def _ran(self, trial: optuna.Trial, study: optuna.Study, has_time: Callable[[Candidate], bool]) -> None:
        """Run the windows of a trial."""
        place = self._places.get(_key(self._changes(trial)))
        if place is not None and place not in self.known:
            self.known[place] = self._space.candidate(self._configs[place])
        candidate = None if place is None else self.known[place]
        if place is None or not isinstance(candidate, Candidate):
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)  # it costs no window, and is taken for the worst
            return
        for number in range(RUNGS):
            time_s = self._measure(candidate) if has_time(candidate) else None
            if time_s is None:
                break
            self._times_s.setdefault(place, []).append(time_s)
            trial.report(math.log(statistics.median(self._times_s[place])), number + 1)
            if trial.should_prune():
                break
        if place in self._times_s:
            study.tell(trial, math.log(statistics.median(self._times_s[place])))

    def _winner(self) -> Candidate:
        """Return the simplest of the configs that are tied with the fastest one, of those with two windows."""
        medians = {place: statistics.median(of) for place, of in self._times_s.items() if len(of) > 1}
        best_s = min(medians.values(), default=0.0)
        tied = [self.known[place] for place, time_s in medians.items() if time_s <= best_s * (1 + search.TIED)]
        found = [of for of in tied if isinstance(of, Candidate)]
        return min(found, key=search._simplicity, default=self._space.baseline)  # noqa: SLF001 - the same rule

    def _changes(self, trial: optuna.Trial) -> Changes:
        def suggested(key: str, choices: int) -> int:
            return cast("int", trial.suggest_categorical(key, range(choices)))

        changes = dict(self._space.caches[suggested("cache", len(self._space.caches))])
        for key, values in self._space.options.items():
            chosen = suggested(key, 1 + len(values))
            changes |= {key: values[chosen - 1]} if chosen else {}
        return changes

    def _parameters(self, changes: Changes) -> dict[str, int]:
        options = self._space.options
        own = {key: 1 + values.index(changes[key]) if key in changes else 0 for key, values in options.items()}
        cache = {key: value for key, value in changes.items() if key not in options}
        return {"cache": self._space.caches.index(cache), **own}


def _key(changes: Changes) -> str:
    return str(sorted(map(str, changes.items())))


ENGINES: dict[str, Callable[..., Any]] = {"race": search.Race, "Optuna": OptunaRace}


def regret_of(engine: str, plant: Plant, seed: int) -> tuple[float, int, int]:
    """Regret, windows and candidates of an engine on a plant."""
    contest = Contest(plant=plant, seed=seed)
    if len(contest.configs) == 1:
        return 0.0, 0, 0
    running = ENGINES[engine](contest.space, contest.configs, contest.predicted_s, contest.measure)
    shuffle = random.Random(seed)  # noqa: S311 - an order
    winner = running.run(contest.first(), shuffle, lambda _: contest.windows < WINDOWS)
    return contest.regret(winner), contest.windows, len(contest.configs) - 1


def main() -> None:
    """Run both engines on each plant and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    known = parser.parse_args()
    heads = [f"{what}, {name}" for name in ENGINES for what in ("median regret", "largest", "within 3 %", "windows")]
    print(f"| plant | configs | {' | '.join(heads)} |", f"|{'---|' * (2 + len(heads))}", sep="\n")
    near = dict.fromkeys(ENGINES, 0)
    for name, plant in PLANTS.items():
        cells, size = list[str](), 0
        for engine in ENGINES:
            found = [regret_of(engine, plant, seed) for seed in range(known.seeds)]
            regrets, windows, (size, *_) = zip(*found, strict=True)
            hits = sum(1 / (1 + regret) >= WITHIN for regret in regrets)
            near[engine] += hits
            cells += [f"{statistics.median(regrets):.1%}", f"{max(regrets):.1%}", f"{hits} of {known.seeds}"]
            cells += [f"{statistics.median(windows):.0f}"]
        print(f"| {name} | {size} | {' | '.join(cells)} |", flush=True)
    total = known.seeds * len(PLANTS)
    ends = "; ".join(f"{name} in {hits} of {total} races" for name, hits in near.items())
    print(f"\nWithin 3 % of the best of the space: {ends}.")


if __name__ == "__main__":
    main()
