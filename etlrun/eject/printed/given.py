"""What the printed functions refer to, and each program defines for itself: types and names alone."""

from __future__ import annotations

import types

from etlrun.stages.lazy import np, tf, tfds

DIR = ""
"""Folder of the images."""
FILES: dict[str, str] = {}
"""Pattern of the files of each split."""
TARGET = ""
"""Key of the class in a serialised example."""
TRAIN_SPLIT = ""


def builder() -> tfds.core.DatasetBuilder:
    """Return TFDS's builder."""
    raise NotImplementedError


def num_classes() -> int:
    """Return the number of classes."""
    raise NotImplementedError


def decode(image: tf.Tensor) -> tf.Tensor:
    """Decode an image: the step of that name."""
    raise NotImplementedError


def parts_of(split: str) -> list[types.SimpleNamespace]:
    """Return the shards of a split: `filename`, `skip` and `take`."""
    raise NotImplementedError


def paths_of(split: str) -> list[str]:
    """Return the paths of the files of a split."""
    raise NotImplementedError


def num_examples(split: str) -> int:
    """Return the number of examples of a split."""
    raise NotImplementedError


def labels_of(split: str) -> np.typing.NDArray[np.int64]:
    """Return the class of each example of a split."""
    raise NotImplementedError
