"""Scan of a split: each image is read once, looked at in threads, and kept as a row of figures."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from etlrun.datasets.examine.doctor_image import Look, look_at
from etlrun.datasets.examine.finding import NAMED, Finding
from etlrun.datasets.prepare.check import DIGEST, in_order
from etlrun.sources.base import Example, Records, Source, Split
from etlrun.sources.corrupt import CorruptRecord, records_of
from etlrun.system.errors import headline

LOOKED = np.dtype(
    [
        ("digest", DIGEST), ("hash", "u8"), ("label", "i8"), ("width", "u4"), ("height", "u4"), ("size_bytes", "u4"),
        ("format", "S8"), ("colours", "S12"), ("orientation", "u1"), ("is_flat", "?"), ("is_transparent", "?"),
        ("is_dim", "?"), ("is_warned", "?"), ("is_broken", "?"), ("shard", "u4"), ("number", "u4"),
    ]
)  # fmt: skip
"""What is kept of an image: see `Look`; `shard` and `number` are its place."""
SAMPLES = 6
"""Images of each class that the page shows."""
_BATCH = 8
"""Records that are read and parsed at once."""
Parse = Callable[[tf.Tensor], Example]


@dataclass(kw_only=True)
class Scan:
    """What is known of the images of a split.

    Attributes:
        source: The dataset.
        split: The split.
        looks: A row of `LOOKED` for each image, in the order of the data.
        broken: Place and reason of the first records that can't be used, damages of files before others.
        lost: Number of all of these records, with those behind a damage of a file.
        warnings: What libjpeg warns of, for the first images of which it does, by their places in `looks`.
    """

    source: Source
    split: Split
    looks: npt.NDArray[Any]
    broken: list[tuple[str, str]]
    lost: int
    warnings: dict[int, str] = field(default_factory=dict)

    def place(self, index: int) -> str:
        """Return the file of an image, and its record there."""
        look = self.looks[index]
        return self.split.where(self.split.shards[look["shard"]], int(look["number"]))

    def samples(self) -> Iterator[tuple[int, list[int]]]:
        """Yield each label with the numbers of the first images that have it."""
        sound = np.flatnonzero(~self.looks["is_broken"])
        order = sound[np.argsort(self.looks["label"][sound], kind="stable")]
        labels, starts = np.unique(self.looks["label"][order], return_index=True)
        for label, start, end in zip(labels, starts, np.append(starts[1:], len(order)), strict=True):
            yield int(label), order[start : min(end, start + SAMPLES)].tolist()

    def encoded(self, index: int) -> bytes | None:
        """Return the bytes of an image, which are read again; None if they can't be."""
        shards, look = self.split.shards, self.looks[index]
        shard, place = shards[look["shard"]], int(look["number"])
        number = sum(of.take for of in shards[: look["shard"]]) + place - shard.skip
        try:
            if self._numbered is None:  # a damaged file: what is before the damage is read from its start on
                record = next(iter(self.split.read(shard.path, place, 1)))
            else:
                record = tf.constant(self._numbered.read(np.array([number]))[0])
            return bytes(self.source.parser()(record)["image"].numpy())
        except (ValueError, OSError, StopIteration, tf.errors.OpError):
            return None

    def found(
        self, is_chosen: npt.NDArray[np.bool_], text: str, remedy: str, more: Callable[[int], str] = lambda _: ""
    ) -> Iterator[Finding]:
        """Yield the finding of those images that can be used and are chosen; `more` follows the place of each."""
        chosen = np.flatnonzero(~self.looks["is_broken"] & is_chosen).tolist()
        if chosen:
            yield Finding(
                f"{len(chosen):,} of {len(self.looks):,} images of {self.split.name} {text}",
                remedy,
                tuple(f"{self.place(index)}{more(index)}" for index in chosen[:NAMED]),
                tuple((self, index) for index in chosen[:NAMED]),
            )

    @cached_property
    def _numbered(self) -> Records | None:
        try:
            return self.split.numbered
        except (ValueError, OSError):
            return None


