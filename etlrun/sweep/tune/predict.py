"""What windows tell: the costs of a pipeline, and the times of configs that did not run."""

import itertools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

from etlrun.config.grid import Job
from etlrun.planning.plan import Plan
from etlrun.record.summary import COMPLETED, Summary
from etlrun.review.effects import cached_bytes
from etlrun.run import backend
from etlrun.sources.base import on_disk, open_source
from etlrun.stages.cache import CACHES
from etlrun.stages.dataset import Dataset, Fetch
from etlrun.stages.model import Emulated
from etlrun.stages.sweep import Tune
from etlrun.sweep.tune.space import (
    BATCH_CALLS,
    CACHE,
    CODEC,
    EXTRACT_CALLS,
    POINT,
    PREFETCH,
    TRANSFORM_CALLS,
    Changes,
    Scene,
    SearchSpace,
    Windows,
    changed,
    in_short,
    value_of,
)
from etlrun.system import machine
from etlrun.system.errors import ConfigError, Fault, WorldError
from etlrun.system.machine import megabytes
from etlrun.system.values import Block, Composed, frozen

_UNSURE, _UNSURE_OF_CACHE = 1.25, 1.6
"""Factors by which a prediction may be wrong: from costs that were measured, and for a cache that was not."""


@frozen
class Costs:
    """Milliseconds per example.

    Attributes:
        read_ms: Reading of a record in one thread.
        map_ms: All steps in one thread.
        rest_ms: Shuffling and batching.
        fastest_ms: The whole pipeline with many threads, without a cache.
        cached_ms: The pipeline behind a cache after the last steady step; None if it was not measured.
        cached_bytes: Bytes of an example there; None if they are not known.
        source_bytes: Bytes of an encoded example; None if they are not known.
    """

    read_ms: float
    map_ms: float
    rest_ms: float
    fastest_ms: float
    cached_ms: float | None
    cached_bytes: float | None
    source_bytes: float | None


def pace_ms(window: Summary) -> float:
    """Return the milliseconds per example of the last pass of a window that holds no batch."""
    epoch = window.epochs[-1]
    steady_s = epoch.wall_s - epoch.startup_s - epoch.fill_wait_s
    if epoch.steps > 1 and steady_s > 0:
        return 1000 * steady_s / (epoch.examples - epoch.examples / epoch.steps)
    return 1000 * epoch.wall_s / max(epoch.examples, 1)


