"""The embedded data set, written by TFDS's own writer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import tensorflow as tf
import tensorflow_datasets as tfds

from etlrun.sources.sample.draw import CLASSES, picture

NUM_EXAMPLES = 1200
JPEG_QUALITY = 85
_THREADS = 2


def jpeg(number: int) -> bytes:
    """Picture `number` as a JPEG file."""
    encoded: bytes = tf.io.encode_jpeg(picture(number), quality=JPEG_QUALITY).numpy()
    return encoded


class EtlrunSample(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
    """1,200 pictures in two classes that differ in shape and not in colour."""

    name = "etlrun_sample"
    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Discs and crosses."}
    pkg_dir_path = None

    def _info(self) -> Any:
        features = {
            "image": tfds.features.Image(shape=(None, None, 3), encoding_format="jpeg"),
            "label": tfds.features.ClassLabel(names=list(CLASSES)),
        }
        return tfds.core.DatasetInfo(
            builder=self,
            description="Pictures of discs and of crosses on textured ground, drawn by etlrun.",
            features=tfds.features.FeaturesDict(features),
            supervised_keys=("image", "label"),
            license="MIT",
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        with ThreadPoolExecutor(_THREADS) as threads:
            for number, encoded in enumerate(threads.map(jpeg, range(NUM_EXAMPLES))):
                yield number, {"image": encoded, "label": number % len(CLASSES)}
