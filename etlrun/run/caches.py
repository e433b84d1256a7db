"""Caches of a run: opening them, the check of free space, and their report."""

from __future__ import annotations

from collections.abc import Mapping

from etlrun.cache.store import folder_of
from etlrun.graph.build import Pipeline
from etlrun.graph.forecast import fits
from etlrun.plan.plan import Plan
from etlrun.record.record import Record
from etlrun.system.terminal import say


def note(record: Record, text: str) -> None:
    """Report an event of a cache: on the terminal, in the events, and in the notes of the report."""
    say(text, stderr=True)
    record.event("cache", text=text)
    record.remark(f"{text[0].upper()}{text[1:]}.")


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
        for pipeline in pipelines.values():
            pipeline.close()
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
            **({"filled_s": pipeline.filling_s} if pipeline.filling_s else {}),
        }
        for name, pipeline in pipelines.items()
    }
    record.update(cache=record.summary.cache.with_values(pipelines=held))
