"""Page of an evaluation: figures, confusions, calibration, and the images of the worst mistakes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from etlrun.stages.image import Decode
from etlrun.system import pages
from etlrun.system.thumbnails import data_url, thumbnail
from etlrun.trained.evaluate import Evaluation

_MOST_CLASSES, _MOST_PAIRS = 50, 100
"""Classes up to which the whole confusion matrix is shown, and the pairs that are shown of a larger one."""


class Picture(NamedTuple):
    """A thumbnail on the page: its data URL, and its size in pixels."""

    url: str
    width: int
    height: int


def html(of: Evaluation, made_by: str) -> str:
    """Return the page of an evaluation, which was `made_by` a command."""
    return pages.rendered(
        "etlrun.trained",
        "evaluation.html.j2",
        of=of,
        pairs=_pairs(of),
        mistakes=[(mistake, _picture(mistake.image)) for mistake in of.mistakes],
        firsts=[(first, _picture(first.image)) for first in of.firsts],
        made_by=made_by,
    )


def _pairs(of: Evaluation) -> list[tuple[str, str, int]]:
    """Return the most frequent confusions, class and predicted class, where the matrix is too large to be shown."""
    if len(of.classes) <= _MOST_CLASSES:
        return []
    counts = np.array(of.confusion)
    np.fill_diagonal(counts, 0)
    places = np.argsort(-counts, axis=None, kind="stable")[:_MOST_PAIRS]
    pairs = zip(*np.unravel_index(places, counts.shape), strict=True)
    names = [each.name for each in of.classes]
    return [(names[row], names[column], int(counts[row, column])) for row, column in pairs if counts[row, column]]


def _picture(encoded: bytes | None) -> Picture | None:
    if encoded is None:
        return None
    image = thumbnail(np.asarray(Decode.op(encoded), np.uint8))
    return Picture(data_url(image), image.width, image.height)
