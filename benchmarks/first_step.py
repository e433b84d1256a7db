"""Seconds from the start of this process to the end of its first training step. Used by caches.py.

With --arrays the images are in memory as NumPy arrays, and the time that it takes to make these is left out.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import psutil
import tensorflow as tf

from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.record.record import Record
from etlrun.run.model import training_data, whole_model
from etlrun.run.session import contexts_of, opened, prepared
from etlrun.stages import STAGES


class _FirstStep(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.ended_s = 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ended_s = self.ended_s or time.time()
        self.model.stop_training = True


def main() -> None:
    """Print the seconds."""
    arrays = "--arrays" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--arrays"]
    plan: Any = resolve(Request(overrides=words), STAGES).plan
    spec, loading_s = plan.spec, 0.0
    source = opened(plan)
    model = whole_model(plan, training_data(plan, contexts_of(plan, source)["train"]))
    with tempfile.TemporaryDirectory() as folder:
        record = Record.create(Path(folder) / "run", {}, [], remarks=[])
        began_s = time.time()
        work = prepared(plan, record, source)
        dataset = work.train.pipeline.dataset
        if arrays:
            batches = list(dataset.as_numpy_iterator())
            columns = tuple(np.concatenate(column) for column in zip(*batches, strict=True))
            loading_s = time.time() - began_s
            kept = tf.data.Dataset.from_tensor_slices(columns)
            dataset = kept.shuffle(spec.load.shuffle_buffer).batch(spec.load.batch_size).prefetch(tf.data.AUTOTUNE)
        step = _FirstStep()
        model.fit(dataset, epochs=1, steps_per_epoch=2, callbacks=[step], verbose=0)
        work.train.pipeline.close()
    print(step.ended_s - psutil.Process().create_time() - loading_s)


if __name__ == "__main__":
    main()
