"""Exports: each format predicts what `predict` does, and appears complete and checked, or not at all."""

import csv
import dataclasses
import io
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import keras
import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from etlrun.cli import main as cli
from etlrun.planning.plan import given_to_model
from etlrun.sources.base import Split
from etlrun.stages import STAGES
from etlrun.stages.network import Network
from etlrun.system.files import locked
from etlrun.trained import model as models
from etlrun.trained.export import export
from etlrun.trained.formats import FORMATS, Exported
from etlrun.trained.load import Trained, trained
from etlrun.trained.model import ready
from etlrun.trained.predict import heads, of_plan, of_split, opened
from etlrun.trained.raw import split
from etlrun.trained.rows import Head
from etlrun.trained.serving import Serving, compared, differing, stepped
from tests.commands import complaint
from tests.configs import TENSORFLOW, plan_of
from tests.disks import mounted
from tests.encoded import REFUSED
from tests.golden import Says
from tests.pictures import damaged, feature_of, jpeg, with_feature
from tests.runs import complete_here, finish, small, start
from tests.trained import described, ended, refused, said, trained_run


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
    complete_here(folder, [word for word in words if not word.startswith("model.")], stages=MINE, model="both")
    return folder


@pytest.fixture(scope="module")
def both(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = learned(tmp_path_factory.mktemp("both"), tiny)
    return trained(folder, ['dataset.split="train[:12]"'], stages=MINE)


@pytest.fixture(scope="module")
def examples(both: Trained) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.float32]]:
    """Some examples of the data as they are stored, and what the pipeline and the model make of them."""
    with ready(both) as model:
        reading = of_split(both, model)
        test = models.tester(model, both.flow, reading.inputs_spec)
        batches = [(batch.numbers, test(batch.inputs)[0]["label"]) for batch in reading.batches("")]
        stored = [reading.example(int(number)) for numbers, _ in batches for number in numbers]
    images = np.array([of["image"].numpy() for of in stored], object)
    numbers = np.array([of["number"].numpy() for of in stored])
    return {"image": images, "number": numbers}, np.concatenate([found for _, found in batches])


def test_a_saved_model_takes_image_files_and_numbers(both: Trained, examples: Any, tmp_path: Path, says: Says) -> None:
    export(both, "saved_model", tmp_path / "saved")
    given, wanted = examples
    serve = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"]
    found = serve(image=tf.constant(given["image"]), number=tf.constant(given["number"]))
    np.testing.assert_allclose(found["probabilities"], wanted, rtol=0, atol=1e-6)
    of = described(tmp_path / "saved")
    says([[each[key] for key in ("name", "dtype", "content")] for each in of["inputs"]])
    steps = ["transform.decode", "transform.resize", "transform.scale_minus_one_one"]
    assert (of["before"], of["inside"]) == ([], ["transform.columns", *steps])
    assert of["check"]["examples"] == 12


@pytest.mark.smoke
def test_a_keras_model_takes_resized_images_and_numbers(both: Trained, examples: Any, tmp_path: Path) -> None:
    export(both, "keras", tmp_path / "keras")
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
    parts = split(planned, takes_files=False)[0]
    assert [step.stage.path for step in parts.caller] == ["transform.decode", "transform.resize"]
    assert (parts.given.dtype, parts.given.low, parts.given.high) == (dtype, 0, 255)
    if not parts.inside:  # the model itself scales
        assert [step.stage.path for step in planned.by_model] == [f"transform.{name}"]
        return
    pixels = keras.Input((*parts.given.shape[:2], 3))
    identity = keras.Model(pixels, keras.layers.Identity()(pixels))
    run: Any = SimpleNamespace(then=planned, plan=planned, flow=given_to_model(planned.train))
    serving = Serving(run, identity, [Head(target="", names=None, outputs=3)], FORMATS["keras"])
    arrays = np.random.default_rng(0).uniform(0, 255, (2, *parts.given.shape)).astype(dtype)  # type: ignore[arg-type]
    found = serving.of_arrays.predict(arrays, verbose=0)
    np.testing.assert_allclose(found, np.stack([stepped(parts.inside, of) for of in arrays]), rtol=1e-5, atol=1e-5)


