"""Models: networks to train, and an emulated accelerator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from etlrun.stages.base import BATCHES, SPEED, TRAINING, Expected, Flag, Nodes, OptionalPath, Stage
from etlrun.stages.flow import SERIALISED, Feature, Flow, UnfitError
from etlrun.stages.image import require_decoded

SMALLEST_INPUT = 32
"""Minimum side in pixels that Keras's MobileNetV2 accepts."""

Duration = Annotated[
    float, Field(ge=0, le=86_400_000, allow_inf_nan=False), Expected("a number from 0 to 86,400,000, which is a day")
]
Width = Annotated[float, Field(gt=0, le=10, allow_inf_nan=False), Expected("a positive number, at most 10")]


def require_one_size(incoming: Flow) -> None:
    """Raise `UnfitError` unless all examples have the same size and can share a batch."""
    for feature in map(incoming.feature, incoming.inputs):
        if feature.format in ("image", SERIALISED):
            require_decoded(feature)
        if None in feature.shape:
            raise UnfitError(expected="images of one size", remedy="add `resize` to the steps")


class Model(Stage):
    """A model to train, or to emulate.

    Attributes:
        learns: Whether it computes at all.
        network: Static function from Keras inputs (one tensor, or several by name) to the prediction of the target. It
            refers to nothing but `keras` of `etlrun.stages.lazy`. A run calls it, an ejected program contains its
            source. None if etlrun makes the model.
    """

    learns: ClassVar[bool] = True
    network: ClassVar[Callable[..., Any] | None] = None

    @property
    def features(self) -> int | None:
        """Features per example that its base outputs; None if it has no base."""
        return None

    def flow(self, incoming: Flow) -> Flow:
        require_one_size(incoming)
        return incoming


@dataclass(frozen=True, kw_only=True)
class MobileNetV2(Model):
    """Keras's MobileNetV2 without its top, global average pooling, and a dense softmax over the classes.

    Source: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018.

    Attributes:
        alpha: Width of the layers, relative to the paper.
        weights: `imagenet`, the path of a weights file, or null for a random start.
        trainable: Whether the base is trained, too; if not, only the dense layer is.
        batch_norm_momentum: Momentum of the base's moving averages; null keeps Keras's 0.999, which needs
            thousands of steps before validation is reliable.
    """

    path: ClassVar[str] = "model.mobilenet_v2"
    block: ClassVar[str] = "model"
    learns: ClassVar[bool] = True

    alpha: Annotated[Width, TRAINING]
    weights: Annotated[OptionalPath, TRAINING]
    trainable: Annotated[Flag, TRAINING]
    batch_norm_momentum: Annotated[
        Annotated[float, Field(ge=0, lt=1)] | None,
        Expected("a number in [0, 1), or null"),
        TRAINING,
    ]

    @property
    def features(self) -> int:
        """Features per image of the pooled base: 1280, or more for an alpha above 1; a multiple of 8."""
        return max(1280, int(1280 * self.alpha + 4) // 8 * 8)

    def flow(self, incoming: Flow) -> Flow:
        if len(incoming.inputs) > 1:
            raise UnfitError(expected="a single image", remedy="name no other input in dataset.features")
        image = incoming.feature(incoming.inputs[0])
        require_decoded(image)
        require_one_size(incoming)
        if min(side or 0 for side in image.shape[:2]) < SMALLEST_INPUT:
            raise UnfitError(
                expected=f"images of at least {SMALLEST_INPUT}x{SMALLEST_INPUT} pixels",
                remedy="set transform.resize.size=[64,64] or larger",
            )
        is_scaled = image.low is not None and image.high is not None and image.low >= -1 and image.high <= 1
        if not is_scaled and not (image.is_normalized and self.weights != "imagenet"):
            raise UnfitError(
                expected="pixels in [-1, 1] or [0, 1]",
                remedy="end the steps with `scale_minus_one_one` (Keras) or `scale_zero_one` (Hub)",
            )
        return incoming


@dataclass(frozen=True, kw_only=True)
class Backbone(Stage):
    """The frozen base of a model, applied to each example; a plan puts it before a cache of features.

    Attributes:
        features: Features per example.
    """

    path: ClassVar[str] = "model.backbone"
    pictures_at_once: ClassVar[int] = 64
    nodes: ClassVar[tuple[Nodes, ...]] = (
        Nodes(("Unbatch",), is_single=True),
        Nodes(examples=pictures_at_once),
        Nodes(BATCHES, examples=pictures_at_once),
    )

    features: int

    def flow(self, incoming: Flow) -> Flow:
        return incoming.with_feature(incoming.inputs[0], Feature(dtype="float32", shape=(self.features,)))


@dataclass(frozen=True, kw_only=True)
class Emulated(Model):
    """Emulates an accelerator: computes nothing, and holds each batch for as long as the accelerator would.

    Attributes:
        step_ms: Duration of a training step in milliseconds.
        eval_step_ms: Duration of a validation step in milliseconds.
    """

    path: ClassVar[str] = "model.emulated"
    block: ClassVar[str] = "model"
    learns: ClassVar[bool] = False
    trainable: ClassVar[bool] = False
    weights: ClassVar[None] = None

    step_ms: Annotated[Duration, SPEED]
    eval_step_ms: Annotated[Duration, SPEED]
