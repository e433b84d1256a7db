"""Keras backend of the process: framework, device, versions, and a description of the machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata

import psutil

from etlrun.record.summary import Host
from etlrun.run.capability import extra, first_unfit, precision, require_fit
from etlrun.run.compilation import keep_executables
from etlrun.run.hosts.here import here, join, leave
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import WorldError
from etlrun.system.loading import leave_gpus, loading, native_messages_kept
from etlrun.system.machine import VISIBLE, Gpu, cores, driver_gpus, driver_version, listed_ids, processor
from etlrun.system.versions import version_of

_VERSIONED = (
    "etlrun", "tensorflow", "keras", "tensorflow-datasets", "hydra-core", "omegaconf", "numpy", "jax",
)  # fmt: skip

_CUDA = {"tensorflow": ("nvidia-cudnn-cu12",), "jax": ("jax-cuda12-plugin", "jax-cuda13-plugin")}
"""For each backend packages each of which indicates its CUDA libraries."""


@dataclass(frozen=True, kw_only=True)
class Backend:
    """Backend of a run.

    Attributes:
        name: `tensorflow`, `jax` or another Keras backend.
        versions: Versions of Python and of the packages.
        host: `device` (on which a model computes), cores, memory in bytes, operating system, and the names of the GPUs
            that the backend sees (`accelerators`) and that the driver lists (`driver_gpus`).
        unseen: Remedy if `device=auto` finds no GPU though the driver lists one; else empty.
    """

    name: str
    versions: dict[str, str]
    host: Host
    unseen: str


@contextmanager
def prepare(fit: Trainer | None, *, joins: bool = False) -> Iterator[Backend]:
    """Import the backend and set the device and the precision of `fit`; None uses the CPU only.

    A run on several hosts `joins` the others; what is left of it afterwards is used on one.

    Raises:
        WorldError: A GPU is requested, and there is none; or the backend doesn't train on several hosts.
    """
    device = fit.device if fit else "cpu"
    name = _imported(device)
    import keras

    if joins and fit is not None:
        join(name, fit)
    with native_messages_kept():
        found = accelerators()
    listed = driver_gpus()
    if device == "gpu" and not found:
        raise _no_gpu(name, listed)
    if found and fit and device != "cpu":
        require_fit(name, fit, found, listed)
    unseen = _unseen(name, listed) if device == "auto" and not found else ""
    policy = keras.config.dtype_policy()
    chosen = fit and precision(fit, found, listed)
    keras.config.set_dtype_policy(chosen or "float32")  # a notebook may have set another one
    try:
        yield Backend(name=name, versions=_versions(), host=_host(found, listed, fit), unseen=unseen)
        leave()
    finally:
        keras.config.set_dtype_policy(policy)


def _imported(device: str) -> str:
    """Import the backend for the device, and return its name."""
    if device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    with loading():
        import keras
        import tensorflow  # noqa: F401, ICN001 - by JAX Keras doesn't, and TensorFlow would take the GPU's memory, too
        import tensorflow_datasets  # noqa: F401 - imported here, since the run needs it next

        name: str = keras.backend.backend()
        if name != "tensorflow" or device == "cpu":
            leave_gpus()
        if name == "jax" and device == "cpu":
            import jax

            jax.config.update("jax_platforms", "cpu")  # it has read the variable where columns were fitted before
        if name == "jax":
            keep_executables()
    return name


def _no_gpu(name: str, listed: Sequence[Gpu]) -> WorldError:
    though = f", though the driver lists {_names(listed)}" if listed else ""
    return WorldError(
        where=Trainer.key("device"),
        found=f"no GPU that Keras's {name} backend can see{though}",
        expected="a GPU, since trainer.device=gpu",
        remedy=f"{_remedy(name, listed)}, or set trainer.device=auto",
    )


def seed_all(seed: int) -> None:
    """Seed the random number generators of Python, NumPy, TensorFlow and Keras."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(seed)
    tf.random.set_seed(seed + 1)  # with 0, Dataset.shuffle takes no seed that is a tensor


