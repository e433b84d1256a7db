"""Whether a run can use an image: the one answer for reading, skipping, `prepare` and `doctor`.

A run decodes what TensorFlow does, with either library of `transform.decode`. It also refuses images that TensorFlow
would decode to other pixels than a viewer shows, or to more of them than memory may hold.
"""

from __future__ import annotations

import io
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from etlrun.stages.image import Decode
from etlrun.stages.lazy import simplejpeg, tf
from etlrun.system.errors import headline

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


CONVERT = "an image: convert it, as to PNG"
"""What is expected in place of an image that another program can read."""
_COMPLETE, _SMALLER = "a complete image file", "a smaller image"
_LARGE_FRAME = f"a GIF whose first frame has more than {MOST_PIXELS:,} pixels"
_GREYS = bytes(value for grey in range(256) for value in (grey, grey, grey))
_MASKS = struct.pack("<III", 0xFF0000, 0xFF00, 0xFF)
_BMP_BYTES = 14 + 124 + 4 * 256
"""Headers and palette of a BMP, at most."""
_HEADER, _BITS, _MASKED = 40, (8, 24, 32), (3, 6)
"""Of BMPs: bytes of Windows' header at least, bits of a pixel that TensorFlow reads, and compressions by masks."""
_FRAMES = {0xC3: "lossless", 0xC7: "lossless", 0xCB: "lossless", 0xCF: "lossless"} | dict.fromkeys(
    (0xC5, 0xC6, 0xCD, 0xCE), "hierarchical"
)
"""Kinds of JPEGs that libjpeg doesn't decode for TensorFlow, by the marker of their frame."""
_WITH_GREY = ("YCbCr", "Gray")
"""Colours of JPEGs that libjpeg decodes to grey."""
_FOREIGN = {b"heic": "a HEIC", b"heix": "a HEIC", b"mif1": "a HEIC", b"avif": "an AVIF", b"avis": "an AVIF"}
_STARTS = {b"II*\0": "a TIFF", b"MM\0*": "a TIFF", b"\0\0\x01\0": "an icon"}
_TEXT = "a web page or other text"
_BY_HEADER = " by its header"
_DAMAGED = (UnidentifiedImageError, OSError, ValueError, SyntaxError, EOFError, KeyError, IndexError, struct.error)
"""What Pillow raises for damaged files."""


class Problem(NamedTuple):
    """Why an image can't be used.

    Attributes:
        reason: What was found.
        expected: What would be valid.
    """

    reason: str
    expected: str


def problem(data: bytes) -> Problem | None:
    """Return why an encoded image is not to be used; None if nothing is wrong with it."""
    if found := refused(io.BytesIO(data), len(data)):
        return found
    pixels = decoded(data)
    return pixels if isinstance(pixels, Problem) else None


def decoded(data: bytes) -> npt.NDArray[np.uint8] | Problem:
    """Return the pixels of an image, uint8 (height, width, 3), as a run decodes it; or why it can't be decoded."""
    try:
        pixels: npt.NDArray[np.uint8] = Decode.op(tf.constant(data)).numpy()
    except tf.errors.OpError as error:
        if data.startswith(b"<"):
            return Problem(_TEXT, _COMPLETE)
        name = _name(data)
        return Problem(name or f"an image that can't be decoded: {headline(error)}", CONVERT if name else _COMPLETE)
    return pixels


def warning_of(data: bytes) -> str:
    """Return what libjpeg warns of when it decodes a JPEG, at an eighth of its size; empty if nothing."""
    if not data.startswith(JPEG):
        return ""
    try:
        if simplejpeg.decode_jpeg_header(data)[2] in _WITH_GREY:
            simplejpeg.decode_jpeg(data, "GRAY", min_height=1, min_width=1)
    except ValueError as error:
        return str(error)
    return ""


def without_refused(data: bytes) -> bytes:
    """Return an encoded image; in place of one that is refused no bytes, which no library decodes."""
    return b"" if refused(io.BytesIO(data), len(data)) else data


