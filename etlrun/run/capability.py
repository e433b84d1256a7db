"""Comparison of the GPUs and their driver with what the installed backend is built for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata

from etlrun.stages.trainer import Trainer
from etlrun.system.errors import Fault, WorldError
from etlrun.system.machine import Gpu, Version, driver_version

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


@dataclass(frozen=True, kw_only=True)
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

    def __str__(self) -> str:
        ends = "or more" if self.most is None else f"to {self.most}.x"
        driver = _DRIVERS.get(self.cuda)
        return f"{self.name}: CUDA {self.cuda}, driver {driver} or newer, compute capability {_text(self.least)} {ends}"


def built_for(backend: str) -> Built | None:
    """Return what Keras's `backend` is built for; None if it has no CUDA, or doesn't tell."""
    if backend == "tensorflow":
        import tensorflow as tf

        found = tf.sysconfig.get_build_info()
        return of_build_info(f"TensorFlow {tf.__version__}", found) if found["is_cuda_build"] else None
    if backend == "jax":
        for cuda, least in _OF_JAX.items():
            if version := _installed(f"jax-cuda{cuda}-plugin"):
                return Built(name=f"jax-cuda{cuda}-plugin {version}", cuda=cuda, least=least)
    return None


def of_build_info(name: str, found: dict[str, object]) -> Built | None:
    """Return what TensorFlow's build information tells, such as `sm_89` and `compute_90`; None if it lacks these."""
    told, cuda = found.get("cuda_compute_capabilities"), str(found.get("cuda_version", ""))
    words = told if isinstance(told, list) else []
    known = [(int(of[1]), int(of[2])) for word in words if (of := re.fullmatch(r"\w+_(\d+)(\d)[a-z]?", word))]
    first = cuda.partition(".")[0]
    if not known or not first.isdigit():
        return None
    return Built(name=name, cuda=int(first), least=min(known), most=max(known)[0])


def unfit(gpu: Gpu, driver: str, built: Built) -> Fault | None:
    """Return why a GPU of that `driver`, such as `580.65.06`, can't run what is `built`; None if it can.

    A GPU runs what is built for a lower capability with the same first number. What is built for a lower first number
    is compiled by the driver, which fails for TensorFlow's kernels.
    """
    needed, now = _DRIVERS.get(built.cuda, 0), driver.partition(".")[0]
    where, found = Trainer.key("device"), f"{gpu.name} of compute capability {_text(gpu.capability)}"
    if now.isdigit() and int(now) < needed:
        is_older = built.cuda == _NEWEST and int(now) >= _DRIVERS[_OLDEST]
        return Fault(
            where=where,
            found=f"{gpu.name} with version {driver} of NVIDIA's driver",
            expected=f"version {needed} or newer for {built.name}, which is built for CUDA {built.cuda}",
            remedy=f"update the driver{f', or {_of_jax(_OLDEST)}' if is_older else ''}",
        )
    if built.most is not None and gpu.capability[0] > built.most:
        expected = f"at most {built.most}.x for {built.name}, whose kernels fail on newer ones with errors of PTX"
        return Fault(where=where, found=found, expected=expected, remedy=_of_jax(_NEWEST))
    if gpu.capability < built.least:
        expected = f"at least {_text(built.least)} for {built.name}"
        remedy = _of_jax(_OLDEST) if gpu.capability >= _OF_JAX[_OLDEST] else "use another GPU"
        return Fault(where=where, found=found, expected=expected, remedy=remedy)
    return None


def _of_jax(cuda: int) -> str:
    return f"set the environment variable KERAS_BACKEND=jax after pip install 'etlrun[jax-cuda{cuda}]'"


def extra(backend: str, listed: Iterable[Gpu], driver: str) -> str | None:
    """Return the extra with the CUDA libraries of `backend` that suit these GPUs and their driver; None if it has none.

    Of JAX it is the one of the newest CUDA.
    """
    newest = Built(name="", cuda=_NEWEST, least=_OF_JAX[_NEWEST])
    suits = not any(unfit(gpu, driver, newest) for gpu in listed)
    return {"tensorflow": "gpu", "jax": f"jax-cuda{_NEWEST if suits else _OLDEST}"}.get(backend)


def unfit_cudnn(trainer: Trainer, backend: str, version: str | None = None) -> Fault | None:
    """Return why XLA's convolutions would fail with the installed cuDNN, or that `version`; None if they don't."""
    version = version or _installed("nvidia-cudnn-cu12")
    if backend != "tensorflow" or not trainer.jit_compile or version is None:
        return None
    if _numbers(version) >= _CUDNN:
        return None
    least, key = _text(_CUDNN), trainer.key("jit_compile")
    return Fault(
        where=key,
        found=f"{str(trainer.jit_compile).lower()} with cuDNN {version}",
        expected=f"cuDNN {least} or newer, since convolutions that XLA compiles fail with older ones",
        remedy=f"pip install 'nvidia-cudnn-cu12>={least}', or set {key}=false",
    )


def unfit_keras(trainer: Trainer, backend: str, version: str) -> Fault | None:
    """Return why that `version` of Keras can't share the batches of `trainer` on several devices; None if it can."""
    if backend != "jax" or _numbers(version) >= _SHARES:
        return None
    least, key = _text(_SHARES), trainer.key("devices")
    return Fault(
        where=key,
        found=f"{trainer.devices} with Keras {version}",
        expected=f"Keras {least} or newer, since older ones can't share a batch on JAX",
        remedy=f"pip install 'keras>={least}', or set {key}=1",
    )


def require_fit(backend: str, trainer: Trainer, found: Sequence[str], listed: Sequence[Gpu]) -> None:
    """Raise `WorldError` if a GPU of the training, its driver or cuDNN can't run what the backend is built for.

    `found` are the names of the GPUs that the backend sees, and `listed` those of the driver.
    """
    used = found[: None if trainer.devices == "all" else trainer.devices]
    for fault in (first_unfit(backend, [gpu for gpu in listed if gpu.name in used]), unfit_cudnn(trainer, backend)):
        if fault is not None:
            remedy = f"{fault.remedy}, or set {trainer.key('device')}=cpu"
            raise WorldError(where=fault.where, found=fault.found, expected=fault.expected, remedy=remedy)


def first_unfit(backend: str, gpus: Iterable[Gpu]) -> Fault | None:
    """Return why the first of these GPUs that can't run what Keras's `backend` is built for can't; None if all can."""
    built, driver = built_for(backend), driver_version()
    faults = (unfit(gpu, driver, built) for gpu in gpus if built is not None)
    return next((fault for fault in faults if fault is not None), None)


def precision(trainer: Trainer, found: Sequence[str], listed: Sequence[Gpu]) -> str | None:
    """Return Keras's policy for the precision of `trainer`, for `auto` that of the first GPU; None for float32."""
    return fastest(found, listed) if trainer.mixed_precision == "auto" else trainer.mixed_precision


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


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(word) for word in re.findall(r"\d+", version)[:2])


def _text(version: Version) -> str:
    return ".".join(map(str, version))
