"""The process's backend: which framework computes, on which device, and what machine this is."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import psutil

from etlrun.errors import WorldError
from etlrun.machine import cores
from etlrun.stages.trainer import Drain, Trainer

_VERSIONED = (
    "etlrun", "tensorflow", "keras", "tensorflow-datasets", "hydra-core", "omegaconf", "numpy", "jax",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Backend:
    """What computes.

    Attributes:
        name: `tensorflow`, `jax` or another of Keras's.
        versions: By package, and of Python.
        host: Cores, memory in bytes, operating system, accelerators.
    """

    name: str
    versions: dict[str, str]
    host: dict[str, Any]


@contextmanager
def prepare(trainer: Trainer | Drain) -> Iterator[Backend]:
    """Import the backend and set it up as `trainer` asks: device, precision. To drain needs the CPU alone.

    Raises:
        WorldError: A GPU or TensorBoard logs are asked for, and there is no GPU or no package for it.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    fit = trainer if isinstance(trainer, Trainer) else None
    device = fit.device if fit else "cpu"
    if device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    with native_messages_kept():
        import keras
        import tensorflow as tf

        name = keras.backend.backend()
        if name != "tensorflow" or device == "cpu":
            tf.config.set_visible_devices([], "GPU")
        found = accelerators()
    if device == "gpu" and not found:
        raise WorldError(
            where="trainer.device",
            found=f"no GPU that Keras's {name} backend can see",
            expected="a GPU, since trainer.device=gpu",
            remedy="check the driver and the backend's GPU packages, or set trainer.device=auto",
        )
    if fit and fit.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise WorldError(
            where="trainer.tensorboard",
            found="no package tensorboard",
            expected="the package that writes the logs, since trainer.tensorboard=true",
            remedy="pip install 'etlrun[tensorboard]', or set trainer.tensorboard=false",
        )
    policy = keras.config.dtype_policy()
    if fit and fit.mixed_precision is not None:
        keras.config.set_dtype_policy(fit.mixed_precision)
    try:
        yield Backend(name=name, versions=_versions(), host=_host(found))
    finally:
        keras.config.set_dtype_policy(policy)


def seed_all(seed: int) -> None:
    """Have everything random that is drawn from here on follow from `seed`: Python, NumPy, TensorFlow and Keras."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(seed)
    tf.random.set_seed(seed + 1)  # with 0, Dataset.shuffle takes no seed that is a tensor


def accelerators() -> list[str]:
    """The GPUs that Keras's backend can use."""
    import keras

    try:
        return [str(device) for device in keras.distribution.list_devices("gpu")]
    except RuntimeError:  # JAX's way to say that there is none
        return []


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _VERSIONED:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _host(found: list[str]) -> dict[str, Any]:
    return {
        "cores": cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "accelerators": found,
    }


@contextmanager
def native_messages_kept() -> Iterator[None]:
    """Hold back what native libraries write to stderr while they load; show it if the block fails.

    TensorFlow reports missing CUDA drivers there on every machine without a GPU, before any log level
    is read.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            os.write(saved, kept.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
