"""Exports that are refused, before TensorFlow is started; and the steps that a format holds."""

import csv
import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from etlrun.planning.plan import given_to_model
from etlrun.trained.formats import FORMATS
from etlrun.trained.load import trained
from etlrun.trained.predict import Pass, opened
from etlrun.trained.raw import split
from etlrun.trained.rows import Head
from etlrun.trained.serving import Serving, stepped
from tests.configs import plan_of
from tests.runs import small
from tests.trained import ended, refused, said

RIGHT = "expected the folder of a completed run"
ARRAYS = "onnx, litert, keras, torch"


SCALED = {
    "normalize": ["normalize.mean=[0.5,0.4,0.3]", "normalize.std=[0.2,0.3,0.4]"],
    "zero_center_bgr": [],
    "rescale": ["rescale.scale=0.005", "rescale.offset=-0.5"],
    "scale_zero_one": [],
}


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_layers_scale_as_the_steps_do(name: str, dtype: str) -> None:
    steps = f"[decode,resize,{name}]"
    words = [f"transform.steps={steps}", f"transform.eval_steps={steps}", f"transform.resize.dtype={dtype}"]
    network = ["model=keras_application", "model.name=ResNet50"] if name == "zero_center_bgr" else []
    planned = plan_of(*words, *network, *(f"+transform.{value}" for value in SCALED[name]))
    parts = split(planned, takes_files=False)
    assert [step.stage.path for step in parts.caller] == ["transform.decode", "transform.resize"]
    assert (parts.given.dtype, parts.given.low, parts.given.high) == (dtype, 0, 255)
    if not parts.inside:  # the model itself scales
        assert [step.stage.path for step in planned.by_model] == [f"transform.{name}"]
        return
    pixels = keras.Input((*parts.given.shape[:2], 3))
    identity = keras.Model(pixels, keras.layers.Identity()(pixels))
    run: Any = SimpleNamespace(then=planned, plan=planned, flow=given_to_model(planned.train))
    serving = Serving(run=run, model=identity, image=parts, heads=[Head(target="", names=None, outputs=3)])
    arrays = np.random.default_rng(0).uniform(0, 255, (2, *parts.given.shape)).astype(dtype)  # type: ignore[arg-type]
    found = serving.of_arrays.predict(arrays, verbose=0)
    np.testing.assert_allclose(found, np.stack([stepped(parts.inside, of) for of in arrays]), rtol=1e-5, atol=1e-5)


def test_all_faults_are_told_at_once_and_nothing_is_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("mine")
    listed = "one of saved_model, onnx, litert, keras, torch"
    assert refused(capsys, "export", tmp_path / "no", "--format", "onx") == [
        f"  --format: found onx; expected {listed}",
        "    -> did you mean `onnx`?",
        f"  {tmp_path}/no: found no such folder; {RIGHT}",
        "    -> check the path",
    ]
    assert refused(capsys, "export", tmp_path, "--format", "keras", "--output", tmp_path / "mine") == [
        f"  {tmp_path}: found no run: there is no summary.json; {RIGHT}",
        "    -> check the path",
        f"  --output: found {tmp_path}/mine, which exists; expected a new folder, so that nothing is overwritten",
        "    -> choose another --output, or remove it",
    ]
    assert (tmp_path / "mine").read_text() == "mine"


def test_only_a_completed_run_of_a_model_is_exported(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `evaluate` and `predict` refuse it: see `test_trained`."""
    folder = ended(tmp_path / "run", small(tiny), status="failed")
    assert refused(capsys, "export", folder, "--format", "keras")[0] == f"  {folder}: found a run that failed; {RIGHT}"
    drained = ended(tmp_path / "drained", small(tiny, "trainer=drain", "trainer.epochs=1"), model=None)
    learns = "expected a run of trainer=fit with a model that learns"
    assert refused(capsys, "export", drained, "--format", "keras") == [
        f"  {drained}: found a run of trainer=drain, which trains no model; {learns}"
    ]


def test_what_a_format_cannot_hold_is_named(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("onnx", "litert"):
        monkeypatch.setitem(FORMATS, name, dataclasses.replace(FORMATS[name], modules=()))
    half = ended(tmp_path / "half", small(tiny, "trainer.mixed_precision=mixed_float16"))
    for name in ("onnx", "litert"):
        assert refused(capsys, "export", half, "--format", name) == [
            f"  trainer.mixed_precision: found mixed_float16, which {name} can't hold; expected null, for float32",
            "    -> train in float32, or choose another format: saved_model, keras",
        ]
    fast = ended(tmp_path / "fast", small(tiny, "transform.decode.fast=true"))
    assert refused(capsys, "export", fast, "--format", "saved_model") == [
        "  transform.decode.fast: found true, for coarser images, which saved_model can't decode; expected false",
        f"    -> train with transform.decode.fast=false, or choose a format that takes arrays: {ARRAYS}",
    ]
    monkeypatch.setitem(FORMATS, "onnx", dataclasses.replace(FORMATS["onnx"], modules=("not_there", "json")))
    assert refused(capsys, "export", half, "--format", "onnx")[:2] == [
        "  --format: found onnx, without the module not_there; expected what writes and runs the format",
        "    -> pip install 'etlrun[onnx]'",
    ]


@pytest.mark.slow
def test_a_saved_model_of_natively_decoded_images_decodes_as_tensorflow_does(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = said(capsys, "export", run, "--format", "saved_model", "--output", tmp_path / "saved").splitlines()
    assert "pixels    decoded and resized by TensorFlow, in the run by libjpeg-turbo and OpenCV" in told
    described = json.loads((tmp_path / "saved" / "export.json").read_text())
    assert described["check"]["largest_difference"] <= 1e-6
    loaded = trained(run, reads_split=False)
    reading = Pass(loaded.plan, *opened(loaded.plan, loaded.split_key))
    count = reading.split.num_examples
    files = [bytes(reading.image(number) or b"") for number in range(count)]
    serve = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"]
    served = serve(image=tf.constant(files))["probabilities"].numpy()
    rows = csv.DictReader(said(capsys, "predict", run, 'dataset.split="train[80%:]"').splitlines())
    found = np.array([[float(row["probability_dark"]), float(row["probability_bright"])] for row in rows])
    difference = pytest.approx(np.abs(served - found).max(), rel=0.01)
    expected = {"split": "train[80%:]", "examples": count, "largest_difference": difference}
    assert (described["check"]["validation"], described["pixels"]) == (expected, told[3].removeprefix("pixels    "))
    assert f"- pixels    {described['pixels']}" in (tmp_path / "saved" / "model_card.md").read_text().splitlines()
