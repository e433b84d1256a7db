"""What windows tell: the costs of a pipeline, and the times of configs that did not run."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from etlrun.config.grid import Job
from etlrun.planning.plan import Plan
from etlrun.record.summary import COMPLETED, Summary
from etlrun.review.caches import cached_bytes
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
    SearchSpace,
    changed,
    value_of,
)
from etlrun.sweep.tune.windows import Scene, Windows, in_short
from etlrun.system import machine
from etlrun.system.errors import ConfigError, Fault, WorldError
from etlrun.system.machine import megabytes
from etlrun.system.values import frozen

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
    batch = epoch.examples / max(epoch.steps, 1)
    steady_s = epoch.wall_s - epoch.startup_s - epoch.fill_wait_s
    if epoch.steps > 1 and steady_s > 0:
        return 1000 * steady_s / (epoch.examples - batch)
    return 1000 * epoch.wall_s / max(epoch.examples, 1)


def costs_of(plan: Plan, one: Summary, many: Summary, cached: Summary | None) -> Costs:
    """Return the costs measured in a window with one thread for each stage, one with many, and one with a cache."""
    costs = {row.stage: row.cost_ms for row in one.stages if row.stage != Fetch.path}  # later passes read copies
    read = plan.spec.extract.path
    read_ms = costs.pop(read, 0.0)
    map_ms = sum(cost for stage, cost in costs.items() if stage.startswith("transform."))
    rest_ms = sum(cost for stage, cost in costs.items() if not stage.startswith("transform."))
    known = on_disk(plan.spec.dataset).examples(plan.spec.dataset.split)
    held = cached.cache.pipelines.get("train") if cached is not None and cached.cache is not None else None
    in_pass = cached.epochs[-1].examples if cached is not None and cached.epochs else 0
    return Costs(
        read_ms=read_ms,
        map_ms=map_ms or max(pace_ms(one) - read_ms - rest_ms, 0.0),
        rest_ms=rest_ms,
        fastest_ms=pace_ms(many),
        cached_ms=pace_ms(cached) if cached is not None and len(cached.epochs) > 1 else None,
        cached_bytes=held.held_bytes / in_pass if held is not None and in_pass else None,
        source_bytes=None if known is None else known.encoded_bytes,
    )


class Predictor:
    """Predicts the seconds of all epochs of a config from its values."""

    def __init__(self, scene: Scene, costs: Costs, config: Mapping[str, Any], cores: int) -> None:
        self.scene, self.costs, self.cores, self._config = scene, costs, cores, config

    def seconds(self, changes: Mapping[str, Any]) -> tuple[float, float, float]:
        """Return the lowest, the likely and the highest seconds of all epochs."""
        target, point = self._value(changes, CACHE), self._value(changes, POINT)
        uncached_ms = self._paced(changes, self._uncached_ms(changes))
        later_ms, factor = uncached_ms, _UNSURE
        if target != "none" and point == "source":
            later_ms = self._paced(changes, self._uncached_ms(changes, read_ms=self._reading_ms(target, point)))
        elif target != "none":
            read_ms = self.costs.cached_ms
            factor = _UNSURE if read_ms is not None and target == "memory" else _UNSURE_OF_CACHE
            behind_ms = self._reading_ms(target, point) + self.costs.rest_ms if read_ms is None else read_ms
            later_ms = self._paced(changes, behind_ms)
        per_example_ms = uncached_ms + (self.scene.epochs - 1) * later_ms
        likely_s = per_example_ms * self.scene.examples / 1000
        return max(likely_s / factor, min(self.scene.ideal_s, likely_s)), likely_s, likely_s * factor

    def cache_bytes(self, plan: Plan) -> int | None:
        """Return the bytes of the caches of the whole run; None without a cache, or if their size is not known."""
        if not plan.spec.cache.keeps:
            return None
        dataset = plan.spec.dataset
        validation = on_disk(dataset).examples(dataset.eval_split) if dataset.eval_split is not None else None
        number = self.scene.examples + (validation.count if validation is not None else 0)
        size = cached_bytes(plan, "train", number)
        return int(number * self.costs.cached_bytes) if size is None and self.costs.cached_bytes else size

    def unfit(self, changes: Mapping[str, Any], plan: Plan, free_disk_bytes: int) -> str:
        """Return why the caches of a config don't fit; empty if they do, or if their size is not known."""
        size, target = self.cache_bytes(plan), self._value(changes, CACHE)
        free, where = machine.free_memory_bytes(), "in memory"
        if CACHES[target].outlives_run:
            free, where = free_disk_bytes, "on the disk"
        if size is None or size <= CACHES[target].share * free:
            return ""
        return f"its cache takes {megabytes(size)}, with {megabytes(free)} free {where}"

    def _value(self, changes: Mapping[str, Any], key: str) -> Any:
        return changes[key] if key in changes else value_of(self._config, key)

    def _reading_ms(self, target: str, point: str) -> float:
        size = self.costs.source_bytes if point == "source" else self.costs.cached_bytes
        return 1000 * (size or 0.0) / CACHES[target].read_bytes_per_s

    def _threads(self, changes: Mapping[str, Any], key: str) -> int | None:
        """Return the threads of a stage; None for none of its own."""
        value = self._value(changes, key)
        if isinstance(value, str):
            return {"autotune": 4 * self.cores}.get(value, self.cores)
        return None if value is None else int(value)

    def _uncached_ms(self, changes: Mapping[str, Any], read_ms: float | None = None) -> float:
        """Return the period of the pipeline alone: its slowest thread, and never less than all threads together."""
        of = self.costs
        read = of.read_ms if read_ms is None else read_ms
        calls = self._threads(changes, EXTRACT_CALLS) if read_ms is None else None
        threads = self._threads(changes, TRANSFORM_CALLS)
        asking, behind = of.rest_ms, [of.fastest_ms if read_ms is None else min(of.fastest_ms, of.map_ms / self.cores)]
        if threads is None:
            asking += of.map_ms
        else:
            behind.append(of.map_ms / threads)
        if calls is None:
            behind.append(read) if threads is not None else behind.append(read + asking)
        else:
            behind.append(read / calls)
        return max(asking, *behind)

    def _paced(self, changes: Mapping[str, Any], pipeline_ms: float) -> float:
        """Return the period with the steps of the model: beside the pipeline with a prefetch, else after it."""
        step_ms = self.scene.step_ms / self.scene.batch_size
        beside = self._value(changes, PREFETCH) not in (0, None)
        behind = self._threads(changes, TRANSFORM_CALLS) is not None
        shared_ms = pipeline_ms + step_ms * self.scene.step_cores / self.cores if self.scene.step_cores else 0.0
        if beside:
            return max(step_ms, pipeline_ms, shared_ms)
        return max(step_ms + (self.costs.rest_ms if behind else pipeline_ms), pipeline_ms, shared_ms)


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


