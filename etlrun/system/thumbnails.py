"""Thumbnails of images, and their addresses for pages."""

import base64
import io

import numpy as np
import numpy.typing as npt
from PIL import Image

SIDE = 160
"""Largest side of a thumbnail in pixels; smaller images keep their size."""
_MOST_PNG_BYTES = 16_384
"""Size above which a thumbnail is a JPEG; a PNG has the very pixels."""
_QUALITY = 85


def thumbnail(pixels: npt.NDArray[np.uint8], side: int = SIDE) -> Image.Image:
    """Return uint8 (height, width, 1 or 3) as an image whose sides are at most `side`."""
    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    image.thumbnail((side, side))
    return image


def data_url(image: Image.Image) -> str:
    """Return the image as a PNG, or as a JPEG if that PNG would be large."""
    png, jpeg = io.BytesIO(), io.BytesIO()
    image.save(png, "PNG", compress_level=1)
    if png.tell() <= _MOST_PNG_BYTES:
        return f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}"
    image.save(jpeg, "JPEG", quality=_QUALITY, subsampling=0)
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg.getvalue()).decode()}"
