"""Images whose pixels are other than their authors see: turned, of one colour, transparent, too dark, or with gaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from etlrun.datasets.examine.doctor_scan import NAMED, Finding, Scan

_CONVERT = "convert them, as `etlrun prepare --convert` does: what is transparent becomes white"


def of_pixels(number: int, scan: Scan) -> Iterator[Finding]:
    """Yield the findings of the images of a scan, which is that of the split `number`."""
    looks = scan.looks[:]
    sound = ~looks["is_broken"]

    def found(is_chosen: npt.NDArray[np.bool_], text: str, remedy: str, of: Callable[[int], str]) -> Iterator[Finding]:
        chosen = np.flatnonzero(sound & is_chosen)
        if len(chosen):
            yield Finding(
                text=f"{len(chosen):,} of {len(looks):,} images of {scan.split.name} {text}",
                remedy=remedy,
                places=tuple(f"{scan.place(int(index))}{of(int(index))}" for index in chosen[:NAMED]),
                images=tuple((number, int(index)) for index in chosen[:NAMED]),
            )

    yield from found(
        looks["is_warned"],
        "are JPEGs of which libjpeg warns: what is missing or damaged is decoded to grey or other colours",
        "restore or remove them",
        lambda index: f": {scan.warnings[index]}" if index in scan.warnings else "",
    )
    yield from found(
        looks["is_flat"],
        "are of one colour, or nearly so, once decoded",
        "look at them, and restore them",
        lambda _: "",
    )
    yield from found(
        looks["is_transparent"],
        "have transparent pixels, of which the colour below is decoded, often black",
        _CONVERT,
        lambda _: "",
    )
    yield from found(
        looks["is_dim"],
        "are of 16 bits without a value above 4,095, of which the upper 8 bits are decoded: all but black",
        "scale their values to 65,535, or to 8 bits",
        lambda _: "",
    )
    yield from found(
        looks["orientation"] != 1,
        "are turned or mirrored by EXIF's orientation, which TensorFlow ignores: they are decoded as they are stored",
        "store them upright, such as by `exiftran -ai` (without loss) or Pillow's ImageOps.exif_transpose",
        lambda index: f": orientation {looks['orientation'][index]}",
    )
