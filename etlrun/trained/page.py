"""Page of an evaluation: figures, confusions, calibration, and the images of the worst mistakes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from etlrun import pages
from etlrun.examine.images import data_url, thumbnail
from etlrun.stages.image import Decode
from etlrun.trained.evaluate import Evaluated


class Picture(NamedTuple):
    """A thumbnail on the page: its data URL, and its size in pixels."""

    url: str
    width: int
    height: int


def html(evaluated: Evaluated, made_by: str) -> str:
    """Return the page of an evaluation, which was `made_by` a command."""
    images = [None if data is None else _picture(data) for data in evaluated.images]
    return pages.rendered(
        "etlrun.trained",
        "evaluation.html.j2",
        of=evaluated.result,
        mistakes=[*zip(evaluated.result.mistakes, images, strict=True)],
        made_by=made_by,
    )


def _picture(encoded: bytes) -> Picture:
    image = thumbnail(np.asarray(Decode.op(encoded), np.uint8))
    return Picture(data_url(image), image.width, image.height)
