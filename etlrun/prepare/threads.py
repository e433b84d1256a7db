"""Threads that check images and write shards: reading, hashing and decoding leave Python's lock to each other."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from etlrun.machine import cores


@contextmanager
def threads() -> Iterator[ThreadPoolExecutor]:
    """Yield a thread for each core; what has not begun when the block ends, as with an error, never does."""
    pool = ThreadPoolExecutor(cores())
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
