"""Models: networks to train, and an emulated accelerator."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field

from etlrun.stages.applications import APPLICATIONS, Application
from etlrun.stages.base import SPEED, TRAINING, Expected, Flag, Rate, Stage
from etlrun.stages.flow import SERIALISED, Faults, Feature, Flow, UnfitError
from etlrun.stages.image import require_decoded
from etlrun.stages.paths import OptionalPath
from etlrun.stages.phases import Unfrozen

_USUAL_SIDE = 64
"""Side in pixels that a remedy suggests for images that are too small."""

Duration = Annotated[
    float, Field(ge=0, le=86_400_000, allow_inf_nan=False), Expected("a number from 0 to 86,400,000, which is a day")
]
Name = Annotated[
    str,
    Field(min_length=1, json_schema_extra={"enum": [*APPLICATIONS]}),
    Expected("the name of an image model of keras.applications"),
]


def require_one_size(incoming: Flow) -> None:
    """Raise `UnfitError` unless all examples have the same size and can share a batch."""
    for feature in map(incoming.feature, incoming.inputs):
        if feature.format in ("image", SERIALISED):
            require_decoded(feature)
        if feature.is_sequence:
            if not incoming.is_padded:
                raise UnfitError(
                    "sequences of one length",
                    "set load=padded or load=bucketed, or end the steps of text with multi_hot or tf_idf",
                )
        elif None in feature.shape:
            raise UnfitError("images of one size", "add `resize` to the steps")


class Model(Stage):
    """A model to train, or to emulate.

    Attributes:
        learns: Whether it computes at all.
    """

    learns: ClassVar[bool] = True

    @property
    def features(self) -> int | None:
        """Features per example that its base outputs; None if it has no base."""
        return None

    @property
    def title(self) -> str:
        """Its name in texts."""
        return type(self).__name__

    @property
    def layers(self) -> int:
        """Layers of the base, as Keras counts them: with its input and its pooling; 0 if it has no base."""
        return 0

    def last_layers(self, unfreeze: Unfrozen) -> int:
        """Return the number of last layers of the base that a phase trains."""
        return 0

    @property
    def restored(self) -> Self:
        """The same network without loading weights, for a state that has all of them."""
        return self

    def flow(self, incoming: Flow) -> Flow:
        require_one_size(incoming)
        return incoming

    def notes(self, incoming: Flow) -> Iterator[str]:
        """Yield notes on inputs that it takes, though they may not be meant; one sentence each."""
        yield from ()


class ImageModel(Model):
    """A model of `keras.applications` without its top, global average pooling, and a dense layer for the target.

    Attributes:
        application: Name of its function in `keras.applications`.
        weights: `imagenet`, the path of a weights file, or null for a random start.
        trainable: Whether the base is trained, too; if not, only the dense layer is.
        batch_norm_momentum: Momentum of the base's moving averages; null keeps Keras's.
    """

    application: str
    weights: str | None
    trainable: bool
    batch_norm_momentum: float | None

    @property
    def smallest(self) -> int:
        """Minimum side of the images in pixels."""
        return APPLICATIONS[self.application].smallest

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Arguments of the function in `keras.applications` that no other application has."""
        return {}

    @property
    def of_same_weights(self) -> tuple[str, str]:
        """Description of the models whose weights it can load, and the remedy for those of another."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        return self.application

    @property
    def is_scaled_by_weights(self) -> bool:
        """Whether the weights decide how its first layers scale the pixels."""
        return APPLICATIONS[self.application].scales_for_imagenet and self.weights is not None

    @property
    def is_undropped(self) -> bool:
        """Whether dropout is taken out of the base, so that the features of an image stay the same."""
        return APPLICATIONS[self.application].has_dropout and not self.trainable

    @property
    def layers(self) -> int:
        return APPLICATIONS[self.application].layers

    def last_layers(self, unfreeze: Unfrozen) -> int:
        if isinstance(unfreeze, int):
            return unfreeze
        return self.layers if unfreeze == "all" else APPLICATIONS[self.application].last_block

    @property
    def restored(self) -> Self:
        return dataclasses.replace(self, weights=None)  # type: ignore[type-var] # each image model is a dataclass

    def require_preprocessed(self, image: Feature) -> None:
        """Raise `UnfitError` unless the pixels are in the range that the base takes."""
        raise NotImplementedError

    def flow(self, incoming: Flow) -> Flow:
        if len(incoming.inputs) != 1:
            raise UnfitError("a single image", "name no other input in dataset.features")
        image = incoming.feature(incoming.inputs[0])
        require_decoded(image)
        require_one_size(incoming)
        side = max(self.smallest, _USUAL_SIDE)
        if min(side or 0 for side in image.shape[:2]) < self.smallest:
            raise UnfitError(
                f"images of at least {self.smallest}x{self.smallest} pixels",
                f"set transform.resize.size=[{side},{side}] or larger",
            )
        self.require_preprocessed(image)
        return incoming


@dataclass(frozen=True, kw_only=True)
class MobileNetV2(ImageModel):
    """Keras's MobileNetV2 without its top, global average pooling, and a dense softmax over the classes.

    Source: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018.

    Attributes:
        alpha: Width of the layers, relative to the paper.
        weights: `imagenet`, the path of a weights file, or null for a random start.
        trainable: Whether the base is trained, too; if not, only the dense layer is.
        batch_norm_momentum: Momentum of the base's moving averages; null keeps Keras's 0.999, which needs
            thousands of steps before validation is reliable.
    """

    path = "model.mobilenet_v2"
    block = "model"
    application: ClassVar[str] = "MobileNetV2"  # type: ignore[misc]
    of_same_weights = (
        "MobileNetV2 without its top and with the same alpha",
        "set model.alpha to that of the file",
    )

    alpha: Annotated[float, Field(gt=0, le=10), TRAINING]
    weights: Annotated[OptionalPath, TRAINING]
    trainable: Annotated[Flag, TRAINING]
    batch_norm_momentum: Annotated[Rate | None, TRAINING]

    @property
    def features(self) -> int:
        """Features per image of the pooled base: 1280, or more for an alpha above 1; a multiple of 8."""
        return max(1280, int(1280 * self.alpha + 4) // 8 * 8)

    @property
    def arguments(self) -> Mapping[str, Any]:
        return {"alpha": self.alpha}

    def require_preprocessed(self, image: Feature) -> None:
        if not _is_scaled(image) and not (image.is_normalized and self.weights != "imagenet"):
            raise UnfitError(
                "pixels in [-1, 1] or [0, 1]",
                "end the steps with `scale_minus_one_one` (Keras) or `scale_zero_one` (Hub)",
            )

    def notes(self, incoming: Flow) -> Iterator[str]:
        image, wanted = incoming.feature(incoming.inputs[0]), APPLICATIONS[self.application].preprocessing
        if self.weights == "imagenet" and not wanted.fits(image):
            where = f"[{image.low:g}, {image.high:g}]"
            trained = f"{self.key('weights')} = imagenet was trained with {wanted.expected}"
            yield f"{trained}; those of this run are in {where}: {wanted.remedy}."


def _is_scaled(image: Feature) -> bool:
    """Return whether the pixels are in [-1, 1], or in a part of it."""
    return image.low is not None and image.high is not None and image.low >= -1 and image.high <= 1


@dataclass(frozen=True, kw_only=True)
class KerasApplication(ImageModel):
    """Any image model of `keras.applications` without its top, global average pooling, and a dense layer.

    Attributes:
        name: Name of the model in `keras.applications`.
        weights: `imagenet`, the path of a weights file, or null for a random start.
        trainable: Whether the base is trained, too; if not, only the dense layer is, and the base drops nothing.
        batch_norm_momentum: Momentum of the base's moving averages; null keeps Keras's.
    """

    path = "model.keras_application"
    block = "model"
    names = tuple(APPLICATIONS)

    name: Annotated[Name, TRAINING]
    weights: Annotated[OptionalPath, TRAINING]
    trainable: Annotated[Flag, TRAINING]
    batch_norm_momentum: Annotated[Rate | None, TRAINING]

    @property
    def application(self) -> str:  # type: ignore[override] # read only
        return self.name

    @property
    def _known(self) -> Application:
        return APPLICATIONS[self.name]

    @property
    def features(self) -> int:
        """Features per image of the pooled base."""
        return self._known.features

    @property
    def of_same_weights(self) -> tuple[str, str]:
        return f"{self.name} without its top", "set model.name to the model of the file"

    @property
    def restored(self) -> Self:
        return self if self.is_scaled_by_weights else super().restored

    def rules(self) -> Faults:
        if not self._known.has_batch_norms and self.batch_norm_momentum is not None:
            expected = f"null with {self.name}, which has no batch norms"
            yield "batch_norm_momentum", str(self.batch_norm_momentum), expected, "set model.batch_norm_momentum=null"

    def require_preprocessed(self, image: Feature) -> None:
        """Raise `UnfitError` unless its pixels fit; a base without ImageNet weights also takes others that are scaled.

        A base that begins with its own preprocessing takes nothing else.
        """
        wanted = self._known.preprocessing
        is_free = self.weights != "imagenet" and wanted.mode != "none"
        if not wanted.fits(image) and not (is_free and (_is_scaled(image) or image.is_normalized)):
            raise UnfitError(f"{wanted.expected} for {self.name}", wanted.remedy)


@dataclass(frozen=True, kw_only=True)
class Emulated(Model):
    """Emulates an accelerator: computes nothing, and holds each batch for as long as the accelerator would.

    Attributes:
        step_ms: Duration of a training step in milliseconds.
        eval_step_ms: Duration of a validation step in milliseconds.
    """

    path = "model.emulated"
    block = "model"
    learns = False
    trainable: ClassVar[bool] = False
    weights: ClassVar[None] = None

    step_ms: Annotated[Duration, SPEED]
    eval_step_ms: Annotated[Duration, SPEED]
