"""A network of two layers, with dropout, for tests of runs to which it is the same what they train."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from etlrun.stages import STAGES, keras_objects
from etlrun.stages.lazy import keras
from etlrun.stages.made import make
from etlrun.stages.network import Network
from etlrun.stages.trainer import Trainer
from tests.runs import run_here, small


@dataclass(frozen=True, kw_only=True)
class SmallNetwork(Network):
    """Compiles in a tenth of MobileNetV2's time."""

    path: ClassVar[str] = "model.small_network"
    predicts: ClassVar[bool] = True

    @staticmethod
    def network(inputs: Mapping[str, keras.KerasTensor]) -> keras.KerasTensor:
        """(batch, height, width, 3) -> probabilities (batch, 2)."""
        (image,) = inputs.values()
        image = keras.layers.Conv2D(4, 3, strides=4, activation="relu")(image)
        image = keras.layers.Dropout(0.5)(keras.layers.GlobalAveragePooling2D()(image))
        return keras.layers.Dense(2, activation="softmax", dtype="float32")(image)


def trained_here(folder: Path, data_dir: Path, *overrides: str) -> tuple[int, dict[str, Any]]:
    """Run in this process, as `run_here` does a small run, with the small network; the exit status and the summary."""
    words = [word for word in small(data_dir, *overrides) if not word.startswith("model.")]
    stages = {**STAGES, "model": {**STAGES["model"], "small_network": SmallNetwork}}
    return run_here(folder, words, stages=stages, model="small_network")


def compile_with(model: keras.Model, trainer: Trainer, objective: dict[str, Any]) -> None:
    """Compile a model for a loss and metrics, as a run does."""
    optimizer = make(keras_objects.optimizer(trainer, None))
    model.compile(optimizer=optimizer, **make(objective), jit_compile=trainer.jit_on(keras.backend.backend()))
