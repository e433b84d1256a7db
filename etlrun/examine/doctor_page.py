"""Page of a diagnosis: findings with the images that show them, figures, and samples of each class."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import NamedTuple

from PIL import Image

from etlrun import pages
from etlrun.examine.doctor import Diagnosis, Finding
from etlrun.examine.images import data_url

SIDE = 120
"""Largest side of a thumbnail in pixels."""
SHOWN = 8
"""Images of a finding that are shown."""


class Picture(NamedTuple):
    """A thumbnail on the page.

    Attributes:
        url: Data URL.
        alt: Description for screen readers.
        width: In pixels; `height` likewise.
    """

    url: str
    alt: str
    width: int
    height: int


def html(diagnosis: Diagnosis, made_by: str) -> str:
    """Return the page of a diagnosis, which was `made_by` a command."""
    return pages.rendered(
        "etlrun.examine",
        "doctor.html.j2",
        diagnosis=diagnosis,
        made_by=made_by,
        findings=[(finding, [*_of_finding(diagnosis, finding)]) for finding in diagnosis.findings],
        samples=[
            (scan.split.name, name, [_thumbnail(_opened(data), name) for data in images])
            for scan in diagnosis.scans
            for name, images in ((diagnosis.class_names[label], of) for label, of in sorted(scan.samples.items()))
        ],
    )


def _of_finding(diagnosis: Diagnosis, finding: Finding) -> Iterator[Picture]:
    for split, index in finding.images[:SHOWN]:
        scan = diagnosis.scans[split]
        data = scan.encoded(index)
        if data is not None:
            yield _thumbnail(_opened(data), scan.place(index))


def _opened(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.draft("RGB", (2 * SIDE, 2 * SIDE))
    return image.convert("RGB")


def _thumbnail(image: Image.Image, alt: str) -> Picture:
    image.thumbnail((SIDE, SIDE))
    return Picture(data_url(image), alt, image.width, image.height)
