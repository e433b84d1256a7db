"""End of an epoch: what the folder of the run gets."""

from __future__ import annotations

import time

from etlrun.measure.assessment import Assessment
from etlrun.record import page
from etlrun.record.record import PAGE
from etlrun.record.summary import Epoch
from etlrun.run import thumbnails

_PAGES_APART_S = 1.0
"""Shortest time between two pages of a run that goes on: a page takes about 20 ms of a core."""


def record_epoch(assessment: Assessment, epoch: Epoch) -> None:
    """Add an epoch to the record of a run, and bring its page up to date.

    Raises:
        OSError: The folder can't be written to.
    """
    record, batch = assessment.work.record, assessment.work.watches["train"].batch
    record.epoch(epoch, **assessment.usage)
    if batch is not None and not (record.folder / page.THUMBNAILS).exists():
        with page.shown(record):
            thumbnails.write(record.folder, batch, record.summary.dataset.classes)
    path = record.folder / PAGE
    if not path.exists() or time.time() - path.stat().st_mtime > _PAGES_APART_S:
        page.renew(record)
