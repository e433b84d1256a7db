"""Differences of what installed packages add to a run."""

from __future__ import annotations


def of_packages(old: str, new: str) -> tuple[str, str, str]:
    """Return package and version of both sides of `Plan.code`, with what differs beside them.

    The code itself is told apart only where its package and its version are the same.
    """
    (was, _, before), (now, _, after) = (text.rpartition(", code ") for text in (old, new))
    if was == now:
        return old, new, "other code of the same version"
    return was, now, "with the same code" if before == after else ""
