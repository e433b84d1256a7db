"""Data parallelism on the devices of one machine: each computes the gradients of an equal share of every batch.

On JAX it is `keras.distribution.DataParallel`, on TensorFlow `tf.distribute.MirroredStrategy`.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import keras
import tensorflow as tf

from etlrun.cluster.hosts import here
from etlrun.graph.build import Passes
from etlrun.run.backend import unfit_keras
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import EtlrunError, WorldError, refuse

_JIT = {"jax": True, "tensorflow": False}
"""For each backend with several devices, whether XLA compiles their steps.

Without it JAX would take each operation of a step by itself, and TensorFlow's devices can't meet inside.
"""
_strategy: tf.distribute.Strategy | None = None


def listed(trainer: Trainer) -> list[str]:
    """Return Keras's names of the devices that share the batches of a training, such as `gpu:0`; empty if one has all.

    Raises `EtlrunError` if the backend has fewer devices, or can't share batches as the config says.
    """
    name, wanted, hosts = keras.backend.backend(), trainer.devices, here().count
    if wanted == hosts == 1:
        return []
    refuse([unfit_keras(trainer, name, keras.__version__)], EtlrunError)
    every = [*map(str, keras.distribution.list_devices())]
    if hosts > 1:
        import jax

        if (own := jax.local_device_count()) * hosts != len(every):
            expected = f"equally many devices on all {hosts} hosts, which have {len(every)} together"
            found = f"{wanted}, with {own} devices on this host"
            raise _unfit("devices", found, expected, "use hosts of the same kind")
    many = len(every) // hosts
    if wanted != "all" and wanted > many:
        expected = f"at most {many}, the devices that Keras's {name} backend has: {', '.join(every[:many])}"
        raise _unfit("devices", wanted, expected, f"set trainer.devices={many}, or all")
    if trainer.jit_compile not in (None, "auto", _JIT[name]):
        expected = f"{str(_JIT[name]).lower()} or auto with several devices of Keras's {name} backend"
        raise _unfit("jit_compile", str(trainer.jit_compile).lower(), expected, "set trainer.jit_compile=auto")
    of_whole = {key: getattr(trainer, key) for key in ("global_clipnorm", "gradient_accumulation_steps")}
    for key in [key for key, value in of_whole.items() if value is not None and name == "tensorflow"]:
        expected = "null with several devices of Keras's tensorflow backend: each would apply it to its own gradients"
        remedy = "set the environment variable KERAS_BACKEND=jax, or trainer.devices=1"
        raise _unfit(key, of_whole[key], expected, remedy)
    used = many if wanted == "all" else wanted
    names = [name for start in range(0, len(every), many) for name in every[start : start + used]]
    return names if len(names) > 1 else []


def _unfit(name: str, found: object, expected: str, remedy: str) -> WorldError:
    return WorldError(Trainer.key(name), str(found), expected, remedy)


@contextmanager
def distributed(trainer: Trainer) -> Iterator[None]:
    """Share the batches of models made inside, in `scope`, among the trainer's devices; `EtlrunError` for too few."""
    global _strategy  # noqa: PLW0603 - as Keras's own distribution, of which it is the counterpart
    names = listed(trainer)
    if not names:
        yield
        return
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


def shared(model: keras.Model, step: Callable[[Any], Any]) -> Callable[[Any], Any] | None:
    """Return the function of a batch that takes a `step` on each device, and gives metrics; None with one device."""
    strategy = _strategy
    if strategy is None:
        return None

    def on_batch(batch: Any) -> Any:
        split = [tf.split(of, strategy.num_replicas_in_sync) for of in tf.nest.flatten(batch)]
        shares = [tf.nest.pack_sequence_as(batch, [*of]) for of in zip(*split, strict=True)]
        each = strategy.experimental_distribute_values_from_function(lambda at: shares[at.replica_id_in_sync_group])
        layers = [*_batch_norms(model)]  # which use the moments of the whole batch, of which a saved model has no trace
        for layer in layers:
            layer.synchronized = True
        try:
            strategy.run(step, args=(each,))
        finally:
            for layer in layers:
                layer.synchronized = False
        return model.get_metrics_result()

    return on_batch


def _batch_norms(model: keras.Model) -> Iterator[keras.layers.BatchNormalization]:
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _batch_norms(layer)
        elif isinstance(layer, keras.layers.BatchNormalization):
            yield layer
