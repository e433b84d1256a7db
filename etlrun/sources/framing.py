"""TFRecord files: the bytes around the data of each record, what other files are, and features of other programs.

Its length (uint64) and a checksum of that stand before the data, a checksum of the data behind them.
"""

from __future__ import annotations

import importlib
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import google_crc32c

from etlrun.stages.lazy import np, pa
from etlrun.system.errors import Fault

_LENGTH, HEAD, FOOT = 8, 12, 4
AROUND = HEAD + FOOT
"""Bytes around the data of a record."""
EMPTY = bytes.fromhex("0000000000000000 29039807")
"""Bytes before a record of zero bytes; a block of zeros, as a full disk leaves it, has another checksum."""


def masked(data: bytes) -> bytes:
    """Return the checksum of `data`, a masked CRC-32C."""
    crc = google_crc32c.value(data)
    rotated: int = (crc >> 15 | crc << 17) + 0xA282EAD8
    return (rotated & 0xFFFFFFFF).to_bytes(FOOT, "little")


def around(data: bytes) -> bytes:
    """Return the bytes around `data`: those before it, and its checksum."""
    length = struct.pack("<Q", len(data))
    return length + masked(length) + masked(data)


def framed(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the bytes before `data`, `data`, and the bytes behind it."""
    both = around(data)
    return both[:HEAD], data, both[HEAD:]


def record_at(path: str, place: int, size: int) -> bytes:
    """Return the data of a record, of which the place and the size are those of the bytes around it, too.

    Raises:
        ValueError: It is damaged.
        OSError: It can't be read.
    """
    with Path(path).open("rb", buffering=0) as file:
        found = os.pread(file.fileno(), size, place)
    data = found[HEAD:-FOOT]
    if found[:HEAD] + found[-FOOT:] != around(data):
        raise ValueError(f"corrupted record at {place} of {path}")
    return data


def is_head(head: bytes) -> bool:
    """Return whether these are all bytes before the data of a record."""
    return len(head) == HEAD and head[_LENGTH:] == masked(head[:_LENGTH])


def framing(path: str) -> bytes | None:
    """Return the bytes around the data of each record; None if the file does not consist of records."""
    if ".tfrec" not in Path(path).name:
        return None
    found = bytearray()
    with Path(path).open("rb", buffering=0) as file:
        size, place = os.fstat(file.fileno()).st_size, 0
        head = os.pread(file.fileno(), HEAD, place)
        while len(head) == HEAD:
            (length,) = struct.unpack_from("<Q", head)
            place += HEAD + length
            if place + FOOT > size or (not length and head != EMPTY):
                return None
            foot_and_head = os.pread(file.fileno(), FOOT + HEAD, place)
            found += head + foot_and_head[:FOOT]
            place, head = place + FOOT, foot_and_head[FOOT:]
    return bytes(found) if place == size else None


def lengths(held: bytes) -> np.ndarray:
    """Return the lengths of the data of records by their `framing`."""
    return np.frombuffer(held, dtype=[("data", "<u8"), ("checksums", "<u8")])["data"].astype(np.int64)


_GZIP = b"\x1f\x8b"
"""First bytes of a file compressed with gzip (RFC 1952)."""
POINTER, POINTED = b"version http", ("a pointer of Git LFS", "fetch the file itself, as by: git lfs pull")
"""What begins a file in the place of one that Git LFS keeps elsewhere, what it is, and what to do."""


def foreign(path: str) -> Fault | None:
    """Return the fault of a file that doesn't begin with a record, or is compressed; None if it does, or is empty.

    Raises:
        OSError: The file can't be read.
    """
    with Path(path).open("rb") as file:
        head = file.read(HEAD)
    if not head or is_head(head):
        return None
    found = f"no TFRecord file: it begins with {head[:8]!r}"
    remedy = "choose TFRecord files, or prepare a folder of images: python -m etlrun data prepare"
    if head.startswith(_GZIP):
        found, remedy = "a file compressed with gzip", "decompress it, as by gunzip, and use that file"
    elif head.startswith(POINTER):
        found, remedy = POINTED
    return Fault(path, found, "TFRecords without compression", remedy)


KINDS = {"bytes_list": "a string", "int64_list": "int64", "float_list": "float32"}


def features_in(record: bytes) -> Mapping[str, Any]:
    """Return the features of a serialised example by name; raise `ValueError` if it is none."""
    from google.protobuf.message import DecodeError  # which plans do without

    proto = importlib.import_module("tensorflow_datasets.proto").tf_example_pb2  # without TensorFlow, whose it is
    try:
        found: Mapping[str, Any] = proto.Example.FromString(record).features.feature
    except DecodeError as error:
        raise ValueError("no serialised example") from error
    return found


def kind_of(feature: Any) -> str:
    """Return the type of the values of a feature."""
    return KINDS.get(feature.WhichOneof("kind") or "", "nothing")


def count_of(feature: Any) -> int:
    """Return the number of values of a feature."""
    kind = feature.WhichOneof("kind")
    return len(getattr(feature, kind).value) if kind else 0


def array_of(features: Sequence[Any]) -> pa.Array:
    """Return the only value of each feature, a text as it is stored; null for a feature without a value."""
    kinds = [of.WhichOneof("kind") for of in features]
    lists = [getattr(of, kind).value if kind else () for of, kind in zip(features, kinds, strict=True)]
    found = pa.array([values[0] if values else None for values in lists])
    return found.cast(pa.large_binary()).view(pa.large_string()) if pa.types.is_binary(found.type) else found
