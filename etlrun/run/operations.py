"""Operations that a training needs, tried one by one on the device of Keras's backend."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import keras
import numpy as np

from etlrun.system.errors import headline
from etlrun.system.values import frozen

_CALLS = 5
_BATCH = (32, 224, 224, 3)
_SIDE = 1024


@frozen
class Tried:
    """An operation that was tried.

    Attributes:
        operation: What was computed, and of what.
        is_compiled: Whether XLA compiled it.
        first_s: Duration of the first call, which traces and compiles; None if it failed.
        call_ms: Median duration of later calls, with the copy of a sum to the host.
        error: What the backend said if it failed; else empty.
    """

    operation: str
    is_compiled: bool
    first_s: float | None = None
    call_ms: float | None = None
    error: str = ""


def tried(dtype: str) -> Iterator[Tried]:
    """Yield what a convolution, a product of matrices of `dtype` and a copy of a batch come to, compiled and not."""
    batch = np.random.default_rng(0).integers(0, 256, _BATCH, np.uint8)
    shape = " x ".join(map(str, _BATCH))
    operations = {
        f"convolution of {shape}, float32": (_convolved, lambda: _on_device(batch.astype("float32"))),
        f"product of {_SIDE} x {_SIDE}, {dtype}": (
            _squared,
            lambda: keras.ops.cast(_on_device(np.ones((_SIDE, _SIDE), "float32")), dtype),
        ),
        f"copy of {shape}, uint8": (_summed, None),
    }
    for name, (function, made) in operations.items():
        for is_compiled in (False, True):
            yield _tried(name, function, made or (lambda: batch), is_compiled=is_compiled)


def _tried(name: str, function: Callable[[Any], Any], made: Callable[[], Any], *, is_compiled: bool) -> Tried:
    seconds = []
    try:
        given, call = made(), _called(function, is_compiled=is_compiled)
        for _ in range(1 + _CALLS):
            began_s = time.perf_counter()
            found = float(keras.ops.convert_to_numpy(call(_on_device(given))))
            seconds.append(time.perf_counter() - began_s)
    except Exception as error:  # noqa: BLE001 - backends, XLA and CUDA may raise anything: it is the result
        return Tried(operation=name, is_compiled=is_compiled, error=f"{type(error).__name__}: {headline(error)}")
    wrong = "" if np.isfinite(found) else f"the sum is {found}"
    return Tried(
        operation=name,
        is_compiled=is_compiled,
        first_s=seconds[0],
        call_ms=median(seconds[1:]) * 1000,
        error=wrong,
    )


def _called(function: Callable[[Any], Any], *, is_compiled: bool) -> Callable[[Any], Any]:
    """Return `function` as the backend calls it in a step, compiled by XLA or not."""
    name = keras.backend.backend()
    if name == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=is_compiled, autograph=False)  # type: ignore[no-any-return]
    if name == "jax" and is_compiled:
        import jax

        return jax.jit(function)  # type: ignore[no-any-return]
    return function


def _on_device(values: Any) -> Any:
    return keras.ops.convert_to_tensor(values)


def _convolved(images: Any) -> Any:
    kernel = keras.ops.ones((3, 3, images.shape[-1], 32), images.dtype)
    return _summed(keras.ops.conv(images, kernel, strides=2, padding="same"))


def _squared(matrix: Any) -> Any:
    return _summed(keras.ops.matmul(matrix, matrix))


def _summed(values: Any) -> Any:
    return keras.ops.sum(keras.ops.cast(values, "float32"))
