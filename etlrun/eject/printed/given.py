"""What the printed functions refer to, and each program defines for itself: types and names alone."""

from __future__ import annotations

from etlrun.stages.lazy import tf, tfds

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
