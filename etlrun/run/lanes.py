"""Lanes: sequences of batches that threads read from a service, so that a server that is gone holds up nobody."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import cancellation

_PUT_S = 0.1
"""Interval at which a thread with a full queue looks whether its lane is closed."""
_END_S = 2.0
"""Longest wait for the thread of a closed lane."""
_END = object()


@tf.function(autograph=False)  # type: ignore[untyped-decorator]
def _next_of(iterator: Any) -> Any:
    return iterator.get_next_as_optional()


class Lane:
    """The elements of a dataset that other processes compute, read ahead by a thread.

    Reading can be cancelled, which an iterator of its own can't: its `next` waits for a server without end.
    """

    def __init__(self, make: Callable[[], tf.data.Dataset], capacity: int) -> None:
        """Start to read what `make` returns, which is called in the thread; at most `capacity` elements ahead."""
        self._found: queue.Queue[tuple[Any, Any]] = queue.Queue(capacity)
        self._closed, self._cancel = threading.Event(), cancellation.CancellationManager()
        work = (make, self._found, self._closed, self._cancel)
        self._thread = threading.Thread(target=_read, args=work, name="etlrun-lane", daemon=True)
        self._thread.start()
        self._finalizer = weakref.finalize(self, _close, self._closed, self._cancel)

    def take(self, timeout_s: float) -> Any:
        """Return the next element.

        Raises:
            queue.Empty: There is none after `timeout_s`.
            StopIteration: There are no more.
            tf.errors.OpError: A server refuses, or can't read or transform an example.
        """
        element, error = self._found.get(timeout=timeout_s)
        if error is not None:
            self._found.put((element, error))
            raise error
        return element

    def close(self) -> None:
        """Stop reading; does not wait for it."""
        self._finalizer()

    def join(self) -> None:
        """Wait for the end of the thread of a lane that is closed, but not for long."""
        self._thread.join(_END_S)


def _close(closed: threading.Event, cancel: Any) -> None:
    closed.set()
    cancel.start_cancel()


def _read(make: Callable[[], tf.data.Dataset], found: queue.Queue[Any], closed: threading.Event, cancel: Any) -> None:
    try:
        with tf.device("/CPU:0"):
            iterator = iter(make())
            read = cancel.get_cancelable_function(_next_of.get_concrete_function(iterator))
            while not closed.is_set() and (element := read(iterator)).has_value():
                _put(found, (element.get_value(), None), closed)
        _put(found, (None, StopIteration()), closed)
    except Exception as error:  # noqa: BLE001 - raised where the element is taken
        _put(found, (None, error), closed)


def _put(found: queue.Queue[Any], element: Any, closed: threading.Event) -> None:
    while not closed.is_set():
        try:
            found.put(element, timeout=_PUT_S)
        except queue.Full:
            continue
        return
