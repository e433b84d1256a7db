"""TFRecord files as a source, written by any program, with declared features."""

from __future__ import annotations

import contextlib
import itertools
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from google.protobuf.message import DecodeError

from etlrun.remote.copies import copies_of
from etlrun.sources.base import OnDisk, Slice, Source, Split, all_there, in_files
from etlrun.sources.content import Numbered, Shard, whole
from etlrun.sources.framing import count_of, kind_of, meant
from etlrun.sources.listing import listed_names
from etlrun.sources.shards import counts_of, counts_of_objects, fetched, known_counts, remote, tfrecord_files
from etlrun.stages.dataset import IMAGE, LABEL, TFRecords
from etlrun.system.errors import EtlrunError, Fault, WorldError, refuse

_SAMPLED, _FEWEST = 96, 3
"""Records whose classes are looked at, and how many of them are not of the largest class, so that an order shows."""


class TFRecordSource(Source):
    """TFRecord files of serialised examples."""

    dataset: TFRecords
    repair: ClassVar[str] = "write the file again, check dataset.num_classes and the declared features"

    def __init__(self, dataset: TFRecords) -> None:
        """Count the records of all files; raise `EtlrunError` if there are none, or if they hold other features.

        Files of URLs are fetched for that, unless their records have been counted before.
        """
        self.dataset, self.copies = dataset, copies_of(dataset) if dataset.urls else None
        files, self._objects = tfrecord_files(dataset)
        faults: list[Fault] = []
        counts = counts_of_objects(self._objects, self.copies, faults) if self.copies else {}
        counts |= counts_of([path for of in files.values() for path in of if path not in counts], faults)
        refuse(faults, EtlrunError)
        self.files = {split: {path: counts[path] for path in of} for split, of in files.items()}
        self.full_name, self.identity = dataset.title, "tfrecord"
        target = dataset.examples.features[dataset.examples.target]
        self.num_classes = dataset.num_classes
        if target.is_class and target.classes and len(dataset.examples.targets) == 1:
            self.num_classes = len(target.classes)
        for of in self.files.values():
            _checked(dataset, {path: count for path, count in of.items() if count}, self._there)
        if self.copies is None or not self.copies.missing(self._objects.values()):  # it looks at records of all files
            self.notes = tuple(self._sorted())

    def _there(self, path: str) -> str:
        """Return a path, whose object is fetched if it is a copy that is missing."""
        return fetched(self._objects[path], self.copies) if self.copies and path in self._objects else path

    @classmethod
    def on_disk(cls, dataset: TFRecords) -> OnDisk:
        faults: list[Fault] = []
        try:
            files, objects = tfrecord_files(dataset)
            counts = known_counts(objects, copies_of(dataset)) if objects else {}
            if objects.keys() != counts.keys():  # nobody has counted them yet
                return OnDisk()
            counts |= counts_of([path for of in files.values() for path in of if path not in objects], faults)
            held = {path: objects[path].bytes if path in objects else Path(path).stat().st_size for path in counts}
        except (EtlrunError, OSError):
            return OnDisk()
        if faults:
            return OnDisk()
        sizes = {name: (sum(counts[path] for path in of), sum(held[path] for path in of)) for name, of in files.items()}
        return OnDisk(full_name=dataset.title, sizes=sizes)

    @property
    def conversion(self) -> str:
        keys = self.dataset.keys
        if {*keys} != {IMAGE, LABEL}:
            return super().conversion
        pattern = shlex.quote(next(iter(self.dataset.patterns.values()))[0])
        features = ",".join(f"{name}={key}" for name, key in keys.items())
        return f"convert it, as by: python -m etlrun prepare {pattern} --features {features} --name NAME --convert"

    @property
    def counts(self) -> dict[str, int]:
        return {name: sum(files.values()) for name, files in self.files.items()}

    def combine(self, name: str, parts: Sequence[Slice]) -> Split:
        found = (of for part, first, end in parts for of in in_files(self.files[part], first, end))
        shards = tuple(Shard(path=path, skip=skip, take=take) for path, skip, take in found)
        split = Split(name=name, shards=shards, num_examples=sum(shard.take for shard in shards))
        if self.copies is not None:
            return remote(split, self._objects, self.copies)
        all_there(self, split)
        return split

    def empty(self, name: str, parts: Sequence[Slice], where: str) -> WorldError:
        paths = [path for part, _, _ in parts for path in self.files[part]]
        if any(self.counts[part] for part, _, _ in parts):
            return super().empty(name, parts, where)
        return WorldError(
            self.dataset.key("files"),
            f"no records for '{name}' in {len(paths):,} file{'s' * (len(paths) > 1)}: {listed_names(paths)}",
            "at least one record",
            "write the files again, or choose others",
        )

    def _sorted(self) -> Iterator[str]:
        """Yield the note on splits whose records are sorted by class, by examples that are spread over them."""
        key = self.dataset.keys[self.dataset.examples.target]
        for name in self.files if (self.num_classes or 0) > 1 else ():
            labels = _sample(self.files[name], key)
            if are_sorted(labels):
                yield (
                    f"The records of {name} are sorted by class, as {len(labels)} of them show that are spread over "
                    "it: a slice holds few classes, and a shuffle buffer mixes neighbours alone. Prepare the files, "
                    "which mixes them (etlrun prepare --features); or set load.shuffle=full, and validate on another "
                    "split."
                )


