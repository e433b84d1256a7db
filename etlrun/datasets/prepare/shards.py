"""Shards of a dataset: TFRecord files with an image and its label in each record, written in parallel.

Those of a dataset in a store are published as they are finished, and the metadata when all of them are there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from etlrun.datasets.prepare.identical import digest_of
from etlrun.datasets.prepare.options import LARGEST_SHARD_BYTES, Options
from etlrun.datasets.prepare.source import DamagedError, Source
from etlrun.datasets.prepare.splits import Image
from etlrun.datasets.prepare.threads import in_order
from etlrun.datasets.prepare.work import INFO, require_new
from etlrun.remote.failures import UnreachableError
from etlrun.remote.objects import Object, looked_up
from etlrun.remote.put import put, remove, there
from etlrun.sources.framing import AROUND, framed
from etlrun.stages.dataset import IMAGE, LABEL
from etlrun.stages.lazy import tf
from etlrun.system.errors import WorldError, one_line


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
            source.name_of(image.entry),
            found,
            "the file that was checked",
            "run the command again, while nothing else writes to the source",
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


class Store:
    """The place of a version in a store.

    Shards that are published are noted in a file on this machine, so that a command after one that was killed neither
    writes nor uploads them again. A shard is known by the content of its images, their labels and their order.

    Attributes:
        stop: Ends tries to publish shards when it is set.
    """

    def __init__(self, options: Options) -> None:
        """List what a command that was killed has left there; raise `UnreachableError` if the store does not tell."""
        self.stop = Event()
        self._options, self._notes = options, options.family / f"published.{options.version}.jsonl"
        self._left = {*there(options.place, {})}
        self._known: dict[tuple[str, str], Object] = {}
        self._shards: list[Object] = []
        with suppress(FileNotFoundError):
            for line in self._notes.read_text().splitlines():
                with suppress(ValueError):  # of a line that a kill has cut
                    file, key, of = json.loads(line)
                    self._known[file, key] = Object(**of)

    def published(self, shard: Shard) -> int | None:
        """Return the size of a shard that was published before; None if it was not, or is another object now."""
        of = self._known.get((shard.file, _key(shard)))
        with suppress(UnreachableError):
            if of is not None and looked_up(of.url, {}) == of:
                self._shards.append(of)
                return of.bytes
        return None

    def publish_shard(self, shard: Shard, path: Path) -> None:
        """Publish a shard that is complete, and empty its file; raise `UnreachableError` if that can't be."""
        url = f"{self._options.place}/{shard.file}"
        of = put(path, url, {}, self.stop, replaces=url in self._left)
        self._shards.append(of)
        with self._notes.open("a") as file:
            file.write(json.dumps([shard.file, _key(shard), dataclasses.asdict(of)]) + "\n")
        path.write_bytes(b"")  # the name of which TFDS wants to find

    def publish(self, folder: Path) -> None:
        """Publish the metadata in `folder`, of which a reader needs the last one; shards of others are removed before.

        Raises:
            WorldError: The version exists by now, or another command has changed its shards.
        """
        require_new(self._options)
        for of in self._shards:
            if looked_up(of.url, {}) != of:
                raise WorldError(
                    of.url,
                    "another content than was written",
                    "what this command has written",
                    "run it again, while nothing else writes there",
                )
        own = {of.url: of.name for of in self._shards}
        for url in self._left - {*own}:
            if url.startswith(f"{self._options.place}/{self._options.name}-") and ".tfrecord-" in url:
                remove(url, {})
        metadata = [path for path in folder.iterdir() if path.name not in own.values()]
        for path in sorted(metadata, key=lambda path: (path.name == INFO, path.name)):
            put(path, f"{self._options.place}/{path.name}", {}, replaces=path.name != INFO)
        self._notes.unlink(missing_ok=True)


def _key(shard: Shard) -> str:
    digest = hashlib.sha256()
    for image in shard.images:
        digest.update(f"{image.digest} {image.label}\n".encode())
    return digest.hexdigest()
