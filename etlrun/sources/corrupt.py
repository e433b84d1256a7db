"""Finding the record that broke a pipeline: which file, which record, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import tensorflow as tf

from etlrun.errors import WorldError, headline
from etlrun.sources.content import Shard
from etlrun.sources.tfds import Source, Split
from etlrun.stages.dataset import Dataset
from etlrun.stages.image import Decode


@dataclass(frozen=True, kw_only=True)
class CorruptRecord:
    """A record that can't be used.

    Attributes:
        path: Of the shard.
        record: Its number in the shard, from 0.
        reason: What is wrong with it.
        expected: What should be there.
        lost: Records that can't be read because of it, itself included.
    """

    path: str
    record: int
    reason: str
    expected: str
    lost: int = 1

    def error(self) -> WorldError:
        """The message that ends a run."""
        return WorldError(
            where=f"{self.path}, record {self.record}",
            found=self.reason,
            expected=self.expected,
            remedy="prepare the data set anew, or set dataset.on_corrupt=skip to count such records and go on",
        )


@dataclass
class Losses:
    """What passes lose to broken records. The same in each: whatever else is missing is an error.

    Attributes:
        records: The broken ones; None as long as no pass was short of examples.
        failure: Of a pass that has lost more than these; None for no such pass.
    """

    records: list[CorruptRecord] | None = None
    failure: WorldError | None = None

    def explain(self, source: Source, split: Split, kept: int) -> None:
        """A pass has ended with `kept` examples; `WorldError` where others than broken records are missing."""
        if kept + self._lost == split.num_examples:
            return
        try:
            self.records = list(corrupt_records(source, split))
            if kept + self._lost != split.num_examples:
                raise _unexplained(split, kept, self._lost)
        except WorldError as error:
            self.failure = error
            raise

    @property
    def _lost(self) -> int:
        return sum(record.lost for record in self.records or ())


def _unexplained(split: Split, kept: int, lost: int) -> WorldError:
    return WorldError(
        where=Dataset.key("on_corrupt"),
        found=f"{kept} examples in a pass over '{split.name}', which has {split.num_examples}, {lost} of them broken",
        expected=f"{split.num_examples - lost}: nothing but broken records is left out",
        remedy="look for errors of the storage; what a step can't take is told with dataset.on_corrupt=raise",
    )


def reason_of(error: Exception, path: str) -> str:
    """Why TensorFlow could not open or read that file, as the system says it; empty where that was not the error."""
    found = re.search(re.escape(path) + r"; ([^\[\n]+)", str(error))
    return found[1].strip() if found else ""


def corrupt_records(source: Source, split: Split) -> Iterator[CorruptRecord]:
    """The broken records of `split`, in order. Reads and decodes every record before it in turn.

    A file that can't be opened or read is a `WorldError`.
    """
    for shard in split.shards:
        yield from _in_shard(source, shard)


def _in_shard(source: Source, shard: Shard) -> Iterator[CorruptRecord]:
    parse = source.parser()
    records = iter(tf.data.TFRecordDataset(shard.path).skip(shard.skip).take(shard.take))
    for number in range(shard.skip, shard.skip + shard.take):
        try:
            record = next(records)
        except (tf.errors.DataLossError, StopIteration) as error:
            reason = "the end of the file" if isinstance(error, StopIteration) else headline(error)
            yield CorruptRecord(
                path=shard.path,
                record=number,
                reason=reason,
                expected=f"{shard.skip + shard.take} whole records: the shard is truncated or damaged",
                lost=shard.skip + shard.take - number,
            )
            return
        except tf.errors.OpError as error:
            raise source.unreadable(shard.path, reason_of(error, shard.path) or headline(error)) from error
        problem = _problem(source, parse, record)
        if problem:
            yield CorruptRecord(path=shard.path, record=number, reason=problem[0], expected=problem[1])


def _problem(source: Source, parse: object, record: tf.Tensor) -> tuple[str, str] | None:
    try:
        example = parse(record)  # type: ignore[operator]
    except tf.errors.InvalidArgumentError as error:
        return headline(error), f"an example with the features {' and '.join(source.dataset.keys.values())}"
    flow, classes = source.dataset.examples, source.num_classes
    if classes is not None and not 0 <= int(example[flow.target]) < classes:
        return f"{flow.target} {int(example[flow.target])}", f"a {flow.target} from 0 to {classes - 1}"
    for name in (name for name, feature in flow.features.items() if feature.format == "image"):
        try:
            Decode.op(example[name])
        except tf.errors.InvalidArgumentError as error:
            return f"a picture that does not decode: {headline(error)}", "a whole picture file"
    return None
