"""Decoding of whole batches of images with libjpeg-turbo and OpenCV, which leave Python's lock to other threads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from etlrun.stages.base import BATCHES, Flag, Nodes, Order, Parallelism, Speed, Stage, single
from etlrun.stages.image import CenterCrop, Decode, DecodeJpeg, Resize
from etlrun.stages.lazy import cv2, np, simplejpeg, tf
from etlrun.stages.plugins import remember
from etlrun.stages.step import Map, Step
from etlrun.system.values import frozen

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
    block = "transform"
    told_as = Decode.path
    maps_each = True
    does_steps = True
    tuned = Map.tuned

    num_parallel_calls: Speed[Parallelism]
    deterministic: Order[Flag]
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
    def inner(self) -> tuple[Step, ...]:
        return self.steps

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
    def makers(self) -> tuple[Callable[..., Any], ...]:
        return (self.op,)

    @property
    def rests_on(self) -> tuple[str, ...]:
        return ("tensorflow", "simplejpeg", "opencv-python-headless")

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
    is_single: bool = False,
    skips: bool = False,
) -> dict[str, tf.Tensor]:
    """Return a batch by name, or a single example, whose images are decoded: uint8 (batch, *size, 3).

    `decode` takes the encoded images of a batch; if it `skips`, it also tells which of them are usable.
    """
    image = tf.expand_dims(example["image"], 0) if is_single else example["image"]
    if skips:
        images, is_usable = tf.numpy_function(decode, [image], (tf.uint8, tf.bool))
        is_usable = tf.ensure_shape(is_usable, (None,))
        example = {name: tf.boolean_mask(values, is_usable) for name, values in example.items()}
    else:
        images = tf.numpy_function(decode, [image], tf.uint8)
    images = tf.ensure_shape(images, (1 if is_single else None, *size, 3))
    return {**example, "image": tf.squeeze(images, 0) if is_single else images}


def usable(
    encoded: list[bytes],
    decode: functools.partial[np.typing.NDArray[np.uint8]],
    size: tuple[int, int],
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

    Decoding alone it leaves to TensorFlow, which is faster for one image.
    """
    place = next((place for place, step in enumerate(steps) if step.uses_turbo), None)
    if place is None:
        return (False,) * len(steps)
    crops = any(step.path == CenterCrop.path for step in steps[place + 1 : place + 2])
    resizes = any(
        isinstance(step, Resize) and not step.beyond_turbo for step in steps[place + 1 + crops : place + 2 + crops]
    )
    end = place + 2 + crops if resizes else place + 1
    return tuple(place <= number < end for number in range(len(steps)))


def turbo_of(steps: Sequence[Step], whole: Map, *, skips: bool) -> Turbo | None:
    """Return the stage that does the work of `steps`, some of those of `whole`, which may be of a run that `skips`.

    None if none of them gives all images one size.
    """
    decodes = any(step.uses_turbo for step in steps)
    if not any(isinstance(step, Resize | DecodeJpeg) for step in steps):
        return None
    return (Turbo if whole.is_first else TurboAfterCache)(
        num_parallel_calls=whole.num_parallel_calls,
        deterministic=whole.deterministic,
        steps=tuple(steps),
        at_once=_CHUNK if decodes else 1,
        skips=skips and decodes and whole.is_first,
    )
