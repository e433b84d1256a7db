"""Steps for images: (height, width, 3), uint8 in [0, 255] or float32; and libjpeg-turbo and OpenCV in their place."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

from etlrun.stages.base import (
    BATCHES,
    Data,
    Nodes,
    Number,
    Order,
    Parallelism,
    Processes,
    Scope,
    Size,
    Speed,
    Stage,
    selectable,
    single,
)
from etlrun.stages.flow import IMAGE_RANK, Faults, Feature, UnfitError, remedy_of_kind
from etlrun.stages.lazy import cv2, np, simplejpeg, tf
from etlrun.stages.plugins import remember
from etlrun.stages.step import Map, Step
from etlrun.system.values import frozen


def require_decoded(incoming: Feature) -> Feature:
    """Return the feature; raise `UnfitError` unless it is a decoded image."""
    if incoming.dtype == "string" or len(incoming.shape) != IMAGE_RANK:
        remedy = remedy_of_kind(incoming) or "put `decode` before it in the steps"
        raise UnfitError("a decoded image", remedy)
    return incoming


@selectable
class Decode(Step):
    """Decodes JPEG, PNG, BMP, WebP or the first frame of a GIF to uint8 pixels in [0, 255] with three channels.

    Grey is repeated, transparency is dropped, and 16 bits are reduced to the upper 8.

    Attributes:
        library: `turbo` decodes and resizes whole batches with libjpeg-turbo and OpenCV, which is faster, where
            `resize` is behind it; elsewhere TensorFlow decodes. Its pixels are those of `tensorflow`, and within 1 of
            255 once they are resized.
        fast: Whether `turbo` decodes JPEGs more coarsely: at a half, a quarter or an eighth of their size if that
            covers `resize`, with subsampled colours that are repeated, not interpolated.
        processes: Processes that decode batches for `turbo`, to the same pixels; `cores` for one per core. 0 decodes in
            threads, which wait for Python's lock on many cores: see docs/uncached.md. Linux only.
    """

    path = "transform.decode"
    points = ("decoded", "decode")
    chooses_stages = ("library",)

    library: Data[Literal["tensorflow", "turbo"]] = "turbo"
    fast: Data[bool] = False
    processes: Speed[Processes] = 0

    @property
    def changes_data(self) -> bool:  # type: ignore[override]
        """Not with TensorFlow, because TFDS decodes to the same pixels."""
        return self.uses_turbo

    def rules(self) -> Faults:
        if self.fast and not self.uses_turbo:
            yield "fast", "true", f"false with library={self.library}", "set transform.decode.library=turbo"
        if self.processes and not self.uses_turbo:
            expected = f"0 with library={self.library}, which holds no lock of Python"
            yield "processes", str(self.processes), expected, "set transform.decode.library=turbo"
        if self.processes and sys.platform != "linux":
            yield "processes", str(self.processes), "0 on this system", "leave it out: threads decode"

    def gives(self, incoming: Feature) -> Feature:
        if incoming.format != "image":
            remedy = remedy_of_kind(incoming) or "leave `decode` out of the steps, or set extract.decode=false"
            raise UnfitError("an encoded image", remedy)
        return Feature(dtype="uint8", shape=(None, None, 3), low=0.0, high=255.0)

    @staticmethod
    def op(image: tf.Tensor) -> tf.Tensor:
        """String scalar -> uint8 (height, width, 3): grey is repeated, alpha dropped, of 16 bits the upper 8 stay."""
        return tf.io.decode_image(image, channels=3, expand_animations=False)


@selectable
class Resize(Step):
    """Resizes to one size without keeping the aspect ratio, as `tf.image.resize` does; same range.

    Attributes:
        size: Height and width in pixels.
        method: Interpolation method.
        antialias: Whether to filter before downscaling.
        dtype: `uint8` rounds to integers, which take a quarter of the space of `float32`.
    """

    path = "transform.resize"

    size: Data[Size]
    method: Data[Literal["bilinear", "nearest", "area"]]
    antialias: Data[bool]
    dtype: Data[Literal["uint8", "float32"]]

    def gives(self, incoming: Feature) -> Feature:
        require_decoded(incoming)
        if self.dtype == "uint8" and (incoming.low, incoming.high) != (0.0, 255.0):
            remedy = "put the scaling after `resize`, or set transform.resize.dtype=float32"
            raise UnfitError("pixels in [0, 255], since it rounds to uint8", remedy)
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

    size: Data[Size]
    library: Speed[Literal["tensorflow", "turbo"]]

    def gives(self, incoming: Feature) -> Feature:
        return Feature(dtype="uint8", shape=(*self.size, 3), low=0.0, high=255.0)

    @staticmethod
    def op(image: tf.Tensor, *, size: tuple[int, int]) -> tf.Tensor:
        """String scalar -> uint8 (*size, 3)."""
        return tf.ensure_shape(tf.io.decode_jpeg(image, channels=3), (*size, 3))


@selectable
class CenterCrop(Step):
    """Crops an image to its largest centred square."""

    path = "transform.center_crop"

    def gives(self, incoming: Feature) -> Feature:
        height, width, channels = require_decoded(incoming).shape
        side = None if height is None or width is None else min(height, width)
        return incoming.replace(shape=(side, side, channels))

    @staticmethod
    def op(image: tf.Tensor) -> tf.Tensor:
        """(height, width, 3) -> (side, side, 3) with the smaller of both."""
        height, width = tf.unstack(tf.shape(image)[:2])
        side = tf.minimum(height, width)
        return tf.image.crop_to_bounding_box(image, (height - side) // 2, (width - side) // 2, side, side)


@selectable
class RandomFlip(Step):
    """Flips half of the images horizontally; a different half in each pass.

    Whether an image is flipped depends only on the seed, the pass and the image itself, so that no
    parameter of speed or order can change it.
    """

    path = "transform.random_flip"
    random = True

    def gives(self, incoming: Feature) -> Feature:
        return require_decoded(incoming)

    @staticmethod
    def op(image: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        """Same shape, dtype and range; flipped or not by `seed` and a checksum of the pixels, or of floats' bits."""
        is_float = image.dtype == tf.float32
        numbers = tf.bitcast(image, tf.int32) if is_float else tf.reduce_sum(tf.cast(image, tf.int32), axis=0)
        checksum = tf.reduce_sum(tf.cast(numbers, tf.int64))
        return tf.image.stateless_random_flip_left_right(image, tf.stack([seed, checksum]))


