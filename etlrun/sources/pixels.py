"""Limit on the pixels of an image: a file of a few kilobytes may hold more of them than memory does."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, NamedTuple

from PIL import Image

MOST_PIXELS = 178_956_970
"""Pixels of an image, from which on Pillow takes it for a decompression bomb."""
JPEG = b"\xff\xd8"
"""First bytes of a JPEG."""
SMALL_JPEG_BYTES = MOST_PIXELS // (8 * 64)
"""Bytes of a JPEG that hold no more pixels: a block of 64 has a bit at least."""
_HEAD, _14_BITS = 30, 0x3FFF
_SIDES = (b"\x89PNG", 16, ">II"), (b"GIF8", 6, "<HH"), (b"BM", 18, "<ii")
"""First bytes of images, and where their width and height are."""
_OS2 = struct.pack("<I", 12)
"""Length of the header of a BMP of OS/2, which TensorFlow doesn't decode."""
_MARKER, _SCAN, _OF_FRAMES = 0xFF, b"\xda", {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
"""Of JPEGs: the first byte of each marker, and the second ones of a scan and of frames."""


def too_large(width: int, height: int) -> str:
    """Return that an image has too many pixels; empty if it hasn't."""
    is_large = width * height > MOST_PIXELS
    return f"an image of {width:,} x {height:,} pixels, more than {MOST_PIXELS:,} in all" if is_large else ""


def size_of(file: IO[bytes]) -> tuple[int, int] | None:
    """Return the width and height in the header of an image; None if TensorFlow doesn't decode it, or it is damaged."""
    file.seek(0)
    head = file.read(_HEAD)
    try:
        return _size(head) if not head.startswith(JPEG) else next((frame.size for frame in frames(file)), None)
    except struct.error:  # decoding reports it
        return None


def _size(head: bytes) -> tuple[int, int] | None:
    if head.startswith(b"BM") and head[14:18] == _OS2:
        return None
    for start, place, layout in _SIDES:
        if head.startswith(start):
            width, height = struct.unpack_from(layout, head, place)
            return abs(width), abs(height)
    if head[12:16] == b"VP8X":
        return tuple(int.from_bytes(head[at : at + 3], "little") + 1 for at in (24, 27))  # type: ignore[return-value]
    if head[12:16] == b"VP8L":
        (bits,) = struct.unpack_from("<I", head, 21)
        return (bits & _14_BITS) + 1, (bits >> 14 & _14_BITS) + 1
    if head[12:16] == b"VP8 ":
        width, height = struct.unpack_from("<HH", head, 26)
        return width & _14_BITS, height & _14_BITS
    return None


class Frame(NamedTuple):
    """Header of a frame of a JPEG.

    Attributes:
        marker: Its marker, which says how it is encoded.
        bits: Bits of a colour.
        size: Width and height in pixels.
    """

    marker: int
    bits: int
    size: tuple[int, int]


def frames(file: IO[bytes]) -> Iterator[Frame]:
    """Yield the headers of the frames of a JPEG, up to the scan; raise `struct.error` where it is cut off."""
    place, head = len(JPEG), b""
    while head[1:2] != _SCAN:
        file.seek(place)
        head = file.read(9)
        marker, length, bits, height, width = struct.unpack(">xBHBHH", head)
        if head[0] != _MARKER:
            return
        if marker in _OF_FRAMES:
            yield Frame(marker, bits, (width, height))
        place += 1 if marker == _MARKER else 2 + length  # a fill byte


@contextmanager
def pillow_as_header_reader() -> Iterator[None]:
    """Have Pillow return the size of any image, however large, and not warn of what it alone would decode."""
    limit = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = None
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="PIL")
            yield
    finally:
        Image.MAX_IMAGE_PIXELS = limit
