"""An epoch: its progress on a terminal, and what the folder of the run gets at its end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from etlrun.measure.assessment import Assessment
from etlrun.measure.meter import Loop
from etlrun.measure.watched import Watch
from etlrun.record import report
from etlrun.record.record import PAGE
from etlrun.record.report import MOST_THUMBNAILS, THUMBNAILS
from etlrun.record.summary import Epoch
from etlrun.run.hosts import here
from etlrun.system.files import write_atomically
from etlrun.system.progress import Task, left
from etlrun.system.thumbnails import data_url, thumbnail

SIDE = 64
"""Largest side of a thumbnail in pixels."""
_IMAGE_RANK, _CHANNELS, _MIXED = 4, (1, 3), 3
_RANGES = ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0))
"""Ranges of images of floats, the narrowest first."""
_PAGES_APART_S = 1.0
"""Shortest time between two pages of a run that goes on: a page takes about 20 ms of a core."""


def record_epoch(assessment: Assessment, epoch: Epoch) -> None:
    """Add an epoch to the record of a run, and bring its page up to date.

    Raises:
        OSError: The folder can't be written to.
    """
    record, batch = assessment.work.record, assessment.work.watches["train"].batch
    record.epoch(epoch, **assessment.usage)
    if batch is not None and not (record.folder / THUMBNAILS).exists():
        with report.guarded(record):
            write_thumbnails(record.folder, batch, record.summary.dataset.classes)
    path = record.folder / PAGE
    if not path.exists() or time.time() - path.stat().st_mtime > _PAGES_APART_S:
        report.renew(record)


def write_thumbnails(folder: Path, batch: Any, classes: Sequence[str] | None) -> None:
    """Write the thumbnails of a batch (inputs, target) into a run's folder; nothing for a batch without images."""
    inputs, target = batch[:2]
    images = next((value for value in tf.nest.flatten(inputs) if _are_images(value)), None)
    if images is None:
        return
    values = tf.cast(images[:MOST_THUMBNAILS], tf.float32).numpy()
    shown = zip(
        scaled_back(values, is_float=images.dtype.is_floating), targets(target, len(values), classes), strict=True
    )
    found = [{"url": data_url(thumbnail(pixels, SIDE)), "target": text} for pixels, text in shown]
    write_atomically(folder / THUMBNAILS, json.dumps(found, indent=1) + "\n")


def _are_images(value: Any) -> bool:
    shape = value.shape
    return len(shape) == _IMAGE_RANK and shape[-1] in _CHANNELS and min(shape[1:3]) > 1 and value.dtype != tf.string


def scaled_back(images: npt.NDArray[np.float32], *, is_float: bool) -> npt.NDArray[np.uint8]:
    """Return images (count, height, width, 1 or 3) as uint8; NaN is black.

    Floats are mapped from the narrowest usual range that holds them all, and from their own if there is none, which is
    so for images whose channels have been divided by their deviations.
    """
    images = np.nan_to_num(images, posinf=0.0, neginf=0.0)
    low, high = float(images.min()), float(images.max())
    ends = next((of for of in _RANGES if of[0] <= low and high <= of[1]), (low, high)) if is_float else (0.0, 255.0)
    scaled: npt.NDArray[np.float32] = np.clip((images - ends[0]) * (255 / (ends[1] - ends[0])), 0, 255)
    return np.rint(scaled).astype(np.uint8)


def targets(target: Any, count: int, classes: Sequence[str] | None) -> list[str]:
    """Return the targets of the first examples as text; empty texts for targets that are no single tensor."""
    if isinstance(target, Mapping) or not hasattr(target, "shape"):
        return [""] * count
    values = np.asarray(target[:count])
    if values.shape[1:] == (_MIXED,) and classes is not None:
        mixed = [(_name(int(one), classes), _name(int(other), classes), float(share)) for one, other, share in values]
        return [f"{share:.0%} {one}, {1 - share:.0%} {other}" for one, other, share in mixed]
    if values.ndim != 1:
        return [""] * count
    return [_name(value, classes) for value in values]


def _name(value: Any, classes: Sequence[str] | None) -> str:
    is_class = classes is not None and np.issubdtype(type(value), np.integer) and 0 <= value < len(classes)
    return classes[int(value)] if is_class and classes is not None else f"{value:g}" if np.isreal(value) else str(value)


@dataclass
class _Sums:
    """Sums over the steps of a loop so far, without those that may compile.

    Attributes:
        loop: The loop.
        steps: Number of all its steps.
        warm: Number of those that are summed.
        steps_s: Seconds of these.
        waits_s: Seconds that they waited for their batches.
        examples: Number of their examples.
    """

    loop: Loop
    steps: int = 0
    warm: int = 0
    steps_s: float = 0.0
    waits_s: float = 0.0
    examples: int = 0

    def update(self) -> None:
        """Add the steps since the last call."""
        loop, known = self.loop, self.steps
        self.steps = len(loop.starts_up)  # to which a step is added last
        for place in range(known, self.steps):
            if not loop.starts_up[place]:
                self.warm += 1
                self.steps_s += loop.steps_s[place]
                self.waits_s += loop.waits_s[place]
                self.examples += loop.examples[place]


class Steps(Task):
    """Steps of an epoch, or batches of its validation or of a pass.

    Attributes:
        sums: Sums over the steps so far.
    """

    def __init__(
        self, what: str, total: int | None, watch: Watch, *, epochs_left: int = 0, others_s: float = 0.0
    ) -> None:
        """Begin; `epochs_left` epochs follow, and `others_s` seconds of other work."""
        super().__init__(what, total)
        self._watch, self._epochs_left, self._others_s = watch, epochs_left, others_s
        self.sums = _Sums(watch.meter.loop)

    def count(self) -> str:
        """Return the number of steps, or that the first one is awaited."""
        if self.sums.loop is not self._watch.meter.loop:
            self.sums = _Sums(self._watch.meter.loop)
        self.sums.update()
        self.done = self._watch.resumed_batches + self.sums.steps
        return super().count() if self.sums.steps else f"first step, {self.elapsed_s:.0f} s"

    def further(self) -> Iterable[str]:
        """Yield the time left for the run, the throughput, and the share of the time that was spent waiting."""
        sums = self.sums
        busy_s = sums.steps_s + sums.waits_s
        if not sums.warm or not busy_s:
            return
        if self.total is not None:
            steps = max(0, self.total - self.done) + self._epochs_left * self.total
            yield left(steps * busy_s / sums.warm + self._others_s)
        yield f"{here().count * sums.examples / busy_s:,.1f} examples/s"
        waited_s = sums.waits_s + sums.loop.fill_s
        yield f"wait {waited_s / (busy_s + sums.loop.fill_s):.0%}"
