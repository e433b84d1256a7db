"""A digest of the examples that a run has seen, whatever their order and their batches."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

_BYTES = 16


class Digest:
    """The sum of the hashes of all examples, modulo 2**128, with their count.

    A sum does not depend on the order, and unlike an exclusive-or it counts an example that comes twice. Each hash is
    BLAKE2b over the shape, dtype and bytes of the picture and over its label.
    Source: Bellare and Micciancio, "A New Paradigm for Collision-Free Hashing: Incrementality at Reduced Cost",
    Eurocrypt 1997 (AdHash; at 128 bits a guard against mistakes, not against an attacker).
    """

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0

    def add(self, images: npt.NDArray[Any], labels: npt.NDArray[np.int64]) -> None:
        """Add a batch: `images` (batch, height, width, 3), `labels` (batch,)."""
        head = f"{images.shape[1:]} {images.dtype}".encode()
        for image, label in zip(images, labels, strict=True):
            example = hashlib.blake2b(head + int(label).to_bytes(8, "little", signed=True), digest_size=_BYTES)
            example.update(np.ascontiguousarray(image).data)
            self._sum += int.from_bytes(example.digest(), "little")
        self.count += len(labels)

    def taken(self) -> str:
        """`COUNT:HEX` of all that was added since the last call."""
        text = f"{self.count}:{self._sum % 2 ** (8 * _BYTES):0{2 * _BYTES}x}"
        self.count = self._sum = 0
        return text
