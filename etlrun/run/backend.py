"""Keras backend of the process: framework, device, versions, and whether the GPUs fit what it is built for."""

import os
import platform
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path

import platformdirs
import psutil
from packaging.version import parse

from etlrun.cluster.hosts import here, join_hosts, leave
from etlrun.record.summary import Host
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import Fault, WorldError
from etlrun.system.loading import keras_backend, leave_gpus, loading, native_messages_kept, pip_install, version_of
from etlrun.system.machine import VISIBLE, Gpu, Version, cores, driver_gpus, driver_version, listed_ids, processor
from etlrun.system.values import frozen, sha256_of

_DRIVERS = {12: 525, 13: 580}
"""For each version of CUDA the oldest driver, by its first number."""
_OF_JAX: dict[int, Version] = {13: (7, 5), 12: (5, 2)}
"""For each version of CUDA that JAX has a plugin for, the lowest compute capability; the newest version is first."""
_NEWEST, _OLDEST = max(_OF_JAX), min(_OF_JAX)
_BFLOAT16, _FLOAT16 = (8, 0), (7, 0)
"""Lowest compute capabilities whose tensor cores multiply these."""
_CUDNN = (9, 24)
"""First version of cuDNN whose convolutions XLA compiles: public reports have 9.3 and 9.5 fail."""

_SHARES = (3, 15)
"""First version of Keras whose JAX backend builds models for several devices."""


@frozen
class Built:
    """What a backend is built for.

    Attributes:
        name: Name and version of the package with its kernels.
        cuda: First number of the version of CUDA.
        least: Lowest compute capability.
        most: First number of the highest compute capability; None if its compiler knows all that this CUDA knows.
    """

    name: str
    cuda: int
    least: Version
    most: int | None = None


def built_for(backend: str) -> Built | None:
    """Return what Keras's `backend` is built for; None if it has no CUDA."""
    if backend == "tensorflow":
        import tensorflow as tf

        return of_build_info(f"TensorFlow {tf.__version__}", tf.sysconfig.get_build_info())
    for cuda, least in _OF_JAX.items():
        if version := _installed(f"jax-cuda{cuda}-plugin"):
            return Built(name=f"jax-cuda{cuda}-plugin {version}", cuda=cuda, least=least)
    return None


def of_build_info(name: str, found: dict[str, object]) -> Built | None:
    """Return what TensorFlow's build information tells, such as `sm_89` and `compute_90`; None if it lacks these."""
    first, words = str(found.get("cuda_version", "")).partition(".")[0], str(found.get("cuda_compute_capabilities"))
    known = [(int(major), int(minor)) for major, minor in re.findall(r"_(\d+)(\d)[a-z]?\b", words)]
    if not known or not first.isdigit():
        return None
    return Built(name=name, cuda=int(first), least=min(known), most=max(known)[0])


def unfit(gpu: Gpu, driver: str, built: Built) -> Fault | None:
    """Return why a GPU of that `driver`, such as `580.65.06`, can't run what is `built`; None if it can.

    A GPU runs what is built for a lower capability with the same first number. What is built for a lower first number
    is compiled by the driver, which fails for TensorFlow's kernels.
    """
    needed, now = _DRIVERS.get(built.cuda, 0), driver.partition(".")[0]
    found, expected = f"{gpu.name} of compute capability {_text(gpu.capability)}", ""
    if now.isdigit() and int(now) < needed:
        found = f"{gpu.name} with version {driver} of NVIDIA's driver"
        expected = f"version {needed} or newer for {built.name}, which is built for CUDA {built.cuda}"
        is_older = built.cuda == _NEWEST and int(now) >= _DRIVERS[_OLDEST]
        remedy = f"update the driver{f', or {_of_jax(_OLDEST)}' if is_older else ''}"
    elif built.most is not None and gpu.capability[0] > built.most:
        expected = f"at most {built.most}.x for {built.name}, whose kernels fail on newer ones with errors of PTX"
        remedy = _of_jax(_NEWEST)
    elif gpu.capability < built.least:
        expected = f"at least {_text(built.least)} for {built.name}"
        remedy = _of_jax(_OLDEST) if gpu.capability >= _OF_JAX[_OLDEST] else "use another GPU"
    return Fault(Trainer.key("device"), found, expected, remedy) if expected else None


