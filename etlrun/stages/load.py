"""Shuffling, batching and prefetching: buckets of sequences, classes that differ in size, and tf.data's service."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from etlrun.stages.base import (
    BATCHES,
    CUT,
    DATA,
    ORDER,
    SPEED,
    TRAINING,
    Buffer,
    Data,
    Expected,
    Factor,
    Natural,
    Nodes,
    OptionalPositive,
    Order,
    Parallelism,
    Positive,
    Scope,
    Speed,
    Stage,
    Training,
    Tuned,
    single,
)
from etlrun.stages.columns import Columns
from etlrun.stages.flow import Faults, Flow
from etlrun.stages.lazy import np, tf
from etlrun.stages.made import Call, Constant, Parallel, Partial, PassSeed, UpToAll
from etlrun.stages.step import Map
from etlrun.system.errors import WorldError, counted, first_few
from etlrun.system.values import frozen


def sizes_of(buckets: Load) -> tuple[int, ...]:
    """Return the number of examples per batch of each bucket."""
    boundaries = buckets.boundaries or ()
    if buckets.tokens_per_batch is not None:
        return tuple(max(buckets.tokens_per_batch // boundary, 1) for boundary in boundaries)
    return (buckets.batch_size,) * len(boundaries)


_Address = Annotated[str, Field(pattern=r"^(\[[0-9a-fA-F:.]+\]|[^\s:/,\[\]]+):[1-9][0-9]{0,4}$")]
_Addresses = Annotated[tuple[_Address, ...], Field(min_length=1)] | _Address | None
LAST_PORT = 65535


@frozen
class Service(Stage):
    """Reads and transforms the examples on other machines, by tf.data's service; batches arrive over the network.

    The examples, their order and the batches are those of a run without a service: the worker of each dispatcher makes
    every n-th batch.

    Attributes:
        address: A dispatcher that `etlrun service dispatcher` started, or several, each with a worker.
        timeout_s: Longest wait for a batch in seconds, after which the run fails.
        trusted_network: Whether all who reach the ports are trusted: tf.data's service listens on all interfaces
            without encryption or authentication, and who reaches a port can read files and run operations there.
    """

    path = "load.service"
    changes_data = False
    nodes = ()
    scope = Scope.EACH

    address: Annotated[_Addresses, Expected("HOST:PORT, or a list of them"), SPEED] = None
    timeout_s: Annotated[float, Field(ge=1, allow_inf_nan=False), SPEED] = 120.0
    trusted_network: Speed[bool] = False

    @property
    def addresses(self) -> tuple[str, ...]:
        """Dispatchers from which the batches are read in turn."""
        return (self.address,) if isinstance(self.address, str) else self.address or ()

    def rules(self) -> Faults:
        if self.address is None:
            expected = "HOST:PORT of a dispatcher, or a list of them"
            remedy = "start `etlrun service dispatcher` and a worker, and set load.service.address=localhost:5050"
            yield "address", "null", expected, remedy
        if len(set(self.addresses)) < len(self.addresses):
            expected = "each dispatcher once, which has one worker for each"
            yield "address", self.addresses, expected, "name each dispatcher once"
        for port in (int(of.rpartition(":")[2]) for of in self.addresses):
            if port > LAST_PORT:
                yield "address", f"the port {port}", f"a port of at most {LAST_PORT}", "name the port of the dispatcher"
        if not self.trusted_network:
            expected = "true, since tf.data's service listens on all interfaces, and neither encrypts nor authenticates"
            remedy = "set load.service.trusted_network=true where a firewall lets only machines that you trust through"
            yield "trusted_network", "false", expected, remedy


@frozen
class Shuffle(Stage):
    """Draws each example at random from a buffer; a different order in each pass, determined by the seed.

    Attributes:
        buffer_size: Buffer size in examples.
        seed: Seed of the trainer.
    """

    path = "load.shuffle"
    nodes = (Nodes(("Shuffle",)),)
    scope = Scope.EACH
    only_reorders = True
    random = True

    buffer_size: Annotated[Positive, TRAINING, ORDER]
    seed: Order[Natural]

    @property
    def holds(self) -> int:  # type: ignore[override]
        return self.buffer_size

    def call(self) -> Call:
        keywords = {"seed": PassSeed(), "reshuffle_each_iteration": False}
        return Call("shuffle", (UpToAll(self.buffer_size),), keywords)


AT_ONCE = 32
"""Records that are read by number in one call."""
TO_SKIP = "load.shuffle=buffer"
"""What a full shuffle gives way to where corrupt records are skipped."""


@frozen
class FullShuffle(Stage):
    """Reads the examples by number, in an order drawn from all orders of a split at the same odds; another per pass.

    It needs no buffer: 8 bytes an example for the order, and 8 for the places of records in their files.

    Attributes:
        seed: Seed of the trainer.
        is_by_class: Whether `op` takes the classes of all examples instead of their number.
    """

    path = "load.shuffle_full"
    is_by_class: ClassVar[bool] = False
    nodes = (single("Unbatch"), single("Map", "ParallelMap", examples=AT_ONCE), Nodes(BATCHES, examples=AT_ONCE))
    nodes_of_reading = ()
    scope = Scope.EACH
    only_reorders = True
    random = True

    seed: Order[Natural]

    @staticmethod
    def op(count: int, seed: int) -> np.typing.NDArray[np.int64]:
        """Return the numbers below `count` in a random order, the same for the same `seed`."""
        return np.random.default_rng(int(seed)).permutation(int(count))


def distinct(order: np.typing.NDArray[np.int64]) -> np.typing.NDArray[np.int64]:
    """Return a number for each draw: that of its example for the first one, and others for those behind it."""
    places = np.argsort(order, kind="stable")
    is_first = np.diff(order[places], prepend=-1) > 0
    starts = np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
    found = np.empty_like(order)
    found[places] = order[places] + len(order) * (np.arange(len(order)) - starts)
    return found


def draw_numbers(draw: Callable[..., np.ndarray], examples: int | np.ndarray, seed: tf.Tensor) -> tf.data.Dataset:
    """Return numbers of examples in the order that `draw` gives for their number, or their classes, and a seed."""
    order = tf.ensure_shape(tf.numpy_function(draw, [examples, seed], tf.int64), (None,))
    return tf.data.Dataset.from_tensor_slices(order)


def draw_numbers_with_index(
    draw: Callable[..., np.ndarray], examples: int | np.ndarray, seed: tf.Tensor
) -> tf.data.Dataset:
    """Return the numbers of `draw_numbers`, each with an index that differs for draws of the same example."""
    order = tf.ensure_shape(tf.numpy_function(draw, [examples, seed], tf.int64), (None,))
    index = tf.ensure_shape(tf.numpy_function(distinct, [order], tf.int64), (None,))
    return tf.data.Dataset.from_tensor_slices((order, index))


def read_by_number(numbers: tf.data.Dataset, read: Callable[[np.ndarray], np.ndarray]) -> tf.data.Dataset:
    """Return the records of these numbers, some at once, which `read` returns; numbers may come with an index."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def read_some(some: tf.Tensor, *index: tf.Tensor) -> Any:
        found = tf.ensure_shape(tf.numpy_function(read, [some], tf.string), (None,))
        return (found, *index) if index else found

    return numbers.batch(AT_ONCE).map(read_some, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).unbatch()


