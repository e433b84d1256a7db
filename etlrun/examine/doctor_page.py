"""Page of a diagnosis: findings with the images that show them, figures, and samples of each class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from etlrun import pages
from etlrun.examine.doctor import Diagnosis, Finding
from etlrun.examine.doctor_image import opened_small
from etlrun.examine.images import data_url

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
            (scan.split.name, name, [_thumbnail(data, name) for data in images])
            for scan in diagnosis.scans
            for name, images in ((diagnosis.class_names[label], of) for label, of in sorted(scan.samples.items()))
        ],
    )


def _of_finding(diagnosis: Diagnosis, finding: Finding) -> Iterator[Picture]:
    for split, index in finding.images[:SHOWN]:
        scan = diagnosis.scans[split]
        data = scan.encoded(index)
        if data is not None:
            yield _thumbnail(data, scan.place(index))


def _thumbnail(data: bytes, alt: str) -> Picture:
    image = opened_small(data)
    return Picture(data_url(image), alt, image.width, image.height)
