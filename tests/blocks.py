"""Images with several features to predict, a weight and numbers beside them, in TFDS's own files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from tests.pictures import jpeg

NUM_EXAMPLES = 48
KINDS = ["cube", "slab", "beam"]


def block(number: int) -> dict[str, Any]:
    """The features of an example."""
    tags = np.array([number % 2, number % 3 == 0, 1, number % 5 == 0], np.uint8)
    others = {"width": np.float32(number / 10), "weight": np.float32(number % 4 / 2), "is_old": number % 2 == 0}
    return {"image": jpeg(number), "kind": number % 3, "price": np.float32(number / 7), "tags": tags, **others}


def write_blocks(data_dir: Path) -> Path:
    """Have TFDS write 48 blocks below `data_dir`; return the folder of the files."""
    features = {
        "image": tfds.features.Image(shape=(None, None, 3), encoding_format="jpeg"),
        "kind": tfds.features.ClassLabel(names=KINDS),
        "price": tfds.features.Scalar(np.float32),
        "tags": tfds.features.Tensor(shape=(4,), dtype=np.uint8),
        "width": tfds.features.Scalar(np.float32),
        "weight": tfds.features.Scalar(np.float32),
        "is_old": tfds.features.Scalar(np.bool_),
    }
    examples = [{**of, "image": tf.io.decode_jpeg(of["image"]).numpy()} for of in map(block, range(NUM_EXAMPLES))]
    signature = {name: tf.TensorSpec(np.shape(of), np.asarray(of).dtype) for name, of in examples[0].items()}
    signature["kind"] = tf.TensorSpec((), tf.int64)
    written = tfds.dataset_builders.store_as_tfds_dataset(
        name="blocks",
        version="1.0.0",
        data_dir=data_dir,
        features=tfds.features.FeaturesDict(features),
        split_datasets={"train": tf.data.Dataset.from_generator(lambda: examples, output_signature=signature)},
    )
    return Path(written.data_dir)


SEVERAL = "dataset.target={price: number, kind: {class 3: {weight: 0.5}}, tags: labels 4, is_old: binary}"
OF_NUMBERS = (
    "dataset.features={width: float32}", "transform.steps=[]", "transform.eval_steps=[]", "model=tabular",
    "model.units=[8]",
)  # fmt: skip


_OF_RUN = ("dataset.weight=weight", "load.batch_size=8", "load.shuffle_buffer=16", "trainer.epochs=2", SEVERAL)


def words_of(data_dir: Path, *words: str) -> list[str]:
    """The overrides of a run on the blocks as TFDS has them; later ones replace those of the same key."""
    own = ("dataset.name=blocks", f"dataset.data_dir={data_dir}", "dataset.download=false")
    return _replaced("dataset=tfds", (*own, *_OF_RUN), words)


def of_files(data_dir: Path, *words: str) -> list[str]:
    """The overrides of a run on the same records, read as files of any program."""
    own = (f"dataset.files='{data_dir}/blocks/1.0.0/*.tfrecord*'", "dataset.num_classes=null")
    return _replaced("dataset=tfrecord", (*own, *_OF_RUN), words)


def _replaced(group: str, base: Sequence[str], words: Sequence[str]) -> list[str]:
    given, groups = {word.split("=")[0] for word in words}, [word for word in words if "." not in word.split("=")[0]]
    kept = [word for word in base if word.split("=")[0] not in given]
    return [group, *groups, *kept, *(word for word in words if word not in groups)]
