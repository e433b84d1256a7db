"""One pass of a validation pipeline that knows the place of each example, whatever is skipped or reordered.

Each record carries its number in the split, behind its target, through all steps to the batches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from etlrun.graph.build import as_written
from etlrun.graph.context import Context
from etlrun.graph.datasets import staged
from etlrun.graph.skip import readable
from etlrun.plan.plan import Plan, PlannedStage
from etlrun.run.trained.steps import of_validation
from etlrun.sources.base import Example, Source, Split
from etlrun.sources.corrupt import in_shard
from etlrun.sources.open import open_source
from etlrun.stages.flow import Flow
from etlrun.system.errors import WorldError, headline

_DIGITS = 20
"""Length of the number before a record."""
_LONGEST = 2**31 - 1
_NUMBER = "\0number"
"""Name of a feature that no config can declare."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Examples as the model takes them.

    Attributes:
        inputs: One tensor, or several by name: (batch, ...).
        targets: Targets (batch, ...).
        numbers: Numbers of the examples in the split, from 0; int64 (batch,).
    """

    inputs: Any
    targets: npt.NDArray[Any]
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
    """

    def __init__(self, planned: Plan, source: Source, split: Split) -> None:
        self.source, self.split = source, split
        self._firsts = [0, *accumulate(shard.take for shard in split.shards)]
        self.seen = np.zeros(split.num_examples, bool)
        for at, shard in enumerate(split.shards):  # the same shard again has the numbers of the first
            self.seen[self._firsts[at] : self._firsts[at + 1]] = shard in split.shards[:at]
        self._dataset = _built(of_validation(planned), _Numbered(source), _NumberedSplit.of(split), planned)

    @property
    def inputs_spec(self) -> Any:
        """Specs of the inputs of a batch."""
        return self._dataset.element_spec[0]

    @property
    def targets_spec(self) -> Any:
        """Spec of the targets of a batch."""
        return self._dataset.element_spec[1][0]

    def batches(self, skip_with: str) -> Iterator[Batch]:
        """Yield the batches; `skip_with` is what lets the command skip corrupt records, for messages.

        Raises:
            WorldError: A record is corrupt, and `dataset.on_corrupt` is `raise`.
        """
        try:
            for inputs, (targets, numbers) in self._dataset:
                known = numbers.numpy()
                self.seen[known] = True
                yield Batch(inputs=inputs, targets=targets.numpy(), numbers=known)
        except tf.errors.OpError as error:
            raise self._cause(headline(error), skip_with) from error
        if self.source.dataset.on_corrupt == "raise" and not self.seen.all():  # a file that ends too early
            raise self._cause("examples that are missing", skip_with)

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

    def example(self, number: int) -> Example:
        """Return the features of an example as they are stored."""
        shard = self._shard(number)
        record = next(iter(self.split.read(shard.path, shard.skip, 1)))
        return self.source.parser()(record)

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
    context = Context(source=source, split=split, seed=planned.spec.trainer.seed)
    context.passes_begun.assign(1)
    dataset = None
    for of in stages:
        if of.stage.leaves_out:  # what is missing shows in the numbers
            dataset = readable(dataset, split).map(lambda _, example: example)
        else:
            dataset = staged(dataset, of.stage, context)
    assert dataset is not None  # noqa: S101 - for mypy
    return dataset.with_options(as_written())


@dataclass(frozen=True, kw_only=True)
class _NumberedFlow(Flow):
    """Hands the number of an example on, behind its target."""

    classes: int | None

    def handed(self, example: Any) -> tuple[Any, Any]:
        inputs, target = super().handed(example)
        if self.classes is not None:  # as a run checks it
            target = tf.gather(tf.range(self.classes, dtype=tf.int64), target)
        return inputs, (target, example[_NUMBER])

    def named(self, inputs: Any, target: Any) -> dict[str, Any]:
        return {**super().named(inputs, target[0]), _NUMBER: target[1]}


class _Numbered(Source):
    """A source whose records begin with their numbers in the split."""

    def __init__(self, inner: Source) -> None:
        self._inner, flow = inner, inner.dataset.examples
        numbered = _NumberedFlow(
            features=flow.features, target=flow.target, record=flow.record, classes=inner.num_classes
        )
        described: Any = SimpleNamespace(examples=numbered, on_corrupt=inner.dataset.on_corrupt)
        self.dataset, self.num_classes, self.full_name = described, None, inner.full_name

    def parser(self) -> Callable[[tf.Tensor], Example]:
        parse = self._inner.parser()

        def parse_numbered(record: tf.Tensor) -> Example:
            number = tf.strings.to_number(tf.strings.substr(record, 0, _DIGITS), tf.int64)
            return {**parse(tf.strings.substr(record, _DIGITS, _LONGEST)), _NUMBER: number}

        return parse_numbered


@dataclass(frozen=True, kw_only=True)
class _NumberedSplit(Split):
    """A split whose records begin with their numbers in it."""

    inner: Split

    @classmethod
    def of(cls, split: Split) -> _NumberedSplit:
        return cls(name=split.name, shards=split.shards, num_examples=split.num_examples, inner=split)

    @cached_property
    def _shards(self) -> tuple[tf.Tensor, ...]:
        """Paths of the shards, records that they leave out and have, and numbers of their first examples."""
        firsts = [0, *accumulate(shard.take for shard in self.shards)][:-1]
        with tf.init_scope():  # constants of all graphs
            parts = [[shard.skip for shard in self.shards], [shard.take for shard in self.shards], firsts]
            return tf.constant([shard.path for shard in self.shards]), *(tf.constant(of, tf.int64) for of in parts)

    def read(self, path: Any, skip: Any, take: Any) -> tf.data.Dataset:
        paths, skips, takes, firsts = self._shards
        at = tf.argmax((paths == path) & (skips == skip) & (takes == take))

        def with_number(number: tf.Tensor, record: tf.Tensor) -> tf.Tensor:
            return tf.strings.join([tf.strings.as_string(number, width=_DIGITS, fill="0"), record])

        return self.inner.read(path, skip, take).enumerate(firsts[at]).map(with_number)
