"""The probe of a pipeline alone."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from etlrun.measure.assessment import ceiling_per_s

BATCH = tf.zeros([4, 2])


class Batches:
    """A pipeline whose batches are there, but for the first one of the probe, which takes `late_s`."""

    stages = ()

    def __init__(self, late_s: float) -> None:
        self.late_s, self.count = late_s, 0

    def repeated_alone(self, *_: Any, **__: Any) -> Iterator[Any]:
        while True:
            if self.count == 1:
                time.sleep(self.late_s)
            self.count += 1
            yield BATCH


@pytest.mark.parametrize(("late_s", "goes_on"), [(0.06, True), (1.0, False)])
def test_a_late_batch_does_not_stand_for_a_pipeline(late_s: float, goes_on: bool) -> None:  # noqa: FBT001
    pipeline: Any = Batches(late_s)
    found = ceiling_per_s(pipeline, [], from_cache=False, seconds=0.05)
    assert (pipeline.count > 2) is goes_on  # one was read before, and a slow pipeline is not read for long
    assert found <= 4 * pipeline.count / late_s