@frozen
class Expectation:
    """What the windows so far let expect.

    Attributes:
        means: Logarithm of the speed of each config.
        noise: Standard deviation of the logarithm of a time, without the drift of the machine.
        drift: Standard deviation of that drift.
        spread: Variance of each window over that of the noise: large for one that is unlike the others.
    """

    means: Floats
    noise: float
    drift: float
    spread: Floats


class Surrogate:
    """A model of the speeds of configs, of which windows tell.

    Attributes:
        ran: The config of each window, as its place in the list of configs.
    """

    def __init__(self, configs: Sequence[Changes], predicted_s: Sequence[float]) -> None:
        self._codes, self._prior = _codes(configs), -np.log(np.asarray(predicted_s, float))
        self._logs, self.ran = list[float](), list[int]()
        self._known: Expectation | None = None

    def tell(self, place: int, time_s: float) -> None:
        """Add a window, of so many seconds of all epochs."""
        self.ran.append(place)
        self._logs.append(-math.log(time_s))

    def is_near(self, one: int, other: int) -> bool:
        """Return whether two configs differ in at most one parameter."""
        return int((self._codes[one] != self._codes[other]).sum()) <= 1

    def expected(self) -> Expectation:
        """Return what is expected, with the noise and the drift that explain the windows best."""
        if self._known is None or len(self._known.spread) != len(self.ran):
            among, surprise = self._effects(self.ran, self.ran), np.array(self._logs) - self._prior[self.ran]
            usual = statistics.median(surprise.tolist()) if self.ran else 0.0
            surprise, spread = np.clip(surprise, usual - _MOST, usual + _MOST), np.ones(len(surprise))
            for _ in range(_TURNS):
                noise, drift, weights = _likeliest(among, surprise, spread)
                spread = (_FREEDOM + (noise * spread * weights) ** 2) / (_FREEDOM + 1)
            means = self._prior + self._effects(range(len(self._prior)), self.ran) @ weights
            self._known = Expectation(means=means, noise=noise, drift=drift, spread=spread)
        return self._known

    def promising(self, over: int, most: int, tied: float, admitted: Callable[[int], bool]) -> list[int]:
        """Return configs that are expected to exceed the speed of `over` most, beyond a difference that is a tie.

        Each is chosen as if those before it had run as expected, so that no two of them tell the same.
        """
        from scipy.special import ndtr  # imported here, since it takes 0.1 s

        now, every, ran, chosen = self.expected(), range(len(self._prior)), [*self.ran], list[int]()
        leads = now.means - now.means[over] - tied
        whole = self._effects([over], [over])[0, 0]
        while len(chosen) < most:
            covariance = self._effects(ran, ran) + _of_machine(
                np.append(now.spread, np.ones(len(chosen))), now.noise, now.drift
            )
            told = np.linalg.solve(np.linalg.cholesky(covariance), self._effects(ran, every))
            shared = self._effects([over], every)[0] - told[:, over] @ told
            apart = np.sqrt(np.maximum(whole - (told**2).sum(axis=0) + shared[over] - 2 * shared, 1e-12))
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


