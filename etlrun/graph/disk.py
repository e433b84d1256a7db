"""Cache on disk in a graph: one pass fills it, others read it; each pass decides when it begins."""

from __future__ import annotations

from typing import Any

from etlrun.cache.keeper import READ, Keeper
from etlrun.cache.parts import Column
from etlrun.stages.flow import NUMBER, Flow, numbered
from etlrun.stages.lazy import tf


def decided(keeper: Keeper) -> tuple[tf.Tensor, tf.Tensor]:
    """Return what a pass does, and how many examples it can read; int64 scalars."""

    def begin() -> tuple[Any, Any]:
        mode = keeper.begin()
        return mode, mode * 0 + keeper.count

    mode, count = tf.numpy_function(begin, [], (tf.int64, tf.int64))
    return tf.ensure_shape(mode, ()), tf.ensure_shape(count, ())


def either(mode: tf.Tensor, filling: tf.data.Dataset, reading: tf.data.Dataset) -> tf.data.Dataset:
    """Return `reading` if `mode` is to read, else `filling`; the other one is not started."""
    everything, nothing = tf.constant(-1, tf.int64), tf.constant(0, tf.int64)
    reads = tf.equal(mode, READ)
    return filling.take(tf.where(reads, nothing, everything)).concatenate(
        reading.take(tf.where(reads, everything, nothing))
    )


def written(
    dataset: tf.data.Dataset, keeper: Keeper, kept: Flow, mode: tf.Tensor, *, carries: bool = False
) -> tf.data.Dataset:
    """Return the examples of `dataset`, of `kept`; if `mode` is to fill the cache, write them, publish it at their end.

    Their numbers are written beside them, and go on if the examples are to carry them. `dataset` may have batches of
    examples, all with numbers, which are written at once.
    """
    is_batched = NUMBER in dataset.element_spec and dataset.element_spec[NUMBER].shape.rank == 1

    def add_batch(mode: Any, numbers: Any, *features: Any) -> Any:
        for place, number in enumerate(numbers.tolist()):
            keeper.add(mode, *(of[place] for of in features), number=number)
        return mode

    def write(example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        number = [example[NUMBER]] if NUMBER in example else []
        add = (lambda mode, number, *features: keeper.add(mode, *features, number=number)) if number else keeper.add
        add = add_batch if is_batched else add
        values = [mode, *number, *(example[name] for name in kept.columns)]
        done = tf.cond(
            mode > READ,
            lambda: tf.ensure_shape(tf.numpy_function(add, values, tf.int64), ()),
            lambda: tf.constant(0, tf.int64),
        )
        with tf.control_dependencies([done]):
            return {name: tf.identity(of) for name, of in example.items() if name != NUMBER or carries}

    def publish(_: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(keeper.publish, [mode], tf.int64), ())

    as_is = tf.autograph.experimental.do_not_convert
    examples = dataset.map(as_is(write)).unbatch() if is_batched else dataset.map(as_is(write))
    end = tf.data.Dataset.from_tensors(0).map(as_is(publish)).flat_map(as_is(examples.take))
    return examples.concatenate(end)


def compared(keeper: Keeper, mode: tf.Tensor, place: tf.Tensor, data: tf.Tensor) -> tf.Tensor:
    """Return `data`, which a pass reads at a `place`, compared with the key of the cache if `mode` is to fill it."""
    done = tf.cond(
        mode > READ,
        lambda: tf.ensure_shape(tf.numpy_function(keeper.compare, [mode, place, data], tf.int64), ()),
        lambda: tf.constant(0, tf.int64),
    )
    with tf.control_dependencies([done]):
        return tf.identity(data)


def columns(kept: Flow) -> list[Column]:
    """Return the features that a cache holds, in the order of the components of an example."""
    found = []
    for name in kept.columns:
        feature = kept.features[name]
        sides = [side for side in feature.shape if side is not None]
        is_fixed = feature.bytes is not None
        dtype = "bytes" if feature.dtype == "string" else feature.dtype
        found.append(Column(name=name, dtype=dtype, shape=sides if is_fixed else None))
    return found


def read_each(numbers: tf.data.Dataset, keeper: Keeper, kept: Flow, *, carries: bool) -> tf.data.Dataset:
    """Return the features by name for each number (int64 scalar) of a row; with the numbers of the examples if wanted.

    A row may come with the number of its draw, which counts then.
    """

    def drawn(row: Any, draw: Any) -> tuple[Any, ...]:
        return *keeper.one(row), keeper.numbers[row] + draw - row

    return _read(numbers, drawn if carries else keeper.one, kept, (), carries=carries)


def read_batches(numbers: tf.data.Dataset, keeper: Keeper, kept: Flow) -> tf.data.Dataset:
    """Return the features by name for each batch of numbers (int64 vector), with each feature copied once."""
    return _read(numbers, keeper.batch, kept, (None,), carries=False)


def _read(
    numbers: tf.data.Dataset, function: Any, kept: Flow, batch: tuple[None, ...], *, carries: bool
) -> tf.data.Dataset:
    features = [kept.features[name] for name in kept.columns]
    dtypes = [tf.as_dtype(feature.dtype) for feature in features] + ([tf.int64] if carries else [])

    def read(row: tf.Tensor, *draw: tf.Tensor) -> dict[str, Any]:
        found = tf.numpy_function(function, [row, *(draw or (row,))] if carries else [row], dtypes)
        shaped = [tf.ensure_shape(of, (*batch, *feature.shape)) for of, feature in zip(found, features, strict=False)]
        number = [tf.ensure_shape(found[-1], ())] if carries else []
        return numbered(dict(zip(kept.columns, shaped, strict=True)), *number)

    return numbers.map(tf.autograph.experimental.do_not_convert(read), num_parallel_calls=tf.data.AUTOTUNE)
