"""Batches of sequences: of like lengths, and padded to one length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etlrun.stages.base import CUT, Data, Flag, Nodes, Order, Positive, Stage, single
from etlrun.stages.columns import Columns
from etlrun.stages.flow import Flow
from etlrun.stages.lazy import np, tf
from etlrun.stages.load import Batch, Load, sizes_of
from etlrun.stages.step import Map
from etlrun.system.values import frozen


def cut_batches(
    lengths: Any, boundaries: Sequence[int], batch_sizes: Sequence[int], *, drop_remainder: bool
) -> tuple[Any, Any]:
    """Return places in `lengths`, batch after batch, and where each batch ends, from 0; both int64 vectors.

    `lengths` are those of all sequences in the order of a pass, int (examples,).
    """
    buckets = np.searchsorted(boundaries, lengths)
    found: list[tuple[int, Any]] = []
    for bucket, size in enumerate(batch_sizes):
        members = np.flatnonzero(buckets == bucket)
        whole = len(members) - len(members) % size
        found += [(int(batch[-1]), batch) for batch in members[:whole].reshape(-1, size)]
        if whole < len(members) and not drop_remainder:
            found.append((len(lengths) + bucket, members[whole:]))
    batches = [batch for _, batch in sorted(found, key=lambda each: each[0])]
    ends = np.cumsum([0, *map(len, batches)], dtype=np.int64)
    return np.concatenate([np.empty(0, np.int64), *batches]), ends


def in_buckets(
    order: tf.data.Dataset,
    lengths: np.ndarray,
    boundaries: Sequence[int],
    batch_sizes: Sequence[int],
    *,
    drop_remainder: bool,
) -> tf.data.Dataset:
    """Return batches of the numbers of examples (int64 vectors) with sequences of like lengths.

    `order` has one element, the numbers of all examples of a pass; `lengths` are by number.
    """

    def batches(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers, batch after batch, and where each batch ends."""
        places, ends = cut_batches(lengths[numbers], boundaries, batch_sizes, drop_remainder=drop_remainder)
        return numbers[places], ends

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def of_pass(numbers: tf.Tensor) -> tf.data.Dataset:
        found, ends = tf.numpy_function(batches, [numbers], [tf.int64, tf.int64])
        parts = tf.ensure_shape(found, (None,)), tf.ensure_shape(ends, (None,))
        return tf.data.Dataset.from_tensor_slices(tf.RaggedTensor.from_row_splits(*parts, validate=False))

    return order.flat_map(of_pass)


@frozen
class Bucket(Batch):
    """Combines sequences of like lengths into batches, as tf.data's `bucket_by_sequence_length` does.

    A batch comes when its last example has come in the order of the pass, and those that are not full at its end.

    Attributes:
        boundaries: Longest sequence of each bucket, in items; ascending.
        batch_sizes: Examples per batch of each bucket.
        drop_long: Whether sequences that are longer than the last boundary are left out.
        columns: What makes the sequences, of which the longest one of an example counts.
    """

    nodes = (Nodes(CUT),)

    boundaries: Order[tuple[Positive, ...]]
    batch_sizes: Order[tuple[Positive, ...]]
    drop_long: Data[Flag]
    columns: Columns

    def cut(self, lengths: Any) -> tuple[Any, Any]:
        """Return what `cut_batches` does."""
        return cut_batches(lengths, self.boundaries, self.batch_sizes, drop_remainder=self.drop_remainder)

    def batches_in(self, lengths: Any) -> int:
        """Return the number of batches in a pass over sequences of these lengths."""
        return len(self.cut(lengths)[1]) - 1

    call = Stage.call


def batch_of(load: Load, transform: Map, *, drops: bool) -> Batch:
    """Return the stage that makes batches of what `transform` gives, which `drops` the last, smaller ones or not."""
    columns = next((step for step in transform.steps if isinstance(step, Columns)), None)
    batch = Batch(batch_size=load.batch_size, drop_remainder=drops, num_parallel_calls=load.num_parallel_calls)
    if not load.boundaries or columns is None:
        return batch
    return Bucket(
        batch_size=max(sizes_of(load)),
        drop_remainder=drops,
        boundaries=load.boundaries,
        batch_sizes=sizes_of(load),
        drop_long=load.drop_long,
        columns=columns,
    )


@frozen
class PadSequences(Stage):
    """Puts padding behind sequences, so that those of a batch have one length: 0, which is no category, or NaN.

    Attributes:
        boundaries: Lengths in items, of which the first one that is enough is taken; empty for the longest sequence of
            the batch.
    """

    path = "load.pad"
    nodes = (single("Map", "ParallelMap"),)

    boundaries: Order[tuple[Positive, ...]]

    def flow(self, incoming: Flow) -> Flow:
        return incoming.replace(is_padded=True)


def pad(sequences: dict[str, Any], boundaries: Sequence[int]) -> dict[str, tf.Tensor]:
    """Return sequences by name, ragged tensors (batch, items), as tensors (batch, length)."""
    if not sequences:
        return {}
    longest = tf.reduce_max([tf.reduce_max(values.row_lengths()) for values in sequences.values()])
    length = tf.maximum(tf.cast(longest, tf.int32), 1)
    if boundaries:
        length = tf.gather([*boundaries], tf.searchsorted([*boundaries], [length]))[0]
    found = {}
    for name, values in sequences.items():
        items = values.shape[2:]
        padding = float("nan") if values.dtype.is_floating else None  # real numbers may be 0
        padded = values.to_tensor(padding, shape=tf.stack([-1, length, *items]))
        found[name] = tf.ensure_shape(padded, (None, None, *items))
    return found


def padded(batch: Mapping[str, Any], boundaries: Sequence[int] = ()) -> dict[str, Any]:
    """Return a batch by name whose sequences, ragged tensors (batch, items), have one length; others as they are.

    An item of NaN, which a step made, would be padding: it is an error.
    """
    sequences = {name: values for name, values in batch.items() if isinstance(values, tf.RaggedTensor)}
    floats = [values.flat_values for values in sequences.values() if values.dtype.is_floating]
    are_numbers = [tf.debugging.Assert(~tf.reduce_any(tf.math.is_nan(of)), ["an item of NaN", of]) for of in floats]
    with tf.control_dependencies([known for known in are_numbers if known is not None]):
        sequences = {
            name: values.with_flat_values(tf.identity(values.flat_values)) for name, values in sequences.items()
        }
    return {**batch, **pad(sequences, boundaries)}
