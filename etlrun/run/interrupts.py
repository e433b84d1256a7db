"""Ctrl-C and polite kills (SIGTERM): both end a run, and one that a library swallows is raised again by the loop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_is_told = False


@contextmanager
def interrupts() -> Iterator[None]:
    """Within the block a SIGINT or SIGTERM raises `KeyboardInterrupt`, whatever a library has made of it."""
    global _is_told  # noqa: PLW0603 - a process has one main thread, to which signals come
    _is_told = False
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except Exception as error:
        if _is_told:
            raise KeyboardInterrupt from error
        raise
    finally:
        _is_told = False
        for number, handler in before.items():
            signal.signal(number, handler)


def raise_if_interrupted() -> None:
    """`KeyboardInterrupt` where one was raised before, and somebody has swallowed it."""
    if _is_told:
        raise KeyboardInterrupt


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    global _is_told  # noqa: PLW0603
    _is_told = True
    raise KeyboardInterrupt
