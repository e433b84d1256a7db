"""Digest of the examples that a run has read, independent of their order and of the batches."""

import hashlib
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

_BYTES = 16
_EXAMPLE = 1 << (8 * _BYTES + 64)
"""An example in a total, which has their number above the sum of their hashes, of which there are less than 2**64."""
_THREADS = 4
"""Number of batches that are hashed concurrently, and so held in memory."""


class Digest:
    """Sum of the hashes of all examples, modulo 2**128, with their count.

    A sum is independent of the order and, unlike an exclusive-or, counts repeated examples. Each hash is
    BLAKE2b over the names, shapes, dtypes and bytes of the features. An integer target counts by its value, and the
    only input of a model without its name, as the only target.
    Source: Bellare and Micciancio, "A New Paradigm for Collision-Free Hashing: Incrementality at Reduced Cost",
    Eurocrypt 1997 (AdHash; at 128 bits a guard against mistakes, not against an attacker).
    """

    def __init__(self, sequences: Collection[str] = ()) -> None:
        """Begin with no example; `sequences` are the names of inputs that have padding at their ends."""
        self._sequences, self._total = sequences, 0
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="etlrun-digest")
        self._hashing: deque[Future[int]] = deque()

    def add(self, inputs: Any, targets: Any, *weights: Any) -> None:
        """Add a batch, as arrays or tensors (batch, …): `inputs` and `targets` are one, or several by their names.

        It is hashed in the background; the caller waits only if all threads are busy.
        """
        if len(self._hashing) == _THREADS:
            self._total += self._hashing.popleft().result()
        batch = self._sequences, inputs, targets, *weights
        self._hashing.append(self._pool.submit(lambda: _total(hashes(*batch))))

    def taken(self, ahead: int = 0) -> str:
        """Return `COUNT:HEX` of the examples added since the last call, without the last `ahead` batches.

        These count for the next call. Waits until the others are hashed.
        """
        text = self.so_far(ahead)
        self._total = 0
        return text

    def so_far(self, ahead: int) -> str:
        """Return `COUNT:HEX` without the last `ahead` batches, and go on; `taken` resets it."""
        while len(self._hashing) > ahead:
            self._total += self._hashing.popleft().result()
        return _text(self._total)

    def resume(self, text: str) -> None:
        """Add what `so_far` returned in an earlier process."""
        self._total += _total_of(text)

    def close(self) -> None:
        """Release the threads; nothing may be added or taken afterwards."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def union(digests: Iterable[str]) -> str:
    """Return the digest of all examples that have been added to any of `digests`."""
    return _text(sum(map(_total_of, digests)))


def hashes(sequences: Collection[str], inputs: Any, targets: Any, *weights: Any) -> Iterator[bytes]:
    """Yield the hash of each example of a batch, in their order; arguments are those of `Digest`. Releases the GIL."""
    named = sorted(inputs.items()) if isinstance(inputs, Mapping) else [("", inputs)]
    columns = [(name, np.asarray(of)) for name, of in named]
    padded = {name for name, _ in columns if name in sequences or (sequences and not name)}
    shapes = {name: ("?", *of.shape[2:]) if name in padded else of.shape[1:] for name, of in columns}
    head = " ".join(f"{f'{name!r} ' if name else ''}{shapes[name]} {of.dtype}" for name, of in columns).encode()
    targets = (
        {f" {name!r}": of for name, of in sorted(targets.items())} if isinstance(targets, Mapping) else {"": targets}
    )
    wanted = [(name.encode(), np.asarray(of)) for name, of in (*targets.items(), *((" weight", of) for of in weights))]
    if len(lengths := {len(of) for _, of in (*columns, *wanted)}) > 1:
        raise ValueError(f"a batch has values of {sorted(lengths)} examples")
    for row in range(*lengths):
        each = (name + _target(of[row]) for name, of in wanted)
        example = hashlib.blake2b(head + b"".join(each), digest_size=_BYTES)
        for name, of in columns:
            example.update(_data(_without_padding(of[row]) if name in padded else of[row]))
        yield example.digest()


def digest_of(found: Iterable[bytes]) -> str:
    """Return the digest of the examples with these hashes, as `Digest` gives it."""
    return _text(_total(found))


def _total(hashes: Iterable[bytes]) -> int:
    return sum(_EXAMPLE + int.from_bytes(each, "little") for each in hashes)


def _total_of(text: str) -> int:
    count, total = text.split(":")
    return int(count) * _EXAMPLE + int(total, 16)


def _text(total: int) -> str:
    return f"{total // _EXAMPLE}:{total % 2 ** (8 * _BYTES):0{2 * _BYTES}x}"


def _without_padding(items: Any) -> Any:
    """Return the items of a sequence without the padding at its end: NaN behind numbers, zeros behind others."""
    flat = items.reshape(len(items), -1)
    there = np.flatnonzero((~np.isnan(flat) if flat.dtype.kind == "f" else flat).any(axis=1))
    return items[: there[-1] + 1] if len(there) else items[:0]


def _target(target: Any) -> bytes:
    if isinstance(target, np.integer):
        return int(target).to_bytes(8, "little", signed=True)
    kind = "text" if isinstance(target, bytes) else f"{target.shape} {target.dtype}"
    return f" -> {kind} ".encode() + bytes(_data(target))


def _data(feature: Any) -> Any:
    """Return the bytes of a feature; those of text are prefixed with their length, so that joined texts differ."""
    if isinstance(feature, bytes):
        return len(feature).to_bytes(8, "little") + feature
    return np.ascontiguousarray(feature).data
