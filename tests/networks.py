"""A network of two layers, for tests of runs to which it is the same what they train."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from etlrun.run import run
from etlrun.stages import STAGES
from etlrun.stages.lazy import keras
from etlrun.stages.model import Model
from tests.quick import quick_probes
from tests.runs import config_of, small, summary_of


@dataclass(frozen=True, kw_only=True)
class SmallNetwork(Model):
    """Compiles in a tenth of MobileNetV2's time."""

    path: ClassVar[str] = "model.small_network"

    @staticmethod
    def network(image: keras.KerasTensor) -> keras.KerasTensor:
        """(batch, height, width, 3) -> probabilities (batch, 2)."""
        image = keras.layers.Conv2D(4, 3, strides=4, activation="relu")(image)
        return keras.layers.Dense(2, activation="softmax")(keras.layers.GlobalAveragePooling2D()(image))


def trained_here(folder: Path, data_dir: Path, *overrides: str) -> tuple[int, dict[str, Any]]:
    """Run in this process, as `run_here` does a small run, with the small network; the exit status and the summary."""
    words = [word for word in small(data_dir, *overrides) if not word.startswith("model.")]
    run.freeze(folder, config_of(words) | {"model": {"name": "small_network"}}, words)
    stages = {**STAGES, "model": {**STAGES["model"], "small_network": SmallNetwork}}
    with pytest.MonkeyPatch.context() as patch:
        quick_probes(patch)
        return run.run(folder, stages), summary_of(folder)
