"""TFRecord files as a source, written by any program, with declared features."""

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from etlrun.remote.copies import copies_of, name_copies
from etlrun.sources.base import OnDisk, Slice, Source, Split, all_there
from etlrun.sources.content import Numbered, cut, whole
from etlrun.sources.framing import count_of, features_in, kind_of
from etlrun.sources.shards import counts_of, counts_of_objects, known_counts, matched, tfrecord_files, unmatched
from etlrun.stages.dataset import TFRecords
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
        files, self.objects = tfrecord_files(dataset)
        faults: list[Fault] = []
        counts = counts_of_objects(self.objects, self.copies, faults) if self.copies else {}
        counts |= counts_of([path for of in files.values() for path in of if path not in counts], faults)
        refuse(faults, EtlrunError)
        self.files = {split: {path: counts[path] for path in of} for split, of in files.items()}
        self.counts = {name: sum(of.values()) for name, of in self.files.items()}
        self.full_name, self.identity = dataset.title, "tfrecord"
        target = dataset.examples.features[dataset.examples.target]
        self.num_classes = dataset.num_classes
        if target.is_class and target.classes and len(dataset.examples.targets) == 1:
            self.num_classes = len(target.classes)
        for of in self.files.values():
            self._require_features({path: count for path, count in of.items() if count})
        if self.copies is None or not self.copies.missing(self.objects.values()):  # it looks at records of all files
            self.notes = tuple(self._sorted())
        if self.copies is not None:
            name_copies(self.objects.values(), self.copies)

    @classmethod
    def is_there(cls, dataset: TFRecords) -> bool:
        return all(matched(of) or unmatched(of) for some in dataset.patterns.values() for of in some)

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

    def combine(self, name: str, parts: Sequence[Slice]) -> Split:
        shards = tuple(of for part, first, end in parts for of in cut(whole(self.files[part]), first, end))
        split = Split(source=self, name=name, shards=shards)
        if self.copies is None:
            all_there(split)
        return split

    def _require_features(self, counts: Mapping[str, int]) -> None:
        """Raise `WorldError` if the first example of these files has other features than the config declares."""
        dataset = self.dataset
        for path, number, held in self._first(counts):
            for name, key in dataset.keys.items():
                feature, is_one = dataset.examples.features[name], key == dataset.weight
                wanted = "a string" if feature.stored == "string" else feature.stored
                found, values = (kind_of(held[key]), count_of(held[key])) if key in held else ("", 0)
                needed = feature.shape[0] if feature.is_labels else 1 if feature.is_class or is_one else None
                if found == wanted and needed in (None, values):
                    continue
                many = {None: "", 1: "one "}.get(needed, f"{needed} ")
                has = ", ".join(f"{other} ({kind_of(of)})" for other, of in sorted(held.items()))
                what = f"'{key}', which is {found}{f' of {values} values' * (values != 1)}"
                raise WorldError(
                    f"{path}, record {number}",
                    what if found else f"no feature '{key}'",
                    f"{many}{wanted} for {name}; it has {has or 'no features'}",
                    "set dataset.image_key and dataset.label_key, or declare dataset.features; a class is one integer",
                )

    def _first(self, counts: Mapping[str, int]) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
        """Yield file, number and features of the first record that is an example; missing copies are fetched."""
        for path, count in counts.items():
            if self.copies is not None and path in self.objects:
                self.copies.one(self.objects[path])
            records = Numbered(whole({path: count}))
            for number in range(count):
                with contextlib.suppress(ValueError):
                    if held := features_in(records.one(number)):
                        yield path, number, held
                        return

    def _sorted(self) -> Iterator[str]:
        """Yield the note on splits whose records are sorted by class, by examples that are spread over them."""
        key = self.dataset.keys[self.dataset.examples.target]
        for name in self.files if (self.num_classes or 0) > 1 else ():
            records, labels = Numbered(whole(self.files[name])), list[int]()
            for number in np.unique(np.linspace(0, records.count - 1, min(_SAMPLED, records.count)).astype(np.int64)):
                with contextlib.suppress(ValueError, KeyError):
                    labels += features_in(records.one(int(number)))[key].int64_list.value[:1]
            if are_sorted(labels):
                yield (
                    f"The records of {name} are sorted by class, as {len(labels)} of them show that are spread over "
                    "it: a slice holds few classes, and a shuffle buffer mixes neighbours alone. Set "
                    "load.shuffle=full, and validate on another split."
                )


def are_sorted(labels: Sequence[int]) -> bool:
    """Return whether classes are in blocks, one behind another; few examples, or nearly all of a class, say nothing."""
    classes, changes = len({*labels}), sum(one != other for one, other in itertools.pairwise(labels))
    others = len(labels) - max(Counter(labels).values(), default=0)
    is_ascending = all(one <= other for one, other in itertools.pairwise(labels))
    return others >= _FEWEST and (is_ascending or (changes == classes - 1 and len(labels) >= 2 * classes))
