"""Finding the record that broke a pipeline: which file, which record, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import tensorflow as tf

from etlrun.errors import WorldError, headline
from etlrun.graph.source import Shard, Source, Split, decoded


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


def corrupt_records(source: Source, split: Split) -> Iterator[CorruptRecord]:
    """The broken records of `split`, in order. Reads and decodes every record before it in turn."""
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
        problem = _problem(source, parse, record)
        if problem:
            yield CorruptRecord(path=shard.path, record=number, reason=problem[0], expected=problem[1])


def _problem(source: Source, parse: object, record: tf.Tensor) -> tuple[str, str] | None:
    try:
        example = parse(record)  # type: ignore[operator]
    except tf.errors.InvalidArgumentError as error:
        keys = (source.dataset.image_key, source.dataset.label_key)
        return headline(error), f"an example with the features {' and '.join(keys)}"
    label = int(example["label"])
    if not 0 <= label < source.num_classes:
        return f"label {label}", f"a label from 0 to {source.num_classes - 1}"
    try:
        decoded(example["image"])
    except tf.errors.InvalidArgumentError as error:
        return f"a picture that does not decode: {headline(error)}", "a whole picture file"
    return None