def _likeliest(among: Floats, surprise: Floats, spread: Floats) -> tuple[float, float, Floats]:
    """Return the likeliest noise and drift, and the weights of the windows with them."""
    fits = []
    for noise, drift in itertools.product(_NOISES, _DRIFTS):
        factor = np.linalg.cholesky(among + _of_machine(spread, noise, drift))
        white = np.linalg.solve(factor, surprise)
        unusual = math.log(noise / _USUAL_NOISE) / _UNUSUAL
        unlikely = float(white @ white + 2 * np.log(factor.diagonal()).sum()) + unusual**2
        fits.append((unlikely, noise, drift, np.linalg.solve(factor.T, white)))
    return min(fits, key=lambda fit: fit[0])[1:]


def _of_machine(spread: Floats, noise: float, drift: float) -> Floats:
    """Return the covariance of windows, one after the other, that is not due to their configs."""
    apart = np.abs(np.subtract.outer(range(len(spread)), range(len(spread))))
    found: Floats = _LEVEL**2 + drift**2 * np.exp(-apart / _LASTS) + noise**2 * np.diag(spread)
    return found


def _codes(configs: Sequence[Changes]) -> npt.NDArray[np.int64]:
    """Return a number for each value of each parameter: the cache, which is one of them, and what else is changed."""
    keys = [key for key in dict.fromkeys(key for of in configs for key in of) if key not in (CACHE, POINT, CODEC)]
    columns = [[str([of.get(key, ...) for key in (CACHE, POINT, CODEC)]) for of in configs]]
    columns += [[str(of.get(key, ...)) for of in configs] for key in keys]
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
    """Prepare a dataset that is missing, which may take longer than a window; its time is not that of the search.

    Raises:
        WorldError: It isn't available.
    """
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

    Raises:
        ConfigError: The cache holds features, which the model computes.
        WorldError: The config does not run.
    """
    plan = job.plan
    if plan.spec.cache.keeps_features:
        expected = "another point: the features of a frozen base are computed once, by the model"
        raise ConfigError([Fault(plan.spec.cache.key("at"), "features", expected)])
    length_s = min(max(tune.budget_s / _WINDOWS, _SHORTEST_S), _LONGEST_S)
    load = plan.spec.load
    scene = Scene(
        split=plan.spec.dataset.split,
        examples=0,
        passes=1,
        epochs=1,
        batch_size=load.batch_size,
        buffer=max(0 if load.is_by_number else load.shuffle_buffer, load.batch_size),
        step_ms=0.0,
        step_cores=0.0,
        is_by_number=load.is_by_number,
    )
    look = completed(windows.run("look", _limited(scene, windows, job.config, length_s)))
    number = look.dataset.examples["train"]
    step_ms, step_cores = _step(job, windows, number)
    period_s = max(pace_ms(look) / 1000, step_ms / 1000 / load.batch_size)
    wanted = max(round(length_s / period_s), FEWEST_BATCHES * load.batch_size)
    epochs, some = _passes(plan, number), number if number <= _WHOLE * wanted else wanted
    return dataclasses.replace(
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
    config, bare = space.baseline.config, dataclasses.replace(scene, step_ms=0.0, step_cores=0.0, passes=1)
    calls = [EXTRACT_CALLS] if "num_parallel_calls" in config["extract"] else []
    alone = {CACHE: "none", TRANSFORM_CALLS: 1, BATCH_CALLS: None, PREFETCH: 0}
    many = {CACHE: "none", TRANSFORM_CALLS: 4 * cores, BATCH_CALLS: "autotune"}
    found = {}
    for name, changes, values in (("one", alone, 1), ("many", many, "autotune")):
        own = changed(config, {**changes, **dict.fromkeys(calls, values)})
        found[name] = completed(windows.run(name, _limited(bare, windows, own, _PROBE_S)))
    cached = _cached(space, bare, scene.epochs, windows)
    return costs_of(space.baseline.plan, found["one"], found["many"], cached)


def _cached(space: SearchSpace, bare: Scene, epochs: int, windows: Windows) -> Summary | None:
    """Return a window of a cache in memory after the last steady step; None if there can't be one."""
    caches = [cache for cache in space.caches if cache.get(CACHE) == "memory" and cache.get(POINT) != "source"]
    made = space.candidate(caches[0]) if caches and epochs > 1 else ""
    if isinstance(made, str):
        return None
    own = dataclasses.replace(bare, passes=2).config(made.config, windows.caches)
    own["load"] |= {"shuffle_buffer": 0}
    window = windows.run("cached", own)
    return window if window.status == COMPLETED else None