class _Batch(NamedTuple):
    """Records of a shard.

    Attributes:
        shard: Place of the shard in the split.
        number: Number of the first record in the shard.
        records: Strings (records,).
    """

    shard: int
    number: int
    records: tf.Tensor


def scanned(source: Source, split: Split, done: Callable[[int], None]) -> Scan:
    """Read and look at all images of a split; `done` is told how many further ones are known.

    Of an image, a row of `LOOKED` is kept; at most two batches of encoded images for each core are in memory at once.

    Raises:
        WorldError: A file can't be opened or read.
    """
    found = Scan(source=source, split=split, looks=np.zeros(split.num_examples, LOOKED), broken=[], lost=0)
    reasons: dict[int, str] = {}
    parse = tf.function(source.parser(), input_signature=[tf.TensorSpec((None,), tf.string)])
    count = 0
    for looked in in_order(lambda batch: _looked(found, parse, batch), _batches(found)):
        for row, reason, warning in looked:
            found.looks[count] = row
            if reason and len(reasons) < NAMED:
                reasons[count] = reason
            if warning and len(found.warnings) < NAMED:
                found.warnings[count] = warning
            count += 1
        done(len(looked))
    found.looks = found.looks[:count]
    found.broken += [(found.place(index), reason) for index, reason in reasons.items()]
    found.lost += int(found.looks["is_broken"].sum())
    return found


def _batches(found: Scan) -> Iterator[_Batch]:
    """Yield the records of all shards; what is lost by a damage is noted."""
    for place, shard in enumerate(found.split.shards):
        number, end = shard.skip, shard.skip + shard.take
        with contextlib.suppress(tf.errors.OpError):  # the reader of single records says what is wrong
            for records in found.split.read(shard.path, shard.skip, shard.take).batch(_BATCH):
                yield _Batch(place, number, records)
                number += len(records)
        rest = replace(shard, skip=number, take=end - number)
        for number, record in records_of(found.source, found.split, rest) if rest.take else ():
            if isinstance(record, CorruptRecord):
                found.broken.append((record.where, record.reason))
                found.lost += record.lost
            else:
                yield _Batch(place, number, record[None])


def _looked(of: Scan, parse: Parse, batch: _Batch) -> list[tuple[tuple[Any, ...], str, str]]:
    """Return a row of `LOOKED` for each record of a batch, why it can't be used, and what libjpeg warns of."""
    found = []
    for place, (data, label, fault) in enumerate(_parsed(of.source, parse, batch.records)):
        refused = of.split.refused(batch.number + place)
        look = Look(reason=refused[0] if refused else fault) if refused or fault else look_at(data)
        reason = _fault_of(of.source, look, label)
        known = (look.digest, look.hash, label, look.width, look.height, look.size_bytes, look.format, look.colours)
        kinds = (look.is_flat, look.is_transparent, look.is_dim, bool(look.warning), bool(reason))
        found.append(((*known, look.orientation, *kinds, batch.shard, batch.number + place), reason, look.warning))
    return found


def _parsed(source: Source, parse: Parse, records: tf.Tensor) -> list[tuple[bytes, int, str]]:
    """Return the image of each record, its label, and why it has none; empty if it has."""
    try:
        examples = parse(records)
    except tf.errors.OpError as error:
        if len(records) > 1:
            return [example for record in records for example in _parsed(source, parse, record[None])]
        return [(b"", -1, headline(error))]
    labels = examples[source.dataset.examples.target].numpy()
    return [(bytes(data), int(label), "") for data, label in zip(examples["image"].numpy(), labels, strict=True)]


def _fault_of(source: Source, look: Look, label: int) -> str:
    if look.reason or source.num_classes is None or 0 <= label < source.num_classes:
        return look.reason
    return f"label {label}, of {source.num_classes} classes"