def refused(file: IO[bytes], size_bytes: int) -> Problem | None:
    """Return why an image file is not to be decoded, of what TensorFlow would decode otherwise than a viewer.

    Of most files a header is read, of GIFs the first frame; of most JPEGs none.
    """
    file.seek(0)
    head = file.read(_BMP_BYTES)
    if head.startswith(JPEG) and size_bytes <= SMALL_JPEG_BYTES:
        return None
    if (size := size_of(file)) and (large := too_large(*size)):
        return Problem(large, _SMALLER)
    try:
        odd = _of_gif(file) if head.startswith(b"GIF8") else _of_header(head, size_bytes)
    except _DAMAGED:  # decoding reports it
        return None
    expected = _SMALLER if odd == _LARGE_FRAME else _COMPLETE if odd.endswith(_BY_HEADER) else CONVERT
    return Problem(odd, expected) if odd else None


def _of_header(head: bytes, size_bytes: int) -> str:
    """Return what is odd about a BMP or a WebP; empty if nothing is."""
    if head.startswith(b"BM"):
        return next(_of_bmp(head, size_bytes), "")
    kind, flags = head[12:16], head[20] if head.startswith(b"RIFF") else 0
    if kind == b"VP8X" and flags & 0x02:
        return "an animated WebP, of which TensorFlow decodes no frame"
    has_alpha = flags & 0x10 if kind == b"VP8X" else kind == b"VP8L" and head[24] & 0x10
    return "a WebP with transparency, which TensorFlow doesn't decode" if has_alpha else ""


def _of_bmp(head: bytes, size_bytes: int) -> Iterator[str]:
    """Yield what is odd about a BMP, whose palettes and masks TensorFlow ignores."""
    start, length = struct.unpack_from("<II", head, 10)
    if length < _HEADER:
        yield f"a BMP with a header of {length} bytes"
        return
    width, height, _, bits, packing = struct.unpack_from("<iiHHI", head, 18)
    palette = head[14 + length : start]
    colours = b"".join(palette[place : place + 3] for place in range(0, len(palette) - 3, 4))
    if bits not in _BITS:
        yield f"a BMP of {bits} bit{'s' * (bits != 1)} a pixel"
    elif packing in _MASKED:
        if head[54:66] != _MASKS:
            yield "a BMP with masks of its colours"
    elif packing:
        yield "a compressed BMP"
    elif bits == min(_BITS) and colours != _GREYS[: len(colours)]:
        yield "a BMP with a palette, whose colours TensorFlow ignores"
    needed = start + (width * bits + 31) // 32 * 4 * abs(height)
    if size_bytes != needed:
        yield f"a BMP of {size_bytes:,} bytes, of {needed:,}{_BY_HEADER}"


def _of_gif(file: IO[bytes]) -> str:
    """Return what is odd about the first frame of a GIF, of which TensorFlow drops the page and what is transparent."""
    file.seek(0)
    try:
        image = Image.open(file, formats=("GIF",))
    except Image.DecompressionBombError:
        return _LARGE_FRAME
    if too_large(*image.size):
        return _LARGE_FRAME
    if image.tile and image.tile[0][1] != (0, 0, *image.size):
        return "a GIF whose first frame is smaller than its page, which TensorFlow drops"
    if "transparency" not in image.info:
        return ""
    pixels = np.asarray(image.convert("RGBA"))
    is_changed = pixels[pixels[..., 3] == 0, :3].any()
    return "a GIF with transparent pixels, which TensorFlow decodes to black" if is_changed else ""


def _name(data: bytes) -> str:
    """Return what an image is that TensorFlow doesn't decode; empty if it may be damaged."""
    if data[4:8] == b"ftyp":
        return f"{_FOREIGN.get(data[8:12], 'a HEIC or AVIF')} image, which TensorFlow doesn't decode"
    if found := next((name for start, name in _STARTS.items() if data.startswith(start)), ""):
        return f"{found}, which TensorFlow doesn't decode"
    try:
        return next(_of_frames(data), "") if data.startswith(JPEG) else ""
    except struct.error:
        return ""


def _of_frames(data: bytes) -> Iterator[str]:
    """Yield what a JPEG is that libjpeg doesn't decode for TensorFlow."""
    for frame in frames(io.BytesIO(data)):
        if frame.marker in _FRAMES:
            yield f"a {_FRAMES[frame.marker]} JPEG, which TensorFlow doesn't decode"
        if frame.bits != 8:  # noqa: PLR2004
            yield f"a JPEG of {frame.bits} bits a colour, which TensorFlow doesn't decode"