@dataclass
class Predictor:
    """Predicts the seconds of all epochs of a config from its values."""

    scene: Scene
    costs: Costs
    config: Composed
    cores: int

    def seconds(self, changes: Changes) -> tuple[float, float, float]:
        """Return the lowest, the likely and the highest seconds of all epochs."""
        target, is_of_source = self._value(changes, CACHE), self._value(changes, POINT) == "source"
        first_ms, factor, known_ms = self._uncached_ms(changes), _UNSURE, self.costs.cached_ms
        size = self.costs.source_bytes if is_of_source else self.costs.cached_bytes
        reading_ms = 1000 * (size or 0.0) / CACHES[target].read_bytes_per_s if target != "none" else None
        if is_of_source or reading_ms is None:
            later_ms = self._uncached_ms(changes, reading_ms)
        else:
            factor = _UNSURE if known_ms is not None and target == "memory" else _UNSURE_OF_CACHE
            later_ms = reading_ms + self.costs.rest_ms if known_ms is None else known_ms
        per_example_ms = self._paced(changes, first_ms) + (self.scene.epochs - 1) * self._paced(changes, later_ms)
        likely_s = per_example_ms * self.scene.examples / 1000
        return max(likely_s / factor, min(self.scene.ideal_s, likely_s)), likely_s, likely_s * factor

    def cache_bytes(self, plan: Plan) -> int | None:
        """Return the bytes of the caches of the whole run; None without a cache, or if their size is not known."""
        if not plan.spec.cache.keeps:
            return None
        dataset, per_example = plan.spec.dataset, self.costs.cached_bytes
        splits = dataset.splits.items()
        validated = [on_disk(dataset.read_by(name)).examples(split) for name, split in splits if name != "train"]
        number = self.scene.examples + sum(of.count for of in validated if of is not None)
        size = cached_bytes(plan, "train", number)
        return int(number * per_example) if size is None and per_example else size

    def unfit(self, changes: Changes, plan: Plan, free_disk_bytes: int) -> str:
        """Return why the caches of a config don't fit; empty if they do, or if their size is not known."""
        size, cache = self.cache_bytes(plan), CACHES[self._value(changes, CACHE)]
        free, where = machine.free_memory_bytes(), "in memory"
        if cache.outlives_run:
            free, where = free_disk_bytes, "on the disk"
        if size is None or size <= cache.share * free:
            return ""
        return f"its cache takes {megabytes(size)}, with {megabytes(free)} free {where}"

    def _value(self, changes: Changes, key: str) -> Any:
        return changes[key] if key in changes else value_of(self.config, key)

    def _threads(self, changes: Changes, key: str) -> int | None:
        """Return the threads of a stage; None for none of its own."""
        value = self._value(changes, key)
        if isinstance(value, str):
            return {"autotune": 4 * self.cores}.get(value, self.cores)
        return None if value is None else int(value)

    def _uncached_ms(self, changes: Changes, read_ms: float | None = None) -> float:
        """Return the period of the pipeline alone: its slowest thread, and never less than all threads together."""
        of, threads = self.costs, self._threads(changes, TRANSFORM_CALLS)
        asking, fastest, calls = of.rest_ms, of.fastest_ms, self._threads(changes, EXTRACT_CALLS)
        if read_ms is not None:
            fastest, calls = min(fastest, of.map_ms / self.cores), None
        read = of.read_ms if read_ms is None else read_ms
        asking += of.map_ms if threads is None else 0.0
        reading = read / calls if calls is not None else read + asking if threads is None else read
        return max(asking, fastest, of.map_ms / threads if threads is not None else 0.0, reading)

    def _paced(self, changes: Changes, pipeline_ms: float) -> float:
        """Return the period with the steps of the model: beside the pipeline with a prefetch, else after it."""
        step_ms, after_ms = self.scene.step_ms / self.scene.batch_size, 0.0
        shared_ms = pipeline_ms + step_ms * self.scene.step_cores / self.cores if self.scene.step_cores else 0.0
        if self._value(changes, PREFETCH) in (0, None):
            after_ms = pipeline_ms if self._threads(changes, TRANSFORM_CALLS) is None else self.costs.rest_ms
        return max(step_ms + after_ms, pipeline_ms, shared_ms)


Floats = npt.NDArray[np.float64]

_CACHE, _VALUE, _BOTH, _ALONE = 0.25, 0.1, 0.05, 0.02
"""Standard deviations of effects: how wrong a prediction may be for a cache, a value, both, or a single config."""
_LEVEL = 3.0
"""Standard deviation of what all windows have in common, of which nothing is known."""
_MOST = math.log(2)
"""Largest difference to a prediction, beside that which all windows have in common, that counts."""
_NOISES, _DRIFTS = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32), (0.01, 0.04, 0.16)
"""Standard deviations of a window and of a drift of the machine, of which the likeliest are taken."""
_USUAL_NOISE, _UNUSUAL = 0.03, 0.7
"""Noise of a machine of which nothing is known, and the standard deviation of the logarithm of that."""
_LASTS = 8
"""Windows over which a drift lasts."""
_LEAST = 0.001
"""Expected gain below which a config does not run."""
_FREEDOM, _TURNS = 2, 4
"""Degrees of freedom of the noise, by Student's t, and turns of the fit that weighs each window by them."""


