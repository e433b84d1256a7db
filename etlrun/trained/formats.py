"""Formats of exports: each is written by Keras, and run by its own runtime. Without TensorFlow until one is used."""

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from etlrun.planning.plan import is_fast
from etlrun.stages.image import Decode
from etlrun.stages.lazy import keras, tf
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import Fault, did_you_mean
from etlrun.system.loading import pip_install
from etlrun.system.values import frozen
from etlrun.trained.load import Trained
from etlrun.trained.raw import is_named
from etlrun.trained.scores import Outputs, Tensors

OPTION = "--format"


class Exported(NamedTuple):
    """An export as its runtime loads it.

    Attributes:
        input: Name of its only input, or of the first one; empty where it has none.
        output: Name of its only output, so, too.
        run: Function from a batch of inputs, arrays or bytes of files, by name to outputs by name.
    """

    input: str
    output: str
    run: Callable[[Tensors], Tensors]

    def compute(self, given: Any) -> Outputs:
        """Return the predictions (batch, outputs) of a batch of its only input, or of several by name."""
        found = self.run(given if isinstance(given, Mapping) else {self.input: given})
        return in_one({name: np.asarray(of) for name, of in found.items()})


@frozen
class Format:
    """A format of exports.

    Attributes:
        file: Name of the file in the folder of an export; empty if the folder is the model.
        runtime: Packages that run it, whose versions an export names.
        modules: Modules that write and run it, which the extra of the format's name installs.
        backend: Keras backend that writes it.
        takes_files: Whether it decodes and resizes images; others take arrays.
        takes_named: Whether it takes several inputs by name.
        takes_columns: Whether TensorFlow runs it: it takes columns, of which texts are strings, and holds layers of
            mixed precision. Others take what the steps on columns give.
        tolerance: Largest difference of a prediction from the model's, of values above 1 in relation to them.
        write: Writes it, of a `Serving`, to a path.
        load: Loads it with its runtime.
    """

    file: str
    runtime: tuple[str, ...]
    modules: tuple[str, ...] = ()
    backend: str = "tensorflow"
    takes_files: bool = False
    takes_named: bool = False
    takes_columns: bool = False
    tolerance: float = 1e-5
    write: Callable[[Any, Path], None]
    load: Callable[[Path], Exported]


def in_one(outputs: Mapping[str, Outputs]) -> Outputs:
    """Return outputs by name as one array (batch, outputs), in the order of their names; a single one as it is."""
    if len(outputs) == 1:
        return next(iter(outputs.values()))
    return np.concatenate([outputs[name].reshape(len(outputs[name]), -1) for name in sorted(outputs)], axis=1)


def largest_difference(found: Outputs, expected: Outputs) -> float:
    """Return the largest difference of predictions, of values above 1 in relation to them."""
    return float(np.max(np.abs(found - expected) / np.maximum(1, np.abs(expected))))


def _load_saved_model(path: Path) -> Exported:
    reloaded = tf.saved_model.load(str(path))
    serve = reloaded.signatures["serving_default"]
    outputs = [name for name, spec in serve.structured_outputs.items() if spec.dtype != tf.string]

    def run(given: Any, _kept: Any = reloaded) -> Any:  # a signature alone loses its variables
        found = serve(**{name: tf.constant(value) for name, value in given.items()})
        return {name: found[name] for name in outputs}

    return Exported(next(iter(serve.structured_input_signature[1])), outputs[0], run)


def _load_keras(path: Path) -> Exported:
    model = keras.saving.load_model(path, compile=False)
    name, output = "" if isinstance(model.input, Mapping) else model.input.name, model.layers[-1].name

    def run(given: Any) -> Any:
        tensors = {key: keras.ops.convert_to_tensor(of) for key, of in given.items()}
        found = model.predict_on_batch(given[name] if name else tensors)
        return found if isinstance(found, Mapping) else {output: found}

    return Exported(name, output, run)


def _load_onnx(path: Path) -> Exported:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    outputs = [of.name for of in session.get_outputs()]
    run = lambda given: dict(zip(outputs, session.run(outputs, given), strict=True))  # noqa: E731
    return Exported(session.get_inputs()[0].name, outputs[0], run)


def _load_litert(path: Path) -> Exported:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path))
    runner = interpreter.get_signature_runner()
    (name, *_), (output, *_) = runner.get_input_details(), runner.get_output_details()
    return Exported(name, output, lambda given, _kept=interpreter: runner(**given))  # type: ignore[misc]


def _load_torch(path: Path) -> Exported:
    import torch

    module = torch.export.load(path).module()

    def run(given: Any) -> Any:
        with torch.no_grad():
            return {"": module(torch.from_numpy(given[""]))}

    return Exported("", "", run)


FORMATS: Mapping[str, Format] = {
    "saved_model": Format(
        file="",
        runtime=("tensorflow",),
        takes_files=True,
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
        write=lambda of, path: of.written(
            path,
            "litert",
            target_spec={"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS]},  # every interpreter's
        ),
        load=_load_litert,
    ),
    "keras": Format(
        file="model.keras",
        runtime=("keras", "tensorflow"),
        takes_named=True,
        takes_columns=True,
        write=lambda of, path: of.of_arrays.save(path),
        load=_load_keras,
    ),
    "torch": Format(
        file="model.pt2",
        runtime=("torch",),
        modules=("torch",),
        backend="torch",
        write=lambda of, path: of.written(path, "torch"),
        load=_load_torch,
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
        found = f"{name}, without {', '.join(missing)}"
        expected, remedy = "the packages that write and run the format", pip_install(name)
        yield Fault(OPTION, found, expected, remedy)


def unfit(run: Trained, name: str) -> Iterator[Fault]:
    """Yield what of a run the format of that name can't hold."""
    of, planned = FORMATS[name], run.plan
    several = is_named(planned)
    if several and not of.takes_named:
        found = f"a model of columns, or of several inputs, which {name} can't hold"
        remedy = f"choose a format that holds them: {_those('takes_named')}"
        yield Fault(str(run.folder), found, "a model of one image or array", remedy)
        return
    if run.precision is not None and not of.takes_columns:
        found = f"{run.precision}, which {name} can't hold"
        remedy = f"train in float32, or choose another format: {_those('takes_columns')}"
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


def _those(attribute: str) -> str:
    """Return the formats that have what an attribute says."""
    return ", ".join(name for name, of in FORMATS.items() if getattr(of, attribute))
