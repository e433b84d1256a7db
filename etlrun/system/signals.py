"""Signals that arrive while the main thread waits in a library, where Python calls no handler of them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

_ENDS = (signal.SIGINT, signal.SIGTERM)
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
    threading.Thread(target=_watch, args=(arrives,), name="signals", daemon=True).start()


def _watch(arrives: int) -> None:
    while numbers := os.read(arrives, 1):
        if numbers[0] in _ENDS:
            for call in _calls:
                call()


def _forget() -> None:
    """Leave the signals of this process, which was forked, to itself: the pipe is that of its parent."""
    if _calls:
        _calls.clear()
        signal.set_wakeup_fd(-1)


os.register_at_fork(after_in_child=_forget)
