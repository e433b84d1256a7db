"""Page of a diagnosis: findings with the images that show them, figures, and samples of each class."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import tensorflow as tf
from markupsafe import Markup
from PIL import Image

from etlrun.datasets.examine.doctor import ImageDiagnosis
from etlrun.datasets.examine.doctor_image import UNREADABLE
from etlrun.datasets.examine.doctor_scan import Scan
from etlrun.datasets.examine.finding import Finding
from etlrun.datasets.prepare.check import in_order
from etlrun.sources.corrupt import pillow_as_header_reader
from etlrun.stages.image import Decode
from etlrun.system import pages
from etlrun.system.files import appearing
from etlrun.system.progress import Begin
from etlrun.system.thumbnails import tag

SIDE = 120
"""Largest side of a thumbnail in pixels."""
SHOWN = 8
"""Images of a finding that are shown."""


@pillow_as_header_reader()
def write(path: Path, diagnosis: ImageDiagnosis, made_by: str, begin: Begin) -> None:
    """Write the page of a diagnosis to `path` part by part; it appears when it is complete.

    Raises:
        WorldError: It can't be written.
    """
    with appearing(path, "--html") as file:
        file.writelines(html(diagnosis, made_by, begin))


def html(diagnosis: ImageDiagnosis, made_by: str, begin: Begin) -> Iterator[str]:
    """Yield the parts of the page of a diagnosis, which was `made_by` a command.

    Images are read again as the page is made, so that few are in memory; `begin` is told of this task.
    """
    samples = [(scan, diagnosis.class_names[label], of) for scan in diagnosis.scans for label, of in scan.samples()]
    return pages.parts(
        "etlrun.datasets.examine",
        "doctor.html.j2",
        diagnosis=diagnosis,
        made_by=made_by,
        findings=[(finding, _of_finding(finding)) for finding in diagnosis.findings],
        samples=_of_classes(samples, begin("page", sum(len(of) for _, _, of in samples))),
    )


def _of_classes(
    samples: Sequence[tuple[Scan, str, Sequence[int]]], done: Callable[[int], None]
) -> Iterator[tuple[str, str, list[Markup]]]:
    """Yield the split, the name and the thumbnails of each class."""
    drawn = in_order(lambda of: [*_pictures(of[0], of[2], of[1])], samples)
    for (scan, name, indices), pictures in zip(samples, drawn, strict=True):
        yield scan.split.name, name, pictures
        done(len(indices))


def _of_finding(finding: Finding) -> list[Markup]:
    shown = finding.images[:SHOWN]
    return [picture for scan, index in shown for picture in _pictures(scan, [index], scan.place(index))]


def _pictures(scan: Scan, indices: Iterable[int], alt: str) -> Iterator[Markup]:
    """Yield thumbnails of images; those that can't be read again are left out."""
    for index in indices:
        data = scan.encoded(index)
        if data is not None:
            image = _opened(data)
            image.thumbnail((SIDE, SIDE))
            yield tag(image, alt)


def _opened(data: bytes) -> Image.Image:
    try:
        image = Image.open(io.BytesIO(data))
        image.draft("RGB", (2 * SIDE, 2 * SIDE))
        return image.convert("RGB")
    except UNREADABLE:  # by Pillow; a run decodes it
        return Image.fromarray(Decode.op(tf.constant(data)).numpy())