class Surrogate:
    """A model of the speeds of configs, of which windows tell.

    Attributes:
        ran: The config of each window, as its place in the list of configs.
        means: Expected logarithm of the speed of each config.
        noise: Standard deviation of the logarithm of a time, without the drift of the machine.
        drift: Standard deviation of that drift.
        spread: Variance of each window over that of the noise: large for one that is unlike the others.
    """

    def __init__(self, configs: Sequence[Changes], predicted_s: Sequence[float]) -> None:
        self._codes, self._prior = _codes(configs), -np.log(np.asarray(predicted_s, float))
        self._logs, self.ran, self.noise, self.drift = list[float](), list[int](), 0.0, 0.0
        self.means, self.spread = self._prior, np.zeros(0)

    def tell(self, place: int, time_s: float) -> None:
        """Add a window, of so many seconds of all epochs."""
        self.ran.append(place)
        self._logs.append(-math.log(time_s))

    def is_near(self, one: int, other: int) -> bool:
        """Return whether two configs differ in at most one parameter."""
        return int((self._codes[one] != self._codes[other]).sum()) <= 1

    def expected(self) -> Self:
        """Return this with what is expected now, with the noise and the drift that explain the windows best."""
        if not self.noise or len(self.spread) != len(self.ran):
            among, surprise = self._effects(self.ran, self.ran), np.array(self._logs) - self._prior[self.ran]
            usual = np.median(surprise) if self.ran else 0.0
            surprise, self.spread = np.clip(surprise, usual - _MOST, usual + _MOST), np.ones(len(surprise))
            for _ in range(_TURNS):
                fits = []
                for noise, drift in itertools.product(_NOISES, _DRIFTS):
                    covariance = among + _of_machine(self.spread, noise, drift)
                    weights = np.linalg.solve(covariance, surprise)
                    unlikely = surprise @ weights + np.linalg.slogdet(covariance)[1]
                    unlikely += (math.log(noise / _USUAL_NOISE) / _UNUSUAL) ** 2
                    fits.append((float(unlikely), noise, drift, weights))
                _, self.noise, self.drift, weights = min(fits, key=itemgetter(0))
                self.spread = (_FREEDOM + (self.noise * self.spread * weights) ** 2) / (_FREEDOM + 1)
            self.means = self._prior + self._effects(range(len(self._prior)), self.ran) @ weights
        return self

    def promising(self, over: int, most: int, tied: float, admitted: Callable[[int], bool]) -> list[int]:
        """Return configs expected to exceed the speed of `over` by more than a tie, each as if those before had run."""
        from scipy.special import ndtr  # imported here, since it takes 0.1 s

        self.expected()
        every, ran, chosen = range(len(self._prior)), [*self.ran], list[int]()
        leads = self.means - self.means[over] - tied
        whole = self._effects([over], [over])[0, 0]
        while len(chosen) < most:
            spread = np.append(self.spread, np.ones(len(chosen)))
            covariance = self._effects(ran, ran) + _of_machine(spread, self.noise, self.drift)
            effects = self._effects(ran, every)
            told = np.linalg.solve(covariance, effects)
            shared = self._effects([over], every)[0] - effects[:, over] @ told
            apart = np.sqrt(np.maximum(whole - (effects * told).sum(axis=0) + shared[over] - 2 * shared, 1e-12))
            gains = leads * ndtr(leads / apart) + apart * np.exp(-((leads / apart) ** 2) / 2) / math.sqrt(2 * math.pi)
            gains[[over, *chosen]] = 0.0
            while gains[best := int(gains.argmax())] >= _LEAST and not admitted(best):
                gains[best] = 0.0
            if gains[best] < _LEAST:
                break
            chosen.append(best)
            ran.append(best)
        return chosen

    def _effects(self, some: Sequence[int], others: Sequence[int]) -> Floats:
        """Return the covariance of the speeds of configs before any window."""
        same = self._codes[list(some)][:, None] == self._codes[list(others)][None]
        cache, values = same[..., 0], same[..., 1:].sum(axis=2)
        found: Floats = _CACHE**2 * cache + (_VALUE**2 + _BOTH**2 * cache) * values + _ALONE**2 * same.all(axis=2)
        return found


