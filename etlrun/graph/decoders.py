"""Processes that decode batches of images for this one, whose threads would wait for Python's lock.

Each imports NumPy, simplejpeg and OpenCV, no TensorFlow. Encoded images go to it through a socket, their pixels come
back in memory that both share, without a name in any file system: nothing is left when they end, however that is.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from mmap import mmap
from queue import LifoQueue
from typing import Any

from etlrun.stages.image import Turbo
from etlrun.stages.lazy import cv2, np
from etlrun.system.errors import WorldError
from etlrun.system.memory import aligned, free_memory

_ATTEMPTS = 3
"""Processes that may end unasked at the same batch."""
_HEAD_BYTES = 8


class _Decoder:
    """A process that decodes one batch at a time."""

    def __init__(self, module: str) -> None:
        self._socket, theirs = socket.socketpair()
        self._memory, self._pixels = os.memfd_create("etlrun-pixels"), np.empty(0, np.uint8)
        shared = theirs.fileno(), self._memory
        path = os.pathsep.join(folder for folder in sys.path if folder)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *map(str, shared)],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            pass_fds=shared,
        )
        theirs.close()
        self._answers = self._socket.makefile("rb")

    def decoded(self, encoded: list[bytes], arguments: dict[str, Any]) -> tuple[Any, list[int]]:
        """Return pixels of a batch, uint8 (batch, *size, 3), which the next batch replaces, and places without.

        Raises:
            ConnectionError: The process ended.
        """
        shape = (len(encoded), *arguments["size"], 3)
        num_bytes = int(np.prod(shape))
        if self._pixels.size < num_bytes:
            os.ftruncate(self._memory, num_bytes)
            self._pixels = np.frombuffer(mmap(self._memory, num_bytes), np.uint8)
        head = json.dumps({"lengths": [len(data) for data in encoded], "arguments": arguments}).encode()
        self._socket.sendall(b"".join([len(head).to_bytes(_HEAD_BYTES), head, *encoded]))
        if not (answer := self._answers.readline()):
            raise ConnectionResetError
        return self._pixels[:num_bytes].reshape(shape), json.loads(answer)

    def end(self) -> int:
        """Wait for its end, and return its exit status, negative for a signal's number."""
        self._answers.close()
        self._socket.close()
        os.close(self._memory)
        return self._process.wait()


class Decoders:
    """As many processes of a `module` as `number`, each started when a batch first finds no other free."""

    def __init__(self, number: int, module: str = __name__) -> None:
        self._module, self._memory = module, free_memory()
        self._free: LifoQueue[_Decoder | None] = LifoQueue()
        for _ in range(number):
            self._free.put(None)
        atexit.register(self.end)

    def end(self) -> None:
        """End the processes that decode nothing now; further batches start others."""
        free = [self._free.get() for _ in range(self._free.qsize())]
        for decoder in free:
            if decoder:
                decoder.end()
            self._free.put(None)

    def __call__(self, encoded: list[bytes], **arguments: Any) -> Any:
        """Return what `Turbo.op` does; images that need TensorFlow it decodes here.

        Raises:
            WorldError: Processes ended unasked.
        """
        images, decoder, status = None, self._free.get(), 0
        try:
            for _ in range(_ATTEMPTS):
                running, decoder = decoder or _Decoder(self._module), None
                try:
                    pixels, lacking = running.decoded(encoded, arguments)
                except BaseException as error:
                    status = running.end()  # whatever it was: its next answer would be of this batch
                    if not isinstance(error, ConnectionError):
                        raise
                    continue
                decoder, images = running, aligned(pixels.shape, "uint8", self._memory)
                np.copyto(images, pixels)
                break
        finally:
            self._free.put(decoder)
        if images is None:
            raise _ended(status)
        for place in lacking:
            images[place] = Turbo.op(encoded[place : place + 1], **arguments)[0]
        return images


def _ended(status: int) -> WorldError:
    how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    remedy = "give the machine more memory, or decode in this process: set transform.decode.processes=0"
    found = f"{_ATTEMPTS} processes that ended at the same batch, the last by {how}"
    return WorldError("transform.decode.processes", found, "processes that decode", remedy)


decoders = cache(Decoders)
"""Return the processes of all pipelines of this process that have the same number of them."""


def serve(op: Callable[..., Any]) -> None:
    """Decode by `op`, which is as that of `Turbo`, for the process that started this one, until that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which a terminal sends to both: the other one decides
    sys.modules["tensorflow"] = None  # type: ignore[assignment] # importing it is an error then
    cv2.setNumThreads(1)  # the other processes use the other cores
    connection, memory = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    asked, pixels = connection.makefile("rb"), np.empty(0, np.uint8)
    while size := int.from_bytes(asked.read(_HEAD_BYTES)):
        head = json.loads(asked.read(size))
        encoded = [asked.read(length) for length in head["lengths"]]
        decode = partial(op, **head["arguments"])
        shape = (len(encoded), *head["arguments"]["size"], 3)
        if pixels.size < np.prod(shape):
            pixels = np.frombuffer(mmap(memory, os.fstat(memory).st_size), np.uint8)
        images, lacking = pixels[: np.prod(shape)].reshape(shape), []
        try:
            images[:] = decode(encoded)
        except ImportError:
            for place in range(len(encoded)):
                try:
                    images[place] = decode(encoded[place : place + 1])[0]
                except ImportError:
                    lacking.append(place)
        connection.sendall(json.dumps(lacking).encode() + b"\n")


if __name__ == "__main__":
    serve(Turbo.op)