def test_examples_of_another_class_are_counted_whatever_else_is_predicted() -> None:
    heads = {
        "kind": Head("kind", ("a", "b"), 2),
        "area": Head("area", None, 1),
        "tags": Head("tags", ("x",), 1, is_labels=True),
    }
    found = np.array([[9, 0.4, 0.6, 0.2], [9, 0.4, 0.6, 0.6], [9, 0.4, 0.6, 0.2]])
    other = np.array([[1, 0.6, 0.4, 0.2], [9, 0.4, 0.6, 0.4], [1, 0.1, 0.9, 0.4]])
    assert differing(heads, found, other) == 2


def test_a_format_without_its_packages_is_refused(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    folder = ended(tmp_path / "run", small(tiny))
    monkeypatch.setitem(FORMATS, "onnx", dataclasses.replace(FORMATS["onnx"], modules=("not_there", "json")))
    says(refused(capsys, "export", folder, "--format", "onnx")[:2])


@pytest.mark.slow
def test_a_saved_model_of_natively_decoded_images_decodes_as_tensorflow_does(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = said(capsys, "export", run, "--format", "saved_model", "--output", tmp_path / "saved").splitlines()
    difference, _, pixels = next(of for of in told if of.startswith("predict ")).partition(": ")
    assert difference.startswith("predict   largest difference of a probability ")
    assert pixels == "decoded and resized by TensorFlow, in the run by libjpeg-turbo and OpenCV"
    described = json.loads((tmp_path / "saved" / "export.json").read_text())
    assert described["check"].pop("largest_difference") <= described["check"].pop("tolerance") == 1e-6
    loaded = trained(run, reads_split=False)
    reading = of_plan(loaded.plan, opened(loaded.plan, loaded.split_key))
    count = reading.split.num_examples
    files = [reading.example(number)["image"].numpy() for number in range(count)]
    serve = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"]
    served = serve(image=tf.constant(files))["probabilities"].numpy()
    rows = csv.DictReader(said(capsys, "predict", run, 'dataset.split="train[80%:]"').splitlines())
    found = np.array([[float(row["probability_dark"]), float(row["probability_bright"])] for row in rows])
    largest = pytest.approx(np.abs(served - found).max(), rel=0.01)
    expected = {"split": "train[80%:]", "examples": count, "from_predict": largest, "classes_differ": 0}
    assert (described["check"], described["pixels"]) == (expected, pixels)


Images = npt.NDArray[Any]


@pytest.fixture(scope="module")
def plain(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that decodes with TensorFlow, as its exports do."""
    folder = trained_run(tmp_path_factory.mktemp("trained"), tiny, "cache=none", TENSORFLOW)
    scale_kernels(folder, 3)
    return folder


def test_examples_are_read_block_by_block(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, read, whole = trained(plain, []), Split.read, list[int]()

    def counted(split: Split, path: Any, skip: Any, take: Any) -> tf.data.Dataset:
        if isinstance(take, int):  # not in the graph of a pass
            whole.append(take)
        return read(split, path, skip, take)

    monkeypatch.setattr(Split, "read", counted)
    with ready(loaded) as model:
        serving = Serving(loaded, model, heads(loaded, model, None), FORMATS["keras"])
        found: Any = compared(loaded, model, serving, lambda given: np.asarray(model.predict_on_batch(given)))
    assert (found["largest_difference"] < 1e-5, found["examples"]) == (True, sum(whole))
    assert len(whole) <= 4 * 2, "blocks, each in two shards at most"


def test_that_no_example_can_be_used_is_said(run: Path, tiny: Path, tmp_path: Path) -> None:
    damaged(tiny, tmp_path / "data", with_feature("image", feature_of(REFUSED["BMP P"][0])))
    words = [f"dataset.data_dir={tmp_path / 'data'}", 'dataset.split="train[17:18]"', "dataset.on_corrupt=skip"]
    loaded = trained(run, words)
    with ready(loaded) as model:
        serving = Serving(loaded, model, heads(loaded, model, None), FORMATS["keras"])
        assert compared(loaded, model, serving, np.asarray) == {"none": "none of 1 example of its split can be used"}


def scale_kernels(folder: Path, factor: float) -> None:
    """Scale the weights of a model: with 3, it tells images apart, which training for so short a time does not."""
    model = keras.models.load_model(folder / "model.keras")
    for weight in model.weights:
        if "kernel" in weight.path:
            weight.assign(weight * factor)
    model.save(folder / "model.keras")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three JPEGs and a PNG of another size."""
    folder = tmp_path_factory.mktemp("files")
    paths = [folder / name for name in ("a.jpg", "b.jpg", "c.jpg", "d.png")]
    for number, path in enumerate(paths[:-1]):
        path.write_bytes(jpeg(number))
    pixels = np.random.default_rng(9).integers(0, 256, (91, 35, 3))
    paths[-1].write_bytes(tf.io.encode_png(pixels.astype(np.uint8)).numpy())
    return paths


@pytest.fixture
def predicted(plain: Path, files: list[Path], capsys: pytest.CaptureFixture[str]) -> Images:
    """What `predict` says of the files; (files, classes)."""
    rows = csv.DictReader(io.StringIO(said(capsys, "predict", plain, *files)))
    found = np.array([[np.float32(row[f"probability_{name}"]) for name in ("dark", "bright")] for row in rows])
    assert np.ptp(found, axis=0).min() > 0.01
    return found


def given(folder: Path, files: list[Path]) -> Images:
    """The files after the steps that the export leaves to its user."""
    decode, resize = described(folder)["before"]
    assert [decode["step"], resize["step"]] == ["transform.decode", "transform.resize"]
    values = resize["parameters"]
    images = [tf.io.decode_image(path.read_bytes(), channels=3, expand_animations=False) for path in files]
    resized = [
        tf.image.resize(image, values["size"], method=values["method"], antialias=values["antialias"])
        for image in images
    ]
    return np.stack([np.rint(image).astype(values["dtype"]) for image in resized])


@pytest.mark.slow
def test_a_saved_model_takes_image_files(
    plain: Path, files: list[Path], predicted: Images, tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    folder = tmp_path / "new" / "saved"
    told = said(capsys, "export", plain, "--format", "saved_model", "--output", folder).splitlines()
    assert told[0] == "format    saved_model: image files to predictions"
    assert told[1] == "check     10 examples of train[80%:]"
    assert told[2].startswith("model     largest difference of a probability ")
    says([re.sub(r"probability [\d.e-]+", "probability N", line) for line in told[2:]])
    reloaded = tf.saved_model.load(folder)
    for some in (files, files[3:]):
        found = reloaded.signatures["serving_default"](image=tf.constant([path.read_bytes() for path in some]))
        np.testing.assert_allclose(found["probabilities"], predicted[-len(some) :], rtol=0, atol=1e-6)
    assert [path.name for path in folder.parent.iterdir()] == ["saved"]
    of = described(folder)
    says(of["input"])
    assert (of["before"], of["output"]["name"], of["classes"]) == ([], "probabilities", ["dark", "bright"])
    assert of["inside"] == ["transform.decode", "transform.resize", "transform.scale_minus_one_one"]
    check = of["check"]
    assert (check["examples"], check["from_predict"] < 1e-4, check["classes_differ"]) == (10, True, 0)
    assert of["check"]["largest_difference"] <= of["check"]["tolerance"] == 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "keras",
        pytest.param("onnx", marks=pytest.mark.needs("onnx", "onnxruntime", "tf2onnx")),
        pytest.param("litert", marks=pytest.mark.needs("ai-edge-litert")),
    ],
)
def test_other_formats_take_arrays(
    name: str, plain: Path, files: list[Path], predicted: Images, tmp_path: Path, says: Says
) -> None:
    folder = tmp_path / name
    cli.main(["export", str(plain), "--format", name, "--output", str(folder)])
    of = described(folder)
    says(of["input"] | {"name": ""})
    assert of["inside"] == ["transform.scale_minus_one_one"]
    assert of["output"]["name"] == (of["output"]["name"] if name == "keras" else "probabilities")
    exported, arrays = FORMATS[name].load(folder / of["file"]), given(folder, files)
    for number in (4, 1):
        found = exported.compute(arrays[:number])
        np.testing.assert_allclose(found, predicted[:number], rtol=0, atol=1e-5)
    assert [step["step"] for step in of["before"]] == ["transform.decode", "transform.resize"]


@pytest.mark.slow
@pytest.mark.needs("torch")
def test_a_program_of_pytorch_takes_arrays(plain: Path, files: list[Path], predicted: Images, tmp_path: Path) -> None:
    words = ["export", str(plain), "--format", "torch", "--output", str(tmp_path / "torch")]
    assert finish(start(words, tmp_path))[0] == 0
    found = FORMATS["torch"].load(tmp_path / "torch" / "model.pt2").compute(given(tmp_path / "torch", files))
    np.testing.assert_allclose(found, predicted, rtol=0, atol=1e-5)


def wrong(of: Serving, path: Path) -> None:
    """Write the model with other weights."""
    keras.models.clone_model(of.of_arrays).save(path)


def interrupted(_: Path) -> Exported:
    raise KeyboardInterrupt


def without_operation(_: Path) -> Exported:
    def run(_: Any) -> Any:
        raise RuntimeError("no such operation")

    return Exported("image", "probabilities", run)


@pytest.mark.parametrize("way", ["wrong", "interrupted", "without operation"])
def test_what_is_not_checked_does_not_appear(
    way: str, plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load = interrupted if way == "interrupted" else without_operation
    change: dict[str, Any] = {"write": wrong} if way == "wrong" else {"load": load}
    monkeypatch.setitem(FORMATS, "keras", dataclasses.replace(FORMATS["keras"], **change))
    output = tmp_path / "export"
    words: list[str | Path] = ["export", plain, "--format", "keras", "--output", output]
    if way == "wrong":
        difference, remedy = refused(capsys, *words)
        assert difference.startswith("  --format: found keras, whose predictions differ from the model's by ")
        assert difference.endswith("; expected at most 1e-05")
        assert remedy == "    -> choose another format: saved_model, onnx, litert, torch"
    elif way == "without operation":
        found = "keras, which can't hold the model: RuntimeError: no such operation"
        assert refused(capsys, *words)[0] == f"  --format: found {found}; expected layers that the format supports"
    else:
        complaint(capsys, *words, status=130)
    assert [*tmp_path.iterdir()] == []


def test_what_a_killed_export_has_left_is_removed_by_the_next_one(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {name: tmp_path / name for name in (".1.export", ".2.export", ".3.other", ".export", ".4.export")}
    for folder in [*names.values()][:-1]:
        folder.mkdir()
        (folder / "part").touch()
    names[".4.export"].touch()
    at_work: list[bool] = []

    def load(path: Path) -> Exported:
        with locked(path.parent, waits=False) as is_nobodys:
            at_work.append(is_nobodys)
        return of_keras(path)

    of_keras = FORMATS["keras"].load
    monkeypatch.setitem(FORMATS, "keras", dataclasses.replace(FORMATS["keras"], load=load))
    with locked(names[".2.export"], waits=False):  # of an export that is at work
        said(capsys, "export", plain, "--format", "keras", "--output", tmp_path / "export")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert (left, at_work) == ([".2.export", ".3.other", ".4.export", ".export", "export"], [False])


def test_the_second_of_two_exports_at_once_is_told_that_its_place_is_taken(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    output = tmp_path / "export"

    def load(path: Path) -> Exported:
        shutil.copytree(path.parent, output)  # as the first of them has published it
        return of_keras(path)

    of_keras = FORMATS["keras"].load
    monkeypatch.setitem(FORMATS, "keras", dataclasses.replace(FORMATS["keras"], load=load))
    says(refused(capsys, "export", plain, "--format", "keras", "--output", output))
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["saved_model", "keras"])
def test_a_full_disk_is_told_and_left_empty(
    name: str, plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    with mounted(tmp_path / "disk", "64K") as disk:
        says(refused(capsys, "export", plain, "--format", name, "--output", disk / "export"))
        assert [*disk.iterdir()] == []
