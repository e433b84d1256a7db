"""Scan of a split: each image is read once, looked at in threads, and kept as a row of figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from etlrun.errors import headline
from etlrun.examine.doctor_image import Look, look_at, small_jpeg
from etlrun.prepare.threads import threads
from etlrun.sources.base import Example, Source, Split
from etlrun.sources.content import Shard
from etlrun.sources.corrupt import CorruptRecord, records_of

LOOKED = np.dtype(
    [
        ("digest", "u8"), ("hash", "u8"), ("label", "i8"), ("width", "u4"), ("height", "u4"), ("size_bytes", "u4"),
        ("format", "U8"), ("colours", "U12"), ("is_flat", "?"), ("is_turned", "?"),
        ("is_broken", "?"), ("shard", "u4"), ("number", "u8"),
    ]
)  # fmt: skip
"""What is kept of an image: see `Look`; `shard` and `number` are its place."""
SAMPLES = 6
"""Images of each class that are kept."""
_CHUNK = 64


@dataclass(kw_only=True)
class Scan:
    """What is known of the images of a split.

    Attributes:
        source: The dataset.
        split: The split.
        looks: A row of `LOOKED` for each image, in the order of the data.
        broken: Place and reason of each record that can't be used.
        lost: Number of these records, with those behind a damage of a file.
        samples: The first images of each class, as small JPEGs.
    """

    source: Source
    split: Split
    looks: npt.NDArray[Any]
    broken: list[tuple[str, str]]
    lost: int
    samples: dict[int, list[bytes]] = field(default_factory=dict)

    def place(self, index: int) -> str:
        """Return the file of an image, and its record there."""
        look = self.looks[index]
        path, number = self.split.place(self.split.shards[look["shard"]], int(look["number"]))
        return path if number is None else f"{path}, record {number}"

    def encoded(self, index: int) -> bytes | None:
        """Return the bytes of an image; None if its file is damaged elsewhere, so that it can't be read by number."""
        shards, look = self.split.shards, self.looks[index]
        number = sum(shard.take for shard in shards[: look["shard"]]) + int(look["number"]) - shards[look["shard"]].skip
        try:
            record = self.split.numbered.read(np.array([number]))[0]
        except (ValueError, OSError):
            return None
        return bytes(self.source.parser()(tf.constant(record))["image"].numpy())


def scanned(source: Source, split: Split, done: Callable[[int], None]) -> Scan:
    """Read and look at all images of a split; `done` is told how many further ones are known.

    Raises:
        WorldError: A file can't be opened or read.
    """
    found = Scan(source=source, split=split, looks=np.empty(0, LOOKED), broken=[], lost=0)
    chunks, before = [found.looks], 0
    reasons: dict[int, str] = {}
    parse = source.parser()
    with threads() as pool:
        for shard_number, shard in enumerate(split.shards):
            left = _records(source, split, shard, found)
            while records := [*islice(left, _CHUNK)]:
                examples = [_parsed(source, parse, record) for _, record in records]
                rows: list[tuple[Any, ...]] = []
                looks = pool.map(_looked, examples)
                for (number, _), example, look in zip(records, examples, looks, strict=True):
                    reason = _fault_of(source, look, example[1])
                    if reason:
                        reasons[before + len(rows)] = reason
                    else:
                        _sample(found, example)
                    sizes = (look.width, look.height, look.size_bytes, look.format, look.colours)
                    known = (look.digest, look.hash, example[1], *sizes, look.is_flat, look.is_turned, bool(reason))
                    rows.append((*known, shard_number, number))
                chunks.append(np.array(rows, LOOKED))
                before += len(rows)
                done(len(records))
    found.looks = np.concatenate(chunks)
    found.broken += [(found.place(index), reason) for index, reason in reasons.items()]
    found.lost += len(found.broken)
    return found


def _records(source: Source, split: Split, shard: Shard, found: Scan) -> Iterator[tuple[int, tf.Tensor]]:
    """Yield the records of a shard with their numbers; what is lost by a damage is noted."""
    for number, record in records_of(source, split, shard):
        if isinstance(record, CorruptRecord):
            found.broken.append((record.where, record.reason))
            found.lost += record.lost - 1
        else:
            yield number, record


def _parsed(source: Source, parse: Callable[[tf.Tensor], Example], record: tf.Tensor) -> tuple[bytes, int, str]:
    """Return the image of a record, its label, and why it has none; empty if it has."""
    try:
        example = parse(record)
    except tf.errors.OpError as error:
        return b"", -1, headline(error)
    flow = source.dataset.examples
    return bytes(example["image"].numpy()), int(example[flow.target]), ""


def _looked(example: tuple[bytes, int, str]) -> Look:
    data, _, reason = example
    return Look(digest=0, reason=reason) if reason else look_at(data)


def _fault_of(source: Source, look: Look, label: int) -> str:
    if look.reason or source.num_classes is None or 0 <= label < source.num_classes:
        return look.reason
    return f"label {label}, of {source.num_classes} classes"


def _sample(found: Scan, example: tuple[bytes, int, str]) -> None:
    data, label, _ = example
    if len(found.samples.setdefault(label, [])) < SAMPLES:
        found.samples[label].append(small_jpeg(data))
