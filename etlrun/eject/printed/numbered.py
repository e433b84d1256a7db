"""Reading of records by number, and of classes, in programs."""

from __future__ import annotations

import functools
import os
import pathlib
import types

from etlrun.eject.printed.given import TARGET, TRAIN_SPLIT, classes
from etlrun.eject.printed.tfds import parts_of
from etlrun.sources.framing import FOOT, HEAD, unframed  # noqa: F401 - of `unframed`
from etlrun.stages.lazy import np, tf
from etlrun.stages.load import AT_ONCE, balanced, read_by_number  # noqa: F401 - of `read_by_number`


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
        places = places_in(part.filename)[part.skip : part.skip + part.take]
        found += [(part.filename, *place) for place in places]
    return found


def record_of(number: int, split: str) -> bytes:
    """Read a record by number, and check it as TensorFlow does."""
    path, place, size = located(split)[number]
    with pathlib.Path(path).open("rb") as file:
        return unframed(os.pread(file.fileno(), size, place))


def by_number(numbers: tf.data.Dataset, split: str) -> tf.data.Dataset:
    """Return the serialised examples of `split` of these numbers, which may come with an index."""

    def read(some: np.ndarray) -> np.ndarray:
        """Return records by number."""
        return np.array([record_of(int(number), split) for number in some], dtype=object)

    return read_by_number(numbers, read)


def of_numbers(numbers: tf.data.Dataset, examples: tf.data.Dataset, count: int) -> tf.data.Dataset:
    """Return the examples of these numbers; there are `count`, which are in memory."""
    everything = examples.batch(count).get_single_element()
    return numbers.map(lambda number: tf.nest.map_structure(lambda column: column[number], everything))


def labels_in(part: types.SimpleNamespace) -> tf.data.Dataset:
    """Return the classes of the examples of a shard."""
    features = {TARGET: tf.io.FixedLenFeature((), tf.int64)}
    records = tf.data.TFRecordDataset(part.filename).skip(part.skip).take(part.take)
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
