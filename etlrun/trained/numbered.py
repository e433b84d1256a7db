"""One pass of a validation pipeline that knows the place of each example, whatever is skipped or reordered."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from etlrun.graph.build import as_written
from etlrun.graph.context import Context
from etlrun.graph.datasets import readable, staged
from etlrun.planning.learned import columns_of
from etlrun.planning.plan import Plan, PlannedStage, stage_of
from etlrun.sources.base import Example, Source, Split, open_source
from etlrun.sources.corrupt import in_shard
from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.stages.flow import NUMBER
from etlrun.stages.load import Batch as BatchStage
from etlrun.system.errors import WorldError, headline
from etlrun.trained.large import require_held
from etlrun.trained.steps import of_validation


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Examples as the model takes them.

    Attributes:
        inputs: One tensor, or several by name: (batch, ...).
        targets: Targets (batch, ...), or several by name.
        weights: Weights of the examples (batch,); None if all count the same.
        numbers: Numbers of the examples in the split, from 0; int64 (batch,).
    """

    inputs: Any
    targets: Any
    weights: npt.NDArray[Any] | None
    numbers: npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Lost:
    """An example that a pass has lost.

    Attributes:
        place: Path of its file, and its record there.
        reason: Why it can't be used.
    """

    place: str
    reason: str


class Pass:
    """A pass over a split with the stages of a run's validation, in its order and its batches, without a cache.

    A run of `extract=tfds` is read shard by shard, since TFDS does not tell the place of what it reads.

    Attributes:
        source: The dataset.
        split: Examples to read.
        seen: Whether each example has been in a batch; bool (num_examples,).
        header: Name of what tells examples apart.
    """

    header: ClassVar[tuple[str, ...]] = ("path",)

    def __init__(self, planned: Plan, source: Source, split: Split) -> None:
        self.source, self.split = source, split
        self._firsts = [0, *accumulate(shard.take for shard in split.shards)]
        self._same = np.arange(split.num_examples)  # the same shard again has the numbers of the first
        for at, shard in enumerate(split.shards):
            first = self._firsts[split.shards.index(shard)]
            self._same[self._firsts[at] : self._firsts[at + 1]] = np.arange(first, first + shard.take)
        self.seen = self._same != np.arange(split.num_examples)
        stages, self._columns = of_validation(planned), columns_of(planned.spec)
        self._dataset, self._handed = _built(stages, source, split, planned), stages[-1].gives.handed

    @property
    def inputs_spec(self) -> Any:
        """Specs of the inputs of a batch."""
        return self._handed(self._dataset.element_spec)[0]

    @property
    def wanted_specs(self) -> tuple[Any, ...]:
        """Specs of the targets of a batch, and of the weights if there are any."""
        return tuple(self._handed(self._dataset.element_spec)[1:])

    def batches(self, skip_with: str) -> Iterator[Batch]:
        """Yield the batches; `skip_with` is what lets the command skip corrupt records, for messages.

        Raises:
            WorldError: A record is corrupt, and `dataset.on_corrupt` is `raise`.
        """
        try:
            for batch in self._dataset:
                known = self._same[batch[NUMBER].numpy()]
                self.seen[known] = True
                self._require_held(batch, known)
                inputs, *wanted = self._handed(batch)
                targets, *weight = tf.nest.map_structure(lambda of: of.numpy(), wanted)
                yield Batch(inputs=inputs, targets=targets, weights=weight[0] if weight else None, numbers=known)
        except tf.errors.OpError as error:
            raise self._cause(headline(error), skip_with) from error
        if self.source.dataset.on_corrupt == "raise" and not self.seen.all():  # a file that ends too early
            raise self._cause("examples that are missing", skip_with)

    def _require_held(self, batch: Example, numbers: npt.NDArray[np.int64]) -> None:
        """Raise `WorldError` for a row of a batch with a value that is infinite as float32."""
        if isinstance(self.source, RowsSource) and isinstance(self.split, RowSplit) and self._columns is not None:
            rows, outputs = self.split.rows[numbers], self._columns.outputs
            require_held(self.source.kept, outputs, batch, rows, lambda at: self.place(int(numbers[at])))

    def _cause(self, reason: str, skip_with: str) -> WorldError:
        for shard in self.split.shards:
            for corrupt in in_shard(self.source, self.split, shard):
                return WorldError(
                    where=corrupt.where,
                    found=corrupt.reason,
                    expected=corrupt.expected,
                    remedy=f"{corrupt.remedy}, or {skip_with}",
                )
        return WorldError(
            where="transform",
            found=reason,
            expected="steps that can process each example",
            remedy="show the examples after each step: etlrun show",
        )

    def place(self, number: int) -> str:
        """Return the path of the file of an example, and its record there if it has several."""
        shard = self._shard(number)
        return self.split.where(shard, shard.skip)

    def cells(self, number: int) -> tuple[str, ...]:
        """Return what tells an example apart, below the header."""
        return (self.place(number),)

    def example(self, number: int) -> Example:
        """Return the features of an example as they are stored."""
        shard = self._shard(number)
        record = next(iter(self.split.read(shard.path, shard.skip, 1)))
        return self.source.parser()(record)

    def image(self, number: int) -> bytes | None:
        """Return the encoded image of an example that has a single one."""
        flow = self.source.dataset.examples
        images = [name for name in flow.inputs if flow.features[name].format == "image"]
        return bytes(self.example(number)[images[0]].numpy()) if len(images) == 1 else None

    def lost(self) -> Iterator[Lost]:
        """Yield the examples that no batch had, in the order of the data, with their reasons."""
        for number in np.flatnonzero(~self.seen):
            try:
                found = next(in_shard(self.source, self.split, self._shard(int(number))), None)
                reason = found.reason if found else "a step can't process it"
            except WorldError as error:
                reason = error.faults[0].found
            yield Lost(place=self.place(int(number)), reason=reason)

    def _shard(self, number: int) -> Any:
        """Return the part of a shard that is this example alone."""
        at = int(np.searchsorted(self._firsts, number, "right")) - 1
        shard = self.split.shards[at]
        return dataclasses.replace(shard, skip=shard.skip + number - self._firsts[at], take=1)


def opened(planned: Plan, key: str) -> tuple[Source, Split]:
    """Return the dataset of a plan and the split that its validation reads; `key` names that split in messages."""
    source = open_source(planned.spec.dataset)
    return source, source.split(planned.spec.dataset.eval_split or "", key)


def _built(stages: Sequence[PlannedStage], source: Source, split: Split, planned: Plan) -> tf.data.Dataset:
    batch = stage_of(stages, BatchStage)  # up to which examples carry their numbers, and in it
    context = Context(source=source, split=split, seed=planned.spec.trainer.seed, numbered_to=batch)
    context.passes_begun.assign(1)
    dataset = None
    for of in stages:
        if of.stage.leaves_out:  # what is missing shows in the numbers
            dataset = readable(dataset, split).map(lambda _, example: example)
        else:
            dataset = staged(dataset, of.stage, context)
    assert dataset is not None  # noqa: S101 - for mypy
    return dataset.with_options(as_written())
