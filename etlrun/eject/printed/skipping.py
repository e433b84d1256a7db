"""Skipping of records that can't be used, in programs."""

from __future__ import annotations

import functools

from etlrun.eject.printed.loops import labels_in, num_classes
from etlrun.eject.printed.tfds import num_examples, parts_of, paths_of
from etlrun.stages.extract import readable
from etlrun.stages.lazy import np, tf


def without_broken(dataset: tf.data.Dataset, split: str) -> tf.data.Dataset:
    """Drop elements that raise; a file of `split` that can't be opened is an error at the end."""
    files = tf.data.Dataset.from_tensor_slices(paths_of(split))
    opened = files.flat_map(lambda path: tf.data.FixedLengthRecordDataset(path, 1).take(1))
    found = readable(dataset, num_examples(split)).map(lambda _, example: example)
    return found.concatenate(opened.flat_map(lambda _: dataset.take(0)))


@functools.cache
def labels_of(split: str) -> np.ndarray:
    """Return the class of each example of a split, without those that raise, or have none."""
    found = [label for part in parts_of(split) for label in labels_in(part).ignore_errors().as_numpy_iterator()]
    return np.array([label for label in found if 0 <= label < num_classes()], np.int64)