@selectable
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
    def factors(self) -> tuple[float, float]:  # type: ignore[override]
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


class _Scaling(Step):
    """Base of the steps that scale [0, 255] to end with 1."""

    factors: ClassVar[tuple[float, float]]

    def gives(self, incoming: Feature) -> Feature:
        require_decoded(incoming)
        if (incoming.low, incoming.high) != (0.0, 255.0):
            raise UnfitError("pixels in [0, 255]", "keep one of the scaling steps and remove the other")
        return incoming.replace(dtype="float32", low=self.factors[1], high=1.0)


@selectable
class ScaleZeroOne(_Scaling):
    """Scales [0, 255] to [0, 1], as TensorFlow Hub's MobileNetV2 requires."""

    path = "transform.scale_zero_one"
    factors = (1 / 255.0, 0.0)
    written = "1 / 255"

    @staticmethod
    def op(image: tf.Tensor) -> tf.Tensor:
        """[0, 255] -> float32 in [0, 1]."""
        return tf.cast(image, tf.float32) / 255.0


@selectable
class ScaleMinusOneOne(_Scaling):
    """Scales [0, 255] to [-1, 1], as Keras's MobileNetV2 requires."""

    path = "transform.scale_minus_one_one"
    factors = (1 / 127.5, -1.0)
    written = "1 / 127.5, -1.0"

    @staticmethod
    def op(image: tf.Tensor) -> tf.Tensor:
        """[0, 255] -> float32 in [-1, 1], as `keras.applications.mobilenet_v2.preprocess_input` does."""
        return tf.cast(image, tf.float32) / 127.5 - 1.0


_CHUNK = 32
"""Images of a batch that no model takes."""
_COMPLETE = ("Map", "Filter", "Scan", "Concatenate", "Zip")
_READABLE = ("IgnoreErrors", "Zip")
"""Nodes that count the images of such batches, and that leave out records which can't be read before them."""


