"""Performance lint: slow configs found before a run, each with the evidence and an override to try."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from etlrun.planning.plan import Plan, PlannedStage, at_cache, name_of_point
from etlrun.planning.planner import unread_cache
from etlrun.review.caches import size_of
from etlrun.stages.cache import MEMORY_SHARE
from etlrun.stages.measure import ADVICE
from etlrun.stages.step import Parse
from etlrun.system.machine import cores, free_memory_bytes, megabytes
from etlrun.system.values import frozen


@frozen
class Machine:
    """Machine on which configs will run.

    Attributes:
        cores: Number of CPU cores available to a process.
        free_memory_bytes: Available memory.
    """

    cores: int
    free_memory_bytes: int

    @classmethod
    def here(cls) -> Machine:
        """Return the current machine."""
        return cls(cores=cores(), free_memory_bytes=free_memory_bytes())


@frozen
class Advice:
    """Advice on one cause of a slow config.

    Attributes:
        name: Name of the check, one of `ADVICE`.
        evidence: Evidence in the plan or on the machine.
        override: Override that follows the advice.
        reason: Reason why the config silences it; empty if it does not.
    """

    name: str
    evidence: str
    override: str
    reason: str = ""

    def __str__(self) -> str:
        if self.reason:
            return f"{self.name}: silenced: {self.reason}"
        return f"{self.name}: {self.evidence}\n    -> try {self.override}"


def lint(plan: Plan, machine: Machine) -> list[Advice]:
    """Return the advice for a plan, including silenced advice."""
    silence = plan.spec.measure.silence
    return [
        Advice(name=name, evidence=evidence, override=override, reason=silence.get(name, ""))
        for name in ADVICE
        for evidence, override in _CHECKS[name](plan, machine)
    ]


Found = Iterator[tuple[str, str]]


def _serial_map(plan: Plan, machine: Machine) -> Found:
    steps = [step.path for step in plan.spec.transform.steps]
    if plan.spec.transform.num_parallel_calls in {None, 1} and machine.cores > 1 and steps:
        evidence = (
            f"{', '.join(steps)} run one example at a time; {machine.cores - 1} of {machine.cores} cores are idle"
        )
        yield evidence, "transform.num_parallel_calls=autotune"


def _no_prefetch(plan: Plan, _machine: Machine) -> Found:
    if plan.spec.load.prefetch == 0:
        yield "load.prefetch=0: the model waits while the next batch is prepared", "load.prefetch=autotune"


def _cache_early(plan: Plan, _machine: Machine) -> Found:
    before, cache, after = at_cache(plan.train)
    steps = [step for planned in after for step in planned.steps]
    epochs = plan.spec.trainer.all_epochs
    if cache is None or cache.at == "features" or epochs == 1:
        return
    steady = steps[: next((place for place, step in enumerate(steps) if step.is_random), len(steps))]
    last = max((place for place, step in enumerate(steady) if step.stage.is_costly), default=None)
    if last is None:
        return
    again = [step.stage.path for step in steady[: last + 1] if step.stage.path != Parse.path]
    sizes = f"{_size(before[-1])} there, {_size(steady[last])} after {again[-1]}"
    yield (
        f"the cache precedes {', '.join(again)}, repeated in {epochs or 'all'} epochs; an example takes {sizes}",
        f"cache.at={name_of_point([step.stage for step in steady[: last + 1]])}",
    )


def _size(planned: PlannedStage) -> str:
    size = planned.gives.inputs_bytes
    return f"{size:,} bytes" if size is not None else "as much as the image"


def _cache_unread(plan: Plan, _machine: Machine) -> Found:
    unread = unread_cache(plan.spec)
    if unread:
        yield unread.removesuffix("."), "cache=none"


def _cache_above_memory(plan: Plan, machine: Machine) -> Found:
    if not plan.spec.cache.keeps or plan.spec.cache.outlives_run:
        return
    sizes = [size_of(plan, name)[0] for name, stages in plan.pipelines.items() if stages]
    size = sum(size for size in sizes if size is not None)
    if size > MEMORY_SHARE * machine.free_memory_bytes:
        free = f"{megabytes(machine.free_memory_bytes)} of memory are free, {MEMORY_SHARE:.0%} of it for caches"
        yield f"the cache needs {megabytes(size)}; {free}", "cache=disk"


def _parallelism_above_cores(plan: Plan, machine: Machine) -> Found:
    for group, stage in (("extract", plan.spec.extract), ("transform", plan.spec.transform)):
        calls = getattr(stage, "num_parallel_calls", None)
        if isinstance(calls, int) and calls > machine.cores:
            key = f"{group}.num_parallel_calls"
            yield f"{key}={calls}, with {machine.cores} cores", f"{key}=autotune"


_CHECKS: Mapping[str, Callable[[Plan, Machine], Found]] = {
    "serial_map": _serial_map,
    "no_prefetch": _no_prefetch,
    "cache_early": _cache_early,
    "cache_unread": _cache_unread,
    "cache_above_memory": _cache_above_memory,
    "parallelism_above_cores": _parallelism_above_cores,
}
