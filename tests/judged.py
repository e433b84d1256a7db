"""Loops of batches as they were measured, and what the verdict says of them."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
from tensorflow.core.framework import model_pb2

from etlrun.measure.meter import Loop, StepKind, StepTimes
from etlrun.measure.stage_costs import StageCosts
from etlrun.measure.verdict import MeasuredPipeline, judge
from etlrun.record.summary import Verdict
from tests.configs import TENSORFLOW, plan_of

STAGES = {
    planned.stage.path: planned.stage for planned in plan_of("extract=sequential", "cache=none", TENSORFLOW).train
}
PATHS = ("extract.sequential", "transform.map", "load.shuffle", "load.batch", "load.prefetch")
NODES = {
    "load.prefetch": "Prefetch",
    "load.batch": "BatchV2",
    "load.shuffle": "Shuffle",
    "transform.map": "ParallelMapV2",
    "extract.sequential": "FlatMap",
}
BATCH, STEPS, STEP_S, CORES = 10, 100, 0.1, 4
KIND = StepKind(0, ((BATCH, 8, 8, 3), (BATCH,)))


def approx(value: float) -> Any:
    return pytest.approx(value)


def costs(paths: tuple[str, ...] = PATHS, threads: int = CORES, **ms: float) -> StageCosts:
    """Of stages that take so many milliseconds an example, in TensorFlow's own message; the map has `threads`."""
    proto, examples = model_pb2.ModelProto(), BATCH * STEPS
    proto.output = len(paths)
    for identity, path in enumerate(paths, 1):
        node = proto.nodes[identity]
        node.name = NODES[path]
        node.num_elements = examples if path in PATHS[:3] else STEPS
        node.processing_time = int(1e6 * ms.get(path.partition(".")[2], 0.0) * examples)
        node.inputs.extend([identity - 1] if identity > 1 else [])
        if path == "transform.map":
            node.parameters.add(name="parallelism", state_value=threads)
    return StageCosts(proto, [STAGES[path] for path in paths], BATCH, CORES)


def loop(wait_s: float = 0.0, fill_s: float = 0.0, step_s: float = STEP_S, waits_s: list[float] | None = None) -> Loop:
    """A loop of `STEPS` steps, or of as many as `waits_s` has."""
    waits = [wait_s] * STEPS if waits_s is None else waits_s
    return Loop(
        steps=[StepTimes(wait, step_s, KIND) for wait in waits],
        fill_s=fill_s,
        wall_s=sum(waits) + fill_s + len(waits) * step_s,
    )


def side(
    *loops: Loop, of: StageCosts | None = None, paths: tuple[str, ...] = PATHS, **changes: Any
) -> MeasuredPipeline:
    values: dict[str, Any] = {
        "name": "train",
        "floors": {KIND: STEP_S},
        "costs": (of or costs(),) * len(loops),
    } | changes
    of_loops = zip(loops, values.pop("costs"), strict=True)
    measured = tuple(dataclasses.replace(loop, costs=of) for loop, of in of_loops)
    return MeasuredPipeline(paths=paths, loops=measured, **values)


def verdict(
    *sides: MeasuredPipeline, ceiling_per_s: float | None = 10_000.0, steps: Mapping[str, float] | None = None
) -> Verdict:
    return judge(sides, ceiling_per_s, lambda _name, _stage: steps or {}, CORES)
