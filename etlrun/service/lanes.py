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
_END = object()


class Lane:
    """The elements of a dataset that other processes compute, read ahead by a thread.

    Reading can be cancelled, which an iterator of its own can't: its `next` waits for a server without end.

    Attributes:
        thread: The thread, which ends soon after the lane is closed or deleted.
    """

    def __init__(self, make: Callable[[], tf.data.Dataset], capacity: int) -> None:
        """Start to read what `make` returns, which is called in the thread; at most `capacity` elements ahead."""
        self._found: queue.Queue[tuple[Any, Any]] = queue.Queue(capacity)
        self._closed, self._cancel = threading.Event(), cancellation.CancellationManager()
        work = (make, self._found, self._closed, self._cancel)
        self.thread = threading.Thread(target=_read, args=work, name="etlrun-lane", daemon=True)
        self.thread.start()
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


def _close(closed: threading.Event, cancel: Any) -> None:
    closed.set()
    cancel.start_cancel()


def _read(make: Callable[[], tf.data.Dataset], found: queue.Queue[Any], closed: threading.Event, cancel: Any) -> None:
    try:
        with tf.device("/CPU:0"):
            iterator = iter(make())
            read = cancel.get_cancelable_function(_traced(iterator))
            while not closed.is_set() and (element := read(iterator)).has_value():
                _put(found, (element.get_value(), None), closed)
        _put(found, (None, StopIteration()), closed)
    except Exception as error:  # noqa: BLE001 - raised where the element is taken
        _put(found, (None, error), closed)


def _traced(iterator: Any) -> Any:
    """Return a function of a lane's own that gets the next element.

    TensorFlow has one thread for all calls of a function: a lane that waits for a server that is gone would hold up all
    that share it.
    """
    next_of = tf.function(lambda of: of.get_next_as_optional(), autograph=False)
    return next_of.get_concrete_function(iterator)


def _put(found: queue.Queue[Any], element: Any, closed: threading.Event) -> None:
    while not closed.is_set():
        try:
            found.put(element, timeout=_PUT_S)
        except queue.Full:
            continue
        return
