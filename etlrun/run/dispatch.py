"""Steps of a model, one or several in a dispatch, on each backend: see `executions.Steps`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import keras
import numpy as np
import tensorflow as tf


class SleptSteps:
    """Steps of an emulated model, which are sleeps."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, state: Sequence[Any], batches: Sequence[Any]) -> tuple[list[Any], Sequence[Any]]:
        """Sleep for all steps; they have no logs."""
        time.sleep(self._seconds * len(batches))
        return [{} for _ in batches], state

    def trace(self) -> None:
        """Trace nothing."""

    def copied(self, state: Sequence[Any]) -> Any:
        """Return the state, of which nothing changes."""
        return state

    def restored(self, copy: Any) -> Any:
        """Return the same."""
        return copy


class TensorFlowSteps:
    """Steps of a model whose variables hold the state: several are a loop in a graph.

    The loop calls the function of a single step, which is traced once, so that the results are the same to the bit.
    """

    def __init__(self, model: keras.Model, step: Any, spec: Any) -> None:
        """Begin; `step` is a `tf.function` of a batch of `spec`."""
        self._model, self._step, self._spec = model, step, spec
        self._many = cache(self._made)

    def __call__(self, state: Sequence[Any], batches: Sequence[Any]) -> tuple[list[Any], Sequence[Any]]:
        """Take the steps."""
        if len(batches) == 1:
            return [self._step(batches[0])], state
        logs = keras.tree.map_structure(np.asarray, self._many(len(batches))(tuple(batches)))
        return _each(logs, len(batches)), state

    def trace(self) -> object:
        """Trace a single step."""
        return self._step.get_concrete_function()

    def copied(self, state: Sequence[Any]) -> list[Any]:
        """Return the values of all variables."""
        return [np.array(variable) for variable in self._variables()]

    def restored(self, copy: Any) -> Sequence[Any]:
        """Set all variables."""
        for variable, value in zip(self._variables(), copy, strict=True):
            variable.assign(value)
        return ()

    def _variables(self) -> list[Any]:
        model = self._model
        return [*model.variables, *model.optimizer.variables, *model.metrics_variables]

    def _made(self, count: int) -> Callable[[Any], Any]:
        single = self._step.get_concrete_function().structured_outputs

        def many(batches: Any) -> Any:
            stacked = tf.nest.map_structure(lambda *of: tf.stack(of), *batches)
            rows = tf.nest.map_structure(lambda of: tf.TensorArray(of.dtype, count, element_shape=of.shape), single)

            def body(place: Any, rows: Any) -> Any:
                logs = self._step(tf.nest.map_structure(lambda of: of[place], stacked))
                return place + 1, tf.nest.map_structure(lambda row, of: row.write(place, of), rows, logs)

            _, rows = tf.while_loop(lambda place, _: place < count, body, (0, rows), parallel_iterations=1)
            return tf.nest.map_structure(lambda row: row.stack(), rows)

        return tf.function(many, input_signature=[(self._spec,) * count], autograph=False)  # type: ignore[no-any-return]


class JaxSteps:
    """Steps of a model by Keras's stateless `train_step` or `test_step`: several are one `jax.lax.scan`."""

    def __init__(self, step: Callable[[Any, Any], Any]) -> None:
        self._step = step
        self._one: Any = None
        self._many: Any = None

    def __call__(self, state: Sequence[Any], batches: Sequence[Any]) -> tuple[list[Any], Sequence[Any]]:
        """Take the steps; the state that is given is overwritten."""
        import jax

        if self._one is None:
            self._compile(state[0])
        if len(batches) == 1:
            logs, after = self._one(state[0], batches[0])
            return [jax.device_get(logs)], [after]
        logs, after = self._many(state[0], tuple(batches))
        return _each(jax.device_get(logs), len(batches)), [after]

    def _compile(self, state: Any) -> None:
        """Make both functions, whose states are where the given one is: Keras's distribution has shared it."""
        import jax

        def one(state: Any, batch: Any) -> Any:
            return self._step(state, batch)

        def many(state: Any, batches: Any) -> Any:
            stacked = jax.tree.map(lambda *of: jax.numpy.stack(of), *batches)
            after, logs = jax.lax.scan(lambda of, batch: self._step(of, batch)[::-1], state, stacked)
            return logs, after

        is_shared = keras.distribution.distribution() is not None
        places = (None, jax.tree.map(lambda of: of.sharding, state)) if is_shared else None
        self._one, self._many = (jax.jit(of, donate_argnums=0, out_shardings=places) for of in (one, many))

    def trace(self) -> None:
        """Trace nothing: JAX compiles for the shape of a batch."""

    def copied(self, state: Sequence[Any]) -> list[Any]:
        """Return the values."""
        import jax

        return [jax.tree.map(np.array, of) for of in state]

    def restored(self, copy: Any) -> list[Any]:
        """Return new arrays."""
        import jax

        return [jax.tree.map(jax.numpy.array, of) for of in copy]


def _each(logs: Any, count: int) -> list[Any]:
    """Return the logs of each step from those of all, whose values are (count,)."""
    return [keras.tree.map_structure(lambda of: float(of[place]), logs) for place in range(count)]  # noqa: B023
