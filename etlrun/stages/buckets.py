"""Boundaries of buckets, by which sequences of like lengths come into one batch, and their batch sizes."""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol

from etlrun.stages.flow import Faults


class Buckets(Protocol):
    """What a config says of buckets; see `Load`."""

    @property
    def boundaries(self) -> tuple[int, ...] | None:
        """Longest sequence of each bucket."""

    @property
    def batch_sizes(self) -> tuple[int, ...] | None:
        """Examples per batch of each bucket."""

    @property
    def tokens_per_batch(self) -> int | None:
        """Items per batch."""

    @property
    def drop_long(self) -> bool:
        """Whether longer sequences are left out."""

    @property
    def batch_size(self) -> int:
        """Examples per batch, if the buckets have no others."""


def sizes_of(buckets: Buckets) -> tuple[int, ...]:
    """Return the number of examples per batch of each bucket."""
    boundaries = buckets.boundaries or ()
    if buckets.tokens_per_batch is not None:
        return tuple(max(buckets.tokens_per_batch // boundary, 1) for boundary in boundaries)
    return buckets.batch_sizes or (buckets.batch_size,) * len(boundaries)


def unfit_buckets(buckets: Buckets) -> Faults:
    """Yield key, found, expected and remedy of each value that the others do not allow."""
    boundaries = buckets.boundaries or ()
    for name in ("batch_sizes", "tokens_per_batch", "drop_long"):
        if not boundaries and (value := getattr(buckets, name)) not in (None, False):
            found = str(value).lower() if value is True else str([*value] if isinstance(value, tuple) else value)
            expected = f"{'false' if name == 'drop_long' else 'null'}, since there are no load.boundaries"
            yield name, found, expected, "set load=bucketed, or leave it out"
    if falling := next((pair for pair in pairwise(boundaries) if pair[0] >= pair[1]), None):
        yield "boundaries", f"{falling[1]} behind {falling[0]}", "integers, each above the one before it", "sort them"
    if boundaries and buckets.batch_sizes is not None and len(buckets.batch_sizes) != len(boundaries):
        expected = f"{len(boundaries)} of them, one for each boundary"
        yield (
            "batch_sizes",
            f"{len(buckets.batch_sizes)} size{'s' * (len(buckets.batch_sizes) != 1)}",
            expected,
            "name as many, or leave it out",
        )
    if boundaries and buckets.batch_sizes is not None and buckets.tokens_per_batch is not None:
        expected = "null, since load.batch_sizes is set"
        yield "tokens_per_batch", str(buckets.tokens_per_batch), expected, "leave out one of the two"
