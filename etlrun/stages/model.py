"""Models: networks to train, and an emulated accelerator."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from etlrun.stages.base import BATCHES, TRAINING, Expected, Nodes, Rate, Speed, Stage, Training, selectable, single
from etlrun.stages.flow import SERIALISED, Faults, Feature, Flow, UnfitError
from etlrun.stages.image import require_decoded
from etlrun.stages.lazy import keras
from etlrun.stages.paths import OptionalPath
from etlrun.system.values import frozen


@frozen
class Preprocessing:
    """The images that a network was trained on.

    Attributes:
        mode: Keras's name of the preprocessing; `none` if the network begins with it.
        low: Smallest value; `high` is the largest.
        is_normalized: Whether the channels are divided by their deviations.
        expected: Description of the images in errors.
        remedy: The steps that make them.
    """

    mode: str
    low: float
    high: float
    is_normalized: bool = False
    expected: str
    remedy: str

    def fits(self, image: Feature) -> bool:
        """Return whether `image` has that range, and is normalized or not."""
        ends = ((image.low, self.low), (image.high, self.high))
        is_in_range = all(found is not None and math.isclose(found, end, rel_tol=1e-6) for found, end in ends)
        return is_in_range and image.is_normalized == self.is_normalized


@frozen
class Application:
    """An image model of `keras.applications` without its top.

    Attributes:
        features: Features per image after global average pooling.
        preprocessing: The images that it takes.
        layers: Layers, with the input and the pooling.
        last_block: Last layers that make up the last block of its architecture, with all behind it.
        smallest: Minimum side in pixels.
        has_batch_norms: Whether it has batch normalization.
        has_dropout: Whether it drops some of its residuals in training (stochastic depth).
    """

    features: int
    layers: int
    last_block: int
    preprocessing: Preprocessing
    smallest: int
    has_batch_norms: bool
    has_dropout: bool


_MODES = {
    "included": Preprocessing(
        mode="none",
        low=0.0,
        high=255.0,
        expected="pixels in [0, 255]",
        remedy="leave the scaling out of the steps, since the network begins with it: end them with `resize`",
    ),
    "tf": Preprocessing(
        mode="tf", low=-1.0, high=1.0, expected="pixels in [-1, 1]", remedy="end the steps with `scale_minus_one_one`"
    ),
    "torch": Preprocessing(
        mode="torch",
        low=(0.0 - 0.485) / 0.229,
        high=(1.0 - 0.406) / 0.225,
        is_normalized=True,
        expected="pixels that are normalized by the means and deviations of ImageNet",
        remedy="end the steps with `normalize`, and set "
        "++transform.normalize={mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}",
    ),
    "caffe": Preprocessing(
        mode="caffe",
        low=0.0 - 123.68,
        high=255.0 - 103.939,
        expected="blue, green and red in [0, 255], minus the means of ImageNet",
        remedy="end the steps with `zero_center_bgr`",
    ),
}
"""Source of all: `keras.applications.imagenet_utils.preprocess_input` in these modes."""
_TABLE = """
ConvNeXtTiny        768   134    9  included  32
ConvNeXtSmall       768   260    9  included  32
ConvNeXtBase       1024   260    9  included  32
ConvNeXtLarge      1536   260    9  included  32
ConvNeXtXLarge     2048   260    9  included  32
EfficientNetV2B0   1280   271   19  included  32
EfficientNetV2B1   1280   335   19  included  32
EfficientNetV2B2   1408   350   19  included  32
EfficientNetV2B3   1536   410   19  included  32
EfficientNetV2S    1280   514   19  included  32
EfficientNetV2M    1280   741   19  included  32
EfficientNetV2L    1280  1029   19  included  32
MobileNetV3Large    960   188   19  included  32
MobileNetV3Small    576   158   19  included  32
MobileNet          1024    87    7  tf        32
MobileNetV2        1280   155   12  tf        32
NASNetLarge        4032  1040   45  tf        32
NASNetMobile       1056   770   45  tf        32
ResNet50V2         2048   191   14  tf        32
ResNet101V2        2048   378   14  tf        32
ResNet152V2        2048   565   14  tf        32
Xception           2048   133    7  tf        71
InceptionResNetV2  1536   781   19  tf        75
InceptionV3        2048   312   32  tf        75
DenseNet121        1024   428   10  torch     32
DenseNet169        1664   596   10  torch     32
DenseNet201        1920   708   10  torch     32
ResNet50           2048   176   11  caffe     32
ResNet101          2048   346   11  caffe     32
ResNet152          2048   516   11  caffe     32
VGG16               512    20    5  caffe     32
VGG19               512    23    6  caffe     32
"""
"""Each model with its features, its layers, those of its last block, its preprocessing, and the minimum side."""
APPLICATIONS: Mapping[str, Application] = {
    name: Application(
        features=int(features),
        layers=int(layers),
        last_block=int(last_block),
        preprocessing=_MODES[mode],
        smallest=int(smallest),
        has_batch_norms=not name.startswith(("ConvNeXt", "VGG")),
        has_dropout=name.startswith("EfficientNet"),
    )
    for name, features, layers, last_block, mode, smallest in map(str.split, _TABLE.strip().splitlines())
}
"""Image models of `keras.applications`, by their names there; EfficientNetV2 stands for EfficientNet."""
ApplicationName = Annotated[
    str,
    Field(json_schema_extra={"enum": [*APPLICATIONS]}, pattern=f"^({'|'.join(APPLICATIONS)})$"),
    Expected("the name of an image model of keras.applications"),
]


def unfreeze(base: keras.Model, last: int) -> None:
    """Train the `last` layers of a base alone, except for batch normalizations, which stay in inference mode."""
    base.trainable = True
    for layer in base.layers:
        layer.trainable = False
    for layer in base.layers[-last:]:
        layer.trainable = not isinstance(layer, keras.layers.BatchNormalization)


def base_and_head(model: keras.Model) -> tuple[keras.Model, keras.Model]:
    """Return the base of `model` over its images, and the model behind it: from float32 (batch, features) of each.

    Both share the layers of `model`.
    """
    base = next(layer for layer in model.layers if isinstance(layer, keras.Model))
    within = [base]
    if model.layers[-2] is base:  # with all that stands before it, such as a scaling
        within, base = model.layers[:-1], keras.Model(model.input, model.layers[-1].input)

    def given(images: Any) -> Any:
        is_image = len(images.shape) == 4  # noqa: PLR2004
        shape, dtype = (base.output_shape[1:], "float32") if is_image else (images.shape[1:], images.dtype)
        return keras.Input(shape, dtype=dtype, name=images.name)

    def called(layer: keras.Layer, *inputs: Any, **others: Any) -> Any:
        return inputs[0] if any(layer is of for of in within) else layer(*inputs, **others)

    inputs = keras.tree.map_structure(given, model.input)
    return base, keras.models.clone_model(model, inputs, clone_function=lambda layer: layer, call_function=called)


def without_dropout(base: keras.Model) -> keras.Model:
    """Return a base with the same weights that drops nothing: Keras lets even frozen layers drop in training."""

    def undropped(layer: keras.Layer) -> keras.Layer:
        config = layer.get_config()
        return type(layer).from_config({**config, "rate": 0.0} if isinstance(layer, keras.layers.Dropout) else config)

    cloned = keras.models.clone_model(base, clone_function=undropped)
    cloned.set_weights(base.get_weights())
    return cloned


def set_momentum(base: keras.Model, momentum: float) -> None:
    """Set the momentum of the moving averages of all batch normalizations."""
    for layer in base.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = momentum


Unfrozen = Literal["last_block", "all"] | Annotated[int, Field(ge=1)]
"""Layers of a base that are trained: its last block, all of them, or the last ones, by number."""

Duration = Annotated[
    float, Field(ge=0, le=86_400_000, allow_inf_nan=False), Expected("a number from 0 to 86,400,000, which is a day")
]


def require_one_size(incoming: Flow) -> None:
    """Raise `UnfitError` unless all examples have the same size and can share a batch."""
    for feature in map(incoming.feature, incoming.inputs):
        if feature.format in ("image", SERIALISED):
            require_decoded(feature)
        if feature.is_sequence:
            if not incoming.is_padded:
                remedy = "set load=padded or load=bucketed, or end the steps of text with multi_hot"
                raise UnfitError("sequences of one length", remedy)
        elif None in feature.shape:
            raise UnfitError("images of one size", "add `resize` to the steps")


class Model(Stage):
    """A model to train, or to emulate.

    Attributes:
        learns: Whether it computes at all.
        features: Features per example that its base outputs; None if it has no base.
        layers: Layers of the base, as Keras counts them: with its input and its pooling; 0 if it has no base.
    """

    learns: ClassVar[bool] = True
    features: ClassVar[int | None] = None
    layers: ClassVar[int] = 0

    @property
    def title(self) -> str:
        """Its name in texts."""
        return type(self).__name__

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
        title: Name of its function in `keras.applications`.
        arguments: Arguments of that function that no other application has.
    """

    block = "model"
    arguments: ClassVar[Mapping[str, Any]] = {}
    weights: str | None
    trainable: bool
    batch_norm_momentum: float | None

    @property
    def known(self) -> Application:
        """What is known of it in `keras.applications`."""
        return APPLICATIONS[self.title]

    @property
    def features(self) -> int:  # type: ignore[override] # of each application
        return self.known.features

    @property
    def of_same_weights(self) -> tuple[str, str]:
        """Description of the models whose weights it can load, and the remedy for those of another."""
        return f"{self.title} without its top", "set model.name to the model of the file"

    @property
    def is_undropped(self) -> bool:
        """Whether dropout is taken out of the base, so that the features of an image stay the same."""
        return self.known.has_dropout and not self.trainable

    @property
    def layers(self) -> int:  # type: ignore[override]
        return self.known.layers

    def last_layers(self, unfreeze: Unfrozen) -> int:
        if isinstance(unfreeze, int):
            return unfreeze
        return self.layers if unfreeze == "all" else self.known.last_block

    @property
    def restored(self) -> Self:
        return dataclasses.replace(self, weights=None)  # type: ignore[type-var] # each image model is a dataclass

    def require_preprocessed(self, image: Feature) -> None:
        """Raise `UnfitError` unless its pixels fit; a base without ImageNet weights also takes others that are scaled.

        A base that begins with its own preprocessing takes nothing else.
        """
        wanted = self.known.preprocessing
        is_free = self.weights != "imagenet" and wanted.mode != "none"
        if not wanted.fits(image) and not (is_free and (_is_scaled(image) or image.is_normalized)):
            raise UnfitError(f"{wanted.expected} for {self.title}", wanted.remedy)

    def flow(self, incoming: Flow) -> Flow:
        if len(incoming.inputs) != 1:
            raise UnfitError("a single image", "name no other input in dataset.features")
        image = incoming.feature(incoming.inputs[0])
        require_decoded(image)
        require_one_size(incoming)
        smallest, usual = self.known.smallest, max(self.known.smallest, 64)
        if min(side or 0 for side in image.shape[:2]) < smallest:
            remedy = f"set transform.resize.size=[{usual},{usual}] or larger"
            raise UnfitError(f"images of at least {smallest}x{smallest} pixels", remedy)
        self.require_preprocessed(image)
        return incoming


