"""What is done to each picture, one step after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from etlrun.stages.base import DATA, ORDER, SPEED, Expected, Flag, Number, Parallelism, Size, Stage
from etlrun.stages.flow import Flow, UnfitError


class Step(Stage):
    """A stage that works on one example."""


@dataclass(frozen=True, kw_only=True)
class Parse(Step):
    """Reads picture and label out of a serialised example; a plan puts it before the first step."""

    path: ClassVar[str] = "transform.parse"

    def flow(self, incoming: Flow) -> Flow:
        return incoming.replace(content="encoded")


@dataclass(frozen=True, kw_only=True)
class Decode(Step):
    """JPEG, PNG, BMP or the first frame of a GIF to uint8 pixels in [0, 255], three channels.

    Grey is repeated, transparency is dropped, and of 16 bits the upper 8 stay.
    """

    path: ClassVar[str] = "transform.decode"

    def flow(self, incoming: Flow) -> Flow:
        if incoming.content != "encoded":
            raise UnfitError(
                expected="an encoded picture",
                remedy="leave `decode` out of the steps, or set extract.decode=false",
            )
        return incoming.replace(content="decoded")


@dataclass(frozen=True, kw_only=True)
class Resize(Step):
    """To one size, without keeping the aspect ratio, as `tf.image.resize` does; same range.

    Attributes:
        size: [height, width] in pixels.
        method: Of interpolation.
        antialias: Whether to filter before making a picture smaller.
        dtype: `uint8` rounds to whole numbers, which take a quarter of the space of `float32`.
    """

    path: ClassVar[str] = "transform.resize"

    size: Annotated[Size, DATA]
    method: Annotated[Literal["bilinear", "nearest", "area"], Expected("bilinear, nearest or area"), DATA]
    antialias: Annotated[Flag, DATA]
    dtype: Annotated[Literal["uint8", "float32"], Expected("uint8 or float32"), DATA]

    def flow(self, incoming: Flow) -> Flow:
        incoming.require_decoded()
        if self.dtype == "uint8" and (incoming.low, incoming.high) != (0.0, 255.0):
            raise UnfitError(
                expected="pixels in [0, 255], since it rounds to uint8",
                remedy="put the scaling after `resize`, or set transform.resize.dtype=float32",
            )
        height, width = self.size
        return incoming.replace(dtype=self.dtype, height=height, width=width)


@dataclass(frozen=True, kw_only=True)
class CenterCrop(Step):
    """The largest centred square of a picture."""

    path: ClassVar[str] = "transform.center_crop"

    def flow(self, incoming: Flow) -> Flow:
        incoming.require_decoded()
        sides = (incoming.height, incoming.width)
        side = None if None in sides else min(side for side in sides if side)
        return incoming.replace(height=side, width=side)


@dataclass(frozen=True, kw_only=True)
class RandomFlip(Step):
    """Left and right exchanged in half of the pictures; another half in each pass.

    Which pictures those are follows from the seed, the pass and the picture itself, so that no
    parameter that changes the speed or the order can change it.
    """

    path: ClassVar[str] = "transform.random_flip"
    random: ClassVar[bool] = True

    def flow(self, incoming: Flow) -> Flow:
        incoming.require_decoded()
        return incoming


class Scaling(Step):
    """`picture * scale + offset`, which the model can do as well as the pipeline."""

    @property
    def factors(self) -> tuple[float, float]:
        """Scale and offset."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Rescale(Scaling):
    """`picture * scale + offset`, as float32."""

    path: ClassVar[str] = "transform.rescale"

    scale: Annotated[Number, DATA]
    offset: Annotated[Number, DATA]

    @property
    def factors(self) -> tuple[float, float]:
        return self.scale, self.offset

    def flow(self, incoming: Flow) -> Flow:
        incoming.require_decoded()
        ends = sorted(end * self.scale + self.offset for end in (incoming.low, incoming.high))
        return incoming.replace(dtype="float32", low=ends[0], high=ends[1])


def _scaled(incoming: Flow, low: float) -> Flow:
    incoming.require_decoded()
    if (incoming.low, incoming.high) != (0.0, 255.0):
        raise UnfitError(expected="pixels in [0, 255]", remedy="keep one of the scaling steps and remove the other")
    return incoming.replace(dtype="float32", low=low, high=1.0)


@dataclass(frozen=True, kw_only=True)
class ScaleZeroOne(Scaling):
    """[0, 255] to [0, 1]: the scaling of TensorFlow Hub's MobileNetV2."""

    path: ClassVar[str] = "transform.scale_zero_one"
    factors: ClassVar[tuple[float, float]] = (1 / 255.0, 0.0)

    def flow(self, incoming: Flow) -> Flow:
        return _scaled(incoming, 0.0)


@dataclass(frozen=True, kw_only=True)
class ScaleMinusOneOne(Scaling):
    """[0, 255] to [-1, 1]: the scaling of Keras's MobileNetV2."""

    path: ClassVar[str] = "transform.scale_minus_one_one"
    factors: ClassVar[tuple[float, float]] = (1 / 127.5, -1.0)

    def flow(self, incoming: Flow) -> Flow:
        return _scaled(incoming, -1.0)


@dataclass(frozen=True, kw_only=True)
class Map(Stage):
    """The steps, applied to one example after the other or to several at once.

    Attributes:
        num_parallel_calls: Examples worked on at once; `cores` as many as this process may use cores, `cores-1` leaves
            one to the training; null works in the consumer's thread.
        deterministic: false gives examples as they get ready, so that no run can be repeated exactly.
        steps: In the order in which they are applied.
    """

    path: ClassVar[str] = "transform.map"

    num_parallel_calls: Annotated[Parallelism, SPEED]
    deterministic: Annotated[Flag, ORDER]
    steps: tuple[Step, ...]


@dataclass(frozen=True, kw_only=True)
class AfterCache(Map):
    """Those steps that come after a cache, done again in each pass."""

    path: ClassVar[str] = "transform.after_cache"
