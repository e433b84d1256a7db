"""Caches of a run: opening them, the check of free space, and their report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console

from etlrun.cache.keeper import Keeper, Kept
from etlrun.cache.store import Store, folder_of
from etlrun.graph.build import Pipeline
from etlrun.graph.context import Context
from etlrun.graph.disk import columns
from etlrun.graph.forecast import fits
from etlrun.graph.identity import identity
from etlrun.plan.plan import Plan, at_cache
from etlrun.record.record import Record


def note(record: Record, text: str) -> None:
    """Report an event of a cache: on the terminal, in the events, and in the notes of the report."""
    Console(stderr=True, soft_wrap=True).print(text, markup=False, highlight=False)
    record.event("cache", text=text)
    record.remark(f"{text[0].upper()}{text[1:]}.")


def keepers_of(
    plan: Plan, contexts: Mapping[str, Context], made_by: dict[str, Any], say: Callable[[str], None]
) -> dict[str, Keeper]:
    """Return the keepers of the disk caches, by pipeline; they are neither opened nor claimed."""
    cache, keepers = plan.spec.cache, {}
    if not cache.outlives_run:
        return {}
    for name, context in contexts.items():
        before, _, _ = at_cache(plan.pipelines[name])
        kept = Kept(
            identity=identity(before, context),
            columns=columns(before[-1].gives),
            made_by={**made_by, "dataset": context.source.full_name, "split": context.split.name},
        )
        count = None if plan.spec.dataset.on_corrupt == "skip" else context.split.num_examples
        keepers[name] = Keeper(
            Store(cache.dir),
            kept,
            count=count,
            changed=context.split.content.changed,
            waits=cache.when_busy == "wait",
            say=say,
        )
    return keepers


def open_caches(plan: Plan, record: Record, pipelines: Mapping[str, Pipeline]) -> None:
    """Open or claim the disk caches, and check that there is space for those to be filled."""
    cache = plan.spec.cache
    if not cache.keeps:
        return
    keepers = {name: pipeline.keeper for name, pipeline in pipelines.items() if pipeline.keeper is not None}
    try:
        # In the order of their keys, so that two runs cannot deadlock.
        for keeper in sorted(keepers.values(), key=lambda keeper: keeper.key):
            keeper.prepare()
        to_fill = {
            name: pipeline
            for name, pipeline in pipelines.items()
            if pipeline.keeper is None or pipeline.keeper.is_to_fill
        }
        forecast = fits(plan, to_fill, folder_of(cache.dir))
    except BaseException:
        for keeper in keepers.values():
            keeper.close()
        raise
    record.update(cache={"target": cache.path, "at": cache.at, "forecast_bytes": forecast})


def describe_caches(plan: Plan, record: Record, pipelines: Mapping[str, Pipeline]) -> None:
    """Record what the caches hold at the end of the run, and what their passes did."""
    if record.summary.cache is None or not plan.spec.cache.keeps:
        return
    held = {
        name: {
            "held_bytes": pipeline.held_bytes,
            **({"key": pipeline.keeper.key, "passes": pipeline.keeper.passes} if pipeline.keeper else {}),
        }
        for name, pipeline in pipelines.items()
    }
    record.update(cache=record.summary.cache.with_values(pipelines=held))
