"""A planned pipeline as a tf.data.Dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

from etlrun.graph.context import Context, Pass
from etlrun.graph.datasets import DATASET_STAGES
from etlrun.graph.source import Source, Split
from etlrun.plan import PlannedStage
from etlrun.stages.flow import Flow
from etlrun.stages.load import Prefetch


class Pipeline:
    """The stages of one split.

    Passes differ from the first random stage on; what is before it, a cache too, is built once.

    Attributes:
        split: The examples that it reads.
        context: What its stages share.
    """

    def __init__(
        self, stages: Sequence[PlannedStage], *, source: Source, split: Split, seed: int, folder: Path
    ) -> None:
        """Build what all passes share; a mismatch with what the plan says is a `TypeError`."""
        self.split, self.seed = split, seed
        self.context = Context(source=source, split=split, folder=folder, examples_left=tf.Variable(0, dtype=tf.int64))
        first_random = next((i for i, planned in enumerate(stages) if planned.is_random), len(stages))
        self._each_pass = stages[first_random:]
        self._shared = self._build(None, stages[:first_random], Pass(number=0, seed=seed))
        _check(self.one_pass(0), stages[-1].gives)

    def _build(self, dataset: tf.data.Dataset | None, stages: Sequence[PlannedStage], pass_: Pass) -> tf.data.Dataset:
        for planned in stages:
            dataset = DATASET_STAGES[type(planned.stage)](dataset, planned.stage, self.context, pass_)
        return dataset

    def one_pass(self, number: int) -> tf.data.Dataset:
        """Batches (image, label) of pass `number`, from 0.

        Its length is unknown to tf.data, so that Keras reads on until it ends: a cache is complete
        only then.
        """
        return self._build(self._shared, self._each_pass, Pass(number=number, seed=self.seed))

    def passes(self, first: int) -> tf.data.Dataset:
        """Batches of pass `first` and all later ones, without end; prefetching goes on from pass to pass."""
        ahead = [planned for planned in self._each_pass if isinstance(planned.stage, Prefetch)]
        inner = [planned for planned in self._each_pass if planned not in ahead]

        def batches(number: tf.Tensor) -> tf.data.Dataset:
            return self._build(self._shared, inner, Pass(number=number, seed=self.seed))

        numbers = tf.data.Dataset.counter(start=first)
        return self._build(numbers.flat_map(batches), ahead, Pass(number=first, seed=self.seed))


def _check(dataset: tf.data.Dataset, flow: Flow) -> None:
    """Refuse a graph whose elements are not what the plan promised, before a byte is read."""
    image = dataset.element_spec[0]
    shape = tuple(image.shape)[1:]
    if (image.dtype.name, shape) != (flow.dtype, (flow.height, flow.width, 3)):
        message = f"the graph gives {image.dtype.name} {shape}, the plan says {flow}: a stage's `flow` is wrong"
        raise TypeError(message)