def _of_machine(spread: Floats, noise: float, drift: float) -> Floats:
    """Return the covariance of windows, one after the other, that is not due to their configs."""
    apart = np.abs(np.subtract.outer(range(len(spread)), range(len(spread))))
    found: Floats = _LEVEL**2 + drift**2 * np.exp(-apart / _LASTS) + noise**2 * np.diag(spread)
    return found


def _codes(configs: Sequence[Changes]) -> npt.NDArray[np.int64]:
    """Return a number for each value of each parameter: the cache, which is one of them, and what else is changed."""
    cache = (CACHE, POINT, CODEC)
    others = [(key,) for key in dict.fromkeys(itertools.chain.from_iterable(configs)) if key not in cache]
    columns = [[str([of.get(key, ...) for key in keys]) for of in configs] for keys in (cache, *others)]
    return np.array([np.unique(column, return_inverse=True)[1] for column in columns]).T


FEWEST_BATCHES = 16
_STEPS = 24
"""Training steps of a real model that are measured."""
_WINDOWS = 150
"""The budget, in windows."""
_SHORTEST_S, _LONGEST_S = 0.4, 3.0
"""Duration of a pass in a window."""
_MOST_PASSES = 4
_WHOLE = 2
"""A training split of up to this many windows is read as a whole."""
_PROBE_S = 1.2
"""Duration of a window that measures costs."""
_PARTS = 32
"""Places of the training split that a window reads."""


def prepare(dataset: Dataset) -> None:
    """Prepare a dataset that is missing, in a time that is not that of the search; `WorldError` if it isn't there."""
    try:
        open_source(dataset.as_it_is())
    except WorldError:
        before = os.environ.copy()
        try:
            with backend.prepare(None):
                open_source(dataset)
        finally:
            os.environ.clear()  # windows may use the devices that this process does not
            os.environ.update(before)


def scene_of(job: Job, tune: Tune, windows: Windows) -> Scene:
    """Return what the windows of a search have in common, from a look at the pipeline and some steps of the model.

    `ConfigError` if the cache holds features, which the model computes; `WorldError` if the config does not run.
    """
    plan = job.plan
    if plan.spec.cache.keeps_features:
        expected = "another point: the features of a frozen base are computed once, by the model"
        raise ConfigError([Fault(plan.spec.cache.key("at"), "features", expected)])
    length_s = min(max(tune.budget_s / _WINDOWS, _SHORTEST_S), _LONGEST_S)
    load = plan.spec.load
    scene = Scene(
        split=plan.spec.dataset.split,
        batch_size=load.batch_size,
        buffer=max(0 if load.is_by_number else load.shuffle_buffer, load.batch_size),
        is_by_number=load.is_by_number,
    )
    look = completed(windows.run("look", _limited(scene, windows, job.config, length_s)))
    number = look.dataset.examples["train"]
    step_ms, step_cores = _step(job, windows, number)
    period_ms = max(pace_ms(look), step_ms / load.batch_size)
    wanted = max(round(1000 * length_s / period_ms), FEWEST_BATCHES * load.batch_size)
    epochs, steps = plan.spec.trainer.all_epochs or 1, plan.spec.trainer.steps_per_epoch
    if steps is not None:
        epochs = max(1, math.ceil(epochs * steps * load.batch_size / max(number, 1)))
    some = number if number <= _WHOLE * wanted else wanted
    return replace(
        scene,
        split=on_disk(plan.spec.dataset).thinned(plan.spec.dataset.split, some, min(_PARTS, look.dataset.shards)),
        examples=number,
        epochs=epochs,
        passes=min(epochs, _MOST_PASSES, 1 + max(1, round(wanted / some))),
        step_ms=step_ms,
        step_cores=step_cores,
    )


def completed(window: Summary) -> Summary:
    """Return a window of the baseline, which has to complete; `WorldError` with its reason if it did not."""
    if window.status == COMPLETED and window.epochs:
        return window
    found = (window.error or window.status).strip()
    remedy = "make it run: etlrun with the same overrides; or set a larger tune.budget_s if a window found no end"
    raise WorldError("the baseline", found, "a config that runs", remedy)


