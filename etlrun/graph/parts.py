"""Parts of a pass, which other processes compute: graphs that rest on nothing in this process."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from etlrun.graph.build import as_written
from etlrun.graph.context import Context
from etlrun.graph.datasets import chained
from etlrun.graph.mapped import Mapped
from etlrun.plan.plan import PlannedStage, at_cache
from etlrun.sources.base import Split
from etlrun.sources.content import Shard
from etlrun.stages.base import Scope
from etlrun.stages.load import Batch
from etlrun.stages.service import Service
from etlrun.system.errors import ConfigError, Fault

_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
"""Operations that call a function of the process that has made the graph."""
_PIECES_EACH = 4
"""Pieces of the files for each worker, so that none waits long for the last one."""
Stages = Sequence[PlannedStage]


def of_pass(context: Context, number: int) -> Context:
    """Return the context of the pass of that number, from 1, without variables, which stay in their process."""
    begun = tf.constant(number, tf.int64)
    return dataclasses.replace(context, pass_number=number, passes_begun=begun, skipped=None, traced={})


def every_nth(
    stages: Stages, context: Context, cached: Mapped | None, *, place: int, of: int, done: int
) -> tf.data.Dataset:
    """Return the batches `place`, `place + of`, … of a pass without the first `done` of them, with their numbers.

    All records are read, in the order of the pass; those of other batches are left out before the first map. Of what
    is `cached`, only the own examples are read. The elements are (number, batch); numbers are int64 scalars that count
    the batches of this part from 0.
    """
    for_all, for_own = _divided(stages, cached)
    reading, batch = context, _batch(for_own)
    if any(planned.stage.keeps for planned in stages):  # a cache has the order of the files in the first pass
        reading = dataclasses.replace(context, passes_begun=tf.constant(1, tf.int64))
    records = chained(cached and cached.numbers(), for_all, reading).batch(batch.batch_size)
    own = records.shard(of, place).skip(done).unbatch()
    carries = context.numbered_to is not None
    batches = chained(cached.read(own, carries=carries) if cached else own, for_own, context)
    return batches.enumerate(done).with_options(as_written())


def _divided(stages: Stages, cached: Mapped | None) -> tuple[list[PlannedStage], list[PlannedStage]]:
    """Return the stages that each worker of an exact pass does for all examples, and those for its own alone.

    The examples of a cache keep the order in which they are read: without it, they are shuffled as they are read.
    """
    before, _, after = at_cache(_inside(stages))
    inside = after if cached else [*before, *after]
    shuffles = [planned for planned in inside if planned.stage.only_reorders]
    others = [planned for planned in inside if not planned.stage.only_reorders]
    if cached:
        return shuffles, others
    first = next(at for at, planned in enumerate(others) if planned.stage.maps_each)
    return [*others[:1], *shuffles, *others[1:first]], others[first:]


def dealt(stages: Stages, context: Context, workers: int) -> tf.data.Dataset:
    """Return the batches of a pass whose files a service deals to `workers`, the last batch of each may be smaller."""
    extract, *others = _inside(stages)
    pieces = _pieces(context.split, _PIECES_EACH * workers)
    if extract.stage.random:  # a shuffle in the graph would be dealt as one piece
        seed = int(context.pass_seed(context.pass_number))
        pieces = [pieces[place] for place in np.random.default_rng(seed).permutation(len(pieces))]
    split = dataclasses.replace(context.split, shards=tuple(pieces))
    whole = [dataclasses.replace(extract, stage=extract.stage.for_evaluation()), *map(_without_drop, others)]  # type: ignore[attr-defined]
    return chained(None, whole, dataclasses.replace(context, split=split)).with_options(as_written())


def whole(stages: Stages, context: Context, cached: Mapped | None) -> tf.data.Dataset:
    """Return the batches of a pass, in the order of the data."""
    for_all, for_own = _divided(stages, cached)
    reading = [planned for planned in for_all if not planned.stage.only_reorders]
    carries = context.numbered_to is not None
    records = chained(cached and cached.read(cached.numbers(), carries=carries), reading, context)
    return chained(records, for_own, context).with_options(as_written())


def done_for_all(stages: Stages, cached: Mapped | None) -> list[str]:
    """Return the paths of the stages that each worker of an exact pass does for all examples."""
    return [planned.stage.path for planned in _divided(stages, cached)[0]]


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


def _inside(stages: Stages) -> list[PlannedStage]:
    """Return the stages of a pass."""
    return [planned for planned in stages if planned.stage.scope is not Scope.AROUND]


def _batch(stages: Stages) -> Batch:
    return next(planned.stage for planned in stages if isinstance(planned.stage, Batch))


def _without_drop(planned: PlannedStage) -> PlannedStage:
    """Return the same stage; one that makes batches keeps a smaller last one, of which each worker has its own."""
    if not isinstance(planned.stage, Batch):
        return planned
    return dataclasses.replace(planned, stage=dataclasses.replace(planned.stage, drop_remainder=False))


def _pieces(split: Split, least: int) -> list[Shard]:
    """Return the same records in at least `least` parts, if there are so many."""
    size = max(1, split.num_examples // least)
    return [
        dataclasses.replace(shard, skip=shard.skip + begun, take=min(size, shard.take - begun), first=first + begun)
        for shard, first in zip(split.shards, split.firsts, strict=True)
        for begun in range(0, shard.take, size)
    ]
