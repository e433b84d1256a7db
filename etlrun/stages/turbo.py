"""Decoding of whole batches of images with libjpeg-turbo and OpenCV, which leave Python's lock to other threads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self

from etlrun.stages.base import BATCHES, DATA, ORDER, SPEED, Flag, Nodes, Parallelism, Size, Stage, Tuned
from etlrun.stages.code import remember
from etlrun.stages.flow import Flow
from etlrun.stages.image import CenterCrop, Decode, DecodeJpeg, Resize
from etlrun.stages.lazy import cv2, np, simplejpeg, tf
from etlrun.stages.step import Map, Step

MODULES = {"simplejpeg": "simplejpeg", "cv2": "opencv-python-headless"}
"""Modules that decode and resize, with the packages of the extra `turbo` that hold them."""
_CHUNK = 32
"""Images of a batch that no model takes."""
_COMPLETE = ("Map", "Filter", "Scan", "Concatenate", "Zip")
_READABLE = ("IgnoreErrors", "Zip")
"""Nodes that count the images of such batches, and that leave out records which can't be read before them."""


@dataclass(frozen=True, kw_only=True)
class Turbo(Stage):
    """Decodes, crops and resizes the images of a batch in one call, with simplejpeg (libjpeg-turbo) and OpenCV.

    Attributes:
        num_parallel_calls: Batches processed in parallel, as those of `transform.map`.
        deterministic: false outputs batches as they are ready.
        center_crop: Whether images are cropped to their largest centred square first.
        size: [height, width] in pixels, with bilinear interpolation; null keeps the size of each image.
        scaled: Whether JPEGs are decoded at a half, a quarter or an eighth if both sides then are at least `size`.
        fancy_upscaling: Whether subsampled colours are interpolated, as TensorFlow does, instead of repeated.
        at_once: Images of the batches that it makes for itself; 0 if its input is in batches.
        skips: Whether images that can't be decoded are left out of such batches, instead of an error.
    """

    path: ClassVar[str] = "transform.turbo"
    block: ClassVar[str] = "transform"
    told_as: ClassVar[str] = Decode.path
    maps_each: ClassVar[bool] = True
    does_steps: ClassVar[bool] = True
    tuned: ClassVar[Tuned | None] = Map.tuned
    takes_pixels: ClassVar[bool] = False
    """Whether it also takes decoded images."""

    num_parallel_calls: Annotated[Parallelism, SPEED]
    deterministic: Annotated[Flag, ORDER]
    center_crop: Annotated[Flag, DATA]
    size: Annotated[Size | None, DATA]
    scaled: Annotated[Flag, DATA]
    fancy_upscaling: Annotated[Flag, DATA]
    at_once: int = 0
    skips: bool = False

    @property
    def nodes(self) -> tuple[Nodes, ...]:  # type: ignore[override] # of other stages all instances have the same
        maps = Nodes(("Map", "ParallelMap"), is_single=True, examples=self.at_once or None)
        if not self.at_once:
            return (maps,)
        unbatch = Nodes(("Unbatch",), is_single=True), Nodes(("Map",), is_single=True, examples=self.at_once)
        batch = Nodes(BATCHES, is_single=True, examples=self.at_once)
        counts = (Nodes((name,), is_single=True, examples=self.at_once) for name in _COMPLETE if self.skips)
        return (*unbatch, *counts, maps, batch, *(Nodes((name,), is_single=True) for name in _READABLE if self.skips))

    @property
    def of_batches(self) -> Self | None:
        return replace(self, at_once=0) if self.at_once > 1 and not self.skips else None

    def flow(self, incoming: Flow) -> Flow:
        image = incoming.feature(Decode.feature)
        image = image if self.takes_pixels and image.dtype == "uint8" else Decode().gives(image)
        return incoming.with_feature(Decode.feature, image.replace(shape=(*(self.size or (None, None)), 3)))

    @property
    def values(self) -> dict[str, Any]:
        """Parameters by name, as `op` takes them."""
        names = ("center_crop", "size", "scaled", "fancy_upscaling")
        return {name: getattr(self, name) for name in names}

    @property
    def makers(self) -> tuple[Callable[..., Any], ...]:
        return (self.op,)

    @property
    def rests_on(self) -> tuple[str, ...]:
        return ("tensorflow", *MODULES.values())

    @staticmethod
    def op(
        encoded: list[bytes], *, center_crop: bool, size: tuple[int, int] | None, scaled: bool, fancy_upscaling: bool
    ) -> np.typing.NDArray[np.uint8]:
        """Encoded images (batch,) -> uint8 (batch, *size, 3), with TensorFlow's pixels if `fancy_upscaling`.

        TensorFlow decodes what simplejpeg refuses. A batch without a size, or of decoded images, is a single image.
        """
        images, buffer = np.empty(0, np.uint8), np.empty(0, np.uint8)
        for place, data in enumerate(encoded):
            try:
                height, width, colors, _ = simplejpeg.decode_jpeg_header(data if isinstance(data, bytes) else b"")
                if colors in {"CMYK", "YCCK"} or b"\xff\xc3" in data:  # converted otherwise by TensorFlow, or refused
                    raise ValueError(colors)  # noqa: TRY301
                smallest: dict[str, int] = {}
                if scaled and size:
                    shown = (min(height, width),) * 2 if center_crop else (height, width)
                    fits = min(shown[0] / size[0], shown[1] / size[1])
                    factor = max(of for of in (1, 2, 4, 8) if of <= max(fits, 1))
                    height, width = -(-height // factor), -(-width // factor)
                    smallest = {"min_height": height, "min_width": width} if factor > 1 else {}
                if buffer.size < 3 * height * width:
                    buffer = np.empty(3 * height * width, np.uint8)
                fast = {"fastdct": True, "fastupsample": not fancy_upscaling}
                pixels = simplejpeg.decode_jpeg(data, "RGB", buffer=buffer, **fast, **smallest)
            except ValueError:
                is_pixels = not isinstance(data, bytes)
                pixels = data if is_pixels else tf.io.decode_image(data, channels=3, expand_animations=False).numpy()
            if center_crop:
                side = min(pixels.shape[:2])
                top, left = ((length - side) // 2 for length in pixels.shape[:2])
                pixels = pixels[top : top + side, left : left + side]
            if not place:
                shape = (len(encoded), *(size or pixels.shape[:2]), 3)
                memory = np.empty(int(np.prod(shape)) + 64, np.uint8)
                start = -memory.__array_interface__["data"][0] % 64  # TensorFlow uses such memory without a copy
                images = memory[start : start + np.prod(shape)].reshape(shape)
            cv2.resize(pixels, images.shape[2:0:-1], dst=images[place], interpolation=cv2.INTER_LINEAR)
        return images


remember([Turbo.op])


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


@dataclass(frozen=True, kw_only=True)
class TurboAfterCache(Turbo):
    """The same after a cache, for its JPEGs, or for decoded images, which it crops and resizes."""

    path: ClassVar[str] = "transform.turbo_after_cache"
    takes_pixels: ClassVar[bool] = True


def turbo_steps(steps: Sequence[Step]) -> tuple[bool, ...]:
    """Return for each step whether `turbo` does its work: the first decoding, and the resizing behind it if it can."""
    place = next((place for place, step in enumerate(steps) if step.uses_turbo), None)
    if place is None:
        return (False,) * len(steps)
    crops = any(step.path == CenterCrop.path for step in steps[place + 1 : place + 2])
    resizes = any(
        isinstance(step, Resize) and step.joins_turbo for step in steps[place + 1 + crops : place + 2 + crops]
    )
    end = place + 2 + crops if resizes else place + 1
    return tuple(place <= number < end for number in range(len(steps)))


def turbo_of(steps: Sequence[Step], whole: Map, *, skips: bool) -> Turbo:
    """Return the stage that does the work of `steps`, some of those of `whole`, which may be of a run that `skips`."""
    sizes = [step.size for step in steps if isinstance(step, Resize | DecodeJpeg)]
    in_batches = steps[0].uses_turbo and bool(sizes)
    return (Turbo if whole.is_first else TurboAfterCache)(
        num_parallel_calls=whole.num_parallel_calls,
        deterministic=whole.deterministic,
        center_crop=any(isinstance(step, CenterCrop) for step in steps),
        size=sizes[0] if sizes else None,
        scaled=bool(sizes) and any(step.scales_down for step in steps),
        fancy_upscaling=any(isinstance(step, DecodeJpeg) for step in steps),
        at_once=_CHUNK if in_batches else 1,
        skips=skips and in_batches and whole.is_first,
    )