@frozen
class SampleByClass(FullShuffle):
    """Reads examples by number, each of a class drawn at the same odds; as many in a pass as the split has.

    The examples of a class are drawn without repetition until all of them have been; then they start again.
    """

    path = "load.sample_by_class"
    is_by_class = True

    @staticmethod
    def op(labels: np.typing.NDArray[np.int64], seed: int) -> np.typing.NDArray[np.int64]:  # type: ignore[override]
        """Return numbers of examples with these `labels`, as many, the same for the same `seed`."""
        random, (classes, members) = np.random.default_rng(int(seed)), np.unique(labels, return_inverse=True)
        drawn, order = random.integers(len(classes), size=len(labels)), np.empty(len(labels), np.int64)
        for place in range(len(classes)):
            own, wanted = np.flatnonzero(members == place), np.flatnonzero(drawn == place)
            rounds = [random.permutation(own) for _ in range(0, len(wanted), len(own))]
            order[wanted] = np.concatenate([*rounds, own[:0]])[: len(wanted)]
        return order


@frozen
class Batch(Stage):
    """Combines examples into batches.

    Attributes:
        batch_size: Examples per batch.
        drop_remainder: Whether to drop a last, smaller batch.
        num_parallel_calls: Batches that are put together in parallel; null for one after the other.
    """

    path = "load.batch"
    nodes = (Nodes(BATCHES),)
    tuned = Tuned("num_parallel_calls", "parallelism", "load.num_parallel_calls")
    scope = Scope.EACH

    batch_size: Annotated[Positive, TRAINING, ORDER]
    drop_remainder: Annotated[bool, DATA, TRAINING]
    num_parallel_calls: Speed[Parallelism] = None

    def flow(self, incoming: Flow) -> Flow:
        return incoming.replace(batch_size=self.batch_size)

    def call(self) -> Call | None:
        keywords: dict[str, Any] = {"drop_remainder": True} if self.drop_remainder else {}
        if self.num_parallel_calls is not None:
            keywords["num_parallel_calls"] = Parallel(self.num_parallel_calls)
        return Call("batch", (Constant("BATCH_SIZE", self.batch_size),), keywords)


