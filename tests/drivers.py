"""NVIDIA's driver with GPUs that are not there: what its bindings return, replaced."""

from typing import Any

import pynvml
import pytest

CAPABILITIES = {"Tesla T4": (7, 5), "NVIDIA L4": (8, 9), "NVIDIA GeForce RTX 5090": (12, 0)}


def with_gpus(patch: pytest.MonkeyPatch, *names: str, driver: str = "580.65.06") -> None:
    """Have the driver list GPUs of these names, half busy, which hold nothing of any process."""
    answers: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: len(names),
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}000",
        "nvmlDeviceGetName": lambda handle: names[handle],
        "nvmlDeviceGetCudaComputeCapability": lambda handle: CAPABILITIES[names[handle]],
        "nvmlSystemGetDriverVersion": lambda: driver,
        "nvmlDeviceGetUtilizationRates": lambda handle: pynvml.c_nvmlUtilization_t(gpu=50 + handle),
        "nvmlDeviceGetComputeRunningProcesses": lambda _handle: [],
    }
    for name, answer in answers.items():
        patch.setattr(pynvml, name, answer)


def without_driver(patch: pytest.MonkeyPatch) -> None:
    """Have no driver be there."""

    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    patch.setattr(pynvml, "nvmlInit", refuse)
