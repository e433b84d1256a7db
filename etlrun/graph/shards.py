"""Records of shards in the order of a pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from etlrun.graph.context import Context
from etlrun.graph.fetch import Fetching
from etlrun.graph.parallel import autotuned
from etlrun.sources.remote import RemoteSplit
from etlrun.stages.extract import Interleave, Sequential, Shards
from etlrun.stages.lazy import tf

_OPENED_AHEAD = 3
"""Shards that a parallel interleave opens, for each of those that it reads."""


def _shards(stage: Shards, context: Context) -> tf.data.Dataset:
    """Return number, number of the first record, path, skip and take of each shard, in the order of the pass."""
    shards, firsts = context.split.shards, context.split.firsts
    columns = ([*range(len(shards))], firsts, [shard.skip for shard in shards], [shard.take for shard in shards])
    number, first, skip, take = (tf.constant(column, tf.int64) for column in columns)
    by_name = tf.data.Dataset.from_tensor_slices((number, first, [shard.path for shard in shards], skip, take))

    def of_pass(_: tf.Tensor) -> tf.data.Dataset:
        seed = context.pass_seed(context.passes_begun)
        return by_name.shuffle(len(shards), seed=seed, reshuffle_each_iteration=False)

    if not stage.shuffle_files:
        return by_name
    if tf.inside_function() or not isinstance(context.passes_begun, tf.Variable):
        return of_pass(tf.constant(0))  # built anew for each pass, or the same in all of them
    return tf.data.Dataset.from_tensors(0).flat_map(tf.autograph.experimental.do_not_convert(of_pass))


def _read(stage: Shards, context: Context, num_open: int) -> tuple[tf.data.Dataset, Callable[..., tf.data.Dataset]]:
    """Return the shards in the order of the pass, and the function that reads the records of each.

    They come with their numbers in the split if they carry these. Shards of URLs are waited for, of which up to
    `num_open` are open at once.
    """
    as_is, shards, split = tf.autograph.experimental.do_not_convert, _shards(stage, context), context.split
    fetching = Fetching(split, context.losses, num_open) if isinstance(split, RemoteSplit) else None

    def read(number: Any, first: Any, path: Any, skip: Any, take: Any) -> tf.data.Dataset:
        records = split.read(path, skip, take)
        records = whole(records, take, context)
        records = records if fetching is None else fetching.left(records, number)
        if context.compare is not None and not context.split.is_read_by_parser:
            records = records.map(partial(as_is(context.compare), number))
        if context.numbered_to is None:
            return records
        return tf.data.Dataset.zip((records, tf.data.Dataset.range(first, first + take)))

    return shards if fetching is None else fetching.fetched(shards), as_is(read)


def whole(examples: tf.data.Dataset, count: Any, context: Context) -> tf.data.Dataset:
    """Return the same dataset, which fails if it has fewer than `count` examples: the cause is then looked for.

    Where corrupt records are skipped, what is missing is counted at the end of a pass.
    """
    if context.source.dataset.on_corrupt == "skip":
        return examples
    specs = examples.element_spec

    def fail(_: tf.Tensor) -> Any:
        with tf.control_dependencies([tf.debugging.Assert(tf.constant(False), ["too few records"])]):  # noqa: FBT003
            return tf.nest.map_structure(lambda of: tf.zeros([side or 0 for side in of.shape], of.dtype), specs)

    failing = tf.data.Dataset.from_tensors(0).map(tf.autograph.experimental.do_not_convert(fail))
    return examples.concatenate(failing).take(count)


def sequential(_nothing: None, stage: Sequential, context: Context) -> tf.data.Dataset:
    """Return serialised examples (string scalars), one shard after the other."""
    shards, read = _read(stage, context, 1)
    return shards.flat_map(read)


def interleave(_nothing: None, stage: Interleave, context: Context) -> tf.data.Dataset:
    """Return serialised examples (string scalars) of several shards in turn.

    After an error, tf.data continues with a different shard if it has no parallel calls. Those of URLs are read without
    them, so that the first record needs the first shard alone.
    """
    skips, is_remote = context.source.dataset.on_corrupt == "skip", isinstance(context.split, RemoteSplit)
    calls = None if is_remote else autotuned(stage.num_parallel_calls)
    open_at_once = stage.at_once(len(context.split.shards))
    calls = (1 if skips else None) if calls is None else min(calls, open_at_once)  # AUTOTUNE is -1
    shards, read = _read(stage, context, open_at_once * (_OPENED_AHEAD if calls else 1))
    return shards.interleave(
        read,
        cycle_length=open_at_once,
        block_length=stage.block_length,
        num_parallel_calls=calls,
        deterministic=stage.deterministic if calls else None,
    )
