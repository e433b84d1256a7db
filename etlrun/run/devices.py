"""Data parallelism on the devices of one machine: each computes the gradients of an equal share of every batch.

On JAX it is `keras.distribution.DataParallel`, on TensorFlow `tf.distribute.MirroredStrategy`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from typing import Any

import keras
import tensorflow as tf

from etlrun.graph.build import Passes
from etlrun.planning.plan import undivided
from etlrun.run.backend import unfit_keras
from etlrun.run.hosts import here
from etlrun.stages.load import Load
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import ConfigError, WorldError

_JIT = {"jax": True, "tensorflow": False}
"""For each backend with several devices, whether XLA compiles their steps.

Without it JAX would take each operation of a step by itself, and TensorFlow's devices can't meet inside.
"""
_strategy: tf.distribute.Strategy | None = None


def listed(trainer: Trainer) -> list[str]:
    """Return Keras's names of the devices that share the batches of a training, such as `gpu:0`; empty if one has all.

    Raises:
        WorldError: The backend has fewer devices, or can't share batches as the config says.
    """
    name, wanted = keras.backend.backend(), trainer.devices
    if wanted == here().count == 1:
        return []
    if name not in _JIT:
        raise _unfit(trainer, "devices", wanted, f"1 with Keras's {name} backend", "set trainer.devices=1")
    if fault := unfit_keras(trainer, name, keras.__version__):
        raise WorldError(fault.where, fault.found, fault.expected, fault.remedy)
    every = [*map(str, keras.distribution.list_devices())]
    count = here().count
    if count > 1:
        _as_many(trainer, len(every), count)
    found = every[: len(every) // count]
    if wanted != "all" and wanted > len(found):
        expected = f"at most {len(found)}, the devices that Keras's {name} backend has: {', '.join(found)}"
        raise _unfit(trainer, "devices", wanted, expected, f"set trainer.devices={len(found)}, or all")
    if trainer.jit_compile not in (None, "auto", _JIT[name]):
        needed = f"{str(_JIT[name]).lower()} or auto with several devices of Keras's {name} backend"
        raise _unfit(trainer, "jit_compile", str(trainer.jit_compile).lower(), needed, "set trainer.jit_compile=auto")
    for key, value in _of_whole_gradient(trainer).items() if name == "tensorflow" else ():
        needed = (
            "null with several devices of Keras's tensorflow backend, each of which would do it to its own gradients"
        )
        raise _unfit(
            trainer, key, value, needed, "set the environment variable KERAS_BACKEND=jax, or trainer.devices=1"
        )
    used = len(found) if wanted == "all" else wanted
    names = [name for start in range(0, len(every), len(found)) for name in every[start : start + used]]
    return names if len(names) > 1 else []


def _as_many(trainer: Trainer, every: int, hosts: int) -> None:
    """Raise `WorldError` if this host has not as many devices as the others have in the mean."""
    import jax

    own = jax.local_device_count()
    if own * hosts != every:
        expected = f"equally many devices on all {hosts} hosts, which have {every} together"
        raise _unfit(
            trainer,
            "devices",
            f"{trainer.devices}, with {own} devices on this host",
            expected,
            "use hosts of the same kind",
        )


def _of_whole_gradient(trainer: Trainer) -> dict[str, float]:
    steps = trainer.gradient_accumulation_steps
    return trainer.clipping | ({} if steps is None else {"gradient_accumulation_steps": steps})


def _unfit(trainer: Trainer, name: str, found: object, expected: str, remedy: str) -> WorldError:
    return WorldError(trainer.key(name), str(found), expected, remedy)


@contextmanager
def distributed(trainer: Trainer, load: Load) -> Iterator[None]:
    """Share the batches of models that are made inside, in `scope`, among the devices of `trainer`.

    Raises:
        WorldError: There are too few devices.
        ConfigError: The batch can't be divided among them.
    """
    global _strategy  # noqa: PLW0603 - as Keras's own distribution, of which it is the counterpart
    names = listed(trainer)
    if not names:
        yield
        return
    if faults := [*undivided(replace(load, batch_size=load.batch_size * here().count), trainer, len(names))]:
        raise ConfigError(faults)
    if keras.backend.backend() == "jax":
        with keras.distribution.DataParallel(devices=names, auto_shard_dataset=False).scope():
            yield
        return
    _strategy = _mirrored(tuple(names))
    try:
        yield
    finally:
        _strategy = None


@cache
def _mirrored(names: tuple[str, ...]) -> tf.distribute.Strategy:
    """Return the strategy of a process: a second one would number its collective operations as the first did."""
    return tf.distribute.MirroredStrategy([name.upper() for name in names])


def scope() -> AbstractContextManager[Any]:
    """Return the scope in which a model, its optimizer and its metrics get a copy of each variable on each device."""
    return nullcontext() if _strategy is None else _strategy.scope()


def shares() -> int:
    """Return the number of equal shares of each batch that this host has, one for each of its devices."""
    distribution = keras.distribution.distribution()
    if distribution is not None:
        return int(distribution.device_mesh.shape[0]) // here().count
    return 1 if _strategy is None else int(_strategy.num_replicas_in_sync)


def shared_equally(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return `dataset` without the last examples of a batch that has no equal shares: the last one of a pass."""
    count = shares()

    def batches() -> Iterator[Any]:
        for batch in dataset:
            examples = len(tf.nest.flatten(batch)[0])
            shared = examples - examples % count
            if shared == examples:
                yield batch
            elif shared:
                yield tf.nest.map_structure(lambda of: of[:shared], batch)  # noqa: B023 - called at once

    return dataset if count == 1 else Passes(dataset, batches)


def without_strategy(model: keras.Model) -> keras.Model:
    """Return `model`, of which Keras's loops don't know that it has copies.

    They would distribute its dataset, whose reading is measured, and read a batch to build it; here a step divides its
    batch.
    """
    if _strategy is not None:
        model._distribute_strategy = None  # noqa: SLF001 - Keras has no other way
    return model


def shared(model: keras.Model, step: Callable[[Any], Any]) -> Callable[[Any], Any] | None:
    """Return the function of a batch that takes a `step` on each device with its share; it returns metrics.

    None if TensorFlow uses one device.
    """
    strategy = _strategy
    if strategy is None:
        return None

    def on_batch(batch: Any) -> Any:
        split = [tf.split(of, strategy.num_replicas_in_sync) for of in tf.nest.flatten(batch)]
        shares = [tf.nest.pack_sequence_as(batch, [*of]) for of in zip(*split, strict=True)]
        each = strategy.experimental_distribute_values_from_function(lambda at: shares[at.replica_id_in_sync_group])
        with _joint_moments(model):
            strategy.run(step, args=(each,))
        return model.get_metrics_result()

    return on_batch


@contextmanager
def _joint_moments(model: keras.Model) -> Iterator[None]:
    """Let batch norms use the moments of the whole batch while a step is traced; a saved model has no trace of it."""
    layers = [*_batch_norms(model)]
    for layer in layers:
        layer.synchronized = True
    try:
        yield
    finally:
        for layer in layers:
            layer.synchronized = False


def _batch_norms(model: keras.Model) -> Iterator[keras.layers.BatchNormalization]:
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _batch_norms(layer)
        elif isinstance(layer, keras.layers.BatchNormalization):
            yield layer
