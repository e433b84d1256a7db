"""Framing of TFRecord files: the bytes around the data of each record.

Its length (uint64) and a checksum of that stand before the data, a checksum of the data behind them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import google_crc32c

from etlrun.stages.lazy import np, npt

_LENGTH, HEAD, _FOOT = 8, 12, 4
AROUND = HEAD + _FOOT
"""Bytes around the data of a record."""
_EMPTY = bytes.fromhex("0000000000000000 29039807")
"""Bytes before a record of zero bytes; a block of zeros, as a full disk leaves it, has another checksum."""


class DamagedError(ValueError):
    """Records of a file end at one that is damaged.

    Attributes:
        number: Its number in the file, from 0.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"record {number} is damaged")


def _masked(data: bytes) -> bytes:
    """Return the checksum of `data`, a masked CRC-32C."""
    crc = google_crc32c.value(data)
    rotated: int = (crc >> 15 | crc << 17) + 0xA282EAD8
    return (rotated & 0xFFFFFFFF).to_bytes(_FOOT, "little")


def around(data: bytes) -> bytes:
    """Return the bytes around `data`: those before it, and its checksum."""
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + _masked(data)


def framed(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the bytes before `data`, `data`, and the bytes behind it."""
    both = around(data)
    return both[:HEAD], data, both[HEAD:]


def unframed(record: bytes) -> bytes:
    """Return the data of a record with the bytes around it; `ValueError` if they do not fit."""
    data = record[HEAD:-_FOOT]
    if record[:HEAD] + record[-_FOOT:] != around(data):
        raise ValueError("a damaged record")
    return data


def is_head(head: bytes) -> bool:
    """Return whether these are all bytes before the data of a record."""
    return len(head) == HEAD and head[_LENGTH:] == _masked(head[:_LENGTH])


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
            if place + _FOOT > size or (not length and head != _EMPTY):
                return None
            foot_and_head = os.pread(file.fileno(), _FOOT + HEAD, place)
            found += head + foot_and_head[:_FOOT]
            place, head = place + _FOOT, foot_and_head[_FOOT:]
    return bytes(found) if place == size else None


def lengths(held: bytes) -> npt.NDArray[np.int64]:
    """Return the lengths of the data of records by their `framing`."""
    return np.frombuffer(held, dtype=[("data", "<u8"), ("checksums", "<u8")])["data"].astype(np.int64)


def records(path: str) -> Iterator[tuple[int, bytes]]:
    """Yield the place of the data of each record in a file, and the data.

    Raises:
        DamagedError: A record is damaged, or not complete.
        OSError: The file can't be read.
    """
    with Path(path).open("rb") as file:
        left = os.fstat(file.fileno()).st_size
        place, number = 0, 0
        while left:
            head = file.read(HEAD)
            length = struct.unpack_from("<Q", head)[0] if is_head(head) else left
            data = file.read(length) if length + AROUND <= left else b""
            if len(data) != length or file.read(_FOOT) != _masked(data):
                raise DamagedError(number)
            yield place + HEAD, data
            place, left, number = place + length + AROUND, left - length - AROUND, number + 1