def _of_jax(cuda: int) -> str:
    return f"set the environment variable KERAS_BACKEND=jax after {pip_install(f'jax-cuda{cuda}')}"


def extra(backend: str, listed: Iterable[Gpu], driver: str) -> str:
    """Return the extra with the newest CUDA libraries of `backend` that suit these GPUs and their driver."""
    newest = Built(name="", cuda=_NEWEST, least=_OF_JAX[_NEWEST])
    suits = not any(unfit(gpu, driver, newest) for gpu in listed)
    return "gpu" if backend == "tensorflow" else f"jax-cuda{_NEWEST if suits else _OLDEST}"


def unfit_cudnn(trainer: Trainer, backend: str, version: str | None = None) -> Fault | None:
    """Return why XLA's convolutions would fail with the installed cuDNN, or that `version`; None if they don't."""
    version, least, key = version or _installed("nvidia-cudnn-cu12"), _text(_CUDNN), trainer.key("jit_compile")
    if backend != "tensorflow" or not trainer.jit_compile or version is None or parse(version).release >= _CUDNN:
        return None
    found = f"{str(trainer.jit_compile).lower()} with cuDNN {version}"
    expected = f"cuDNN {least} or newer, since convolutions that XLA compiles fail with older ones"
    return Fault(key, found, expected, f"pip install 'nvidia-cudnn-cu12>={least}', or set {key}=false")


def unfit_keras(trainer: Trainer, backend: str, version: str) -> Fault | None:
    """Return why that `version` of Keras can't share the batches of `trainer` on several devices; None if it can."""
    if backend != "jax" or parse(version).release >= _SHARES:
        return None
    least, key = _text(_SHARES), trainer.key("devices")
    expected = f"Keras {least} or newer, since older ones can't share a batch on JAX"
    remedy = f"pip install 'keras>={least}', or set {key}=1"
    return Fault(key, f"{trainer.devices} with Keras {version}", expected, remedy)


def first_unfit(backend: str, gpus: Iterable[Gpu]) -> Fault | None:
    """Return why the first of these GPUs that can't run what Keras's `backend` is built for can't; None if all can."""
    built, driver = built_for(backend), driver_version()
    faults = (unfit(gpu, driver, built) for gpu in gpus if built is not None)
    return next(filter(None, faults), None)


def fastest(found: Sequence[str], listed: Sequence[Gpu]) -> str | None:
    """Return the policy whose numbers the first GPU that is `found` multiplies fastest; None for float32."""
    capability = next((gpu.capability for gpu in listed if found and gpu.name == found[0]), (0, 0))
    if capability < _FLOAT16:
        return None
    return "mixed_bfloat16" if capability >= _BFLOAT16 else "mixed_float16"


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _text(version: Version) -> str:
    return ".".join(map(str, version))


_MOST_BYTES = 2 * 1024**3
_CHECKED = "checked"
"""File whose time is that of the last check for broken executables."""
_ZSTANDARD = b"\x28\xb5\x2f\xfd"
"""First bytes of an executable that is compressed by the package zstandard, which JAX prefers if it is installed."""


def keep_executables() -> None:
    """Let JAX keep what it compiles in the user's caches, for later runs and other jobs; a folder of the user's stays.

    Nothing is kept where that folder can't be written to. JAX compiles anew what it can't read, but never replaces it,
    so what is broken goes first; it warns of what it can't write later. Executables for another CPU are elsewhere.
    """
    import jax

    if jax.config.jax_compilation_cache_dir is not None:
        return
    kind = sha256_of(processor(), 8)
    with suppress(OSError, RuntimeError):  # it is only a cache, and a user without a home has none
        folder = platformdirs.user_cache_path("etlrun") / "jax" / kind
        folder.mkdir(parents=True, exist_ok=True)
        remove_broken(folder)
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        remove_oldest(folder, _MOST_BYTES)


