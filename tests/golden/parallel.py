"""MobileNetV2 on cats_vs_dogs: a run of etlrun 0.1.0 as a program of its own.

It was written by

    python -m etlrun eject experiment=parallel

from the plan a22a807c344b023d, for tensorflow 2.21.0, keras 3.15.1, tensorflow-datasets 4.9.10.
It trains on the examples of the run in the same order, and comes to its losses: on a CPU, to the bit.
It does not measure, profile, keep checkpoints, resume, or explain broken data: etlrun does.
"""

import functools
import math
import os

import keras
import tensorflow as tf
import tensorflow_datasets as tfds

SEED = 0
EPOCHS = 5
CORES = os.cpu_count() or 1
BATCH_SIZE = 32
TRAIN_SPLIT = "train"

AS_WRITTEN = tf.data.Options()  # tf.data would make serial stages parallel and add others
AS_WRITTEN.experimental_optimization.apply_default_optimizations = False


@functools.cache
def builder() -> tfds.core.DatasetBuilder:
    """Of the data set, which is downloaded and prepared where it is not there yet."""
    found = tfds.builder("cats_vs_dogs:4.*.*")
    found.download_and_prepare(download_config=tfds.download.DownloadConfig(try_download_gcs=False))
    return found


def num_classes() -> int:
    """Labels are integers from 0 to below it."""
    return int(builder().info.features["label"].num_classes)


def records(path: tf.Tensor, skip: tf.Tensor, take: tf.Tensor) -> tf.data.Dataset:
    """`take` records of a shard, after the first `skip`; a `take` of -1 means all."""
    return tf.data.TFRecordDataset(path).skip(skip).take(take)


def read(split: str, seed: int | tf.Tensor | None = None) -> tf.data.Dataset:
    """Serialised examples of `split`, one from each of 4 shards in turn; a `seed` shuffles the shards."""
    parts = builder().info.splits[split].file_instructions
    shards = tf.data.Dataset.from_tensor_slices(
        (
            [str(part.filename) for part in parts],
            tf.constant([part.skip for part in parts], tf.int64),
            tf.constant([part.take for part in parts], tf.int64),
        )
    )
    if seed is not None:
        shards = shards.shuffle(len(parts), seed=seed, reshuffle_each_iteration=False)
    return shards.interleave(
        records,
        cycle_length=4,
        block_length=1,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )


def decode(image: tf.Tensor) -> tf.Tensor:
    """String scalar -> uint8 (height, width, 3): grey is repeated, alpha dropped, of 16 bits the upper 8 stay."""
    return tf.io.decode_image(image, channels=3, expand_animations=False)


def scale_zero_one(image: tf.Tensor) -> tf.Tensor:
    """[0, 255] -> float32 in [0, 1]."""
    return tf.cast(image, tf.float32) / 255.0


def resize(image: tf.Tensor, *, size: tuple[int, int], method: str, antialias: bool, dtype: str) -> tf.Tensor:
    """(height, width, 3) -> (*size, 3) of `dtype`, same range; uint8 is rounded."""
    image = tf.image.resize(image, size, method=method, antialias=antialias)
    image = tf.round(image) if dtype == "uint8" else image
    return tf.ensure_shape(tf.saturate_cast(image, dtype), (*size, 3))


def transform(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """From serialised example to float32 [224, 224, 3] in [0, 1], label."""
    features = tf.io.parse_single_example(
        record,
        {
            "image": tf.io.FixedLenFeature((), tf.string),
            "label": tf.io.FixedLenFeature((), tf.int64),
        },
    )
    image = features["image"]
    label = features["label"]
    image = decode(image)
    image = scale_zero_one(image)
    image = resize(image, size=(224, 224), method="bilinear", antialias=False, dtype="float32")
    label = tf.gather(tf.range(num_classes(), dtype=tf.int64), label)  # an error for what is no class
    return image, label


def train_dataset() -> tf.data.Dataset:
    """Batches of all epochs, one pass after the other: 32 x float32 [224, 224, 3] in [0, 1], label."""
    examples = read(TRAIN_SPLIT, seed=1 + SEED * 1_000_003)
    examples = examples.map(transform, num_parallel_calls=CORES, deterministic=True)
    examples = examples.cache()

    def one_pass(number: tf.Tensor) -> tf.data.Dataset:
        """What is random in it follows from SEED and `number`, which counts from 1."""
        seed = number + SEED * 1_000_003
        dataset = examples.shuffle(1024, seed=seed, reshuffle_each_iteration=False)
        return dataset.batch(BATCH_SIZE)

    dataset = tf.data.Dataset.counter(1).take(EPOCHS).flat_map(one_pass)
    dataset = dataset.prefetch(tf.data.AUTOTUNE)
    return dataset.with_options(AS_WRITTEN)


def model() -> keras.Model:
    """From pictures to the probabilities of their classes."""
    inputs = pixels = keras.Input((224, 224, 3), dtype="float32", name="image")
    base = keras.applications.MobileNetV2(
        input_shape=(224, 224, 3),
        alpha=1.0,
        include_top=False,
        weights="imagenet",
        pooling="avg",
    )
    base.trainable = False
    dense = keras.layers.Dense(num_classes(), activation="softmax", dtype="float32", name="probabilities")
    return keras.Model(inputs, dense(base(pixels)))


def train() -> keras.callbacks.History:
    """Train, and leave the model as model.keras in the working directory."""
    builder()  # before the seeds are set: TFDS draws random numbers while it prepares a data set
    keras.utils.set_random_seed(SEED)
    tf.random.set_seed(SEED + 1)  # of shuffling; with 0, tf.data takes no seed that is a tensor
    classifier = model()
    classifier.compile(
        optimizer=keras.optimizers.Adam(learning_rate=0.001),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=False,
    )
    history = classifier.fit(
        train_dataset(),
        epochs=EPOCHS,
        steps_per_epoch=math.ceil(builder().info.splits[TRAIN_SPLIT].num_examples / BATCH_SIZE),
        shuffle=False,
        verbose=2,
    )
    classifier.save("model.keras")
    return history


if __name__ == "__main__":
    train()
