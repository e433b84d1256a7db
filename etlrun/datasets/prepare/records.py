"""Images in TFRecords of other programs, with the keys of their features given."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from etlrun.datasets.prepare.source import Entry, Source, classes_of, first, of_classes
from etlrun.sources.foreign import foreign
from etlrun.sources.framing import DamagedError, records
from etlrun.sources.keys import meant
from etlrun.sources.layout import WHOLE
from etlrun.sources.shards import incomplete, matched, unmatched
from etlrun.stages.lazy import tf
from etlrun.system.errors import EtlrunError, Fault, fault, unreadable_path

_KINDS = (("bytes_list",), ("bytes_list", "int64_list"))
"""What an image and a label may be."""
_LEFT_OUT = "write the file again, or add --on-corrupt skip to leave such records out"


class Records(Source):
    """Examples in TFRecord files, each with an image and its label."""

    def __init__(self, pattern: str, keys: tuple[str, str], *, skips_corrupt: bool = False) -> None:
        """Read all labels; raise `EtlrunError` with all faults of the files, and of records that are not skipped."""
        where, faults = Path(pattern), list[Fault]()
        self._image_key = keys[0]
        self._places: dict[str, tuple[str, int, int]] = {}
        paths = matched(pattern)
        faults += incomplete(pattern, paths)
        if not paths:
            faults.append(
                fault(
                    pattern,
                    "no such file",
                    "a pattern that matches TFRecord files",
                    unmatched(pattern) or "check the path",
                )
            )
        entries: list[Entry] = []
        corrupt: list[Fault] = []
        lost: set[str] = set()
        for path in paths:
            try:
                unfit: list[tuple[Fault, str]] = []
                of_file = list(self._entries(path, keys, faults, unfit))
            except OSError as error:
                faults.append(unreadable_path(path, error, "a TFRecord file"))
                continue
            entries += of_file
            lost.update(label for _, label in unfit if label)
            corrupt += [of if not of_file else replace(of, remedy=_LEFT_OUT) for of, _ in unfit]
        if not (entries or faults or corrupt):
            faults.append(
                fault(
                    pattern,
                    f"no records in {len(paths):,} file{'s' * (len(paths) > 1)}",
                    "at least one record",
                    "write the files again, or choose others",
                )
            )
        if not (skips_corrupt and entries):
            faults += corrupt if entries else _first_of_each(corrupt)
        classes = classes_of((*(entry.label for entry in entries), *lost))
        faults = first(faults, pattern, "faults") or list(of_classes(where, entries, classes))
        if faults:
            raise EtlrunError(faults)
        super().__init__(where, entries, classes, ())
        self.broken = {of.where: of.found for of in corrupt}

    def _entries(
        self, path: str, keys: tuple[str, str], faults: list[Fault], unfit: list[tuple[Fault, str]]
    ) -> Iterator[Entry]:
        """Yield the examples of a file; note each other record as `unfit`, with its label if it has one."""
        for number, (place, record) in enumerate(_records(path, faults)):
            name = f"{path}, record {number}"
            features = _features(record)
            if features is None:
                what = "no tf.train.Example" if record else "a record of zero bytes"
                unfit.append((fault(name, what, "serialised examples", "choose other TFRecords"), ""))
                continue
            wrong = [_wrong(features, key, kinds) for key, kinds in zip(keys, _KINDS, strict=True)]
            if any(wrong):
                is_image = keys[0] not in features
                remedy = meant(keys[0] if is_image else keys[1], features, is_image=is_image, shown="`{}`")
                expected = f"an image as bytes and a label among its features: {', '.join(sorted(features))}"
                of = fault(name, " and ".join(filter(None, wrong)), expected, remedy)
                unfit.append((of, "" if wrong[1] else _label(features[keys[1]])))
                continue
            self._places[name] = (path, place, len(record))
            label, size = _label(features[keys[1]]), len(features[keys[0]].bytes_list.value[0])
            yield Entry(path=name, label=label, split=WHOLE, size=size)

    def read(self, entry: Entry) -> bytes:
        path, place, size = self._places[entry.path]
        with Path(path).open("rb", buffering=0) as file:
            record = os.pread(file.fileno(), size, place)
        image: bytes = tf.train.Example.FromString(record).features.feature[self._image_key].bytes_list.value[0]
        return image

    def name_of(self, entry: Entry) -> str:
        return entry.path


def _first_of_each(corrupt: Sequence[Fault]) -> list[Fault]:
    """Return the first fault of each file: if no record can be used, all have the same."""
    found = {of.where.rpartition(", record ")[0]: of for of in reversed(corrupt)}
    return [*reversed(found.values())]


def _features(record: bytes) -> Mapping[str, Any] | None:
    """Return the features of a serialised example; None if it is none, or empty."""
    try:
        return tf.train.Example.FromString(record).features.feature if record else None
    except DecodeError:
        return None


def _wrong(features: Any, key: str, kinds: Sequence[str]) -> str:
    """Return what is wrong with a feature that has to be one value of these kinds; empty if nothing is."""
    if key not in features:
        return f"no feature '{key}'"
    kind = features[key].WhichOneof("kind")
    count = len(getattr(features[key], kind).value) if kind else 0
    return "" if kind in kinds and count == 1 else f"'{key}' with {count} values in its {kind}"


def _label(feature: Any) -> str:
    (value,) = getattr(feature, feature.WhichOneof("kind")).value
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def _records(path: str, faults: list[Fault]) -> Iterator[tuple[int, bytes]]:
    """Yield the place and the data of each record; a fault ends them."""
    if of := foreign(path):
        faults.append(of)
        return
    try:
        yield from records(path)
    except DamagedError as error:
        faults.append(
            fault(f"{path}, record {error.number}", "a damaged record", "complete records", "write the file again")
        )
