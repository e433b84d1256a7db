"""Memory of arrays that TensorFlow uses without a copy, and that is used again when no array is left in it."""

from collections import deque
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

_ALIGNMENT = 64
"""Alignment in bytes with which TensorFlow uses memory without a copy."""
_MOST_FREE = 4
"""Limit of arrays whose memory waits for the next ones."""

Array = npt.NDArray[Any]
Free = deque[Array]
"""Memory in which no array is left."""


def free_memory() -> Free:
    """Return a place for memory that is free."""
    return deque(maxlen=_MOST_FREE)


def aligned(shape: tuple[int, ...], dtype: str, free: Free | None = None) -> Array:
    """Return an uninitialised array that TensorFlow uses without a copy, in memory of `free` if there is any."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8) if free is None else _lent(size + _ALIGNMENT, free)
    start = -memory.__array_interface__["data"][0] % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def _lent(size: int, free: Free) -> Array:
    """Return at least so many bytes, which are free again when no view of them is left.

    Pages that the system gives anew take longer than what is read into them.
    """
    memory = np.empty(0, np.uint8)
    with suppress(IndexError):
        memory = free.pop()
    return np.asarray(_Lent(memory if memory.size >= size else np.empty(size, np.uint8), free))


class _Lent:
    """Memory as NumPy takes it, which keeps this until its last view."""

    def __init__(self, memory: Array, free: Free) -> None:
        self.__array_interface__ = memory.__array_interface__
        self._memory, self._free = memory, free

    def __del__(self) -> None:
        self._free.append(self._memory)