def _limited(scene: Scene, windows: Windows, config: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return the config of a window that ends after so many seconds, or one pass.

    Nothing is shuffled, since the examples of a buffer that is full tell nothing about the pace of what fills it.
    """
    own = scene.config(config, windows.caches)
    own["load"] |= {"shuffle_buffer": 0}
    own["trainer"] |= {"seconds": seconds}
    return own


def _step(job: Job, windows: Windows, number: int) -> tuple[float, float]:
    """Return the milliseconds of a training step, and the cores that it keeps busy."""
    spec = job.plan.spec
    if spec.fit is None:
        return spec.trainer.step_ms, spec.trainer.step_cores
    if not spec.model.learns:
        return cast("Emulated", spec.model).step_ms, 0.0
    dataset, some = job.plan.spec.dataset, min(number, _STEPS * spec.load.batch_size)
    own = in_short(job.config, on_disk(dataset).thinned(dataset.split, some, _PARTS), windows.caches)
    own["cache"] |= {"name": "none"}
    own["trainer"] |= {"epochs": 1, "steps_per_epoch": None, "phases": None, "resume": None}
    own["trainer"] |= {"checkpoint_best": None, "checkpoint_every_steps": None}
    own["trainer"]["early_stopping"] |= {"patience": None}
    window = completed(windows.run("model", own))
    if window.step_floor_ms is None:
        expected = "the time of a training step, from at least two batches"
        found, remedy = "no step that could be measured", "set a smaller load.batch_size"
        raise WorldError("the model", found, expected, remedy)
    is_accelerated = bool(window.host.accelerators)
    return window.step_floor_ms, 0.0 if is_accelerated else window.step_floor_cores or 1.0


def _passes(plan: Plan, number: int) -> int:
    """Return the passes over the training split that the run makes."""
    trainer = plan.spec.trainer
    epochs = trainer.all_epochs or 1
    if trainer.steps_per_epoch is None:
        return epochs
    return max(1, math.ceil(epochs * trainer.steps_per_epoch * plan.spec.load.batch_size / max(number, 1)))