def remove_broken(folder: Path) -> None:
    """Remove the executables written since the last call that are cut off, those that other jobs are writing, too."""
    checked = folder / _CHECKED
    since_ns = checked.stat().st_mtime_ns if checked.exists() else 0
    checked.touch()
    for path in folder.glob("*-cache"):
        with suppress(FileNotFoundError):  # another job has removed it
            executable = path.read_bytes() if path.stat().st_mtime_ns >= since_ns else _ZSTANDARD
            try:
                zlib.decompress(executable)
            except zlib.error:
                if not executable.startswith(_ZSTANDARD):  # of which it isn't known whether all is there
                    path.unlink()


def remove_oldest(folder: Path, most_bytes: int) -> None:
    """Remove the files of `folder` that were written first, until the rest has at most `most_bytes`."""
    held = 0
    for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True):
        held += path.stat().st_size
        if held > most_bytes:
            path.unlink(missing_ok=True)


_VERSIONED = (
    "etlrun", "tensorflow", "keras", "tensorflow-datasets", "hydra-core", "omegaconf", "numpy", "jax",
)  # fmt: skip

_CUDA = {"tensorflow": ("nvidia-cudnn-cu12",), "jax": ("jax-cuda12-plugin", "jax-cuda13-plugin")}
"""For each backend packages each of which indicates its CUDA libraries."""


@frozen
class Backend:
    """Backend of a run.

    Attributes:
        name: `tensorflow` or `jax`.
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
def prepare(fit: Trainer | None, *others: str, joins: bool = False) -> Iterator[Backend]:
    """Import the backend and set the device and the precision of `fit`; None uses the CPU only.

    A run on several hosts `joins` the others; what is left of it afterwards is used on one. Beside those that train,
    the backend may be one of `others`, on the CPU.

    Raises `WorldError` if a GPU is requested, and there is none, or if the backend doesn't train on several hosts.
    """
    device = fit.device if fit else "cpu"
    name = _imported(device, *others)
    import keras

    if joins and fit is not None:
        join_hosts(name, fit)
    with native_messages_kept():
        found = accelerators()
    listed = driver_gpus()
    names = ", ".join(gpu.name for gpu in listed)
    if device == "gpu" and not found:
        though = f", though the driver lists {names}" if listed else ""
        unseen, remedy = f"no GPU that Keras's {name} backend can see{though}", _remedy(name, listed)
        expected, remedy = "a GPU, since trainer.device=gpu", f"{remedy}, or set trainer.device=auto"
        raise WorldError(Trainer.key("device"), unseen, expected, remedy)
    if found and fit and device != "cpu":
        used = found[: None if fit.devices == "all" else fit.devices]
        if fault := first_unfit(name, [gpu for gpu in listed if gpu.name in used]) or unfit_cudnn(fit, name):
            remedy = f"{fault.remedy}, or set {fit.key('device')}=cpu"
            raise WorldError(fault.where, fault.found, fault.expected, remedy)
    unseen, policy = "", keras.config.dtype_policy()
    if device == "auto" and listed and not found and not _hidden_by(name):
        though = f"The driver lists {names}, but Keras's {name} backend sees no GPU"
        unseen = f"{though}: {_remedy(name, listed)}, or set trainer.device=cpu"
    chosen = fit and (fastest(found, listed) if fit.mixed_precision == "auto" else fit.mixed_precision)
    keras.config.set_dtype_policy(chosen or "float32")  # a notebook may have set another one
    try:
        versions = {"python": platform.python_version()}
        for package in _VERSIONED:
            with suppress(metadata.PackageNotFoundError):
                versions[package] = version_of(package)
        yield Backend(name=name, versions=versions, host=_host(found, listed, fit), unseen=unseen)
        leave()
    finally:
        keras.config.set_dtype_policy(policy)


def _imported(device: str, *others: str) -> str:
    """Import the backend for the device, and return its name."""
    if (chosen := keras_backend()) not in (*_CUDA, *others):
        raise WorldError("KERAS_BACKEND", chosen, "tensorflow or jax", "set it to one of these")
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


def seed_all(seed: int) -> None:
    """Seed the random number generators of Python, NumPy, TensorFlow and Keras."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(seed)
    tf.random.set_seed(seed + 1)  # with 0, Dataset.shuffle takes no seed that is a tensor