def accelerators() -> list[str]:
    """Return the names of the GPUs that Keras's backend can use; a model computes on the first."""
    import keras

    if keras.backend.backend() == "torch":  # of which Keras lists no devices
        import torch

        is_cpu = os.environ.get("KERAS_TORCH_DEVICE", "").startswith("cpu")
        return [] if is_cpu else [torch.cuda.get_device_name(of) for of in range(torch.cuda.device_count())]
    try:
        found = [str(device) for device in keras.distribution.list_devices("gpu")]
    except RuntimeError:  # raised by JAX if there is none
        return []
    found = found[: len(found) // here().count]
    names = _gpu_names(keras.backend.backend()) if found else []
    return names if len(names) == len(found) else found


def _gpu_names(name: str) -> list[str]:
    """Return the product names of the GPUs of the backend `name`; empty if it provides none."""
    if name == "jax":
        import jax

        return [device.device_kind for device in jax.local_devices(backend="gpu")]
    if name == "tensorflow":
        import tensorflow as tf

        details = [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.get_visible_devices("GPU")]
        return [known["device_name"] for known in details if "device_name" in known]
    return []


def peak_gpu_bytes() -> int | None:
    """Return the peak memory of tensors on the GPU since the process started.

    None without a GPU, or if the backend does not report it.
    """
    import keras

    name = keras.backend.backend()
    if not accelerators():
        return None
    if name == "jax":
        import jax

        return (jax.local_devices(backend="gpu")[0].memory_stats() or {}).get("peak_bytes_in_use")
    if name == "tensorflow":
        import tensorflow as tf

        try:
            return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])
        except ValueError:  # the allocator keeps no statistics
            return None
    return None


def _unseen(name: str, listed: Sequence[Gpu]) -> str:
    """Return a note if the backend sees none of the driver's GPUs although none is hidden; else an empty string."""
    if not listed or _hidden_by(name):
        return ""
    found = f"The driver lists {_names(listed)}, but Keras's {name} backend sees no GPU"
    return f"{found}: {_remedy(name, listed)}, or set trainer.device=cpu"


def _names(listed: Sequence[Gpu]) -> str:
    return ", ".join(gpu.name for gpu in listed)


def _remedy(name: str, listed: Sequence[Gpu]) -> str:
    """Return how to make the driver's GPUs visible to the backend `name`."""
    if not listed:
        return "check the driver and the backend's GPU packages"
    if variable := _hidden_by(name):
        return f"unset {variable}, which hides it"
    if fault := first_unfit(name, listed):
        return f"{fault.remedy} (found {fault.found}; expected {fault.expected})"
    for package in _CUDA.get(name, ()):
        with suppress(metadata.PackageNotFoundError):
            metadata.version(package)
            return "update the driver: the CUDA libraries are installed"
    needed = extra(name, listed, driver_version())
    return f"pip install 'etlrun[{needed}]'" if needed else f"install {name} with its CUDA libraries"


def _hidden_by(name: str) -> str | None:
    """Return the environment variable that hides the GPUs from the backend `name`; None if there is none."""
    if listed_ids() == []:
        return VISIBLE
    platforms = {word.strip() for word in os.environ.get("JAX_PLATFORMS", "").split(",")} - {""}
    return "JAX_PLATFORMS" if name == "jax" and platforms and not platforms & {"cuda", "gpu"} else None


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _VERSIONED:
        try:
            versions[package] = version_of(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _device(found: Sequence[str], fit: Trainer | None) -> str:
    """Return the name of the device on which a model computes, and how many there are."""
    of_host, hosts = _device_of_host(found, fit), here().count
    return of_host if hosts == 1 else f"{of_host}, on each of {hosts} hosts"


def _device_of_host(found: Sequence[str], fit: Trainer | None) -> str:
    if not found:
        return _cpu(fit)
    many, used = len(found), fit.devices if fit else 1
    if used == 1:
        return f"{found[0]} (GPU{f', the first of {many}' if many > 1 else ''})"
    return f"{found[0]} ({many if used == 'all' else used} of {many} GPUs)"


def _cpu(fit: Trainer | None) -> str:
    """Return the name of a device that is none of the GPUs, and how many of it share a batch."""
    import keras

    many = fit.devices if fit else 1
    if many == "all" and keras.backend.backend() != "torch":  # of which Keras lists no devices
        many = len(keras.distribution.list_devices()) // here().count
    return "CPU" if many == 1 else f"CPU ({many} devices)"


def _host(found: Sequence[str], listed: Sequence[Gpu], fit: Trainer | None) -> Host:
    import keras

    return Host(
        device=_device(found, fit),
        processor=processor(),
        cores=cores(),
        memory_bytes=psutil.virtual_memory().total,
        system=platform.platform(),
        accelerators=list(found),
        driver_gpus=[gpu.name for gpu in listed],
        cuda_visible_devices=os.environ.get(VISIBLE),
        precision=keras.config.dtype_policy().name,
    )
