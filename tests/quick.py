"""What makes runs in tests quick, in this process and in those that are forked for jobs."""

from pathlib import Path
from typing import Any

import pytest


def quick_probes(patch: pytest.MonkeyPatch) -> None:
    """Let each probe after the training take 0.05 s, and not 0.3."""
    from etlrun.measure import assessment  # imports TensorFlow

    patch.setattr(assessment, "_PROBE_LEAST_S", 0.05)


def shallow(patch: pytest.MonkeyPatch) -> None:
    """Let Keras make MobileNetV2 with the first of its 17 blocks alone: it compiles in a quarter of the time."""
    from keras.src.applications import mobilenet_v2

    block = mobilenet_v2._inverted_res_block

    def first(inputs: Any, *values: Any, block_id: int, **named: Any) -> Any:
        return inputs if block_id else block(inputs, *values, block_id=block_id, **named)

    patch.setattr(mobilenet_v2, "_inverted_res_block", first)


def quick_jax(cache: Path) -> dict[str, str]:
    """The environment in which XLA optimizes little, and compiles once for all processes with the same `cache`."""
    return {
        "KERAS_BACKEND": "jax",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
