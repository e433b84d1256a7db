"""Image models of `keras.applications`: smallest input, preprocessing and features, known without Keras.

`benchmarks/applications.py` compares the table with Keras.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from etlrun.stages.flow import Feature
from etlrun.stages.lazy import keras


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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
        scales_for_imagenet: Whether it has one more layer with Keras's ImageNet weights than with others.
    """

    features: int
    layers: int
    last_block: int
    preprocessing: Preprocessing
    smallest: int = 32
    has_batch_norms: bool = True
    has_dropout: bool = False
    scales_for_imagenet: bool = False


INCLUDED = Preprocessing(
    mode="none",
    low=0.0,
    high=255.0,
    expected="pixels in [0, 255]",
    remedy="leave the scaling out of the steps, since the network begins with it: end them with `resize`",
)
TF = Preprocessing(
    mode="tf", low=-1.0, high=1.0, expected="pixels in [-1, 1]", remedy="end the steps with `scale_minus_one_one`"
)
TORCH = Preprocessing(
    mode="torch",
    low=(0.0 - 0.485) / 0.229,
    high=(1.0 - 0.406) / 0.225,
    is_normalized=True,
    expected="pixels that are normalized by the means and deviations of ImageNet",
    remedy="end the steps with `normalize`, and set "
    "++transform.normalize={mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}",
)
CAFFE = Preprocessing(
    mode="caffe",
    low=0.0 - 123.68,
    high=255.0 - 103.939,
    expected="blue, green and red in [0, 255], minus the means of ImageNet",
    remedy="end the steps with `zero_center_bgr`",
)
"""Source of all: `keras.applications.imagenet_utils.preprocess_input` in these modes."""


def _all(preprocessing: Preprocessing, smallest: int = 32, **sizes: tuple[int, int, int]) -> dict[str, Application]:
    """Return applications by name, with their numbers of features, of layers, and of layers of the last block."""
    return {
        name: Application(
            features=features,
            layers=layers,
            last_block=last_block,
            preprocessing=preprocessing,
            smallest=smallest,
            has_batch_norms=not name.startswith(("ConvNeXt", "VGG")),
            has_dropout=name.startswith("EfficientNet"),
            scales_for_imagenet=name.startswith("EfficientNetB"),
        )
        for name, (features, layers, last_block) in sizes.items()
    }


APPLICATIONS: Mapping[str, Application] = {
    **_all(
        INCLUDED,
        ConvNeXtTiny=(768, 134, 9),
        ConvNeXtSmall=(768, 260, 9),
        ConvNeXtBase=(1024, 260, 9),
        ConvNeXtLarge=(1536, 260, 9),
        ConvNeXtXLarge=(2048, 260, 9),
        EfficientNetB0=(1280, 238, 17),
        EfficientNetB1=(1280, 340, 19),
        EfficientNetB2=(1408, 340, 19),
        EfficientNetB3=(1536, 385, 19),
        EfficientNetB4=(1792, 475, 19),
        EfficientNetB5=(2048, 577, 19),
        EfficientNetB6=(2304, 667, 19),
        EfficientNetB7=(2560, 814, 19),
        EfficientNetV2B0=(1280, 271, 19),
        EfficientNetV2B1=(1280, 335, 19),
        EfficientNetV2B2=(1408, 350, 19),
        EfficientNetV2B3=(1536, 410, 19),
        EfficientNetV2S=(1280, 514, 19),
        EfficientNetV2M=(1280, 741, 19),
        EfficientNetV2L=(1280, 1029, 19),
        MobileNetV3Large=(960, 188, 19),
        MobileNetV3Small=(576, 158, 19),
    ),
    **_all(
        TF,
        MobileNet=(1024, 87, 7),
        MobileNetV2=(1280, 155, 12),
        NASNetLarge=(4032, 1040, 45),
        NASNetMobile=(1056, 770, 45),
        ResNet50V2=(2048, 191, 14),
        ResNet101V2=(2048, 378, 14),
        ResNet152V2=(2048, 565, 14),
    ),
    **_all(TF, smallest=71, Xception=(2048, 133, 7)),
    **_all(TF, smallest=75, InceptionResNetV2=(1536, 781, 19), InceptionV3=(2048, 312, 32)),
    **_all(TORCH, DenseNet121=(1024, 428, 10), DenseNet169=(1664, 596, 10), DenseNet201=(1920, 708, 10)),
    **_all(
        CAFFE,
        ResNet50=(2048, 176, 11),
        ResNet101=(2048, 346, 11),
        ResNet152=(2048, 516, 11),
        VGG16=(512, 20, 5),
        VGG19=(512, 23, 6),
    ),
}
"""All image models of `keras.applications`, by their names there."""


def scaled_for_imagenet(base: keras.Model) -> keras.Model:
    """Return `base`, whose pixels are divided by ImageNet's deviations if its weights are those of Keras for ImageNet.

    Their variances are deviations. Keras makes up for it with one more layer, but not if the weights are in a file.
    """
    deviations, scales = [0.229, 0.224, 0.225], [of for of in base.layers if isinstance(of, keras.layers.Rescaling)]
    for layer in base.layers:
        if isinstance(layer, keras.layers.Normalization):
            mean, variance, count = layer.get_weights()
            if len(scales) == 1 and [round(float(of), 3) for of in variance] == deviations:
                layer.set_weights([mean, variance * deviations, count])
            layer.finalize_state()  # uses the weights, which `set_weights` only stores
    return base


def unfreeze(base: keras.Model, last: int) -> None:
    """Train the `last` layers of a base alone, except for batch normalizations, which stay in inference mode."""
    base.trainable = True
    for layer in base.layers:
        layer.trainable = False
    for layer in base.layers[-last:]:
        layer.trainable = not isinstance(layer, keras.layers.BatchNormalization)


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
