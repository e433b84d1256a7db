"""A run's model as others take it: from files of images, or from arrays, with the steps of the validation inside."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from PIL import Image

from etlrun.planning.decoding import by_tensorflow
from etlrun.planning.plan import PlannedStage
from etlrun.planning.planner import plan
from etlrun.stages.base import DATA, Rescaling, parameters
from etlrun.stages.flow import Feature
from etlrun.trained.load import Trained
from etlrun.trained.model import predictor
from etlrun.trained.predict import SKIP_WITH, of_files
from etlrun.trained.steps import Split

_FILES = "JPEG, PNG, BMP or GIF files"
_SIZES = ((48, 64), (97, 31), (33, 33), (224, 160))
"""Heights and widths of drawn image files."""


@dataclass(frozen=True, kw_only=True)
class Serving:
    """A model with the steps of its run's validation.

    Attributes:
        run: The run.
        model: Its model.
        steps: Its steps, and who does them.
        output: Name of the output.
    """

    run: Trained
    model: Any
    steps: Split
    output: str
    noun: ClassVar[str] = "images"

    def described(self, name: str, output: str) -> dict[str, Any]:
        """Return its input, of that name in the export, its steps and its output as plain values."""
        flow = self.run.then.spec.dataset.examples
        return {
            "input": input_as_json(name, self.steps.given, is_image=self.run.takes_images),
            "before": [told(step) for step in self.steps.caller],
            "inside": [step.stage.path for step in (*self.steps.inside, *self.run.plan.by_model)],
            "output": output_as_json(output, is_class=flow.features[flow.target].is_class),
        }

    def of_files(self, files: Any) -> dict[str, Any]:
        """Return predictions (batch, outputs) by name, of image files; string (batch,)."""
        spec = tf.TensorSpec(self.model.input_shape[1:], self.model.input.dtype)
        images = tf.map_fn(partial(stepped, self.steps.inside), files, fn_output_signature=spec)
        return {self.output: self.model(images, training=False)}

    @cached_property
    def of_arrays(self) -> Any:
        """The model with layers for the steps that are inside; without its optimizer."""
        given = self.steps.given
        inputs = keras.Input(given.shape, dtype=given.dtype, name=self.steps.name)
        pixels = inputs
        for step in self.steps.inside:
            assert step.stage.rescaling is not None  # noqa: S101 - for mypy
            pixels = as_layer(step.stage.rescaling, pixels)
        return keras.Model(inputs, self.model(pixels), name=self.model.name)

    def write_saved_model(self, path: Path) -> None:
        """Write the model as a SavedModel that takes files of images."""
        archive = keras.export.ExportArchive()
        archive.track(self.model)
        signature = tf.TensorSpec([None], tf.string, name=self.steps.name)
        archive.add_endpoint("serve", self.of_files, input_signature=[signature])
        archive.write_out(str(path), verbose=False)

    def written(self, path: Path, form: str, **options: Any) -> None:
        """Have Keras export `of_arrays` to `path` in one of its own formats, for batches of any size.

        Its output has the name `output`, except in torch, whose programs return a tensor.
        """
        given, model = self.steps.given, self.of_arrays
        if form != "torch":
            model = keras.Model(model.inputs, {self.output: model.outputs[0]}, name=model.name)
        signature = [keras.InputSpec(dtype=given.dtype, shape=(None, *given.shape), name=self.steps.name)]
        model.export(path, format=form, verbose=False, input_signature=signature, **options)

    def joined(self, found: Sequence[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
        """Return the predictions of its only target, (batch, outputs)."""
        return found[0]

    def taken(self, examples: Sequence[Mapping[str, Any]]) -> Any:
        """Return stored examples as the export takes them."""
        values = [stepped(self.steps.caller, of[self.steps.name]).numpy() for of in examples]
        return values if self.steps.given.dtype == "string" else np.stack(values)

    def drawn(self, folder: Path) -> tuple[Any, npt.NDArray[np.float32]]:
        """Return a few drawn inputs of the export, and what the model itself predicts for them.

        Files are written into `folder`, and predicted as `etlrun predict` does with images decoded by TensorFlow.
        """
        if self.steps.given.dtype == "string":
            paths = drawn_files(folder)
            planned = plan(by_tensorflow(self.run.plan.spec))
            reading = of_files(dataclasses.replace(self.run, plan=planned), [str(path) for path in paths])
            compute = predictor(self.model, reading.inputs_spec)
            found = np.concatenate([compute(batch.inputs) for batch in reading.batches(SKIP_WITH)])
            return [path.read_bytes() for path in paths], found
        arrays = drawn_arrays(self.steps)
        spec = tf.TensorSpec(self.model.input_shape, self.model.input.dtype)
        given = tf.stack([stepped(self.steps.inside, of) for of in tf.constant(arrays)])
        return arrays, predictor(self.model, spec)(given)


def stepped(steps: Iterable[PlannedStage], value: Any) -> Any:
    """Return one input after some steps, as the pipeline of the run computes them."""
    for step in steps:
        value = step.stage.op(value, **step.stage.values)  # type: ignore[attr-defined] # all are steps
    return value


def input_as_json(name: str, given: Feature, *, is_image: bool) -> dict[str, Any]:
    """Return an input of an export as plain values."""
    arrays = "images of red, green and blue" if is_image else "arrays"
    return {
        "name": name,
        "dtype": given.dtype,
        "shape": [None, *given.shape],
        "range": None if given.low is None else [given.low, given.high],
        "content": _FILES if given.dtype == "string" else arrays,
    }


def output_as_json(name: str, *, is_class: bool) -> dict[str, Any]:
    """Return an output of an export as plain values."""
    content = "a probability of each class" if is_class else "values of the target"
    return {"name": name, "dtype": "float32", "content": content}


def told(step: PlannedStage) -> dict[str, Any]:
    """Return a step that is left to whoever uses the export, as plain values."""
    values = {each.name: each.value for each in parameters(step.stage) if each.kind == DATA}
    first = (type(step.stage).__doc__ or "").splitlines()[0]
    return {"step": step.stage.path, "does": first, "parameters": values}


def as_layer(rescaling: Rescaling, pixels: Any) -> Any:
    """Return pixels after layers that scale them."""
    pixels = keras.ops.flip(pixels, axis=-1) if rescaling.reverses else pixels
    return keras.layers.Rescaling(rescaling.scale, rescaling.offset, dtype="float32")(pixels)


def drawn_arrays(steps: Split) -> npt.NDArray[Any]:
    """Return a dark, a light and two noisy images, in the range of the input."""
    low, high = (0.0, 1.0) if steps.given.low is None else (steps.given.low, steps.given.high or 0.0)
    shares = _shares([tuple(side or 1 for side in steps.given.shape)] * len(_SIZES))
    values = low + np.stack(shares) * (high - low)
    return (np.rint(values) if steps.given.dtype.startswith(("int", "uint")) else values).astype(steps.given.dtype)


def _shares(shapes: Sequence[tuple[int, ...]]) -> list[npt.NDArray[np.float64]]:
    noise = np.random.default_rng(0)
    ends = ((0.0, 0.2), (0.7, 1.0), (0.0, 1.0), (0.3, 0.6))
    return [noise.uniform(*end, shape) for end, shape in zip(ends, shapes, strict=True)]


def drawn_files(folder: Path) -> list[Path]:
    """Write images of several sizes, the last one as PNG; return their paths."""
    paths = []
    for number, share in enumerate(_shares([(*size, 3) for size in _SIZES])):
        paths.append(folder / f"{number}.{'png' if number == len(_SIZES) - 1 else 'jpg'}")
        Image.fromarray(np.rint(255 * share).astype(np.uint8)).save(paths[-1])
    return paths
