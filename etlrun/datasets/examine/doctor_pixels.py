"""Images whose pixels are other than their authors see: turned, of one colour, transparent, too dark, or with gaps."""

from __future__ import annotations

from collections.abc import Iterator

from etlrun.datasets.examine.doctor_scan import Scan
from etlrun.datasets.examine.finding import Finding

_CONVERT = "convert them, as `etlrun prepare --convert` does: what is transparent becomes white"


def of_pixels(scan: Scan) -> Iterator[Finding]:
    """Yield the findings of the images of a scan."""
    looks = scan.looks
    yield from scan.found(
        looks["is_warned"],
        "are JPEGs of which libjpeg warns: what is missing or damaged is decoded to grey or other colours",
        "restore or remove them",
        lambda index: f": {scan.warnings[index]}" if index in scan.warnings else "",
    )
    flat = "are of one colour, or nearly so, once decoded"
    yield from scan.found(looks["is_flat"], flat, "look at them, and restore them")
    clear = "have transparent pixels, of which the colour below is decoded, often black"
    yield from scan.found(looks["is_transparent"], clear, _CONVERT)
    dim = "are of 16 bits without a value above 4,095, of which the upper 8 bits are decoded: all but black"
    yield from scan.found(looks["is_dim"], dim, "scale their values to 65,535, or to 8 bits")
    yield from scan.found(
        looks["orientation"] != 1,
        "are turned or mirrored by EXIF's orientation, which TensorFlow ignores: they are decoded as they are stored",
        "store them upright, such as by `exiftran -ai` (without loss) or Pillow's ImageOps.exif_transpose",
        lambda index: f": orientation {looks['orientation'][index]}",
    )
