"""Facts on a change: what a short pass of both sides has read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a short pass of both sides has read.

    Attributes:
        lines: The facts, a sentence each.
        is_same: Whether both sides have read the same examples, in any order; None if that is unknown.
        is_ordered: Whether they were in the same order; None if that is unknown.
        digests: Digest of each side, by pipeline.
        contradicts: Whether this is not what the comparison of the plans says.
    """

    lines: list[str]
    is_same: bool | None
    is_ordered: bool | None
    digests: dict[str, tuple[str, str]]
    contradicts: bool = False
