"""Formats of exports: each is written by Keras, and run by its own runtime. Without TensorFlow until one is used."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.planning.plan import is_fast
from etlrun.stages.image import Decode
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import Fault, did_you_mean
from etlrun.system.values import frozen
from etlrun.trained.load import Trained
from etlrun.trained.raw import is_named

OPTION = "--format"


@frozen
class Exported:
    """An export as its runtime loads it.

    Attributes:
        inputs: Name of its only input, empty where inputs have none. `output` is that of its output.
        compute: Function from a batch of inputs, arrays or bytes of files, or several by name, to predictions (batch,
            outputs).
    """

    inputs: str
    output: str
    compute: Callable[[Any], npt.NDArray[np.float32]]


@frozen
class Format:
    """A format of exports.

    Attributes:
        file: Name of the file in the folder of an export; empty if the folder is the model.
        runtime: Packages that run it, whose versions an export names.
        modules: Modules that write and run it, which the extra of the format's name installs.
        backend: Keras backend that writes it.
        takes_files: Whether it decodes and resizes images; others take arrays.
        takes_mixed: Whether it holds layers of mixed precision.
        takes_named: Whether it takes several inputs by name.
        takes_columns: Whether it takes columns, of which texts are strings; others take what the steps on them give.
        tolerance: Largest difference of a prediction from the model's, of values above 1 in relation to them.
        write: Writes it, of a `Serving`, to a path.
        load: Loads it with its runtime.
    """

    file: str
    runtime: tuple[str, ...]
    modules: tuple[str, ...] = ()
    backend: str = "tensorflow"
    takes_files: bool = False
    takes_mixed: bool = False
    takes_named: bool = False
    takes_columns: bool = False
    tolerance: float = 1e-5
    write: Callable[[Any, Path], None]
    load: Callable[[Path], Exported]


def in_one(outputs: Mapping[str, npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
    """Return outputs by name as one array (batch, outputs), in the order of their names; a single one as it is."""
    if len(outputs) == 1:
        return next(iter(outputs.values()))
    return np.concatenate([outputs[name].reshape(len(outputs[name]), -1) for name in sorted(outputs)], axis=1)


def _load_saved_model(path: Path) -> Exported:
    import tensorflow as tf

    reloaded = tf.saved_model.load(str(path))
    serve = reloaded.signatures["serving_default"]
    names = [*serve.structured_input_signature[1]]
    outputs = [name for name, spec in serve.structured_outputs.items() if spec.dtype != tf.string]

    def compute(given: Any, _kept: Any = reloaded) -> npt.NDArray[np.float32]:  # a signature alone loses its variables
        several = given if isinstance(given, Mapping) else {names[0]: given}
        values = {name: tf.constant(value) for name, value in several.items()}
        found = serve(**values)
        return in_one({name: found[name].numpy() for name in outputs})

    return Exported(inputs=names[0] if len(names) == 1 else "", output=", ".join(sorted(outputs)), compute=compute)


def _load_keras(path: Path) -> Exported:
    import keras

    model = keras.saving.load_model(path, compile=False)
    is_one = not isinstance(model.input, Mapping)

    def compute(arrays: Any) -> npt.NDArray[np.float32]:
        given = arrays if is_one else {name: keras.ops.convert_to_tensor(of) for name, of in arrays.items()}
        found = keras.tree.map_structure(np.asarray, model.predict_on_batch(given))
        return in_one(found) if isinstance(found, Mapping) else found

    return Exported(inputs=model.input.name if is_one else "", output=model.layers[-1].name, compute=compute)


def _load_onnx(path: Path) -> Exported:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    inputs, outputs = ([of.name for of in each] for each in (session.get_inputs(), session.get_outputs()))

    def compute(given: Any) -> npt.NDArray[np.float32]:
        several = given if isinstance(given, Mapping) else {inputs[0]: given}
        return in_one(dict(zip(outputs, session.run(outputs, several), strict=True)))

    return Exported(inputs=inputs[0] if len(inputs) == 1 else "", output=", ".join(sorted(outputs)), compute=compute)


def _write_litert(of: Any, path: Path) -> None:
    import tensorflow as tf

    builtins = {"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS]}  # which every interpreter runs
    of.written(path, "litert", target_spec=builtins)


def _load_litert(path: Path) -> Exported:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path))
    runner = interpreter.get_signature_runner()
    (name,), (output,) = runner.get_input_details(), runner.get_output_details()

    def compute(arrays: Any, _kept: Any = interpreter) -> npt.NDArray[np.float32]:
        found: npt.NDArray[np.float32] = runner(**{name: arrays})[output]
        return found

    return Exported(inputs=name, output=output, compute=compute)


def _write_torch(of: Any, path: Path) -> None:
    import torch

    batch = torch.export.Dim("batch", min=1)
    of.written(path, "torch", dynamic_shapes={0: batch})


def _load_torch(path: Path) -> Exported:
    import torch

    module = torch.export.load(path).module()

    def compute(arrays: Any) -> npt.NDArray[np.float32]:
        with torch.no_grad():
            found: npt.NDArray[np.float32] = module(torch.from_numpy(arrays)).numpy()
        return found

    return Exported(inputs="", output="", compute=compute)


FORMATS: Mapping[str, Format] = {
    "saved_model": Format(
        file="",
        runtime=("tensorflow",),
        takes_files=True,
        takes_mixed=True,
        takes_named=True,
        takes_columns=True,
        tolerance=1e-6,
        write=lambda of, path: of.write_saved_model(path),
        load=_load_saved_model,
    ),
    "onnx": Format(
        file="model.onnx",
        runtime=("onnx", "onnxruntime"),
        modules=("tf2onnx", "onnx", "onnxruntime"),
        takes_named=True,
        write=lambda of, path: of.written(path, "onnx"),
        load=_load_onnx,
    ),
    "litert": Format(
        file="model.tflite",
        runtime=("ai-edge-litert",),
        modules=("ai_edge_litert",),
        write=_write_litert,
        load=_load_litert,
    ),
    "keras": Format(
        file="model.keras",
        runtime=("keras", "tensorflow"),
        takes_mixed=True,
        takes_named=True,
        takes_columns=True,
        write=lambda of, path: of.of_arrays.save(path),
        load=_load_keras,
    ),
    "torch": Format(
        file="model.pt2", runtime=("torch",), modules=("torch",), backend="torch", write=_write_torch, load=_load_torch
    ),
}
"""Formats by name."""


def named(name: str) -> Iterator[Fault]:
    """Yield why there is no format of that name, or why it can't be used here."""
    if name not in FORMATS:
        remedy = did_you_mean(name, FORMATS)
        yield Fault(OPTION, name, f"one of {', '.join(FORMATS)}", remedy)
        return
    missing = [module for module in FORMATS[name].modules if importlib.util.find_spec(module) is None]
    if missing:
        found = f"{name}, without the module{'s' * (len(missing) > 1)} {', '.join(missing)}"
        expected, remedy = "what writes and runs the format", f"pip install 'etlrun[{name}]'"
        yield Fault(OPTION, found, expected, remedy)