def batches_in(of: Batch | Load, examples: int) -> int:
    """Return the number of batches in a pass over so many examples."""
    return examples // of.batch_size if of.drop_remainder else -(-examples // of.batch_size)


@frozen
class Prefetch(Stage):
    """Prepares batches while the model processes an earlier one.

    Attributes:
        buffer_size: Buffer size in batches.
    """

    path = "load.prefetch"
    changes_data = False
    nodes = (Nodes(("Prefetch",)),)
    tuned = Tuned("buffer_size", "buffer_size", "load.prefetch")
    scope = Scope.AROUND

    buffer_size: Speed[Buffer]

    def call(self) -> Call:
        return Call("prefetch", (Parallel(self.buffer_size),))


@frozen
class Load(Stage):
    """The `load` group of a config, from which a plan makes the stages shuffle, batch and prefetch.

    Attributes:
        shuffle_buffer: Buffer size in examples; 0 for no shuffling.
        batch_size: Examples per batch.
        drop_remainder: Whether to drop a last, smaller batch of a training pass.
        prefetch: Batches to prefetch; 0 for none.
        num_parallel_calls: Batches put together in parallel; null for one after the other, in the consumer's thread.
        shuffle_at: `auto` shuffles encoded images as they are read, where the steps behind that change neither the
            number nor the order of examples: a pass starts at once, and the order is the same. `before_batch` shuffles
            after all steps.
        shuffle: `buffer` draws each example from the `shuffle_buffer` next ones; `full` from all of the split, by
            number: from files with extract=sequential, later from a cache on disk.
        sample: `uniform_by_class` draws the class of each training example at equal odds, with shuffle=full; `all`
            reads each example once.
        mixup_alpha: Alpha of MixUp, which mixes images and targets of a training batch in pairs; 0 for none.
        cutmix_alpha: Alpha of CutMix, which cuts a rectangle out of another image; 0 for none. With both, each batch
            gets one of them at equal odds.
        class_weights: `balanced` weighs the losses of a class by the inverse of its share of the training examples,
            with a mean weight of 1.
        boundaries: Longest sequence of each bucket, in items, ascending: a batch is of one bucket, and padded to its
            boundary. Without a boundary, it is padded to its longest sequence. null where there are no sequences.
        tokens_per_batch: Items per batch, padding included, which decide the batch sizes of the buckets; null for
            `batch_size`.
        drop_long: Whether sequences above the last boundary are left out; else they are refused.
        service: Other processes or machines that read and transform the examples; null for none.
    """

    path = "load"

    shuffle_buffer: Annotated[int, Field(ge=0, le=100_000_000), TRAINING, ORDER]
    batch_size: Annotated[Positive, TRAINING, ORDER]
    drop_remainder: Annotated[bool, DATA, TRAINING]
    prefetch: Speed[Buffer]
    shuffle_at: Speed[Literal["auto", "before_batch"]] = "auto"
    shuffle: Annotated[Literal["buffer", "full"], TRAINING, ORDER] = "buffer"
    num_parallel_calls: Speed[Parallelism] = None
    sample: Annotated[Literal["all", "uniform_by_class"], DATA, TRAINING] = "all"
    class_weights: Training[Literal["none", "balanced"]] = "none"
    mixup_alpha: Annotated[Factor, DATA, TRAINING] = 0.0
    cutmix_alpha: Annotated[Factor, DATA, TRAINING] = 0.0
    boundaries: Order[tuple[Positive, ...] | None] = None
    tokens_per_batch: Order[OptionalPositive] = None
    drop_long: Data[bool] = False
    service: Service | None = None

    def faults(self) -> Faults:
        boundaries = self.boundaries or ()
        for name in ("tokens_per_batch", "drop_long"):
            if not boundaries and (value := getattr(self, name)) not in (None, False):
                yield name, value, "nothing, since there are no load.boundaries", "set load=bucketed, or leave it out"
        if falling := next((pair for pair in pairwise(boundaries) if pair[0] >= pair[1]), None):
            found, expected = f"{falling[1]} behind {falling[0]}", "integers, each above the one before it"
            yield "boundaries", found, expected, "sort them"

    def rules(self) -> Faults:
        for name, *texts in self.service.rules() if self.service else ():
            yield f"service.{name}", *texts  # type: ignore[misc] # three of them

    @property
    def mixes(self) -> bool:
        """Whether the images of a training batch are mixed in pairs."""
        return self.mixup_alpha > 0 or self.cutmix_alpha > 0

    @property
    def is_by_number(self) -> bool:
        """Whether training passes read the examples by number."""
        return self.shuffle == "full"

    @property
    def shuffles(self) -> bool:
        """Whether training passes are shuffled."""
        return self.is_by_number or self.shuffle_buffer > 0


