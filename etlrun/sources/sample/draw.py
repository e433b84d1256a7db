"""Images of discs and crosses, drawn with integers only, so that all machines draw the same.

A process of its own draws them while another one imports TensorFlow.
"""

import functools
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from signal import SIG_DFL, SIGPIPE, signal

import numpy as np
import numpy.typing as npt

CLASSES = ("disc", "cross")
SHAPES = 25
"""Number of shapes per image; their sizes, positions and colours are the same in both classes."""

NUM_EXAMPLES = 1200
JPEG_QUALITY = 85

_SIDES = (300, 501)
_TEXTURE_SIDE = 1024
_DENSITY = slice(13, 18), b"\x01" + 2 * (300).to_bytes(2, "big")
"""Place of the density in a JPEG file, and 300 dots per inch, which TensorFlow writes there."""
SIZE_BYTES = 4
"""Bytes of the size that is before each image which `main` writes."""

Pixels = npt.NDArray[np.uint8]
Values = npt.NDArray[np.int16]


def jpeg(number: int) -> bytes:
    """Return image `number` as a JPEG file, with the bytes of `tf.io.encode_jpeg`, and without importing TensorFlow."""
    import cv2  # imported here, since plans ask for the classes alone

    bgr = cv2.cvtColor(picture(number), cv2.COLOR_RGB2BGR)
    encoded = bytearray(cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1])
    place, density = _DENSITY
    encoded[place] = density
    return bytes(encoded)


def main() -> None:
    """Write all images to stdout, each after its size; end without a word where nobody reads them any more."""
    signal(SIGPIPE, SIG_DFL)
    for number in range(NUM_EXAMPLES):
        encoded = jpeg(number)
        sys.stdout.buffer.write(len(encoded).to_bytes(SIZE_BYTES, "big") + encoded)


def picture(number: int) -> Pixels:
    """Return image `number` as uint8 (height, width, 3) with sides of 300 to 500 pixels; its class is `number % 2`.

    It is drawn in rows of `3 * width` values: NumPy takes several times as long to add a colour to each pixel.
    """
    random = _random(number)
    height, width = (int(side) for side in random(*_SIDES, 2))
    top, left = (int(place) for place in random(0, _TEXTURE_SIDE - _SIDES[1], 2))
    canvas = _texture()[top : top + height, 3 * left : 3 * (left + width)] + np.tile(random(60, 196, 3), width)
    for _ in range(SHAPES):
        colour = random(70, 130, 3) * (2 * random(0, 2, 3) - 1)
        radius = int(random(20, 40, 1)[0])
        y, x = (int(random(radius, side - radius, 1)[0]) for side in (height, width))
        window = canvas[y - radius : y + radius + 1, 3 * (x - radius) : 3 * (x + radius + 1)]
        window += _shape(CLASSES[number % 2], radius) * np.tile(colour, 2 * radius + 1)
    pixels: Pixels = np.clip(canvas, 0, 255).astype(np.uint8).reshape(height, width, 3)
    return pixels


def _random(seed: int) -> Callable[[int, int, int], Values]:
    """Return a function of (low, high, count) that draws integers in [low, high), by which NumPy stands (NEP 19)."""
    return functools.partial(np.random.RandomState(seed).randint, dtype=np.int16)  # type: ignore[return-value] # of that dtype


@functools.cache
def _shape(kind: str, radius: int) -> npt.NDArray[np.bool_]:
    """Return the values (side, 3 * side) of a disc or a cross in a square with sides of 2 * radius + 1 pixels."""
    y, x = np.ogrid[-radius : radius + 1, -radius : radius + 1]
    disc: npt.NDArray[np.bool_] = y * y + x * x <= radius * radius
    arm = radius // 8
    cross: npt.NDArray[np.bool_] = (np.abs(y) <= arm) | (np.abs(x) <= arm)
    return np.repeat(disc if kind == "disc" else cross, 3, axis=1)


@functools.cache
def _texture() -> Values:
    """Return value noise (Perlin, 1985) at four scales, int16 (side, 3 * side), by which JPEGs are large as photos."""
    random = _random(7)
    texture = np.zeros((_TEXTURE_SIDE, _TEXTURE_SIDE, 3), np.int16)
    places = np.arange(_TEXTURE_SIDE)
    for cell, amplitude in ((64, 20), (16, 11), (4, 7), (1, 4)):
        points = _TEXTURE_SIDE // cell + 2
        lattice = random(-amplitude, amplitude + 1, points * points * 3).reshape(points, points, 3)
        low, part = places // cell, (places % cell).astype(np.int16)
        rows = _between(lattice[low], lattice[low + 1], part[:, None, None], cell)
        texture += _between(rows[:, low], rows[:, low + 1], part[None, :, None], cell)
    return texture.reshape(_TEXTURE_SIDE, -1)


def _between(first: Values, second: Values, part: Values, whole: int) -> Values:
    mixed: Values = (first * (np.int16(whole) - part) + second * part) // np.int16(whole)
    return mixed


_begun: list[queue.SimpleQueue[bytes]] = []
"""Images of the process that draws them, if one does; its last one is empty."""


def begin() -> None:
    """Begin to draw the images that `images` gives next."""
    drawn: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_drawn, args=(drawn,), name="sample", daemon=True).start()
    _begun.append(drawn)


def _read_drawn(drawn: queue.SimpleQueue[bytes]) -> None:
    """Read what the process writes as it comes, since it would wait for a reader; it ends with this process."""
    command, paths = [sys.executable, "-P", "-m", __name__], os.pathsep.join(sys.path)
    with (
        suppress(OSError),
        subprocess.Popen(  # without a process more, all are drawn here
            command, stdout=subprocess.PIPE, start_new_session=True, env={**os.environ, "PYTHONPATH": paths}
        ) as process,
    ):
        assert process.stdout is not None  # noqa: S101 - a pipe
        while size := int.from_bytes(process.stdout.read(SIZE_BYTES), "big"):
            encoded = process.stdout.read(size)
            if len(encoded) < size:  # it has ended within it
                break
            drawn.put(encoded)
    drawn.put(b"")


def images() -> Iterator[bytes]:
    """Yield all images as JPEG files in order: those of `begin`, and drawn here what its process has not drawn."""
    drawn, number = _begun.pop() if _begun else None, 0
    while drawn is not None and number < NUM_EXAMPLES and (encoded := drawn.get()):
        yield encoded
        number += 1
    with ThreadPoolExecutor(2) as threads:
        yield from threads.map(jpeg, range(number, NUM_EXAMPLES))


if __name__ == "__main__":
    main()
