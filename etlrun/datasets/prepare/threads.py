"""Threads that check images and write shards: reading, hashing and decoding leave Python's lock to each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from etlrun.system.machine import cores

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    work: Callable[[Item], Result], items: Iterable[Item], ended: Callable[[], object] = lambda: None
) -> Iterator[Result]:
    """Yield the result of `work` on each item, in their order; for each core, two items or results are held at once.

    There is a thread for each core. What has not begun when an error ends it never does; `ended` is called before what
    goes on is waited for.
    """
    begun: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(cores())
    try:
        for item in items:
            begun.append(pool.submit(work, item))
            if len(begun) == 2 * cores():
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        ended()
        pool.shutdown(cancel_futures=True)
