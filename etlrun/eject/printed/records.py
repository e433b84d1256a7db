"""Records of TFDS and of TFRecord files, classes, and batches of sequences, in programs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from etlrun.eject.printed import NOWHERE
from etlrun.sources.base import in_files, parse_examples, slices
from etlrun.sources.framing import AROUND, EMPTY, FOOT, HEAD, framing, lengths, record_at  # noqa: F401 - of these
from etlrun.sources.shards import matched
from etlrun.stages.extract import readable
from etlrun.stages.lazy import np, tf, tfds
from etlrun.stages.load import AT_ONCE, balanced, cut_batches, read_by_number  # noqa: F401 - of `read_by_number`

BATCH_SIZES = BOUNDARIES = SKIPS = STORED = TARGET = TRAIN_SPLIT = classes = parts_of = records_of = NOWHERE
DATA_DIR = DOWNLOAD = FILES = NAME = NUM_CLASSES = NOWHERE


@functools.cache
def builder() -> tfds.core.DatasetBuilder:
    """Return the builder of the dataset, which is downloaded and prepared if it is missing, and DOWNLOAD is true."""
    found = tfds.builder(NAME, data_dir=DATA_DIR)
    if DOWNLOAD:
        found.download_and_prepare(download_config=tfds.download.DownloadConfig(try_download_gcs=False))
    return found


def classes_of_tfds() -> list[str]:
    """Return the names of the classes."""
    return list(builder().info.features[TARGET].names)


def parts_of_tfds(split: str) -> list[tuple[str, int, int]]:
    """Return the files of `split`, each with the examples to skip and to take."""
    parts = builder().info.splits[split].file_instructions
    return [(str(of.filename), of.skip, of.examples_in_shard - of.skip if of.take == -1 else of.take) for of in parts]


def classes_of_files() -> list[str]:
    """Return the names of the classes: their numbers."""
    return [str(number) for number in range(NUM_CLASSES)]


def paths() -> dict[str, list[str]]:
    """Return the paths of the files of each split."""
    found = {split: [path for pattern in of for path in matched(pattern)] for split, of in FILES.items()}
    return {split: [*dict.fromkeys(of)] for split, of in found.items()}


@functools.cache
def parts_of_files(split: str) -> list[tuple[str, int, int]]:
    """Return the files of `split`, each with the records to skip and to take."""
    files = {name: {path: len(framing(path) or b"") // AROUND for path in of} for name, of in paths().items()}
    parts = slices(split, {name: sum(counts.values()) for name, counts in files.items()})
    return [part for name, first, end in parts for part in in_files(files[name], first, end)]


def num_examples(split: str) -> int:
    """Return the number of examples of `split`."""
    return sum(take for _, _, take in parts_of(split))


def paths_of(split: str) -> list[str]:
    """Return the paths of the files of `split`."""
    return [path for path, _, _ in parts_of(split)]


@functools.cache
def located(split: str) -> list[tuple[str, int, int]]:
    """Return the file of each record of a split, its place there, and its size, with the checksums around its data."""
    found = []
    for path, skip, take in parts_of(split):
        sizes = lengths(framing(path) or b"")[: skip + take] + AROUND
        found += [(path, int(end - size), int(size)) for end, size in zip(np.cumsum(sizes), sizes, strict=True)][skip:]
    return found


def by_number(numbers: tf.data.Dataset, split: str) -> tf.data.Dataset:
    """Return the serialised examples of `split` of these numbers, which may come with an index."""
    return read_by_number(numbers, np.frompyfunc(lambda number: record_at(*located(split)[number]), 1, 1))


def parse(record: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the features of a serialised example, or of a batch of them, by name."""
    return parse_examples(record, STORED)


@functools.cache
def labels_of(split: str) -> np.ndarray:
    """Return the class of each example of a split; where records are skipped, of those that have one."""
    features, found = {TARGET: tf.io.FixedLenFeature((), tf.int64)}, []
    for part in parts_of(split):
        with tf.init_scope():  # also where the graph of a pass is traced
            labels = records(*part).map(lambda record: tf.io.parse_single_example(record, features)[TARGET])
            found += (labels.ignore_errors() if SKIPS else labels).as_numpy_iterator()
    return np.array([label for label in found if not SKIPS or 0 <= label < num_classes()], np.int64)


def num_classes() -> int:
    """Return the number of classes; labels are integers from 0 to below it."""
    return len(classes())


@functools.cache
def class_weights() -> list[float]:
    """Return the weight of each class."""
    return balanced(np.bincount(labels_of(TRAIN_SPLIT), minlength=num_classes()).tolist())


def records(path: tf.Tensor, skip: tf.Tensor, take: tf.Tensor, *_: tf.Tensor) -> tf.data.Dataset:
    """Read `take` records of a shard, after the first `skip`."""
    return tf.data.TFRecordDataset(path).skip(skip).take(take)


def with_number(read: Callable[..., tf.data.Dataset]) -> Callable[..., tf.data.Dataset]:
    """Return the function that also gives the number of each record in the split, which differs for equal examples."""

    def of_shard(path: tf.Tensor, skip: tf.Tensor, take: tf.Tensor, first: tf.Tensor, _: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.zip((read(path, skip, take), tf.data.Dataset.range(first, first + take)))

    return of_shard


@functools.cache
def lengths_of(split: str, transform: Callable[[tf.Tensor], dict[str, Any]]) -> np.ndarray:
    """Return the number of items of the longest sequence of each row of `split`, by the numbers of the rows."""
    rows = records_of(split)
    found = np.zeros(max(rows) + 1, np.int64)
    for some in np.array_split(rows, len(rows) // 1_024 + 1):
        with tf.init_scope():  # also where the graph of a pass is traced
            example = transform(tf.constant(some))
            sequences = [values for values in example.values() if isinstance(values, tf.RaggedTensor)]
            found[some] = np.max([values.row_lengths().numpy() for values in sequences], axis=0)
    return found


def num_batches(split: str, transform: Callable[[tf.Tensor], dict[str, Any]], *, drop_remainder: bool) -> int:
    """Return the number of batches of a pass over `split`."""
    lengths = lengths_of(split, transform)[records_of(split)]
    return len(cut_batches(lengths, BOUNDARIES, BATCH_SIZES, drop_remainder=drop_remainder)[1]) - 1


def without_broken(dataset: tf.data.Dataset, split: str) -> tf.data.Dataset:
    """Drop elements that raise; a file of `split` that can't be opened is an error at the end."""
    files = tf.data.Dataset.from_tensor_slices(paths_of(split))
    opened = files.flat_map(lambda path: tf.data.FixedLengthRecordDataset(path, 1).take(1))
    found = readable(dataset, num_examples(split)).map(lambda _, example: example)
    return found.concatenate(opened.flat_map(lambda _: dataset.take(0)))
