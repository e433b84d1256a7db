"""Small datasets in TFDS's own files, sound and broken."""

import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_datasets as tfds

NUM_EXAMPLES = 48
SHARDS = 4


def jpeg(number: int) -> bytes:
    """Return an image of 40x48 random pixels, brighter where the label is 1."""
    rng = np.random.default_rng(number)
    pixels = rng.integers(0, 128, (40, 48, 3)) + 127 * (number % 2)
    encoded: bytes = tf.io.encode_jpeg(pixels.astype(np.uint8)).numpy()
    return encoded


class TinyPictures(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
    name = "tiny_pictures"
    VERSION = tfds.core.Version("1.2.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {}
    pkg_dir_path = None
    count = NUM_EXAMPLES

    def _info(self) -> Any:
        features = {
            "image": tfds.features.Image(shape=(None, None, 3), encoding_format="jpeg"),
            "label": tfds.features.ClassLabel(names=["dark", "bright"]),
            "number": tfds.features.Scalar(np.int64),
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        random.random()  # noqa: S311 - builders and TFDS itself draw numbers while they prepare
        for number in range(self.count):
            yield number, {"image": jpeg(number), "label": number % 2, "number": number}


def write_tiny_pictures(data_dir: Path, count: int = NUM_EXAMPLES) -> Path:
    """Have TFDS write so many images in 4 shards below `data_dir`; return the folder of the files."""
    builder = TinyPictures(data_dir=data_dir)
    builder.count = count
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=SHARDS))
    return Path(builder.data_dir)


def damaged(sound: Path, data_dir: Path, damage: Callable[[Path], None]) -> Path:
    """A copy of the dataset below `sound`, its second shard handed to `damage`; returns that shard."""
    shutil.copytree(sound, data_dir)
    shard = sorted(data_dir.rglob("*.tfrecord-*"))[1]
    damage(shard)
    return shard


@contextmanager
def records_of(path: Path) -> Iterator[list[bytes]]:
    """The records of a file, which has those of the list afterwards."""
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    yield records
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


def truncate(shard: Path) -> None:
    """Cut the file in the middle of a record."""
    shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2])


def without_two(shard: Path) -> None:
    """Remove the last two records."""
    with records_of(shard) as records:
        del records[-2:]


def with_feature(key: str, feature: tf.train.Feature | None, *, places: Iterable[int] = (5,)) -> Callable[[Path], None]:
    """Damage that gives records another value of a feature, or removes it."""

    def damage(shard: Path) -> None:
        with records_of(shard) as records:
            for place in places:
                example = tf.train.Example.FromString(records[place])
                del example.features.feature[key]
                if feature is not None:
                    example.features.feature[key].CopyFrom(feature)
                records[place] = example.SerializeToString()

    return damage


def feature_of(*values: bytes | float) -> tf.train.Feature:
    """Of bytes, integers or other numbers, all of one kind."""
    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if isinstance(values[0], int):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def write_images(data_dir: Path, name: str, feature: Any, images: Sequence[npt.NDArray[Any]]) -> None:
    """Have TFDS write these images below `data_dir`, as what `feature` says."""
    labels = tfds.features.ClassLabel(num_classes=2)
    examples = [{"image": image, "label": number % 2} for number, image in enumerate(images)]
    signature = {"image": tf.TensorSpec(images[0].shape, images[0].dtype), "label": tf.TensorSpec((), tf.int64)}
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        version="1.0.0",
        data_dir=data_dir,
        features=tfds.features.FeaturesDict({"image": feature, "label": labels}),
        split_datasets={"train": tf.data.Dataset.from_generator(lambda: examples, output_signature=signature)},
    )
