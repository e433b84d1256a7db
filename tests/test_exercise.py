"""`experiment=naive` and `experiment=parallel` make the training examples that the exercise makes, bit for bit.

The exercise stands below as it is written without etlrun: cats against dogs with TFDS, first naively, then with
extraction interleaved, transformation parallel, the cache in memory and loading prefetched.
"""

import itertools
import multiprocessing
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.planning.plan import Plan
from etlrun.sources.sample import builder, draw
from etlrun.stages import STAGES
from etlrun.stages.dataset import SAMPLE_NAME
from etlrun.stages.image import Decode
from tests.pipelines import training_pipeline

AUTOTUNE = tf.data.AUTOTUNE

Batch = list[tuple[str, int]]
"""Of each image a digest, and its label."""


def naive(name: str, data_dir: Path) -> tf.data.Dataset:
    """The exercise's first pipeline."""
    train = tfds.load(name, split="train", as_supervised=True, data_dir=data_dir, download=False)

    def preprocess(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.image.resize(image, (224, 224)) / 255.0, label

    return train.map(preprocess).batch(32)


def parallel(name: str, data_dir: Path) -> tf.data.Dataset:
    """The exercise's second pipeline."""

    def read_tfrecord(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        features = {"image": tf.io.FixedLenFeature((), tf.string, ""), "label": tf.io.FixedLenFeature((), tf.int64, -1)}
        example = tf.io.parse_single_example(record, features)
        image = tf.io.decode_jpeg(example["image"], channels=3)
        image = tf.cast(image, tf.float32) / 255.0
        return tf.image.resize(image, (224, 224)), example["label"]

    files = tf.data.Dataset.list_files(str(data_dir / name / "*" / f"{name}-train.tfrecord*"))
    train = files.interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=AUTOTUNE)
    train = train.map(read_tfrecord, num_parallel_calls=multiprocessing.cpu_count())
    return train.cache().shuffle(1024).batch(32).prefetch(AUTOTUNE)


def batches_of(dataset: tf.data.Dataset) -> list[Batch]:
    """Of one pass."""
    return [
        [(sha256(image.tobytes()).hexdigest(), int(label)) for image, label in zip(images, labels, strict=True)]
        for images, labels in dataset.as_numpy_iterator()
    ]


def plan_of(experiment: str, name: str, data_dir: Path) -> Plan:
    other = [] if name == "cats_vs_dogs" else ["dataset=sample"]
    words = [f"experiment={experiment}", *other, f"dataset.data_dir={data_dir}"]
    return resolve(Request(overrides=words), STAGES).plan


def batches_here(experiment: str, name: str, data_dir: Path) -> list[Batch]:
    """Of the first pass of an experiment."""
    with training_pipeline(plan_of(experiment, name, data_dir)) as pipeline:
        return batches_of(pipeline.dataset)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data_dir of the sample dataset with 160 images: five batches, in eight shards."""
    data_dir = tmp_path_factory.mktemp("few")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw, "NUM_EXAMPLES", 160)
        sample = builder.EtlrunSample(data_dir=data_dir)
        sample.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=8))
    return data_dir


@pytest.fixture(params=[SAMPLE_NAME, "cats_vs_dogs"])
def dataset(request: pytest.FixtureRequest) -> tuple[str, Path]:
    """Name and data_dir."""
    return request.param, request.getfixturevalue("few" if request.param == SAMPLE_NAME else "photos")


@pytest.mark.slow
def test_the_naive_pipeline_is_that_of_the_exercise(dataset: tuple[str, Path]) -> None:
    here = batches_here("naive", *dataset)
    assert here == batches_of(naive(*dataset))


@pytest.mark.slow
def test_the_parallel_pipeline_is_that_of_the_exercise_but_for_its_order(dataset: tuple[str, Path]) -> None:
    here, there = batches_here("parallel", *dataset), batches_of(parallel(*dataset))
    assert [len(batch) for batch in here] == [len(batch) for batch in there]
    assert sorted(itertools.chain(*here)) == sorted(itertools.chain(*there))


@pytest.mark.parametrize("number", range(4))
def test_a_jpeg_of_the_sample_has_the_pixels_of_decode_jpeg(number: int) -> None:
    """`decode_image` takes PNG, BMP and GIF as well, and hands a JPEG to the same decoder with the same method."""
    found: Any = Decode.op(tf.constant(draw.jpeg(number))).numpy()
    np.testing.assert_array_equal(found, tf.io.decode_jpeg(draw.jpeg(number), channels=3).numpy())
