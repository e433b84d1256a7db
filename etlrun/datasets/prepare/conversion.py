"""Conversion of images of other formats, of frames, or not upright to JPEGs and PNGs that can be prepared."""

import importlib.util
import io
from collections.abc import Sequence

from PIL import ExifTags, Image, ImageOps

from etlrun.sources.corrupt import too_large
from etlrun.system.errors import WorldError, counted

CONVERTED = (".heic", ".heif", ".avif", ".tif", ".tiff", ".jp2")
"""Suffixes of images that are taken, too, if images are converted."""
_HEIC = (".heic", ".heif")
_KEPT = ("JPEG", "MPO", "PNG")
"""Formats of images that are kept as they are, if they are upright."""
_LOSSY = ("JPEG", "MPO", "HEIF", "AVIF", "WEBP", "JPEG2000")
_QUALITY = 95
_DAMAGED = (OSError, ValueError, SyntaxError, EOFError, KeyError, IndexError, Image.DecompressionBombError)
"""What Pillow raises for damaged files, or for what it doesn't read."""


def require_heic(names: Sequence[str]) -> None:
    """Raise `WorldError` if one of these files is a HEIC, and what reads them is not installed."""
    count = sum(name.lower().endswith(_HEIC) for name in names)
    if count and importlib.util.find_spec("pillow_heif") is None:
        raise WorldError(
            "--convert",
            f"{counted(count, 'file')} of {' or '.join(_HEIC)}, and no package pillow-heif",
            "the package that reads them",
            "pip install 'etlrun[phone]'",
        )


def converted(data: bytes) -> bytes:
    """Return an encoded image upright, as a JPEG or PNG, with white where it is transparent.

    Upright JPEGs and PNGs without transparency stay as they are, and what can't be read. Of several frames it is the
    first. Formats with loss become JPEGs of quality 95 without subsampling, others PNGs; grey of 16 bits stays so.
    """
    try:
        if data[4:8] == b"ftyp" and importlib.util.find_spec("pillow_heif") is not None:
            import pillow_heif  # of an extra

            pillow_heif.register_heif_opener()
        image = Image.open(io.BytesIO(data))
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
        is_kept = image.format in _KEPT and orientation == 1 and not image.has_transparency_data
        if is_kept or too_large(*image.size):
            return data
        style = "JPEG" if image.format in _LOSSY else "PNG"
        file = io.BytesIO()
        options = {"quality": _QUALITY, "subsampling": 0} if style == "JPEG" else {}
        _flat(ImageOps.exif_transpose(image)).save(file, style, **options)
    except _DAMAGED:  # the check says what it is
        return data
    return file.getvalue()


def _flat(image: Image.Image) -> Image.Image:
    """Return an image of red, green and blue, or of 16 bits of grey, without transparency."""
    if image.mode.startswith("I;16"):
        return image
    if image.mode in {"I", "F"}:
        raise ValueError(image.mode)
    if not image.has_transparency_data:
        return image.convert("RGB")
    clear = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear).convert("RGB")
