"""Look at an encoded image: its header, hashes of its bytes and of its appearance, and whether it can be decoded."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import imagehash
import numpy as np
from PIL import ExifTags, Image

from etlrun.datasets.prepare.check import digest_of
from etlrun.sources.base import Problem
from etlrun.sources.corrupt import decoded, refused, warning_of

_DRAFT = 64
"""Side in pixels above which a JPEG is decoded at a half, a quarter or an eighth: its hash needs 32."""
_HASHED = 32
_FLAT = 8
"""Least difference of the brightest and the darkest pixel of an image that has a perceptual hash."""
_END = b"\xff\xd9"
"""Last bytes of a JPEG. TensorFlow refuses one without them; Pillow does not."""
_LOSSLESS = b"\xff\xc3"
"""What a JPEG has that may be without loss, which Pillow decodes and TensorFlow does not."""
_DEPTH_AT = 24
"""Place of the bit depth in a PNG."""
_COLOURS = {"1": "grey", "L": "grey", "LA": "grey alpha", "P": "palette", "PA": "palette", "RGBA": "RGBA"}
_DEEP, _DIM = "16 bit", 16
"""Colours of images whose upper 8 bits are decoded, and a value of these that twelve bits in sixteen don't reach."""
_OPAQUE = 255
_ORIENTATIONS = range(1, 9)
UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, KeyError, IndexError, OverflowError)
"""What Pillow raises for damaged files."""


class Look(NamedTuple):
    """What is known of an image.

    Attributes:
        digest: See `digest_of`.
        hash: Perceptual hash of 64 bits; 0 if there is none.
        is_flat: Whether it is of one colour, so that it has no perceptual hash.
        is_transparent: Whether pixels are transparent, which decoding ignores.
        is_dim: Whether it is of 16 bits of which the upper four are unused.
        width: In pixels; 0 if it is unknown. `height` likewise.
        size_bytes: Size of the encoded image.
        format: Such as `JPEG`.
        colours: Such as `RGB`, `grey` or `16 bit`.
        orientation: EXIF's, from 1 to 8: 1 is upright, also if there is none.
        warning: What libjpeg warns of: data that is missing or damaged; empty if it doesn't.
        reason: Why it can't be decoded; empty if it can.
    """

    digest: bytes = b""
    hash: int = 0
    is_flat: bool = False
    is_transparent: bool = False
    is_dim: bool = False
    width: int = 0
    height: int = 0
    size_bytes: int = 0
    format: str = ""
    colours: str = ""
    orientation: int = 1
    warning: str = ""
    reason: str = ""


def look_at(data: bytes) -> Look:
    """Return what is known of an encoded image.

    A complete JPEG is decoded by Pillow at a reduced size; all else is decoded as a run does it.
    """
    look, image = Look(digest=digest_of(data), size_bytes=len(data)), None
    try:
        image = Image.open(io.BytesIO(data))
        look = _with_header(look, image, data)
    except UNREADABLE:  # TensorFlow says why, or can read it
        image = None
    if problem := refused(io.BytesIO(data), len(data)):
        return look._replace(reason=problem.reason)
    small = None if image is None else _drafted(image, data)
    if small is None:
        pixels = decoded(data)
        if isinstance(pixels, Problem):
            return look._replace(reason=pixels.reason)
        height, width = pixels.shape[:2]
        is_dim = look.colours == _DEEP and int(pixels.max()) < _DIM
        look = look._replace(width=width, height=height, is_dim=is_dim)
        small = _small(Image.fromarray(pixels))
    look = look._replace(warning=warning_of(data), is_transparent=image is not None and _is_transparent(image))
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
        colours=_DEEP if is_deep else _COLOURS.get(image.mode, image.mode),
        orientation=_orientation(image),
    )


def _orientation(image: Image.Image) -> int:
    """Return EXIF's orientation; 1 if the header has none, or none that EXIF defines."""
    if "exif" not in image.info:  # a PNG with EXIF behind its pixels would have to be decoded
        return 1
    try:
        found: Any = image.getexif().get(ExifTags.Base.Orientation)
    except UNREADABLE:
        return 1
    return int(found) if found in _ORIENTATIONS else 1


def _drafted(image: Image.Image, data: bytes) -> Image.Image | None:
    """Return a small grey version of a complete JPEG; None of anything else."""
    if image.format not in {"JPEG", "MPO"} or not data.endswith(_END) or _LOSSLESS in data:
        return None
    try:
        image.draft("L", (_DRAFT, _DRAFT))
        return _small(image)
    except UNREADABLE:
        return None


def _is_transparent(image: Image.Image) -> bool:
    if not image.has_transparency_data:
        return False
    try:
        least, _ = image.convert("RGBA").getchannel("A").getextrema()
    except UNREADABLE:
        return False
    return int(least) < _OPAQUE  # type: ignore[arg-type] # of one channel


def _small(image: Image.Image) -> Image.Image:
    return image.convert("L").resize((_HASHED, _HASHED), Image.Resampling.LANCZOS)
