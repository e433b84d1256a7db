"""Reading of records from the shards of a split."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from etlrun.stages.base import Nodes, Order, Parallelism, Positive, Speed, Stage, Tuned, selectable, single
from etlrun.stages.flow import Faults, Flow, UnfitError
from etlrun.stages.image import Decode
from etlrun.stages.lazy import np, tf, tfds
from etlrun.system.values import frozen


class Extract(Stage):
    """A way of reading records.

    Attributes:
        parses: Whether it outputs features instead of serialised examples.
        decode: Whether it outputs decoded images.
        deterministic: Whether all runs read the records in the same order.
    """

    block = "extract"
    parses: ClassVar[bool] = False
    decode: bool
    deterministic: bool

    def for_evaluation(self) -> Self:
        """Return the same stage for validation: in the order of the shards' names."""
        return self


def read_by_tfds(
    builder: tfds.core.DatasetBuilder, split: str, keys: Mapping[str, str], decoders: Mapping[str, Any]
) -> tf.data.Dataset:
    """Return the examples of `split` as `tfds.load` does, in order, with features by name from those of these `keys`.

    `decoders` are those of some keys; any other feature is as TFDS has it.
    """
    examples = builder.as_dataset(
        split=split,
        decoders=tfds.decode.PartialDecoding(dict.fromkeys(keys.values(), True), decoders=decoders),
        shuffle_files=False,
        read_config=tfds.ReadConfig(try_autocache=False, assert_cardinality=False),
    )
    return examples.map(lambda example: {name: example[key] for name, key in keys.items()})


@selectable
class Tfds(Extract):
    """Reads like `tfds.load`, but without its automatic caching in memory.

    Attributes:
        decode: Whether images are decoded in TFDS's own parallel map; if not, `decode` is a step.
    """

    path = "extract.tfds"
    parses = True
    deterministic = True

    decode: Speed[bool]

    @property
    def rests_on(self) -> tuple[str, ...]:  # type: ignore[override]
        """Packages that determine the order of its records."""
        return ("tensorflow-datasets", *(("tensorflow",) if self.decode else ()))

    def flow(self, incoming: Flow) -> Flow:
        flow = incoming.replace(record="")
        images = [name for name in flow.features if flow.features[name].format == "image"] if self.decode else []
        if self.decode and not images:
            raise UnfitError("a feature that is an encoded image", "set extract.decode=false")
        for name in images:
            flow = flow.with_feature(name, Decode().gives(flow.features[name]))
        return flow


@frozen
class Shards(Extract):
    """Base of the stages that read shards directly.

    Attributes:
        shuffle_files: Whether each training pass reads the shards in another order, by the seed; else in that of their
            names. A cache keeps the order of the first pass.
    """

    decode = False

    shuffle_files: Order[bool]

    @property
    def random(self) -> bool:  # type: ignore[override]
        return self.shuffle_files

    def for_evaluation(self) -> Self:
        return dataclasses.replace(self, shuffle_files=False)

    def canonical(self, shards: int) -> Self:
        """Return the same stage for all orders of a single shard."""
        return dataclasses.replace(self, shuffle_files=False) if shards == 1 else self


def shards(parts: Sequence[tuple[str, int, int]], seed: int | tf.Tensor | None = None) -> tf.data.Dataset:
    """Return path, records to skip, records to take, number of the first of these, and number of each part of a split.

    A `seed` shuffles them.
    """
    paths, *counts = zip(*parts, strict=True)
    skips, takes = np.array(counts, np.int64)
    columns = [*paths], skips, takes, np.cumsum(takes) - takes, np.arange(len(parts))
    dataset = tf.data.Dataset.from_tensor_slices(columns)
    return dataset if seed is None else dataset.shuffle(len(parts), seed=seed, reshuffle_each_iteration=False)


@selectable
class Sequential(Shards):
    """Reads one shard after the other."""

    path = "extract.sequential"
    deterministic = True


@selectable
class Interleave(Shards):
    """Reads several shards at once and takes records from them in turn.

    Attributes:
        cycle_length: Shards that are open at once; `all` for those of the split.
        block_length: Records taken from one shard before the next.
        num_parallel_calls: Shards read in parallel, at most `cycle_length`; null reads in the consumer's thread, but
            means 1 if corrupt records are skipped.
        deterministic: `false` outputs records as they arrive: no run can be repeated exactly.
    """

    path = "extract.interleave"
    tuned = Tuned("num_parallel_calls", "parallelism", "extract.num_parallel_calls")

    cycle_length: Order[Annotated[int, Field(ge=1, le=10_000)] | Literal["all"]]
    block_length: Order[Positive]
    num_parallel_calls: Speed[Parallelism]
    deterministic: Order[bool]

    def canonical(self, shards: int) -> Self:
        """Return the same stage for all values that open the same number of shards."""
        cycle_length = self.at_once(shards)
        return dataclasses.replace(
            super().canonical(shards),
            cycle_length=cycle_length,
            block_length=1 if cycle_length == 1 else self.block_length,
            num_parallel_calls="autotune",
        )

    def at_once(self, shards: int) -> int:
        """Return how many of the shards are open at once."""
        return shards if self.cycle_length == "all" else min(self.cycle_length, shards)

    def rules(self) -> Faults:
        calls = self.num_parallel_calls
        if isinstance(calls, int) and self.cycle_length != "all" and calls > self.cycle_length:
            expected = f"at most cycle_length, which is {self.cycle_length}"
            remedy = f"set extract.cycle_length={calls} or extract.num_parallel_calls=autotune"
            yield "num_parallel_calls", calls, expected, remedy


def readable(dataset: tf.data.Dataset, count: int) -> tf.data.Dataset:
    """Return (number, element) of those elements of a dataset that do not raise.

    The number of reads is limited to a `count`, since a file that can't be opened raises on every read.
    """
    return tf.data.Dataset.zip((tf.data.Dataset.range(count), dataset)).ignore_errors()


@frozen
class SkipCorrupt(Stage):
    """Skips records that can't be read, parsed or decoded, and counts the remaining ones."""

    path = "dataset.skip_corrupt"
    nodes: ClassVar[tuple[Nodes, ...]] = (
        single("Map"),  # removes the numbers
        Nodes(("Filter", "Concatenate", "IgnoreErrors")),
    )
    leaves_out = True


@frozen
class SkippedInBatches(SkipCorrupt):
    """The same where the stage before it has done so, for whole batches: nothing is left to do."""

    nodes = ()
