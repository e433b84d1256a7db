"""Steps for images: (height, width, 3), uint8 in [0, 255] or float32."""

from __future__ import annotations

from typing import Any, Literal

from etlrun.stages.base import Data, Flag, Number, Size, Speed
from etlrun.stages.flow import IMAGE_RANK, Faults, Feature, UnfitError, remedy_of_kind
from etlrun.stages.lazy import tf
from etlrun.stages.step import Step
from etlrun.system.values import frozen


def require_decoded(incoming: Feature) -> None:
    """Raise `UnfitError` unless the feature is a decoded image."""
    if incoming.dtype == "string" or len(incoming.shape) != IMAGE_RANK:
        remedy = remedy_of_kind(incoming) or "put `decode` before it in the steps"
        raise UnfitError("a decoded image", remedy)


@frozen
class Decode(Step):
    """Decodes JPEG, PNG, BMP, WebP or the first frame of a GIF to uint8 pixels in [0, 255] with three channels.

    Grey is repeated, transparency is dropped, and 16 bits are reduced to the upper 8.

    Attributes:
        library: `turbo` decodes and resizes whole batches with libjpeg-turbo and OpenCV, which takes less time, where
            `resize` is behind it. It decodes to the pixels of `tensorflow`, and resizes them to the nearest integer or
            the one beside it. Elsewhere TensorFlow decodes with either.
        fast: Whether `turbo` decodes JPEGs more coarsely: at a half, a quarter or an eighth of their size, if both
            sides then are at least those of `resize`, and with subsampled colours that are repeated, not interpolated.
    """

    path = "transform.decode"
    is_costly = True
    points = ("decoded", "decode")
    chooses_stages = ("library",)

    library: Data[Literal["tensorflow", "turbo"]] = "turbo"
    fast: Data[Flag] = False

    @property
    def uses_turbo(self) -> bool:
        return self.library == "turbo"

    @property
    def changes_data(self) -> bool:  # type: ignore[override]
        """Not with TensorFlow, because TFDS decodes to the same pixels."""
        return self.uses_turbo

    def rules(self) -> Faults:
        if self.fast and not self.uses_turbo:
            yield "fast", "true", f"false with library={self.library}", "set transform.decode.library=turbo"

    def gives(self, incoming: Feature) -> Feature:
        if incoming.format != "image":
            remedy = remedy_of_kind(incoming) or "leave `decode` out of the steps, or set extract.decode=false"
            raise UnfitError("an encoded image", remedy)
        return Feature(dtype="uint8", shape=(None, None, 3), low=0.0, high=255.0)

    @staticmethod
    def op(image: tf.Tensor) -> tf.Tensor:
        """String scalar -> uint8 (height, width, 3): grey is repeated, alpha dropped, of 16 bits the upper 8 stay."""
        return tf.io.decode_image(image, channels=3, expand_animations=False)


@frozen
class Resize(Step):
    """Resizes to one size without keeping the aspect ratio, as `tf.image.resize` does; same range.

    Attributes:
        size: Height and width in pixels.
        method: Interpolation method.
        antialias: Whether to filter before downscaling.
        dtype: `uint8` rounds to integers, which take a quarter of the space of `float32`.
    """

    path = "transform.resize"
    is_costly = True

    size: Data[Size]
    method: Data[Literal["bilinear", "nearest", "area"]]
    antialias: Data[Flag]
    dtype: Data[Literal["uint8", "float32"]]

    @property
    def beyond_turbo(self) -> list[tuple[str, Any, Any]]:
        """Parameters with which OpenCV does not resize like this: the name, the value, and that of OpenCV."""
        with_opencv = {"method": "bilinear", "antialias": False, "dtype": "uint8"}
        return [(name, getattr(self, name), of) for name, of in with_opencv.items() if getattr(self, name) != of]

    def gives(self, incoming: Feature) -> Feature:
        require_decoded(incoming)
        if self.dtype == "uint8" and (incoming.low, incoming.high) != (0.0, 255.0):
            raise UnfitError(
                "pixels in [0, 255], since it rounds to uint8",
                "put the scaling after `resize`, or set transform.resize.dtype=float32",
            )
        return incoming.replace(dtype=self.dtype, shape=(*self.size, 3))

    @staticmethod
    def op(image: tf.Tensor, *, size: tuple[int, int], method: str, antialias: bool, dtype: str) -> tf.Tensor:
        """(height, width, 3) -> (*size, 3) of `dtype`, same range; uint8 is rounded."""
        image = tf.image.resize(image, size, method=method, antialias=antialias)
        image = tf.round(image) if dtype == "uint8" else image
        return tf.ensure_shape(tf.cast(image, dtype), (*size, 3))


@frozen
class EncodeJpeg(Step):
    """Encodes uint8 images of one size as JPEGs with 4:2:0 chroma subsampling, for a cache.

    Attributes:
        quality: Quality from 1 to 100.
    """

    path = "cache.codec"

    quality: Data[int]

    def gives(self, incoming: Feature) -> Feature:
        return Feature(dtype="string", format="image")

    @staticmethod
    def op(image: tf.Tensor, *, quality: int) -> tf.Tensor:
        """uint8 (height, width, 3) -> string scalar."""
        return tf.io.encode_jpeg(image, quality=quality, chroma_downsampling=True)