@frozen
class Turbo(Stage):
    """Decodes, crops and resizes the images of a batch in one call, with simplejpeg (libjpeg-turbo) and OpenCV.

    Attributes:
        num_parallel_calls: Batches processed in parallel, as those of `transform.map`.
        deterministic: false outputs batches as they are ready.
        steps: The steps whose work it does, which end with the one that gives all images one size.
        at_once: Images of the batches that it makes for itself; 0 if its input is in batches, 1 for decoded images,
            which differ in size, one after the other.
        skips: Whether images that can't be decoded are left out of such batches, instead of an error.
    """

    path = "transform.turbo"
    rests_on = ("tensorflow", "simplejpeg", "opencv-python-headless")
    block = "transform"
    maps_each = True
    does_steps = True
    tuned = Map.tuned

    num_parallel_calls: Speed[Parallelism]
    deterministic: Order[bool]
    steps: tuple[Step, ...]
    at_once: int = 0
    skips: bool = False

    @property
    def nodes(self) -> tuple[Nodes, ...]:  # type: ignore[override] # of other stages all instances have the same
        maps = single("Map", "ParallelMap", examples=self.at_once or None)
        if self.at_once <= 1:
            return (maps,)
        unbatch = single("Unbatch"), single("Map", examples=self.at_once)
        batch = single(*BATCHES, examples=self.at_once)
        counts = (single(name, examples=self.at_once) for name in _COMPLETE if self.skips)
        return (*unbatch, *counts, maps, batch, *(single(name) for name in _READABLE if self.skips))

    @property
    def of_batches(self) -> Self | None:
        return replace(self, at_once=0) if self.at_once > 1 and not self.skips else None

    @property
    def inner(self) -> tuple[Step, ...]:  # type: ignore[override]
        return self.steps

    @property
    def feature(self) -> str:
        """Name of its image."""
        return self.steps[0].feature

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of its images in pixels."""
        return next(step.size for step in self.steps if isinstance(step, Resize | DecodeJpeg))

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of `op` by name."""
        return {
            "center_crop": any(isinstance(step, CenterCrop) for step in self.steps),
            "size": self.size,
            "fast": any(isinstance(step, Decode) and step.fast for step in self.steps),
        }

    @property
    def processes(self) -> int | str:
        """Processes that decode; 0 for threads."""
        return next((step.processes for step in self.steps if isinstance(step, Decode)), 0)

    @property
    def makers(self) -> tuple[Callable[..., Any], ...]:  # type: ignore[override]
        return (self.op,)

    @staticmethod
    def op(given: list[bytes], *, center_crop: bool, size: tuple[int, int], fast: bool) -> np.typing.NDArray[np.uint8]:
        """Encoded images (batch,), or decoded ones, -> uint8 (batch, *size, 3); unless `fast`, of TensorFlow's pixels.

        TensorFlow decodes what simplejpeg refuses or would decode otherwise; a whole PNG without animation OpenCV.
        """
        memory = np.empty(len(given) * size[0] * size[1] * 3 + 64, np.uint8)
        start = -memory.__array_interface__["data"][0] % 64  # TensorFlow uses such memory without a copy
        images, space = memory[start : len(memory) - 64 + start].reshape(-1, *size, 3), np.empty(0, np.uint8)
        for place, data in enumerate(given):
            pixels: Any = None if isinstance(data, bytes) else data
            is_png = pixels is None and data[:4] == b"\x89PNG" and data[-12:] == b"\0\0\0\0IEND\xaeB`\x82"
            if is_png and b"acTL" not in data:  # of an animation OpenCV gives the first frame, not the image
                color = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
                pixels = cv2.imdecode(np.frombuffer(data, np.uint8), color)
            try:
                if pixels is None:
                    height, width, colors, _ = simplejpeg.decode_jpeg_header(data)
                    marker = 2  # searching the whole file for one would hold Python's lock
                    while data[marker : marker + 2] > b"\xff\xc2":
                        marker += 2 + int.from_bytes(data[marker + 2 : marker + 4])
                    is_usual = data[marker : marker + 2] in {b"\xff\xc0", b"\xff\xc1", b"\xff\xc2"}
                    if colors in {"CMYK", "YCCK"} or (not is_usual and b"\xff\xc3" in data):
                        raise ValueError(colors)  # noqa: TRY301 # TensorFlow converts it otherwise, or refuses it
                    shown = (min(height, width),) * 2 if center_crop else (height, width)
                    fits = min(shown[0] / size[0], shown[1] / size[1]) if fast else 1
                    factor = max(of for of in (1, 2, 4, 8) if of <= max(fits, 1))
                    height, width = -(-height // factor), -(-width // factor)
                    least = {"min_height": height, "min_width": width} if factor > 1 else {}
                    if space.size < 3 * height * width:
                        space = np.empty(3 * height * width, np.uint8)
                    pixels = simplejpeg.decode_jpeg(data, "RGB", buffer=space, fastdct=True, fastupsample=fast, **least)
            except ValueError:
                pixels = tf.io.decode_image(data, channels=3, expand_animations=False).numpy()
            if center_crop:
                side = min(pixels.shape[:2])
                top, left = ((length - side) // 2 for length in pixels.shape[:2])
                pixels = pixels[top : top + side, left : left + side]
            cv2.resize(pixels, size[::-1], dst=images[place], interpolation=cv2.INTER_LINEAR)
        return images


remember([Turbo.op])


def decoded_natively(
    example: Mapping[str, tf.Tensor],
    decode: Callable[..., Any],
    size: tuple[int, int],
    *,
    feature: str = "image",
    is_single: bool = False,
    skips: bool = False,
) -> dict[str, tf.Tensor]:
    """Return a batch by name, or a single example, of which an image is decoded: uint8 (batch, *size, 3).

    `decode` takes the encoded images of a batch; if it `skips`, it also tells which of them are usable.
    """
    image = tf.expand_dims(example[feature], 0) if is_single else example[feature]
    if skips:
        images, is_usable = tf.numpy_function(decode, [image], (tf.uint8, tf.bool))
        is_usable = tf.ensure_shape(is_usable, (None,))
        example = {name: tf.boolean_mask(values, is_usable) for name, values in example.items()}
    else:
        images = tf.numpy_function(decode, [image], tf.uint8)
    images = tf.ensure_shape(images, (1 if is_single else None, *size, 3))
    return {**example, feature: tf.squeeze(images, 0) if is_single else images}


def usable(
    encoded: list[bytes], decode: functools.partial[np.typing.NDArray[np.uint8]], size: tuple[int, int]
) -> tuple[np.typing.NDArray[np.uint8], np.typing.NDArray[np.bool_]]:
    """Decode the images of a batch that can be decoded: uint8 (usable, *size, 3), and which they are, bool (batch,)."""
    try:
        return decode(encoded), np.ones(len(encoded), np.bool_)
    except tf.errors.InvalidArgumentError:
        images = [np.empty((0, *size, 3), np.uint8)]
    is_usable = np.ones(len(encoded), np.bool_)
    for place in range(len(encoded)):
        try:
            images.append(decode(encoded[place : place + 1]))
        except tf.errors.InvalidArgumentError:
            is_usable[place] = False
    return np.concatenate(images), is_usable


@frozen
class TurboAfterCache(Turbo):
    """The same after a cache, for its JPEGs, or for decoded images, which it crops and resizes."""

    path = "transform.turbo_after_cache"


def turbo_steps(steps: Sequence[Step]) -> tuple[bool, ...]:
    """Return for each step whether `turbo` does its work: the first decoding, and the resizing behind it if it can.

    Of several images it is the first decoding of each. Decoding alone it leaves to TensorFlow, which is faster for one
    image.
    """
    found, seen = [False] * len(steps), set[str]()
    for place, first in enumerate(steps):
        if not first.uses_turbo or first.feature in seen:
            continue
        seen.add(first.feature)
        end = place + 1
        following = end + any(isinstance(step, CenterCrop) for step in steps[end : end + 1])
        for step in steps[following : following + 1]:
            if isinstance(step, Resize) and (step.method, step.antialias, step.dtype) == ("bilinear", False, "uint8"):
                end = following + 1
        found[place:end] = [True] * (end - place)
    return tuple(found)


def turbo_of(steps: Sequence[Step], whole: Map, *, skips: bool) -> Turbo | None:
    """Return the stage that does the work of `steps`, some of those of `whole`, which may be of a run that `skips`.

    None if none of them gives all images one size.
    """
    decodes = any(step.uses_turbo for step in steps)
    if not any(isinstance(step, Resize | DecodeJpeg) for step in steps):
        return None
    return (TurboAfterCache if whole.scope is Scope.EACH else Turbo)(
        num_parallel_calls=whole.num_parallel_calls,
        deterministic=whole.deterministic,
        steps=tuple(steps),
        at_once=_CHUNK if decodes else 1,
        skips=skips and decodes and whole.is_first,
    )
