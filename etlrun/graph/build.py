"""A planned pipeline as a tf.data.Dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

from etlrun.graph.context import Context
from etlrun.graph.datasets import DATASET_STAGES
from etlrun.graph.source import Source, Split
from etlrun.plan import PlannedStage
from etlrun.stages.cache import DiskCache, MemoryCache
from etlrun.stages.flow import Flow
from etlrun.stages.load import Batch, Prefetch, Shuffle

CACHES = (MemoryCache, DiskCache)


class Pipeline:
    """The stages of one split, as one graph.

    Each iteration over `dataset` is the next pass over the data: it has an order and an augmentation of its own,
    which follow from the seed and from how many iterations were begun before.

    Attributes:
        stages: As planned.
        split: The examples that it reads.
        context: What its stages share.
        dataset: Batches (image, label) of one pass. Its length is unknown to tf.data, so that Keras reads on
            until it ends: a cache is complete only then.
    """

    def __init__(
        self, stages: Sequence[PlannedStage], *, source: Source, split: Split, seed: int, folder: Path
    ) -> None:
        """Build the graph; a mismatch with what the plan says is a `TypeError`."""
        self.stages, self.split = tuple(stages), split
        self.context = Context(
            source=source,
            split=split,
            folder=folder,
            seed=seed,
            passes_begun=tf.Variable(0, dtype=tf.int64),
        )
        self._cached: tf.data.Dataset | None = None
        self._ahead = [planned for planned in stages if isinstance(planned.stage, Prefetch)]
        self._behind = self._build(None, [planned for planned in stages if planned not in self._ahead])
        self.dataset = self._build(self._behind, self._ahead).with_options(_as_written())
        _check(self.dataset, stages[-1].gives)

    def _build(self, dataset: tf.data.Dataset | None, stages: Sequence[PlannedStage]) -> tf.data.Dataset:
        for planned in stages:
            dataset = DATASET_STAGES[type(planned.stage)](dataset, planned.stage, self.context)
            if isinstance(planned.stage, CACHES):
                self._cached = dataset
        return dataset

    def skip_passes(self, count: int) -> None:
        """Let the next iteration be that of `count` passes later, as if they had been read; reads nothing."""
        self.context.passes_begun.assign_add(count)
        for _ in range(count):
            iter(self._behind)  # draws the seed of the shuffle stage

    def endless(self) -> tf.data.Dataset:
        """Batches of the next pass and all later ones; prefetching goes on from pass to pass."""
        return self._build(self._behind.repeat(), self._ahead).with_options(_as_written())

    def extracted(self) -> tf.data.Dataset:
        """What the first stage gives."""
        return self._build(None, self.stages[:1])

    def alone(self, stages: Sequence[PlannedStage], *, from_cache: bool) -> tf.data.Dataset:
        """`stages`, these or these with other speeds, without shuffling; from what the cache holds, or without it."""
        kept = [planned for planned in stages if not isinstance(planned.stage, (Shuffle, *CACHES))]
        if not from_cache or self._cached is None:
            return self._build(None, kept).with_options(_as_written())
        loading = [planned for planned in kept if isinstance(planned.stage, Batch | Prefetch)]
        return self._build(self._cached, loading).with_options(_as_written())


def _as_written() -> tf.data.Options:
    """Without the rewrites that make a serial map parallel, fuse it into the batches, or add a prefetch.

    The config says which of these are wanted, and the measures tell the stages apart.
    """
    options = tf.data.Options()
    options.experimental_optimization.map_parallelization = False
    options.experimental_optimization.map_and_batch_fusion = False
    options.experimental_optimization.inject_prefetch = False
    return options


def _check(dataset: tf.data.Dataset, flow: Flow) -> None:
    """Refuse a graph whose elements are not what the plan promised, before a byte is read."""
    image = dataset.element_spec[0]
    shape = tuple(image.shape)[1:]
    if (image.dtype.name, shape) != (flow.dtype, (flow.height, flow.width, 3)):
        message = f"the graph gives {image.dtype.name} {shape}, the plan says {flow}: a stage's `flow` is wrong"
        raise TypeError(message)
