"""SIGINT and SIGTERM, which end a run even if a library swallows the exception; and how processes end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
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


_calls: list[Callable[[], None]] = []


def call_when_interrupted(call: Callable[[], None]) -> None:
    """Call a function in a thread of its own at each SIGINT or SIGTERM, before their handlers.

    Nothing is called if this isn't the main thread, or if another library, such as an event loop, is told of signals.
    """
    if _calls:
        _calls[:] = [*dict.fromkeys([*_calls, call])]
        return
    if threading.current_thread() is not threading.main_thread():
        return
    arrives, leaves = os.pipe()
    os.set_blocking(leaves, False)  # as a signal's handler demands
    before = signal.set_wakeup_fd(leaves, warn_on_full_buffer=False)
    if before != -1:
        signal.set_wakeup_fd(before)
        os.close(arrives)
        os.close(leaves)
        return
    _calls.append(call)

    def watch() -> None:
        while numbers := os.read(arrives, 1):
            if numbers[0] in (signal.SIGINT, signal.SIGTERM):
                for each in _calls:
                    each()

    threading.Thread(target=watch, name="signals", daemon=True).start()


def _forget() -> None:
    """Leave the signals of this process, which was forked, to itself: the pipe is that of its parent."""
    if _calls:
        _calls.clear()
        signal.set_wakeup_fd(-1)


os.register_at_fork(after_in_child=_forget)


_POLL_S = 0.5
"""Interval of the checks that the fork server is alive."""


def end_with_parent() -> None:
    """Wait for the end of the process that has asked for this one, or of its fork server, and end this one."""
    import multiprocessing  # which other commands don't need
    from multiprocessing import connection

    parent, server = multiprocessing.parent_process(), os.getppid()
    if parent:
        while not connection.wait([parent.sentinel], timeout=_POLL_S) and os.getppid() == server:
            continue
        os.kill(os.getpid(), signal.SIGKILL)


def how_ended(status: int) -> str:
    """Return the name of the signal that ended a process of this status, or its exit status."""
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"
