"""What this machine lends to a process."""

from __future__ import annotations

import os

CORES = {"cores": 0, "cores-1": 1}
"""How configs call a number of calls that follows the machine, with the cores that it leaves to others."""


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def calls_here(word: str, cores: int) -> int:
    """What `cores` or `cores-1` means on a machine of so many; 1 at least."""
    return max(1, cores - CORES[word])
