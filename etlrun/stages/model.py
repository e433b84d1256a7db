"""The model that is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from etlrun.stages.base import BATCHES, SPEED, TRAINING, Expected, Flag, Nodes, OptionalPath, Stage
from etlrun.stages.flow import Flow, UnfitError

SMALLEST_INPUT = 32
"""Pixels a side that Keras's MobileNetV2 takes at least."""

Duration = Annotated[
    float, Field(ge=0, le=86_400_000, allow_inf_nan=False), Expected("a number from 0 to 86,400,000, which is a day")
]
Width = Annotated[float, Field(gt=0, le=10, allow_inf_nan=False), Expected("a number above 0, and 10 at most")]


def require_one_size(incoming: Flow) -> None:
    """Raise `UnfitError` unless these are pixels that can stand in one batch."""
    incoming.require_decoded()
    if incoming.height is None or incoming.width is None:
        raise UnfitError(expected="pictures of one size", remedy="add `resize` to the steps")


@dataclass(frozen=True, kw_only=True)
class MobileNetV2(Stage):
    """Keras's MobileNetV2 without its top, global average pooling, and a dense softmax over the classes.

    Source: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018.

    Attributes:
        alpha: Width of the layers, relative to the paper's.
        weights: `imagenet`, the path of a weights file, or null for a random start.
        trainable: Whether the base learns too; if not, only the dense layer does.
        batch_norm_momentum: Of the base's moving averages; null keeps Keras's 0.999, which needs
            thousands of steps before validation can be trusted.
    """

    path: ClassVar[str] = "model.mobilenet_v2"
    block: ClassVar[str] = "model"
    learns: ClassVar[bool] = True

    alpha: Annotated[Width, TRAINING]
    weights: Annotated[OptionalPath, TRAINING]
    trainable: Annotated[Flag, TRAINING]
    batch_norm_momentum: Annotated[
        Annotated[float, Field(ge=0, lt=1)] | None,
        Expected("a number from 0 to below 1, or null"),
        TRAINING,
    ]

    @property
    def features(self) -> int:
        """Of the pooled base for each picture: 1280, and more for an alpha above 1, a multiple of 8."""
        return max(1280, int(1280 * self.alpha + 4) // 8 * 8)

    def flow(self, incoming: Flow) -> Flow:
        require_one_size(incoming)
        if min(incoming.height or 0, incoming.width or 0) < SMALLEST_INPUT:
            raise UnfitError(
                expected=f"pictures of at least {SMALLEST_INPUT}x{SMALLEST_INPUT} pixels",
                remedy="set transform.resize.size=[64,64] or larger",
            )
        if incoming.low < -1 or incoming.high > 1:
            raise UnfitError(
                expected="pixels in [-1, 1] or [0, 1]",
                remedy="end the steps with `scale_minus_one_one` (Keras) or `scale_zero_one` (Hub)",
            )
        return incoming


@dataclass(frozen=True, kw_only=True)
class Backbone(Stage):
    """The frozen base of a model, run over each picture; a plan puts it before a cache of features.

    Attributes:
        features: Numbers that it gives for a picture.
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
        return incoming.replace(content="features", dtype="float32", height=None, width=None, features=self.features)


@dataclass(frozen=True, kw_only=True)
class Emulated(Stage):
    """Stands in for an accelerator: computes nothing, and takes a batch for as long as the accelerator would.

    Attributes:
        step_ms: A training step, in milliseconds.
        eval_step_ms: A validation step, in milliseconds.
    """

    path: ClassVar[str] = "model.emulated"
    block: ClassVar[str] = "model"
    learns: ClassVar[bool] = False
    trainable: ClassVar[bool] = False
    weights: ClassVar[None] = None
    features: ClassVar[None] = None
    """It has no base that could give any."""

    step_ms: Annotated[Duration, SPEED]
    eval_step_ms: Annotated[Duration, SPEED]

    def flow(self, incoming: Flow) -> Flow:
        require_one_size(incoming)
        return incoming
