"""What the parts of a run that are no pipeline are in a program: whole functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from etlrun.eject.loops import drain, emulated, fit
from etlrun.eject.text import call, function, path, quoted
from etlrun.plan.plan import Plan, pictures_of
from etlrun.stages.dataset import SAMPLE_NAME, Dataset
from etlrun.stages.image import Rescale, ScaleMinusOneOne, ScaleZeroOne, Scaling
from etlrun.stages.measure import NoProfile, Trace
from etlrun.stages.model import Emulated, MobileNetV2
from etlrun.stages.trainer import Drain, Trainer

Functions = tuple[str, ...]

_FACTORS: dict[type[Scaling], Callable[[Any], str]] = {
    Rescale: lambda stage: f"{stage.scale!r}, {stage.offset!r}",
    ScaleZeroOne: lambda _stage: "1 / 255",
    ScaleMinusOneOne: lambda _stage: "1 / 127.5, -1.0",
}


def dataset(stage: Dataset, _plan: Plan) -> Functions:
    """The builder, and how many classes there are."""
    name = quoted(f"{stage.name}:{stage.version}" if stage.version else stage.name)
    where = [] if stage.data_dir is None else ["data_dir=DATA_DIR"]
    found = call("tfds.builder", name, *where)
    prepare = (
        f"found = {found}",
        "found.download_and_prepare(download_config=tfds.download.DownloadConfig(try_download_gcs=False))",
        "return found",
    )
    is_sample = stage.name == SAMPLE_NAME
    says = "Of the data set, which is downloaded and prepared where it is not there yet."
    if is_sample or not stage.download:
        says = f"Of the data set, whose files are there{', written by a run of etlrun' if is_sample else ''}."
    return (
        function(
            "builder() -> tfds.core.DatasetBuilder",
            says,
            *(prepare if stage.download and not is_sample else (f"return {found}",)),
            decorator="@functools.cache",
        ),
        function(
            "num_classes() -> int",
            "Labels are integers from 0 to below it.",
            f"return int(builder().info.features[{quoted(stage.label_key)}].num_classes)",
        ),
    )


def mobilenet_v2(stage: MobileNetV2, plan: Plan) -> Functions:
    """With the scaling that the pipeline leaves to it."""
    flow = pictures_of(plan.train)
    shape = f"({flow.height}, {flow.width}, 3)"
    scaling = [planned.stage for planned in plan.by_model if isinstance(planned.stage, Scaling)]
    momentum = (
        "for layer in base.layers:",
        "    if isinstance(layer, keras.layers.BatchNormalization):",
        f"        layer.momentum = {stage.batch_norm_momentum}",
    )
    rescaled = [
        f'pixels = keras.layers.Rescaling({_FACTORS[type(step)](step)}, dtype="float32")(pixels)' for step in scaling
    ]
    base = call(
        "base = keras.applications.MobileNetV2",
        f"input_shape={shape}",
        f"alpha={stage.alpha}",
        "include_top=False",
        f"weights={_weights(stage)}",
        'pooling="avg"',
    )
    body = (
        f'inputs = pixels = keras.Input({shape}, dtype="{flow.dtype}", name="image")',
        *rescaled,
        base,
        *(() if stage.trainable else ("base.trainable = False",)),
        *(() if stage.batch_norm_momentum is None else momentum),
        'dense = keras.layers.Dense(num_classes(), activation="softmax", dtype="float32", name="probabilities")',
        "return keras.Model(inputs, dense(base(pixels)))",
    )
    return (function("model() -> keras.Model", "From pictures to the probabilities of their classes.", *body),)


def _weights(stage: MobileNetV2) -> str:
    """A name of Keras's, or a file of this machine or another."""
    if stage.weights in (None, "imagenet"):
        return "None" if stage.weights is None else quoted(stage.weights)
    return path(stage.weights)


def left_out(_stage: NoProfile | Trace, _plan: Plan) -> Functions:
    """A profile is no part of the program."""
    return ()


PART_TEXTS: dict[type, Callable[[Any, Plan], Functions]] = {
    Dataset: dataset,
    MobileNetV2: mobilenet_v2,
    Emulated: emulated,
    Trainer: fit,
    Drain: drain,
    NoProfile: left_out,
    Trace: left_out,
}
"""The functions of each kind of part."""