def _checked(dataset: TFRecords, counts: Mapping[str, int], there: Callable[[str], str]) -> None:
    """Raise `WorldError` if the first example of these files has other features than the config declares."""
    for path, number, held in _first(counts, there):
        for name, key in dataset.keys.items():
            feature = dataset.examples.features[name]
            wanted = "a string" if feature.stored == "string" else feature.stored
            found, values = (kind_of(held[key]), count_of(held[key])) if key in held else ("", 0)
            needed = feature.shape[0] if feature.is_labels else 1 if feature.is_class or key == dataset.weight else None
            if found == wanted and needed in (None, values):
                continue
            many = {None: "", 1: "one "}.get(needed, f"{needed} ")
            has = ", ".join(f"{other} ({kind_of(of)})" for other, of in sorted(held.items()))
            raise WorldError(
                f"{path}, record {number}",
                f"no feature '{key}'"
                if not found
                else f"'{key}', which is {found}{f' of {values} values' * (values != 1)}",
                f"{many}{wanted} for {name}; it has {has or 'no features'}",
                _remedy(dataset, name, held),
            )


def _remedy(dataset: TFRecords, name: str, held: Mapping[str, Any]) -> str:
    """Return what to do about the feature of that name, which no example has as it is declared."""
    key, is_class = dataset.keys[name], dataset.examples.features[name].is_class
    if is_class and key in held and kind_of(held[key]) == "a string":
        keys = f"image={dataset.keys.get(IMAGE, IMAGE)},label={key}"
        pattern = shlex.quote(next(iter(dataset.patterns.values()))[0])
        return f"prepare them, which numbers names: python -m etlrun prepare {pattern} --name NAME --features {keys}"
    if is_class and key in held and count_of(held[key]) > 1:
        return "write the number of the class as one integer; of a one-hot vector, the place of its 1"
    config_key = {IMAGE: "image_key", LABEL: "label_key"}.get(name, "") if key not in (dataset.features or {}) else ""
    shown = f"{dataset.key(config_key)}={{}}" if config_key else "`{}`"
    otherwise = "set dataset.image_key and dataset.label_key, or declare dataset.features"
    return meant(key, held, is_image=name == IMAGE, shown=shown, otherwise=otherwise)


def features_in(record: bytes) -> Mapping[str, Any]:
    """Return the features of a serialised example by name; raise `DecodeError` if it is none."""
    from tensorflow_datasets.proto import tf_example_pb2  # that of TensorFlow, which is not imported for it

    found: Mapping[str, Any] = tf_example_pb2.Example.FromString(record).features.feature
    return found


def _first(counts: Mapping[str, int], there: Callable[[str], str]) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """Yield file, number and features of the first record that is an example; `there` gets each path before."""
    for path, count in counts.items():
        records = Numbered(whole({there(path): count}))
        for number in range(count):
            with contextlib.suppress(DecodeError, ValueError):
                if held := features_in(records.one(number)):
                    yield path, number, held
                    return


def _sample(counts: Mapping[str, int], key: str) -> list[int]:
    """Return the classes of records that are spread evenly over files, in the order of the data."""
    records = Numbered(whole(counts))
    found = list[int]()
    for number in np.unique(np.linspace(0, records.count - 1, min(_SAMPLED, records.count)).astype(np.int64)):
        with contextlib.suppress(DecodeError, ValueError, KeyError):
            found += features_in(records.one(int(number)))[key].int64_list.value[:1]
    return found


def are_sorted(labels: Sequence[int]) -> bool:
    """Return whether classes are in blocks, one behind another; few examples, or nearly all of a class, say nothing."""
    classes, changes = len({*labels}), sum(one != other for one, other in itertools.pairwise(labels))
    others = len(labels) - max(Counter(labels).values(), default=0)
    is_ascending = all(one <= other for one, other in itertools.pairwise(labels))
    return others >= _FEWEST and (is_ascending or (changes == classes - 1 and len(labels) >= 2 * classes))
