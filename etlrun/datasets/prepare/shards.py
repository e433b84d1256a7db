"""Shards of a dataset: TFRecord files with an image and its label in each record, written in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from etlrun.datasets.prepare.identical import digest_of
from etlrun.datasets.prepare.source import DamagedError, Source
from etlrun.datasets.prepare.splits import Image
from etlrun.datasets.prepare.threads import in_order
from etlrun.sources.framing import AROUND, framed
from etlrun.stages.dataset import IMAGE, LABEL
from etlrun.stages.lazy import tf
from etlrun.system.errors import WorldError, one_line

if TYPE_CHECKING:
    from etlrun.datasets.prepare.store import Store

LARGEST_SHARD_BYTES = 200_000_000
"""Shards have half of it or more, unless a split is smaller."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A shard.

    Attributes:
        split: Split that it belongs to.
        file: Name of the file, as TFDS expects it.
        images: Its examples, in order.
    """

    split: str
    file: str
    images: Sequence[Image]


def planned(name: str, splits: Mapping[str, Sequence[Image]], count: int | None) -> list[Shard]:
    """Return the shards of a dataset, `count` of each split if given, none without examples."""
    return [shard for split, images in splits.items() for shard in _of_split(name, split, images, count)]


def _of_split(name: str, split: str, images: Sequence[Image], count: int | None) -> Iterator[Shard]:
    total = sum(image.entry.size for image in images)
    count = min(count or -(-total // LARGEST_SHARD_BYTES) or 1, len(images))
    for number in range(count):
        start, end = (len(images) * place // count for place in (number, number + 1))
        file = f"{name}-{split}.tfrecord-{number:05d}-of-{count:05d}"
        yield Shard(split=split, file=file, images=images[start:end])


def write(
    source: Source, shards: Sequence[Shard], folder: Path, done: Callable[[int], None], store: Store | None = None
) -> dict[str, int]:
    """Write the shards to `folder`, or by way of it to a store; return the size of each file by its name.

    `done` is told how many further examples it has. Shards that the store has are not written.

    Raises:
        WorldError: An image has changed since it was checked; the store refuses a shard.
        OSError: A file can't be written.
    """

    def written(shard: Shard) -> int:
        path = folder / shard.file
        if store is not None and (size := store.published(shard)) is not None:
            path.touch()
            done(len(shard.images))
            return size
        with path.open("wb") as file:
            for image in shard.images:
                file.writelines(framed(_record(_read(source, image), image.label)))
                done(1)
        size = path.stat().st_size
        if store is not None:
            store.publish_shard(shard, path)
        return size

    sizes = in_order(written, shards) if store is None else in_order(written, shards, store.stop.set)
    return {shard.file: size for shard, size in zip(shards, sizes, strict=True)}


def _read(source: Source, image: Image) -> bytes:
    try:
        data = source.prepared(image.entry)
        found = "" if digest_of(data).hex() == image.digest else "other content than a moment ago"
    except (OSError, DamagedError) as error:
        found = getattr(error, "strerror", None) or one_line(error)
    if found:
        raise WorldError(
            where=source.name_of(image.entry),
            found=found,
            expected="the file that was checked",
            remedy="run the command again, while nothing else writes to the source",
        )
    return data


def _record(data: bytes, label: int) -> bytes:
    """Return an example as TFDS reads it, the same bytes each time."""
    features = {
        IMAGE: tf.train.Feature(bytes_list=tf.train.BytesList(value=[data])),
        LABEL: tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    serialised: bytes = example.SerializeToString(deterministic=True)
    return serialised


def data_bytes(size: int, count: int) -> int:
    """Return the size of the `count` records of a shard of that size, as TFDS counts it."""
    return size - AROUND * count