def unfit(run: Trained, name: str) -> Iterator[Fault]:
    """Yield what of a run the format of that name can't hold."""
    of, planned = FORMATS[name], run.plan
    several = is_named(planned)
    if several and not of.takes_named:
        found = f"a model of columns, or of several inputs, which {name} can't hold"
        remedy = f"choose a format that holds them: {', '.join(_those('takes_named'))}"
        yield Fault(str(run.folder), found, "a model of one image or array", remedy)
        return
    whole = ", ".join(_those("takes_mixed"))
    if run.precision is not None and not of.takes_mixed:
        found = f"{run.precision}, which {name} can't hold"
        remedy = f"train in float32, or choose another format: {whole}"
        yield Fault(Trainer.key("mixed_precision"), found, "null, for float32", remedy)
    arrays = ", ".join(other for other in FORMATS if not FORMATS[other].takes_files)
    if of.takes_files and not several and not run.takes_images:
        names = ", ".join(planned.spec.dataset.examples.inputs)
        found, remedy = f"a model of {names}, which is no encoded image", f"choose a format that takes arrays: {arrays}"
        yield Fault(str(run.folder), found, "a model of a single image", remedy)
    if of.takes_files and is_fast(planned.spec.eval_transform):
        found = f"true, for coarser images, which {name} can't decode"
        remedy = f"train with {Decode.key('fast')}=false, or choose a format that takes arrays: {arrays}"
        yield Fault(Decode.key("fast"), found, "false", remedy)


def _those(attribute: str) -> Iterator[str]:
    """Yield the formats that have what an attribute says."""
    yield from (name for name, of in FORMATS.items() if getattr(of, attribute))


def begin(name: str) -> None:
    """Choose the Keras backend of a format, and the CPU, before Keras is imported."""
    os.environ["KERAS_BACKEND"] = FORMATS[name].backend
    os.environ["KERAS_TORCH_DEVICE"] = "cpu"
