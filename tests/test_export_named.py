"""An image, and columns beside it, into a model of a test's own: planned, trained, resumed, evaluated and exported."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from etlrun.stages import STAGES
from etlrun.stages.network import Network
from etlrun.trained.evaluate import evaluate
from etlrun.trained.export import export
from etlrun.trained.load import Trained, trained
from etlrun.trained.model import predictor, ready
from etlrun.trained.predict import of_split
from tests.configs import TENSORFLOW
from tests.runs import are_equal, run_here, small, variables_of


@dataclass(frozen=True, kw_only=True)
class Both(Network):
    """Of an image, which has two names, and of two outputs of columns."""

    path: ClassVar[str] = "model.both"

    @staticmethod
    def network(inputs: dict[str, keras.KerasTensor]) -> keras.KerasTensor:
        """Twice (batch, height, width, 3), (batch, 1) and (batch, 2) -> features (batch, 10)."""
        image = keras.layers.Conv2D(4, 3, strides=4, activation="relu")(inputs["image"])
        image, whole = (keras.layers.GlobalAveragePooling2D()(of) for of in (image, inputs["whole"]))
        return keras.layers.Concatenate()([image, whole, inputs["place"], inputs["half"]])


MINE = {**STAGES, "model": {**STAGES["model"], "both": Both}}
COLUMNS = (
    "+transform.columns={place: {of: number, steps: [{standardize: {mean: 24, std: 12}}]}, "
    "half: {of: number, steps: [{bucketize: [24]}, one_hot]}, number: drop, whole: {of: image}}"
)


def learned(folder: Path, tiny: Path, *others: str) -> Path:
    """The folder of a run on the tiny images and their numbers."""
    words = small(tiny, TENSORFLOW, "dataset.features={image: image, number: int64}", COLUMNS, *others)
    status, _ = run_here(folder, [word for word in words if not word.startswith("model.")], stages=MINE, model="both")
    assert status == 0
    return folder


@pytest.fixture(scope="module")
def run(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = learned(tmp_path_factory.mktemp("both"), tiny)
    return trained(folder, ['dataset.split="train[:12]"'], stages=MINE)


@pytest.fixture(scope="module")
def examples(run: Trained) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.float32]]:
    """Some examples of the data as they are stored, and what the pipeline and the model make of them."""
    with ready(run) as model:
        reading = of_split(run, model)
        compute = predictor(model, run.flow, reading.inputs_spec)
        batches = [(batch.numbers, compute(batch.inputs)["label"]) for batch in reading.batches("")]
        stored = [reading.example(int(number)) for numbers, _ in batches for number in numbers]
    images = np.array([of["image"].numpy() for of in stored], object)
    numbers = np.array([of["number"].numpy() for of in stored])
    return {"image": images, "number": numbers}, np.concatenate([found for _, found in batches])


@pytest.mark.slow
def test_it_is_planned_resumed_to_the_bit_and_evaluated(run: Trained, tiny: Path, tmp_path: Path) -> None:
    image = "float32 [32, 32, 3] in [-1, 1]"
    given = f"{{half: float32 [2] in [0, 1], image: {image}, place: float32, whole: {image}}}, label"
    assert str(run.then.train[-1].gives) == f"8 x {given}"
    whole = learned(tmp_path / "whole", tiny, "trainer.epochs=2")
    again = learned(tmp_path / "again", tiny, "trainer.epochs=2", f"trainer.resume={run.folder}")
    assert are_equal(variables_of(whole), variables_of(again))
    with ready(run) as model:
        found = evaluate(run, model, [])
    assert (found.examples, sum(map(sum, found.confusion or ()))) == (12, 12)


def described(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "export.json").read_text())
    return found


def test_a_saved_model_takes_image_files_and_numbers(run: Trained, examples: Any, tmp_path: Path) -> None:
    export(run, "saved_model", tmp_path / "saved")
    given, wanted = examples
    serve = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"]
    found = serve(image=tf.constant(given["image"]), number=tf.constant(given["number"]))
    np.testing.assert_allclose(found["probabilities"], wanted, rtol=0, atol=1e-6)
    of = described(tmp_path / "saved")
    assert [[each[key] for key in ("name", "dtype", "content")] for each in of["inputs"]] == [
        ["image", "string", "JPEG, PNG, BMP or GIF files"],
        ["number", "int64", "numbers"],
    ]
    steps = ["transform.decode", "transform.resize", "transform.scale_minus_one_one"]
    assert (of["before"], of["inside"]) == ([], ["transform.columns", *steps])
    assert of["check"]["examples"] == 4


def test_a_keras_model_takes_resized_images_and_numbers(run: Trained, examples: Any, tmp_path: Path) -> None:
    export(run, "keras", tmp_path / "keras")
    given, wanted = examples
    model = keras.saving.load_model(tmp_path / "keras" / "model.keras", compile=False)
    of = described(tmp_path / "keras")
    assert [step["step"] for step in of["before"]] == ["transform.decode", "transform.resize"]
    assert of["inside"] == ["transform.columns", "transform.scale_minus_one_one"]
    values = of["before"][1]["parameters"]
    images = [tf.io.decode_image(image, channels=3, expand_animations=False) for image in given["image"]]
    resized = [tf.image.resize(of, values["size"], method=values["method"]) for of in images]
    pixels = tf.cast(tf.round(tf.stack(resized)), values["dtype"])
    found = model({"image": pixels, "number": tf.constant(given["number"])})
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
