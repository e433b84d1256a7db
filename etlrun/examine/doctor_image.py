"""Look at an encoded image: its header, hashes of its bytes and of its appearance, and whether it can be decoded."""

from __future__ import annotations

import io
from typing import NamedTuple

import imagehash
import numpy as np
import tensorflow as tf
import xxhash
from PIL import ExifTags, Image

from etlrun.errors import headline
from etlrun.sources.pixels import too_large
from etlrun.stages.image import Decode

_DRAFT = 128
"""Side in pixels above which a JPEG is decoded at a half, a quarter or an eighth: its hash needs 32."""
_HASHED = 32
_FLAT = 8
"""Least difference of the brightest and the darkest pixel of an image that has a perceptual hash."""
_END = b"\xff\xd9"
"""Last bytes of a JPEG. TensorFlow refuses one without them; Pillow does not."""
_DEPTH_AT = 24
"""Place of the bit depth in a PNG."""
_UPRIGHT = 1
"""EXIF orientation of an image whose first row is at the top and whose first column is at the left."""
SIDE = 120
"""Largest side of a small version for pages, in pixels."""
_COLOURS = {"1": "grey", "L": "grey", "LA": "grey alpha", "P": "palette", "PA": "palette", "RGBA": "RGBA"}
_UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, KeyError, IndexError, OverflowError)
"""What Pillow raises for damaged files."""


class Look(NamedTuple):
    """What is known of an image.

    Attributes:
        digest: XXH3 of its bytes, 64 bits.
        hash: Perceptual hash of 64 bits; 0 if there is none.
        is_flat: Whether it is of one colour, so that it has no perceptual hash.
        is_turned: Whether its EXIF orientation is another than upright, which TensorFlow ignores.
        width: In pixels; 0 if it is unknown. `height` likewise.
        size_bytes: Size of the encoded image.
        format: Such as `JPEG`.
        colours: Such as `RGB`, `grey` or `16 bit`.
        reason: Why it can't be decoded; empty if it can.
    """

    digest: int
    hash: int = 0
    is_flat: bool = False
    is_turned: bool = False
    width: int = 0
    height: int = 0
    size_bytes: int = 0
    format: str = ""
    colours: str = ""
    reason: str = ""


def look_at(data: bytes) -> Look:
    """Return what is known of an encoded image.

    A complete JPEG is decoded by Pillow at a reduced size; all else is decoded as a run does it.
    """
    look, image = Look(digest=xxhash.xxh3_64_intdigest(data), size_bytes=len(data)), None
    try:
        image = Image.open(io.BytesIO(data))
        look = _with_header(look, image, data)
    except _UNREADABLE:  # TensorFlow says why, or can read it
        image = None
    if reason := too_large(look.width, look.height):
        return look._replace(reason=reason)
    small = None if image is None else _drafted(image, data)
    if small is None:
        try:
            pixels = Decode.op(tf.constant(data)).numpy()
        except tf.errors.OpError as error:
            return look._replace(reason=f"an image that can't be decoded: {headline(error)}")
        height, width = pixels.shape[:2]
        look = look._replace(width=width, height=height)
        small = _small(Image.fromarray(pixels))
    darkest, brightest = small.getextrema()
    if brightest - darkest < _FLAT:  # type: ignore[operator] # of one channel
        return look._replace(is_flat=True)
    return look._replace(hash=int(np.packbits(imagehash.phash(small).hash).view(">u8")[0]))


def _with_header(look: Look, image: Image.Image, data: bytes) -> Look:
    is_deep = image.mode.startswith(("I", "F")) or (image.format == "PNG" and data[_DEPTH_AT] > 8)  # noqa: PLR2004 - bits
    return look._replace(
        width=image.width,
        height=image.height,
        format=image.format or "",
        colours="16 bit" if is_deep else _COLOURS.get(image.mode, image.mode),
        is_turned="exif" in image.info and image.getexif().get(ExifTags.Base.Orientation, _UPRIGHT) != _UPRIGHT,
    )


def _drafted(image: Image.Image, data: bytes) -> Image.Image | None:
    """Return a small grey version of a complete JPEG; None of anything else."""
    if image.format not in {"JPEG", "MPO"} or not data.endswith(_END):
        return None
    try:
        image.draft("L", (_DRAFT, _DRAFT))
        return _small(image)
    except _UNREADABLE:
        return None


def _small(image: Image.Image) -> Image.Image:
    return image.convert("L").resize((_HASHED, _HASHED), Image.Resampling.LANCZOS)


def opened_small(data: bytes) -> Image.Image:
    """Return an image that can be decoded, in colour, with sides of at most `SIDE` pixels."""
    image = Image.open(io.BytesIO(data))
    image.draft("RGB", (2 * SIDE, 2 * SIDE))
    small = image.convert("RGB")
    small.thumbnail((SIDE, SIDE))
    return small


def small_jpeg(data: bytes) -> bytes:
    """Return the JPEG of a small version, some kilobytes that stand for an image of any size."""
    file = io.BytesIO()
    opened_small(data).save(file, "JPEG", quality=90)
    return file.getvalue()
