"""Drawing of the sample's images in a process of its own, while this one imports TensorFlow."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

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
    with (
        suppress(OSError),
        subprocess.Popen(  # without a process more, all are drawn here
            command, stdout=subprocess.PIPE, start_new_session=True, env={**os.environ, "PYTHONPATH": paths}
        ) as process,
    ):
        assert process.stdout is not None  # noqa: S101 - a pipe
        while size := int.from_bytes(process.stdout.read(draw.SIZE_BYTES), "big"):
            encoded = process.stdout.read(size)
            if len(encoded) < size:  # it has ended within it
                break
            drawn.put(encoded)
    drawn.put(b"")


def images() -> Iterator[bytes]:
    """Yield all images as JPEG files in order: those of `begin`, and drawn here what its process has not drawn."""
    drawn, number = _begun.pop() if _begun else None, 0
    while drawn is not None and number < draw.NUM_EXAMPLES and (encoded := drawn.get()):
        yield encoded
        number += 1
    with ThreadPoolExecutor(_THREADS) as threads:
        yield from threads.map(draw.jpeg, range(number, draw.NUM_EXAMPLES))
