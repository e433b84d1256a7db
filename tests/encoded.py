"""Images in every format and mode that TensorFlow or Pillow reads, made here."""

import io
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

HEIGHT, WIDTH = 40, 56
_ROWS, _COLUMNS = np.mgrid[0:HEIGHT, 0:WIDTH]
PIXELS: npt.NDArray[np.uint8] = np.stack([_COLUMNS * 4, _ROWS * 6, (_COLUMNS + _ROWS) * 2], -1).astype("u1")
RGB = Image.fromarray(PIXELS)
_ALPHA = Image.fromarray((_COLUMNS * 4).astype("u1"))
RGBA = Image.merge("RGBA", (*RGB.split(), _ALPHA))
_GREY, _BITS = RGB.convert("L"), RGB.convert("1")
_P, _P16 = RGB.quantize(64), RGB.quantize(16)


def saved(image: Image.Image, style: str = "JPEG", **options: Any) -> bytes:
    """An image as Pillow writes it."""
    file = io.BytesIO()
    image.save(file, style, **options)
    return file.getvalue()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(pixels: npt.NDArray[Any], depth: int, colours: int, extra: bytes = b"") -> bytes:
    """A PNG of rows of big-endian values, (height, width, channels)."""
    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], depth, colours, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + row.tobytes() for row in pixels))
    framed = _chunk(b"IHDR", header) + extra + _chunk(b"IDAT", rows) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + framed


def bmp(
    rows: npt.NDArray[Any], bits: int, packing: int = 0, *, palette: bytes = b"", more: bytes = b"", **of: int
) -> bytes:
    """A BMP of rows of bytes from the top; `more` lengthens its header, `masks=1` puts it behind."""
    body = b"".join(row.tobytes() + bytes(-row.nbytes % 4) for row in rows[::-1])
    length = 40 if of.get("masks") else 40 + len(more)
    height = -HEIGHT if of.get("from_top") else HEIGHT
    body = body if height > 0 else b"".join(row.tobytes() + bytes(-row.nbytes % 4) for row in rows)
    header = struct.pack("<IiiHHIIiiII", length, WIDTH, height, 1, bits, packing, len(body), 0, 0, len(palette) // 4, 0)
    start = 14 + len(header) + len(more) + len(palette)
    return b"BM" + struct.pack("<IHHI", start + len(body), 0, 0, start) + header + more + palette + body


def gif_on_page(left: int, top: int, **options: Any) -> bytes:
    """A GIF whose only frame is a part of a page of 100x80 pixels."""
    data = bytearray(saved(_P, "GIF", **options))
    data[6:10] = struct.pack("<HH", 100, 80)
    place = data.index(b"\x2c\0\0\0\0") + 1
    data[place : place + 4] = struct.pack("<HH", left, top)
    return bytes(data)


def framed(data: bytes, *, marker: int | None = None, bits: int | None = None) -> bytes:
    """A JPEG whose frame says that it is of another kind."""
    found, place = bytearray(data), data.index(b"\xff\xc0")
    found[place + 1] = marker or found[place + 1]
    found[place + 4] = bits or found[place + 4]
    return bytes(found)


def _segment(marker: int, body: bytes) -> bytes:
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(body) + 2) + body


