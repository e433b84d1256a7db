"""Threads that check images and write shards: reading, hashing and decoding leave Python's lock to each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from etlrun.system.machine import cores

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def threads() -> Iterator[ThreadPoolExecutor]:
    """Yield a thread for each core; what has not begun when the block ends, as with an error, never does."""
    pool = ThreadPoolExecutor(cores())
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def in_order(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield the result of `work` on each item, in their order; for each core, two items or results are held at once."""
    begun: deque[Future[Result]] = deque()
    with threads() as pool:
        for item in items:
            begun.append(pool.submit(work, item))
            if len(begun) == 2 * cores():
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
