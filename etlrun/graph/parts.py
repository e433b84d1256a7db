"""Parts of a pass, which other processes compute: graphs that rest on nothing in this process."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from etlrun.graph.build import as_written
from etlrun.graph.context import Context
from etlrun.graph.datasets import chained
from etlrun.graph.disk import Mapped
from etlrun.planning.plan import PlannedStage, at_cache
from etlrun.stages.base import Scope
from etlrun.stages.load import Batch, Service
from etlrun.system.errors import ConfigError, Fault

_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
"""Operations that call a function of the process that has made the graph."""
Stages = Sequence[PlannedStage]


def of_pass(context: Context, number: int) -> Context:
    """Return the context of the pass of that number, from 1, without variables, which stay in their process."""
    begun: dict[str, Any] = {"pass_number": number, "passes_begun": tf.constant(number, tf.int64)}
    return dataclasses.replace(context, **begun, calls_python=False, skipped=None, traced={})


def every_nth(
    stages: Stages, context: Context, cached: Mapped | None, *, place: int, of: int, done: int
) -> tf.data.Dataset:
    """Return the batches `place`, `place + of`, … of a pass without the first `done` of them, with their numbers.

    All records are read, in the order of the pass; those of other batches are left out before the first map. Of what
    is `cached`, only the own examples are read. The elements are (number, batch); numbers are int64 scalars that count
    the batches of this part from 0.
    """
    for_all, for_own = _divided(stages, cached)
    reading, batch = context, next(of.stage for of in for_own if isinstance(of.stage, Batch))
    if any(planned.stage.keeps for planned in stages):  # a cache has the order of the files in the first pass
        reading = dataclasses.replace(context, passes_begun=tf.constant(1, tf.int64))
    records = chained(cached and cached.numbers(), for_all, reading).batch(batch.batch_size)
    own = records.shard(of, place).skip(done).unbatch()
    carries = context.numbered_to is not None
    batches = chained(cached.read(own, carries=carries) if cached else own, for_own, context)
    return batches.enumerate(done).with_options(as_written())


def _divided(stages: Stages, cached: Mapped | None) -> tuple[list[PlannedStage], list[PlannedStage]]:
    """Return the stages that each worker of a pass does for all examples, and those for its own alone.

    The examples of a cache keep the order in which they are read: without it, they are shuffled as they are read.
    """
    before, _, after = at_cache([planned for planned in stages if planned.stage.scope is not Scope.AROUND])
    inside = after if cached else [*before, *after]
    shuffles = [planned for planned in inside if planned.stage.only_reorders]
    others = [planned for planned in inside if not planned.stage.only_reorders]
    if cached:
        return shuffles, others
    first = next(at for at, planned in enumerate(others) if planned.stage.maps_each)
    return [*others[:1], *shuffles, *others[1:first]], others[first:]


def require_portable(dataset: tf.data.Dataset) -> None:
    """Raise `ConfigError` if a graph calls Python, or has a state that can't be written."""
    try:
        found = tf.compat.v1.GraphDef.FromString(graph_of(dataset))
    except tf.errors.OpError as error:
        raise _not_portable(f"a step with a state of its own: {error.message.splitlines()[0]}") from error
    nodes = [*found.node, *(node for function in found.library.function for node in function.node_def)]
    calls = next((node.op for node in nodes if node.op in _PYTHON), None)
    if calls is not None:
        raise _not_portable(f"a step that calls Python ({calls})")


def graph_of(dataset: tf.data.Dataset) -> bytes:
    """Return a dataset as tf.data's service writes it, a `GraphDef`."""
    graph = tf.raw_ops.DatasetToGraphV2(input_dataset=dataset._variant_tensor, external_state_policy=0)  # noqa: SLF001
    written: bytes = graph.numpy()
    return written


def _not_portable(found: str) -> ConfigError:
    expected = "operations of TensorFlow, which another process can run"
    remedy = "leave the step out, or set load=shuffled"
    return ConfigError([Fault(where=Service.path, found=found, expected=expected, remedy=remedy)])
