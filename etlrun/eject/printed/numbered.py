"""Reading of records by number, and of classes, in programs."""

from __future__ import annotations

import functools
import os
import pathlib
import types

import google_crc32c

from etlrun.eject.printed.given import TARGET, TRAIN_SPLIT, classes
from etlrun.eject.printed.tfds import parts_of
from etlrun.stages.lazy import np, tf
from etlrun.stages.load import AT_ONCE, balanced


def places_in(path: str) -> list[tuple[int, int]]:
    """Return the place of each record of a file, and its size, with the checksums around its data."""
    found, place = [], 0
    with pathlib.Path(path).open("rb") as file:
        while length := os.pread(file.fileno(), 8, place):
            found.append((place, int.from_bytes(length, "little") + 16))
            place += found[-1][1]
    return found


@functools.cache
def located(split: str) -> list[tuple[str, int, int]]:
    """Return the file of each record of a split, its place there, and its size, with the checksums around its data."""
    found = []
    for part in parts_of(split):
        path = str(part.filename)
        end = None if part.take == -1 else part.skip + part.take
        found += [(path, *place) for place in places_in(path)[part.skip : end]]
    return found


def record_of(number: int, split: str) -> bytes:
    """Read a record by number, and check it as TensorFlow does."""
    path, place, size = located(split)[number]
    with pathlib.Path(path).open("rb") as file:
        found = os.pread(file.fileno(), size, place)
    for data, checksum in ((found[:8], found[8:12]), (found[12:-4], found[-4:])):
        crc = google_crc32c.value(data)
        if int.from_bytes(checksum, "little") != ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF:
            raise ValueError(f"corrupted record at {place} of {path}")
    return found[12:-4]


def by_number(numbers: tf.data.Dataset, split: str) -> tf.data.Dataset:
    """Return the serialised examples of `split` of these numbers, which may come with an index."""

    def read(some: np.ndarray) -> np.ndarray:
        """Return records by number."""
        return np.array([record_of(int(number), split) for number in some], dtype=object)

    def read_some(some: tf.Tensor, *index: tf.Tensor) -> tf.Tensor | tuple[tf.Tensor, ...]:
        found = tf.ensure_shape(tf.numpy_function(read, [some], tf.string), (None,))
        return (found, *index) if index else found

    return numbers.batch(AT_ONCE).map(read_some, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).unbatch()


def of_numbers(numbers: tf.data.Dataset, examples: tf.data.Dataset, count: int) -> tf.data.Dataset:
    """Return the examples of these numbers; there are `count`, which are in memory."""
    everything = examples.batch(count).get_single_element()
    return numbers.map(lambda number: tf.nest.map_structure(lambda column: column[number], everything))


def labels_in(part: types.SimpleNamespace) -> tf.data.Dataset:
    """Return the classes of the examples of a shard."""
    features = {TARGET: tf.io.FixedLenFeature((), tf.int64)}
    records = tf.data.TFRecordDataset(str(part.filename)).skip(part.skip).take(part.take)
    return records.map(lambda record: tf.io.parse_single_example(record, features)[TARGET])


@functools.cache
def labels_of(split: str) -> np.ndarray:
    """Return the class of each example of a split."""
    found = [label for part in parts_of(split) for label in labels_in(part).as_numpy_iterator()]
    return np.array(found, np.int64)


def num_classes() -> int:
    """Return the number of classes; labels are integers from 0 to below it."""
    return len(classes())


@functools.cache
def class_weights() -> list[float]:
    """Return the weight of each class."""
    return balanced(np.bincount(labels_of(TRAIN_SPLIT), minlength=num_classes()).tolist())