@frozen
class DecodeJpeg(Step):
    """Decodes the JPEGs of a cache to the size that all of them have.

    Attributes:
        size: Height and width in pixels.
        library: `turbo` gives the same pixels in less time.
    """

    path = "cache.decode_jpeg"
    is_costly = True

    size: Data[Size]
    library: Speed[Literal["tensorflow", "turbo"]]

    @property
    def uses_turbo(self) -> bool:
        return self.library == "turbo"

    def gives(self, incoming: Feature) -> Feature:
        return Feature(dtype="uint8", shape=(*self.size, 3), low=0.0, high=255.0)

    @staticmethod
    def op(image: tf.Tensor, *, size: tuple[int, int]) -> tf.Tensor:
        """String scalar -> uint8 (*size, 3)."""
        return tf.ensure_shape(tf.io.decode_jpeg(image, channels=3), (*size, 3))


@frozen
class CenterCrop(Step):
    """Crops an image to its largest centred square."""

    path = "transform.center_crop"

    def gives(self, incoming: Feature) -> Feature:
        require_decoded(incoming)
        height, width, channels = incoming.shape
        side = None if height is None or width is None else min(height, width)
        return incoming.replace(shape=(side, side, channels))

    @staticmethod
    def op(image: tf.Tensor) -> tf.Tensor:
        """(height, width, 3) -> (side, side, 3) with the smaller of both."""
        height, width = tf.unstack(tf.shape(image)[:2])
        side = tf.minimum(height, width)
        return tf.image.crop_to_bounding_box(image, (height - side) // 2, (width - side) // 2, side, side)


@frozen
class RandomFlip(Step):
    """Flips half of the images horizontally; a different half in each pass.

    Whether an image is flipped depends only on the seed, the pass and the image itself, so that no
    parameter of speed or order can change it.
    """

    path = "transform.random_flip"
    random = True

    def gives(self, incoming: Feature) -> Feature:
        require_decoded(incoming)
        return incoming

    @staticmethod
    def op(image: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        """Same shape, dtype and range; flipped or not by `seed` and a checksum of the pixels, or of floats' bits."""
        is_float = image.dtype == tf.float32
        numbers = tf.bitcast(image, tf.int32) if is_float else tf.reduce_sum(tf.cast(image, tf.int32), axis=0)
        checksum = tf.reduce_sum(tf.cast(numbers, tf.int64))
        return tf.image.stateless_random_flip_left_right(image, tf.stack([seed, checksum]))


@frozen
class Rescale(Step):
    """Computes `image * scale + offset` as float32.

    Attributes:
        scale: Factor by which each pixel is multiplied.
        offset: Number that is added to each pixel after that.
    """

    path = "transform.rescale"

    scale: Data[Number]
    offset: Data[Number]

    @property
    def factors(self) -> tuple[float, float]:
        return self.scale, self.offset

    @property
    def written(self) -> str:
        return f"{self.scale!r}, {self.offset!r}"

    def gives(self, incoming: Feature) -> Feature:
        require_decoded(incoming)
        if incoming.low is None or incoming.high is None:
            return incoming.replace(dtype="float32")
        low, high = sorted(end * self.scale + self.offset for end in (incoming.low, incoming.high))
        return incoming.replace(dtype="float32", low=low, high=high)

    @staticmethod
    def op(image: tf.Tensor, *, scale: float, offset: float) -> tf.Tensor:
        """Any dtype -> float32 `image * scale + offset`."""
        return tf.cast(image, tf.float32) * scale + offset


def _scaled(incoming: Feature, low: float) -> Feature:
    require_decoded(incoming)
    if (incoming.low, incoming.high) != (0.0, 255.0):
        raise UnfitError("pixels in [0, 255]", "keep one of the scaling steps and remove the other")
    return incoming.replace(dtype="float32", low=low, high=1.0)


@frozen
class ScaleZeroOne(Step):
    """Scales [0, 255] to [0, 1], as TensorFlow Hub's MobileNetV2 requires."""

    path = "transform.scale_zero_one"
    factors = (1 / 255.0, 0.0)
    written = "1 / 255"

    def gives(self, incoming: Feature) -> Feature:
        return _scaled(incoming, 0.0)

    @staticmethod
    def op(image: tf.Tensor) -> tf.Tensor:
        """[0, 255] -> float32 in [0, 1]."""
        return tf.cast(image, tf.float32) / 255.0


@frozen
class ScaleMinusOneOne(Step):
    """Scales [0, 255] to [-1, 1], as Keras's MobileNetV2 requires."""

    path = "transform.scale_minus_one_one"
    factors = (1 / 127.5, -1.0)
    written = "1 / 127.5, -1.0"

    def gives(self, incoming: Feature) -> Feature:
        return _scaled(incoming, -1.0)

    @staticmethod
    def op(image: tf.Tensor) -> tf.Tensor:
        """[0, 255] -> float32 in [-1, 1], as `keras.applications.mobilenet_v2.preprocess_input` does."""
        return tf.cast(image, tf.float32) / 127.5 - 1.0