LOSSLESS = (
    b"\xff\xd8"
    + _segment(0xC3, struct.pack(">BHHB", 8, 64, 64, 3) + bytes([1, 17, 0, 2, 17, 0, 3, 17, 0]))
    + _segment(0xC4, bytes([0, 1] + [0] * 16))
    + _segment(0xDA, bytes([3, 1, 0, 2, 0, 3, 0, 1, 0, 0]))
    + bytes(1536)
    + b"\xff\xd9"
)
"""A JPEG of one grey without loss, which libjpeg-turbo decodes and TensorFlow doesn't."""
JPEG = saved(RGB, "JPEG", quality=95, subsampling=0)
_PROGRESSIVE = saved(RGB, "JPEG", progressive=True)
HALF = _PROGRESSIVE[: len(_PROGRESSIVE) // 2] + b"\xff\xd9"
"""A JPEG that lacks a half, but for its end."""
_BGR = PIXELS[:, :, ::-1]
_BGRX = np.dstack([_BGR, np.full((HEIGHT, WIDTH), 255, "u1")])
_INDEX, _INDEX16 = np.asarray(_P), np.asarray(_P16)
_16 = np.dstack([PIXELS, np.asarray(_ALPHA)]).astype(">u2") * 257
_555 = (PIXELS[..., 0].astype("u2") >> 3 << 10) | (PIXELS[..., 1].astype("u2") >> 3 << 5) | (PIXELS[..., 2] >> 3)
_GREYS = b"".join(bytes((n, n, n, 0)) for n in range(256))


def _palette(image: Image.Image) -> bytes:
    colours = np.array(image.getpalette(), "u1").reshape(-1, 3)
    return np.hstack([colours[:, ::-1], np.zeros((len(colours), 1), "u1")]).tobytes()


def _masks(*masks: int) -> bytes:
    return struct.pack("<III", *masks)


SAME: Mapping[str, bytes] = {
    "BMP L": saved(_GREY, "BMP"),
    "BMP RGB": saved(RGB, "BMP"),
    "BMP RGBA": saved(RGBA, "BMP"),
    "BMP of greys": bmp(np.asarray(_GREY), 8, palette=_GREYS),
    "BMP from the top": bmp(_BGR.reshape(HEIGHT, -1), 24, from_top=1),
    "BMP with a header of version 4": bmp(_BGR.reshape(HEIGHT, -1), 24, more=bytes(68)),
    "BMP with a header of version 5": bmp(_BGR.reshape(HEIGHT, -1), 24, more=bytes(84)),
    "BMP of 32 bits": bmp(_BGRX.reshape(HEIGHT, -1), 32),
    "BMP with usual masks": bmp(_BGRX.reshape(HEIGHT, -1), 32, 3, more=_masks(0xFF0000, 0xFF00, 0xFF), masks=1),
    **{f"PNG {image.mode}": saved(image, "PNG") for image in (_BITS, _GREY, RGBA.convert("LA"), _P, RGB, RGBA)},
    **{f"PNG L of {bits} bits": saved(_GREY, "PNG", bits=bits) for bits in (2, 4)},
    "PNG P of 16 colours": saved(_P16, "PNG"),
    "PNG P with a clear colour": saved(_P, "PNG", transparency=3),
    "PNG P with alphas": saved(_P, "PNG", transparency=bytes(range(64))),
    "PNG L with a clear grey": saved(_GREY, "PNG", transparency=100),
    "PNG RGB with a clear colour": saved(RGB, "PNG", transparency=(0, 0, 0)),
    "PNG I;16": saved(Image.fromarray((_COLUMNS * 1000 + 77).astype("u2")), "PNG"),
    "PNG RGB of 16 bits": png(_16[..., :3], 16, 2),
    "PNG RGBA of 16 bits": png(_16, 16, 6),
    "PNG with a gamma": png(PIXELS, 8, 2, _chunk(b"gAMA", struct.pack(">I", 100_000))),
    "PNG with a ground": png(np.asarray(RGBA), 8, 6, _chunk(b"bKGD", struct.pack(">HHH", 255, 255, 255))),
    "APNG": saved(RGB, "PNG", save_all=True, append_images=[RGB.rotate(180)]),
    **{f"GIF {image.mode}": saved(image, "GIF") for image in (_BITS, _GREY, _P)},
    "GIF with a clear colour of no pixel": saved(_P, "GIF", transparency=200),
    "GIF of two frames": saved(_P, "GIF", save_all=True, append_images=[_P.rotate(180)]),
    "GIF, interlaced": saved(_P, "GIF", interlace=1),
    **{f"JPEG {mode}": saved(RGB.convert(mode), "JPEG", quality=95) for mode in ("L", "RGB", "CMYK")},
    **{f"JPEG 4:{of}": saved(RGB, "JPEG", subsampling=f"4:{of}") for of in ("2:0", "2:2", "4:4")},
    "JPEG, progressive": saved(RGB, "JPEG", progressive=True),
    "JPEG of RGB": saved(RGB, "JPEG", keep_rgb=True),
    "JPEG with restarts": saved(RGB, "JPEG", restart_marker_rows=1),
    "JPEG with junk": JPEG + b"junk" * 50,
    "JPEG of a half": HALF,
    "MPO": saved(RGB, "MPO", save_all=True, append_images=[RGB]),
    "WebP": saved(RGB, "WEBP"),
    "WebP without loss": saved(RGB, "WEBP", lossless=True),
    "WebP with a profile": saved(RGB, "WEBP", icc_profile=b"x" * 200),
}
"""Images that are decoded, by TensorFlow and by Pillow; of GIFs and animations the first frame."""

ODD_BMP = "a BMP with a palette, masks or compression, of 1, 4 or 16 bits a pixel, or cut off"
_NO_JPEG = "an image that can't be decoded: jpeg::Uncompress failed. Invalid JPEG data or crop window"
REFUSED: Mapping[str, tuple[bytes, str]] = {
    "BMP 1": (saved(_BITS, "BMP"), ODD_BMP),
    "BMP of 4 bits": (
        bmp((_INDEX16[:, ::2] << 4) | _INDEX16[:, 1::2], 4, palette=_palette(_P16)),
        ODD_BMP,
    ),
    "BMP of 16 bits": (bmp(_555, 16), ODD_BMP),
    "BMP P": (saved(_P, "BMP"), ODD_BMP),
    "BMP of few colours": (
        bmp(_INDEX, 8, palette=_palette(_P), from_top=1),
        ODD_BMP,
    ),
    "BMP with other masks": (
        bmp(_BGRX.reshape(HEIGHT, -1), 32, 3, more=_masks(0xFF, 0xFF00, 0xFF0000), masks=1),
        ODD_BMP,
    ),
    "BMP, compressed": (bmp(_INDEX, 8, 1, palette=_palette(_P)), ODD_BMP),
    "BMP of OS/2": (
        b"BM" + struct.pack("<IHHI", 26, 0, 0, 26) + struct.pack("<IHHHH", 12, 100, 80, 1, 24) + bytes(99),
        ODD_BMP,
    ),
    "BMP, cut": (saved(RGB, "BMP")[:-1000], ODD_BMP),
    "GIF with clear pixels": (
        saved(_P, "GIF", transparency=3),
        "a GIF with transparent pixels, which TensorFlow decodes to black",
    ),
    "GIF on a larger page": (
        gif_on_page(10, 20),
        "a GIF whose first frame is smaller than its canvas, which TensorFlow ignores",
    ),
    "JPEG without loss": (LOSSLESS, _NO_JPEG),
    "JPEG, hierarchical": (framed(JPEG, marker=0xC5), _NO_JPEG),
    "JPEG of 12 bits": (framed(JPEG, bits=12), _NO_JPEG),
    "WebP RGBA": (saved(RGBA, "WEBP"), "a WebP with transparency, which TensorFlow doesn't decode"),
    "WebP RGBA without loss": (
        saved(RGBA, "WEBP", lossless=True),
        "a WebP with transparency, which TensorFlow doesn't decode",
    ),
    "WebP of two frames": (
        saved(RGB, "WEBP", save_all=True, append_images=[RGB.rotate(180)]),
        "an animated WebP, which TensorFlow doesn't decode",
    ),
    "TIFF": (saved(RGB, "TIFF"), "a TIFF, which TensorFlow doesn't decode"),
    "icon": (saved(RGB, "ICO"), "an icon, which TensorFlow doesn't decode"),
    "HEIC": (b"\0\0\0\x18ftypheic" + bytes(40), "a HEIC image, which TensorFlow doesn't decode"),
    "AVIF": (b"\0\0\0\x18ftypavif" + bytes(40), "an AVIF image, which TensorFlow doesn't decode"),
    "page": (b"<!doctype html>", "a web page or other text"),
}
"""Images that no run decodes, with the reason."""
