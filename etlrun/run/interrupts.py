"""Handling of SIGINT and SIGTERM: both end a run, even if a library swallows the exception."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_is_interrupted = False


@contextmanager
def interrupts() -> Iterator[None]:
    """Raise `KeyboardInterrupt` for a SIGINT or SIGTERM in the block, even if a library replaces the exception.

    In another thread than the main one, to which alone Python delivers signals, nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    global _is_interrupted  # noqa: PLW0603 - signals are delivered to the one main thread
    _is_interrupted = False
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except Exception as error:
        if _is_interrupted:
            raise KeyboardInterrupt from error
        raise
    finally:
        _is_interrupted = False
        for number, handler in before.items():
            signal.signal(number, handler)


def raise_if_interrupted() -> None:
    """Raise `KeyboardInterrupt` again if a library has swallowed it."""
    if _is_interrupted:
        raise KeyboardInterrupt


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    global _is_interrupted  # noqa: PLW0603
    _is_interrupted = True
    raise KeyboardInterrupt
