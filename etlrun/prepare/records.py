"""Images in TFRecords of other programs, with the keys of their features given."""

from __future__ import annotations

import glob
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from etlrun.errors import EtlrunError, Fault, did_you_mean, unreadable_path
from etlrun.prepare.source import Entry, Source, classes_of, fault, first, of_classes
from etlrun.sources.content import FOOT, HEAD
from etlrun.sources.listing import WHOLE
from etlrun.sources.numbered import masked
from etlrun.stages.lazy import tf

_KINDS = (("bytes_list",), ("bytes_list", "int64_list"))
"""What an image and a label may be."""


class Records(Source):
    """Examples in TFRecord files, each with an image and its label."""

    def __init__(self, pattern: str, keys: tuple[str, str]) -> None:
        """Read all labels; raise `EtlrunError` with all faults of the files."""
        where, faults = Path(pattern), list[Fault]()
        self._image_key = keys[0]
        self._places: dict[str, tuple[str, int, int]] = {}
        paths = sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())  # noqa: PTH207 - a pattern may be absolute
        if not paths:
            faults.append(fault(pattern, "no such file", "a pattern that matches TFRecord files", "check the path"))
        entries: list[Entry] = []
        for path in paths:
            try:
                entries += self._entries(path, keys, faults)
            except OSError as error:
                faults.append(unreadable_path(path, error, "a TFRecord file"))
        classes = classes_of(entry.label for entry in entries)
        faults = first(faults, pattern, "faults") or list(of_classes(where, entries, classes))
        if faults:
            raise EtlrunError(faults)
        super().__init__(where, entries, classes, ())

    def _entries(self, path: str, keys: tuple[str, str], faults: list[Fault]) -> Iterator[Entry]:
        found = Path(path).stat()
        for number, (place, record) in enumerate(_records(path, faults)):
            name = f"{path}, record {number}"
            try:
                features = tf.train.Example.FromString(record).features.feature
            except DecodeError:
                faults.append(fault(name, "no tf.train.Example", "serialised examples", "choose other TFRecords"))
                return
            wrong = [text for key, kinds in zip(keys, _KINDS, strict=True) if (text := _wrong(features, key, kinds))]
            if wrong:
                remedy = did_you_mean(keys[0] if keys[0] not in features else keys[1], features)
                expected = f"an image as bytes and a label among its features: {', '.join(sorted(features))}"
                faults.append(fault(name, " and ".join(wrong), expected, remedy))
                return
            self._places[name] = (path, place, len(record))
            stamp = f"{found.st_size} {found.st_mtime_ns} {keys[0]}"
            label, size = _label(features[keys[1]]), len(features[keys[0]].bytes_list.value[0])
            yield Entry(path=name, label=label, split=WHOLE, size=size, stamp=stamp)

    def read(self, entry: Entry) -> bytes:
        path, place, size = self._places[entry.path]
        with Path(path).open("rb", buffering=0) as file:
            record = os.pread(file.fileno(), size, place)
        image: bytes = tf.train.Example.FromString(record).features.feature[self._image_key].bytes_list.value[0]
        return image

    def name_of(self, entry: Entry) -> str:
        return entry.path


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
    with Path(path).open("rb") as file:
        left = os.fstat(file.fileno()).st_size
        place, number = 0, 0
        while left:
            head = file.read(HEAD)
            length = struct.unpack("<Q", head[:8])[0] if len(head) == HEAD and head[8:] == masked(head[:8]) else left
            data = file.read(length) if length + HEAD + FOOT <= left else b""
            if len(data) != length or file.read(FOOT) != masked(data):
                what = "a damaged record" if number else "no TFRecord file"
                remedy = "write the file again" if number else "choose TFRecords without compression"
                faults.append(fault(f"{path}, record {number}", what, "complete records", remedy))
                return
            yield place + HEAD, data
            place, left, number = place + HEAD + length + FOOT, left - HEAD - length - FOOT, number + 1
