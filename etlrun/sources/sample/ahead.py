"""Drawing of the sample's images in a process of its own, while this one imports TensorFlow."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from etlrun.sources.sample import draw

_THREADS = 2
_begun: list[queue.SimpleQueue[bytes]] = []
"""Images of the process that draws them, if one does; its last one is empty."""


def begin() -> None:
    """Begin to draw the images that `images` gives next."""
    drawn: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(drawn,), name="sample", daemon=True).start()
    _begun.append(drawn)


def _read(drawn: queue.SimpleQueue[bytes]) -> None:
    """Read what the process writes as it comes, since it would wait for a reader; it ends with this process."""
    command, paths = [sys.executable, "-P", "-m", draw.__name__], os.pathsep.join(sys.path)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, start_new_session=True, env={**os.environ, "PYTHONPATH": paths}
    ) as process:
        assert process.stdout is not None  # noqa: S101 - a pipe
        while size := process.stdout.read(draw.SIZE_BYTES):
            drawn.put(process.stdout.read(int.from_bytes(size, "big")))
    drawn.put(b"")


def images() -> Iterator[bytes]:
    """Yield all images as JPEG files in order, those of `begin` or drawn here.

    Raises:
        RuntimeError: The process that draws them has ended before the last one.
    """
    if not _begun:
        with ThreadPoolExecutor(_THREADS) as threads:
            yield from threads.map(draw.jpeg, range(draw.NUM_EXAMPLES))
        return
    drawn = _begun.pop()
    for number in range(draw.NUM_EXAMPLES):
        encoded = drawn.get()
        if not encoded:
            told = f"the process that draws the sample has ended after {number} of {draw.NUM_EXAMPLES} images"
            raise RuntimeError(told)
        yield encoded
