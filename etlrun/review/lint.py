"""Performance lint: slow configs found before a run, each with the evidence and an override to try."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

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
    silence, order = plan.spec.measure.silence, [*ADVICE]
    found = sorted([*_of_stages(plan, machine), *_of_cache(plan, machine)], key=lambda of: order.index(of[0]))
    return [
        Advice(name=name, evidence=evidence, override=override, reason=silence.get(name, ""))
        for name, evidence, override in found
    ]


def _of_stages(plan: Plan, machine: Machine) -> Iterator[tuple[str, str, str]]:
    """Yield name, evidence and override of advice on stages that work one after another, or too many at a time."""
    spec, cores = plan.spec, machine.cores
    steps = ", ".join(step.path for step in spec.transform.steps)
    if spec.transform.num_parallel_calls in {None, 1} and cores > 1 and steps:
        evidence = f"{steps} run one example at a time; {cores - 1} of {cores} cores are idle"
        yield "serial_map", evidence, "transform.num_parallel_calls=autotune"
    if spec.load.prefetch == 0:
        evidence = "load.prefetch=0: the model waits while the next batch is prepared"
        yield "no_prefetch", evidence, "load.prefetch=autotune"
    for group, stage in (("extract", spec.extract), ("transform", spec.transform)):
        calls = getattr(stage, "num_parallel_calls", None)
        if isinstance(calls, int) and calls > cores:
            key = f"{group}.num_parallel_calls"
            yield "parallelism_above_cores", f"{key}={calls}, with {cores} cores", f"{key}=autotune"


def _of_cache(plan: Plan, machine: Machine) -> Iterator[tuple[str, str, str]]:
    """Yield name, evidence and override of advice on a cache that is not read, too large, or before costly steps."""
    if unread := unread_cache(plan.spec):
        yield "cache_unread", unread.removesuffix("."), "cache=none"
    before, cache, after = at_cache(plan.train)
    if cache is None:
        return
    if not cache.outlives_run:
        sizes = [size_of(plan, name)[0] for name, stages in plan.pipelines.items() if stages]
        if (size := sum(filter(None, sizes))) > MEMORY_SHARE * machine.free_memory_bytes:
            free = f"{megabytes(machine.free_memory_bytes)} of memory are free, {MEMORY_SHARE:.0%} of it for caches"
            yield "cache_above_memory", f"the cache needs {megabytes(size)}; {free}", "cache=disk"
    epochs, steps = plan.spec.trainer.all_epochs, [step for planned in after for step in planned.steps]
    steady = [*takewhile(lambda step: not step.is_random, steps)]
    costly = [place for place, step in enumerate(steady, 1) if step.stage.is_costly]
    if costly and cache.at != "features" and epochs != 1:
        steady = steady[: costly[-1]]
        again = [step.stage.path for step in steady if step.stage.path != Parse.path]
        sizes_there = " there, ".join(_size(of) for of in (before[-1], steady[-1]))
        evidence = f"the cache precedes {', '.join(again)}, repeated in {epochs or 'all'} epochs; an example takes "
        point = name_of_point([step.stage for step in steady])
        yield "cache_early", f"{evidence}{sizes_there} after {again[-1]}", f"cache.at={point}"


def _size(planned: PlannedStage) -> str:
    flow = planned.gives
    size = sum(flow.features[name].bytes or 0 for name in flow.inputs)
    return f"{size:,} bytes" if flow.example_bytes is not None else "as much as the image"
