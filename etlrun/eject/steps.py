"""What each step is in a program: lines that make `image` and `label` of what they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from etlrun.eject.text import call, quoted
from etlrun.stages.dataset import Dataset
from etlrun.stages.flow import Flow
from etlrun.stages.transform import (
    CenterCrop,
    Decode,
    Parse,
    RandomFlip,
    Rescale,
    Resize,
    ScaleMinusOneOne,
    ScaleZeroOne,
)

Lines = tuple[str, ...]


def parse(_stage: Parse, _incoming: Flow, dataset: Dataset) -> Lines:
    """Of `record`."""
    image, label = quoted(dataset.image_key), quoted(dataset.label_key)
    return (
        "features = tf.io.parse_single_example(",
        "    record,",
        "    {",
        f"        {image}: tf.io.FixedLenFeature((), tf.string),",
        f"        {label}: tf.io.FixedLenFeature((), tf.int64),",
        "    },",
        ")",
        *unpacked(dataset),
    )


def unpacked(dataset: Dataset) -> Lines:
    """Out of a dict of features."""
    return f"image = features[{quoted(dataset.image_key)}]", f"label = features[{quoted(dataset.label_key)}]"


def decode(_stage: Decode, _incoming: Flow, _dataset: Dataset) -> Lines:
    """To three channels."""
    return ("image = tf.io.decode_image(image, channels=3, expand_animations=False)",)


def center_crop(_stage: CenterCrop, _incoming: Flow, _dataset: Dataset) -> Lines:
    """To a square."""
    return (
        "height, width = tf.unstack(tf.shape(image)[:2])",
        "side = tf.minimum(height, width)",
        "image = tf.image.crop_to_bounding_box(image, (height - side) // 2, (width - side) // 2, side, side)",
    )


def resize(stage: Resize, _incoming: Flow, _dataset: Dataset) -> Lines:
    """`nearest` alone gives the dtype that it is given; decoders leave open how many channels there are."""
    height, width = stage.size
    lines = [call("image = tf.image.resize", "image", f"({height}, {width})", f'method="{stage.method}"',
                  f"antialias={stage.antialias}")]  # fmt: skip
    if stage.dtype == "uint8":
        lines.append("image = tf.saturate_cast(tf.round(image), tf.uint8)")
    elif stage.method == "nearest":
        lines.append("image = tf.cast(image, tf.float32)")
    return (*lines, f"image = tf.ensure_shape(image, ({height}, {width}, 3))")


def random_flip(_stage: RandomFlip, incoming: Flow, _dataset: Dataset) -> Lines:
    """By `seed`, that of the pass, and the picture."""
    numbers = "tf.bitcast(image, tf.int32)" if incoming.dtype == "float32" else "image"
    return (
        "# Whether it is flipped follows from the pass and from the picture itself, in whatever order pictures come.",
        f"checksum = tf.reduce_sum(tf.cast({numbers}, tf.int64))",
        "image = tf.image.stateless_random_flip_left_right(image, tf.stack([seed, checksum]))",
    )


def _float32(incoming: Flow) -> str:
    return "image" if incoming.dtype == "float32" else "tf.cast(image, tf.float32)"


def rescale(stage: Rescale, incoming: Flow, _dataset: Dataset) -> Lines:
    """As float32."""
    return (f"image = {_float32(incoming)} * {stage.scale!r} + {stage.offset!r}",)


def scale_zero_one(_stage: ScaleZeroOne, incoming: Flow, _dataset: Dataset) -> Lines:
    """As float32."""
    return (f"image = {_float32(incoming)} / 255.0",)


def scale_minus_one_one(_stage: ScaleMinusOneOne, incoming: Flow, _dataset: Dataset) -> Lines:
    """As float32."""
    return (f"image = {_float32(incoming)} / 127.5 - 1.0",)


STEP_TEXTS: dict[type, Callable[[Any, Flow, Dataset], Lines]] = {
    Parse: parse,
    Decode: decode,
    CenterCrop: center_crop,
    Resize: resize,
    RandomFlip: random_flip,
    Rescale: rescale,
    ScaleZeroOne: scale_zero_one,
    ScaleMinusOneOne: scale_minus_one_one,
}
"""The lines of each kind of step, of the step, of what comes in, and of the data set."""
