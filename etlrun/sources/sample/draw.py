"""Images of discs and crosses, drawn with integers only, so that all machines draw the same."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

CLASSES = ("disc", "cross")
SHAPES = 25
"""Number of shapes per image; their sizes, positions and colours are the same in both classes."""

_SIDES = (300, 501)
_RADII = (20, 40)
_TEXTURE_SIDE = 1024
_TEXTURE_SEED = 7

Pixels = npt.NDArray[np.uint8]


def picture(number: int) -> Pixels:
    """Return image `number` as uint8 (height, width, 3) with sides of 300 to 500 pixels; its class is `number % 2`."""
    random = _random(number)
    height, width = (int(side) for side in random(*_SIDES, 2))
    top, left = (int(place) for place in random(0, _TEXTURE_SIDE - _SIDES[1], 2))
    canvas = _texture()[top : top + height, left : left + width] + random(60, 196, 3)
    for _ in range(SHAPES):
        colour = random(70, 130, 3) * (2 * random(0, 2, 3) - 1)
        radius = int(random(*_RADII, 1)[0])
        y, x = (int(random(radius, side - radius, 1)[0]) for side in (height, width))
        window = canvas[y - radius : y + radius + 1, x - radius : x + radius + 1]
        window += _shape(CLASSES[number % 2], radius) * colour
    pixels: Pixels = np.clip(canvas, 0, 255).astype(np.uint8)
    return pixels


def _random(seed: int) -> Callable[[int, int, int], npt.NDArray[np.int16]]:
    """Return a function of (low, high, count) that draws integers in [low, high), the same in all versions of NumPy.

    Only `RandomState` guarantees that (NEP 19), and only for a fixed dtype.
    """
    state = np.random.RandomState(seed)

    def draw(low: int, high: int, count: int) -> npt.NDArray[np.int16]:
        return state.randint(low, high, count, dtype=np.int16)

    return draw


@functools.cache
def _shape(kind: str, radius: int) -> npt.NDArray[np.bool_]:
    """Return the pixels (side, side, 1) of a disc or a cross in a square with sides of 2 * radius + 1 pixels."""
    y, x, _ = np.ogrid[-radius : radius + 1, -radius : radius + 1, :1]
    disc: npt.NDArray[np.bool_] = y * y + x * x <= radius * radius
    arm = radius // 8
    cross: npt.NDArray[np.bool_] = (np.abs(y) <= arm) | (np.abs(x) <= arm)
    return disc if kind == "disc" else cross


@functools.cache
def _texture() -> npt.NDArray[np.int16]:
    """Return value noise at four scales, int16 (side, side, 3), with which a JPEG is as large as that of a photo.

    Source: value noise as in Perlin, "An Image Synthesizer", SIGGRAPH 1985, on a lattice and in integers.
    """
    random = _random(_TEXTURE_SEED)
    texture = np.zeros((_TEXTURE_SIDE, _TEXTURE_SIDE, 3), np.int16)
    places = np.arange(_TEXTURE_SIDE)
    for cell, amplitude in ((64, 20), (16, 11), (4, 7), (1, 4)):
        points = _TEXTURE_SIDE // cell + 2
        lattice = random(-amplitude, amplitude + 1, points * points * 3).reshape(points, points, 3)
        low, part = places // cell, (places % cell).astype(np.int16)
        rows = _between(lattice[low], lattice[low + 1], part[:, None, None], cell)
        texture += _between(rows[:, low], rows[:, low + 1], part[None, :, None], cell)
    return texture


def _between(
    first: npt.NDArray[np.int16], second: npt.NDArray[np.int16], part: npt.NDArray[np.int16], whole: int
) -> npt.NDArray[np.int16]:
    """Interpolate from `first` to `second` by `part / whole`, rounded down."""
    mixed: npt.NDArray[np.int16] = (first * (np.int16(whole) - part) + second * part) // np.int16(whole)
    return mixed