def costs(space: SearchSpace, scene: Scene, windows: Windows, cores: int) -> Costs:
    """Measure the pipeline with one thread for each stage, with many, and behind a cache, each without a model."""
    config, bare = space.baseline.config, replace(scene, step_ms=0.0, step_cores=0.0, passes=1)
    alone = {CACHE: "none", EXTRACT_CALLS: 1, TRANSFORM_CALLS: 1, BATCH_CALLS: None, PREFETCH: 0}
    many = {CACHE: "none", EXTRACT_CALLS: "autotune", TRANSFORM_CALLS: 4 * cores, BATCH_CALLS: "autotune"}
    found = []
    for name, changes in (("one", alone), ("many", many)):
        if "num_parallel_calls" not in config["extract"]:
            del changes[EXTRACT_CALLS]
        found.append(completed(windows.run(name, _limited(bare, windows, changed(config, changes), _PROBE_S))))
    one, many_threads = found
    # A cache in memory after the last steady step, if there can be one:
    caches = [cache for cache in space.caches if cache.get(CACHE) == "memory" and cache.get(POINT) != "source"]
    made = space.candidate(caches[0]) if caches and scene.epochs > 1 else ""
    cached = None
    if not isinstance(made, str):
        of = windows.run("cached", _limited(replace(bare, passes=2), windows, made.config, None))
        cached = of if of.status == COMPLETED else None
    costs = {row.stage: row.cost_ms for row in one.stages if row.stage != Fetch.path}  # later passes read copies
    spec = space.baseline.plan.spec
    read_ms = costs.pop(spec.extract.path, 0.0)
    map_ms = sum(cost for stage, cost in costs.items() if stage.startswith("transform."))
    rest_ms = sum(costs.values()) - map_ms
    known = on_disk(spec.dataset).examples(spec.dataset.split)
    held = cached.cache.pipelines.get("train") if cached and cached.cache else None
    in_pass = cached.epochs[-1].examples if cached and cached.epochs else 0
    return Costs(
        read_ms=read_ms,
        map_ms=map_ms or max(pace_ms(one) - read_ms - rest_ms, 0.0),
        rest_ms=rest_ms,
        fastest_ms=pace_ms(many_threads),
        cached_ms=pace_ms(cached) if cached and len(cached.epochs) > 1 else None,
        cached_bytes=held.held_bytes / in_pass if held and in_pass else None,
        source_bytes=known.encoded_bytes if known else None,
    )


def _limited(scene: Scene, windows: Windows, config: Composed, seconds: float | None) -> Block:
    """Return the config of a window that ends after so many seconds, or its passes."""
    # Examples of a buffer that is full tell nothing about the pace of what fills it.
    return changed(scene.config(config, windows.caches), {"load.shuffle_buffer": 0, "trainer.seconds": seconds})


def _step(job: Job, windows: Windows, number: int) -> tuple[float, float]:
    """Return the milliseconds of a training step, and the cores that it keeps busy."""
    spec = job.plan.spec
    if spec.fit is None:
        return spec.trainer.step_ms, spec.trainer.step_cores
    if not spec.model.learns:
        return cast("Emulated", spec.model).step_ms, 0.0
    dataset, some = spec.dataset, min(number, _STEPS * spec.load.batch_size)
    own = in_short(job.config, on_disk(dataset).thinned(dataset.split, some, _PARTS), windows.caches)
    keys = ("steps_per_epoch", "phases", "resume", "checkpoint_every_steps")
    own["trainer"] |= {"epochs": 1, **dict.fromkeys(keys)}
    window = completed(windows.run("model", changed(own, {CACHE: "none", "trainer.early_stopping.patience": None})))
    if window.step_floor_ms is None:
        expected = "the time of a training step, from at least two batches"
        raise WorldError("the model", "no step that could be measured", expected, "set a smaller load.batch_size")
    return window.step_floor_ms, 0.0 if window.host.accelerators else window.step_floor_cores or 1.0
