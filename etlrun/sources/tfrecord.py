"""TFRecord files as a source, written by any program, with declared features."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from google.protobuf.message import DecodeError

from etlrun.sources.base import Example, Source, Split, all_there, parser_of
from etlrun.sources.content import Shard
from etlrun.sources.globbed import files_of
from etlrun.sources.numbered import Numbered
from etlrun.sources.slices import slices
from etlrun.stages.dataset import TFRecords
from etlrun.system.errors import WorldError, did_you_mean, printable

if TYPE_CHECKING:
    import tensorflow as tf
else:
    from etlrun.stages.lazy import tf

_KINDS = {"bytes_list": "a string", "int64_list": "int64", "float_list": "float32"}
_NAMED = 5


class TFRecordSource(Source):
    """TFRecord files of serialised examples."""

    dataset: TFRecords
    repair: ClassVar[str] = "write the file again, check dataset.num_classes and the declared features"

    def __init__(self, dataset: TFRecords) -> None:
        """Count the records of all files; raise `EtlrunError` if there are none, or if they hold other features."""
        self.dataset, self.files = dataset, files_of(dataset)
        self.full_name, self.identity = dataset.title, "tfrecord"
        self.num_classes = dataset.num_classes
        for counts in self.files.values():
            _checked(dataset, {path: count for path, count in counts.items() if count})

    @property
    def counts(self) -> dict[str, int]:
        return {name: sum(files.values()) for name, files in self.files.items()}

    def split(self, name: str, where: str) -> Split:
        parts = slices(name, self.counts)
        if not parts:
            raise self.unknown_split(name, where)
        shards = tuple(shard for part in parts for shard in self._shards(*part))
        split = Split(name=name, shards=shards, num_examples=sum(shard.take for shard in shards))
        if not split.num_examples:
            raise self.empty_split(name, where)
        all_there(self, split)
        return split

    def _shards(self, name: str, first: int, end: int) -> Iterator[Shard]:
        """Yield the parts of files that hold a slice."""
        before = 0
        for path, count in self.files[name].items():
            skip, until = max(first - before, 0), min(end - before, count)
            if until > skip:
                yield Shard(path=path, skip=skip, take=until - skip)
            before += count

    def empty_split(self, name: str, where: str) -> WorldError:
        paths = [path for part, _, _ in slices(name, self.counts) for path in self.files[part]]
        if any(self.counts[part] for part, _, _ in slices(name, self.counts)):
            return super().empty_split(name, where)
        named = ", ".join(printable(path) for path in paths[:_NAMED]) + (", …" if paths[_NAMED:] else "")
        return WorldError(
            where=self.dataset.key("files"),
            found=f"no records for '{name}' in {len(paths):,} file{'s' * (len(paths) > 1)}: {named}",
            expected="at least one record",
            remedy="write the files again, or choose others",
        )

    def parser(self) -> Callable[[tf.Tensor], Example]:
        return parser_of(self.dataset)


def _checked(dataset: TFRecords, counts: Mapping[str, int]) -> None:
    """Raise `WorldError` if the first example of these files has other features than the config declares."""
    for path, number, held in _first(counts):
        known = {name: _KINDS.get(feature.WhichOneof("kind") or "", "nothing") for name, feature in held.items()}
        for name, key in dataset.keys.items():
            stored = dataset.examples.features[name].stored
            wanted = "a string" if stored == "string" else stored
            if known.get(key) != wanted:
                listing = ", ".join(f"{other} ({kind})" for other, kind in sorted(known.items()))
                raise WorldError(
                    where=f"{path}, record {number}",
                    found=f"'{key}', which is {known[key]}" if key in known else f"no feature '{key}'",
                    expected=f"{wanted} for {name}; it has {listing or 'no features'}",
                    remedy=did_you_mean(
                        key, known, otherwise="set dataset.image_key and dataset.label_key, or declare dataset.features"
                    ),
                )


def _first(counts: Mapping[str, int]) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """Yield the features of the first record that is an example, with its file and its number there, if there is one.

    Records before it are corrupt.
    """
    from tensorflow_datasets.proto import tf_example_pb2  # that of TensorFlow, which is not imported for it

    for path, count in counts.items():
        records = Numbered([Shard(path=path, skip=0, take=count)])
        for number in range(count):
            with contextlib.suppress(DecodeError, ValueError):
                (record,) = records.read(np.array([number]))
                if held := tf_example_pb2.Example.FromString(record).features.feature:
                    yield path, number, held
                    return
