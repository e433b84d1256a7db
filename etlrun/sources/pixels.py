"""Limit on the pixels of an image: a file of a few kilobytes may hold more of them than memory does."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from PIL import Image, UnidentifiedImageError

MOST_PIXELS = 178_956_970
"""Pixels of an image, from which on Pillow takes it for a decompression bomb."""
_PER_BYTE, _PER_BYTE_OF_JPEG = 8 * 1032, 8 * 64
"""Most pixels in a byte of a file: bits of a PNG, deflated to 1/1032 at most; blocks of a JPEG, of a bit or more."""
_JPEG = b"\xff\xd8\xff"


def too_large(width: int, height: int) -> str:
    """Return that an image has too many pixels; empty if it hasn't."""
    is_large = width * height > MOST_PIXELS
    return f"an image of {width:,} x {height:,} pixels, more than {MOST_PIXELS:,} in all" if is_large else ""


def size_if_too_large(file: IO[bytes], size_bytes: int) -> tuple[int, int] | None:
    """Return the width and height of an image file if it has too many pixels.

    Its header is read only if that many pixels fit into the file, so that most photos take no time. The caller has
    Pillow read headers alone, as by `pillow_as_header_reader`.
    """
    file.seek(0)
    per_byte = _PER_BYTE_OF_JPEG if file.read(len(_JPEG)) == _JPEG else _PER_BYTE
    if size_bytes * per_byte <= MOST_PIXELS:
        return None
    file.seek(0)
    try:
        width, height = Image.open(file).size
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError):  # decoding reports it
        return None
    return (width, height) if too_large(width, height) else None


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