def balanced(counts: list[int]) -> list[float]:
    """Return the weight of each class: the inverse of its share of all `counts`, so that the mean over examples is 1.

    The definition is that of scikit-learn's `class_weight="balanced"`; a class without examples has weight 0.
    """
    present = sum(count > 0 for count in counts)
    return [sum(counts) / (present * count) if count else 0.0 for count in counts]


def note_of_classes(load: Load, split: str, count: Callable[[], Mapping[str, int] | None]) -> str | None:
    """Return the sentence on the classes of the training split; None where training doesn't depend on their sizes.

    `count` returns the number of examples of each class by its name; None, as a plan may have to, if they are unknown.
    """
    is_weighted, is_drawn = load.class_weights != "none", load.sample != "all"
    if not is_weighted and not is_drawn:
        return None
    name = "class_weights" if is_weighted else "sample"
    setting, also = f"{load.key(name)} = {getattr(load, name)}", ", with their weights" if is_weighted else ""
    counts = count()
    if counts is None:
        return f"{setting}: a run counts the labels of '{split}' when it starts, and notes the examples by class{also}."
    listed = [f"{of} {examples:,}" for of, examples in counts.items()]
    if is_weighted:
        listed = [f"{text} ({weight:.3g})" for text, weight in zip(listed, balanced([*counts.values()]), strict=True)]
    return f"{setting}: training examples by class{also and f'{also},'} are {first_few(listed, 20)}."


def too_few(load: Load, hosts: int, examples: int) -> WorldError | None:
    """Return the error of so many training examples, if they are none of the full batches that alone are kept."""
    batch = load.batch_size * hosts
    if not load.drop_remainder or examples >= batch:
        return None
    found = f"{batch}, with {counted(examples, 'example')} in the training split"
    expected = f"at most {examples} with load.drop_remainder=true, which otherwise drops the only batch"
    remedy = f"set load.batch_size={examples} or smaller, or load.drop_remainder=false"
    ends = ((f"load.batch_size={examples // hosts}",), ("load.drop_remainder=false",))
    return WorldError(load.key("batch_size"), found, expected, remedy, ends)


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
    drop_long: Data[bool]
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

    def call(self) -> Call:
        return Call("map", (Partial(padded, {"boundaries": [*self.boundaries]}),))


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
