"""Dropout of a run that is resumed: it draws what that of an undisturbed run draws."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from zipfile import ZipFile

import pytest

from etlrun.stages import STAGES
from etlrun.stages.lazy import keras
from etlrun.stages.network import Network
from tests.runs import are_equal, run_here, small, summary_of, variables_of


@dataclass(frozen=True, kw_only=True)
class Dropped(Network):
    """A network that somebody has written, with dropout."""

    path: ClassVar[str] = "model.dropped"
    predicts: ClassVar[bool] = True

    @staticmethod
    def network(inputs: Mapping[str, keras.KerasTensor]) -> keras.KerasTensor:
        """(batch, height, width, 3) -> probabilities (batch, 2)."""
        (image,) = inputs.values()
        image = keras.layers.Conv2D(8, 3, strides=4, activation="relu")(image)
        image = keras.layers.Dropout(0.5)(keras.layers.GlobalAveragePooling2D()(image))
        return keras.layers.Dense(2, activation="softmax", dtype="float32")(image)


def trained(folder: Path, tiny: Path, *overrides: str) -> tuple[int, dict[str, Any]]:
    words = [word for word in small(tiny, "cache=none", *overrides) if not word.startswith("model.")]
    stages = {**STAGES, "model": {**STAGES["model"], "dropped": Dropped}}
    return run_here(folder, words, stages=stages, model="dropped")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        pytest.param((), id="float32"),
        pytest.param(("trainer.mixed_precision=mixed_float16",), id="float16"),
        pytest.param(("trainer.gradient_accumulation_steps=2",), id="accumulated"),
    ],
)
def test_dropout_goes_on_as_if_undisturbed(words: tuple[str, ...], tiny: Path, tmp_path: Path) -> None:
    undisturbed, left, resumed = (tmp_path / name for name in ("undisturbed", "left", "resumed"))
    assert trained(undisturbed, tiny, *words, "trainer.epochs=2")[0] == 0
    assert trained(left, tiny, *words, "trainer.epochs=1")[0] == 0
    assert trained(resumed, tiny, *words, "trainer.epochs=2", f"trainer.resume={left}")[0] == 0
    assert summary_of(resumed)["epochs"][1]["loss"] == summary_of(undisturbed)["epochs"][1]["loss"]
    assert are_equal(variables_of(resumed), variables_of(undisturbed))


def test_a_checkpoint_without_the_states_of_its_seeds_is_refused(tiny: Path, tmp_path: Path) -> None:
    left = tmp_path / "left"
    assert trained(left, tiny, "trainer.epochs=1")[0] == 0
    path = left / "checkpoints/epoch_0001.keras"
    with ZipFile(path) as file, ZipFile(tmp_path / "other", "w") as other:
        for name in file.namelist():
            if name != "seeds.json":
                other.writestr(name, file.read(name))
    shutil.move(tmp_path / "other", path)
    status, summary = trained(tmp_path / "resumed", tiny, "trainer.epochs=2", f"trainer.resume={left}")
    assert status == 1
    assert summary["error"] == (
        f"{path}: found the states of 0 seeds in a model of 1; expected a checkpoint with the states of all seeds, "
        "from which dropout draws\n    -> start a new run without trainer.resume"
    )
