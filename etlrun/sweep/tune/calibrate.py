"""Calibration of a search: the step of the model, the size of a window, and the costs of the stages."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any, cast

from etlrun.config.grid import Job
from etlrun.planning.plan import Plan
from etlrun.record.summary import COMPLETED, Summary
from etlrun.run import backend
from etlrun.sources.base import on_disk, open_source
from etlrun.stages.dataset import Dataset
from etlrun.stages.load import Load
from etlrun.stages.model import Emulated
from etlrun.stages.sweep import Tune
from etlrun.sweep.tune.predict import Costs, costs_of, pace_ms
from etlrun.sweep.tune.space import BATCH_CALLS, CACHE, EXTRACT_CALLS, POINT, PREFETCH, TRANSFORM_CALLS, Space, changed
from etlrun.sweep.tune.windows import Scene, Windows, in_short
from etlrun.system.errors import ConfigError, Fault, WorldError

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
        raise ConfigError([Fault(where=plan.spec.cache.key("at"), found="features", expected=expected)])
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
    raise WorldError(where="the baseline", found=found, expected="a config that runs", remedy=remedy)


def costs(space: Space, scene: Scene, windows: Windows, cores: int) -> Costs:
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


def _cached(space: Space, bare: Scene, epochs: int, windows: Windows) -> Summary | None:
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
    window = completed(windows.run("model", _with_model(job, windows, spec.load, number)))
    if window.step_floor_ms is None:
        expected = "the time of a training step, from at least two batches"
        found, remedy = "no step that could be measured", "set a smaller load.batch_size"
        raise WorldError(where="the model", found=found, expected=expected, remedy=remedy)
    is_accelerated = bool(window.host.accelerators)
    return window.step_floor_ms, 0.0 if is_accelerated else window.step_floor_cores or 1.0


def _with_model(job: Job, windows: Windows, load: Load, number: int) -> dict[str, Any]:
    """Return the config of a short run of the model itself."""
    dataset, some = job.plan.spec.dataset, min(number, _STEPS * load.batch_size)
    own = in_short(job.config, on_disk(dataset).thinned(dataset.split, some, _PARTS), windows.caches)
    own["cache"] |= {"name": "none"}
    own["trainer"] |= {"epochs": 1, "steps_per_epoch": None, "phases": None, "resume": None}
    own["trainer"] |= {"checkpoint_best": None, "checkpoint_every_steps": None}
    own["trainer"]["early_stopping"] |= {"patience": None}
    return own


def _passes(plan: Plan, number: int) -> int:
    """Return the passes over the training split that the run makes."""
    trainer = plan.spec.trainer
    epochs = trainer.all_epochs or 1
    if trainer.steps_per_epoch is None:
        return epochs
    return max(1, math.ceil(epochs * trainer.steps_per_epoch * plan.spec.load.batch_size / max(number, 1)))