def accelerators() -> list[str]:
    """Return the names of the GPUs that Keras's backend can use; a model computes on the first."""
    import keras

    if keras.backend.backend() not in _CUDA:  # PyTorch's, of which Keras lists no devices
        return []
    try:
        found = [str(device) for device in keras.distribution.list_devices("gpu")]
    except RuntimeError:  # raised by JAX if there is none
        return []
    found, names = found[: len(found) // here().count], list[str]()  # of products, if the backend provides them
    if found and keras.backend.backend() == "jax":
        import jax

        names = [device.device_kind for device in jax.local_devices(backend="gpu")]
    elif found:
        import tensorflow as tf

        details = map(tf.config.experimental.get_device_details, tf.config.get_visible_devices("GPU"))
        names = [known["device_name"] for known in details if "device_name" in known]
    return names if len(names) == len(found) else found


def peak_gpu_bytes() -> int | None:
    """Return the peak memory of tensors on the GPU since the process started; None without one, or if it is unknown."""
    import keras

    name = keras.backend.backend() if accelerators() else ""
    if name == "jax":
        import jax

        return (jax.local_devices(backend="gpu")[0].memory_stats() or {}).get("peak_bytes_in_use")
    if name == "tensorflow":
        import tensorflow as tf

        with suppress(ValueError):  # the allocator keeps no statistics
            return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])
    return None


def _remedy(name: str, listed: Sequence[Gpu]) -> str:
    """Return how to make the driver's GPUs visible to the backend `name`."""
    if not listed:
        return "check the driver and the backend's GPU packages"
    if variable := _hidden_by(name):
        return f"unset {variable}, which hides it"
    if fault := first_unfit(name, listed):
        return f"{fault.remedy} (found {fault.found}; expected {fault.expected})"
    if any(map(_installed, _CUDA[name])):
        return "update the driver: the CUDA libraries are installed"
    return pip_install(extra(name, listed, driver_version()))


def _hidden_by(name: str) -> str | None:
    """Return the environment variable that hides the GPUs from the backend `name`; None if there is none."""
    if listed_ids() == []:
        return VISIBLE
    platforms = {word.strip() for word in os.environ.get("JAX_PLATFORMS", "").split(",")} - {""}
    return "JAX_PLATFORMS" if name == "jax" and platforms and not platforms & {"cuda", "gpu"} else None


def _host(found: Sequence[str], listed: Sequence[Gpu], fit: Trainer | None) -> Host:
    """Return the machine, whose device is one of the GPUs or none, and how many of it share a batch."""
    import keras

    used, many, hosts = fit.devices if fit else 1, len(found), here().count
    if not found and used == "all":
        used = len(keras.distribution.list_devices()) // hosts
    if not found:
        device = "CPU" if used == 1 else f"CPU ({used} devices)"
    elif used == 1:
        device = f"{found[0]} (GPU{f', the first of {many}' if many > 1 else ''})"
    else:
        device = f"{found[0]} ({many if used == 'all' else used} of {many} GPUs)"
    return Host(
        device=device if hosts == 1 else f"{device}, on each of {hosts} hosts",
        processor=processor(),
        cores=cores(),
        memory_bytes=psutil.virtual_memory().total,
        system=platform.platform(),
        accelerators=list(found),
        driver_gpus=[gpu.name for gpu in listed],
        cuda_visible_devices=os.environ.get(VISIBLE),
        precision=keras.config.dtype_policy().name,
    )