@selectable
class MobileNetV2(ImageModel):
    """Keras's MobileNetV2 without its top, global average pooling, and a dense softmax over the classes.

    Source: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018.

    Attributes:
        alpha: Width of the layers, relative to the paper.
        weights: `imagenet`, a file of weights, or null for a random start.
        trainable: Whether the base is trained, too.
        batch_norm_momentum: Momentum of the base's moving averages; null for Keras's, which may need thousands of
            steps.
    """

    path = "model.mobilenet_v2"
    of_same_weights = ("MobileNetV2 without its top and with the same alpha", "set model.alpha to that of the file")

    alpha: Annotated[float, Field(gt=0, le=10), TRAINING]
    weights: Training[OptionalPath]
    trainable: Training[bool]
    batch_norm_momentum: Training[Rate | None]

    @property
    def features(self) -> int:  # type: ignore[override]
        """Features per image of the pooled base: 1280, or more for an alpha above 1; a multiple of 8."""
        return max(1280, int(1280 * self.alpha + 4) // 8 * 8)

    @property
    def arguments(self) -> Mapping[str, Any]:  # type: ignore[override]
        return {"alpha": self.alpha}

    def require_preprocessed(self, image: Feature) -> None:
        if not _is_scaled(image) and not (image.is_normalized and self.weights != "imagenet"):
            remedy = "end the steps with `scale_minus_one_one` (Keras) or `scale_zero_one` (Hub)"
            raise UnfitError("pixels in [-1, 1] or [0, 1]", remedy)

    def notes(self, incoming: Flow) -> Iterator[str]:
        image, wanted = incoming.feature(incoming.inputs[0]), self.known.preprocessing
        if self.weights == "imagenet" and not wanted.fits(image):
            where = f"[{image.low:g}, {image.high:g}]"
            trained = f"{self.key('weights')} = imagenet was trained with {wanted.expected}"
            yield f"{trained}; those of this run are in {where}: {wanted.remedy}."


def _is_scaled(image: Feature) -> bool:
    """Return whether the pixels are in [-1, 1], or in a part of it."""
    return image.low is not None and image.high is not None and image.low >= -1 and image.high <= 1


@selectable
class KerasApplication(ImageModel):
    """Any image model of `keras.applications` without its top, global average pooling, and a dense layer.

    Attributes:
        name: Name of the model in `keras.applications`.
        weights: `imagenet`, a file of weights, or null for a random start.
        trainable: Whether the base is trained, too.
        batch_norm_momentum: Momentum of the base's moving averages; null for Keras's, which may need thousands of
            steps.
    """

    path = "model.keras_application"
    names = tuple(APPLICATIONS)

    name: Training[ApplicationName]
    weights: Training[OptionalPath]
    trainable: Training[bool]
    batch_norm_momentum: Training[Rate | None]

    @property
    def title(self) -> str:
        return self.name

    def rules(self) -> Faults:
        if not self.known.has_batch_norms and self.batch_norm_momentum is not None:
            expected = f"null with {self.name}, which has no batch norms"
            yield "batch_norm_momentum", self.batch_norm_momentum, expected, "set model.batch_norm_momentum=null"


@selectable
class Emulated(Model):
    """Emulates an accelerator: computes nothing, and holds each batch for as long as the accelerator would.

    Attributes:
        step_ms: Milliseconds of a training step.
        eval_step_ms: Milliseconds of a validation step.
    """

    path = "model.emulated"
    block = "model"
    learns = False
    trainable: ClassVar[bool] = False
    weights: ClassVar[None] = None

    step_ms: Speed[Duration]
    eval_step_ms: Speed[Duration]


@frozen
class Backbone(Stage):
    """The frozen base of a model, applied to each image; a plan puts it before a cache of features.

    Attributes:
        features: Features per image.
    """

    path = "model.backbone"
    pictures_at_once: ClassVar[int] = 64
    nodes = (single("Unbatch"), Nodes(examples=pictures_at_once), Nodes(BATCHES, examples=pictures_at_once))

    features: int

    def flow(self, incoming: Flow) -> Flow:
        found = Feature(dtype="float32", shape=(self.features,))
        return incoming.replace(features={**incoming.features, **dict.fromkeys(incoming.images, found)})
