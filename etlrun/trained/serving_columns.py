"""A run's model as others take it: from several inputs by name, such as columns, with the steps of the run inside."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from etlrun.planning.plan import given_to_model
from etlrun.stages.columns import Columns
from etlrun.stages.dataset import IMAGE
from etlrun.stages.flow import MISSING
from etlrun.stages.rows import Rows
from etlrun.stages.sequences import padded
from etlrun.trained.columns_layer import ColumnsLayer, in_lists
from etlrun.trained.formats import in_one
from etlrun.trained.load import Trained
from etlrun.trained.model import of_each_class, predictor
from etlrun.trained.predict import of_heads
from etlrun.trained.raw import LAYER, Raw, of_model, padding_of, raws, valid_name
from etlrun.trained.rows import Head
from etlrun.trained.serving import as_layer, drawn_arrays, drawn_files, input_as_json, output_as_json, stepped, told
from etlrun.trained.steps import Split
from etlrun.trained.tables import specs_of

CLASS, PROBABILITIES = "class", "probabilities"
"""Ends of the names of the outputs that have the name of the likeliest class, and what is predicted of each."""


@dataclass(frozen=True, kw_only=True)
class ColumnsServing:
    """A model of several inputs, or of columns, with the steps of its run.

    Attributes:
        run: The run.
        model: Its model.
        image: The steps of its image, and who does them; None if it has none.
        heads: Its targets.
    """

    run: Trained
    model: Any
    image: Split | None
    heads: Sequence[Head]
    does_columns: ClassVar[bool] = True

    @property
    def noun(self) -> str:
        """What the inputs are, for people."""
        return "rows" if isinstance(self.run.then.spec.dataset, Rows) else "examples"

    def described(self, _name: str, output: str) -> dict[str, Any]:
        """Return its inputs, its steps and its output, or those of several targets, as plain values."""
        several = len(self.heads) > 1
        outputs = [
            _output_as_json(head, name if several else output)
            for head, name in zip(self.heads, self.mains, strict=True)
        ]
        images = [] if self.image is None else [_image_as_json(self.image)]
        steps = () if self.image is None else self.image.inside
        has_steps = self.does_columns and bool(self._columns.outputs or self._columns.dropped)
        return {
            "inputs": [*images, *(raw.described() for raw in self.raws)],
            "before": [] if self.image is None else [told(step) for step in self.image.caller],
            "inside": [*[Columns.path] * has_steps, *(step.stage.path for step in (*steps, *self.run.then.by_model))],
            **({"outputs": outputs} if several else {"output": outputs[0]}),
        }

    @cached_property
    def raws(self) -> tuple[Raw, ...]:
        """The inputs but the image."""
        return raws(self.run.then, (self.model.name,))

    @cached_property
    def mains(self) -> tuple[str, ...]:
        """Names of the outputs that have the numbers of each target."""
        found: list[str] = []
        for head in self.heads:
            of = PROBABILITIES if head.names is not None else "value"
            found.append(valid_name(f"{head.target}_{of}" if head.target else of, {*found}))
        return tuple(found)

    @cached_property
    def of_arrays(self) -> Any:
        """The model with layers for the steps that are inside, without its optimizer; each class has an output.

        Of an image, these are the steps behind those that the caller of arrays does.
        """
        given = {raw.name: keras.Input(raw.feature.shape, dtype=raw.feature.dtype, name=raw.name) for raw in self.raws}
        outputs = self._layer(given)
        if self.image is not None:
            pixels = given[IMAGE] = keras.Input(self._pixels.shape, dtype=self._pixels.dtype, name=IMAGE)
            for step in self._scaling:
                pixels = as_layer(step.stage.rescaling, pixels)
            outputs = {**outputs, IMAGE: pixels}
        found = self._of_each_target(self.model(self._handed(outputs)))
        named = dict(zip(self.mains, found, strict=True)) if len(found) > 1 else found[0]
        return keras.Model(given, named, name=f"{self.model.name}_of_columns")

    def write_saved_model(self, path: Path) -> None:
        """Write the model as a SavedModel, which of classes also gives the name of the likeliest one."""
        archive = keras.export.ExportArchive()
        archive.track(self.of_arrays)
        for layer in self.of_arrays.layers:
            for table in layer.tables if isinstance(layer, ColumnsLayer) else ():
                archive.track(table)  # Keras before 3.14 finds no tables of a layer that is not its own
        given = {raw.name: tf.TensorSpec([None, *raw.feature.shape], raw.feature.dtype, raw.name) for raw in self.raws}
        if self.image is not None:
            given[IMAGE] = tf.TensorSpec([None, *self.image.given.shape], self.image.given.dtype, IMAGE)
        archive.add_endpoint("serve", self._served, input_signature=[given])
        archive.write_out(str(path), verbose=False)

    def drawn(self, folder: Path) -> tuple[dict[str, Any], npt.NDArray[np.float32]]:
        """Return a few inputs of the export by name, and what the model itself predicts for them.

        The steps are those of the pipeline, which take what stands for missing values there.
        """
        arrays, outputs = self._given()
        if self.image is not None:
            arrays[IMAGE] = drawn = _drawn_images(self.image, folder)
            outputs[IMAGE] = tf.stack([stepped(self.image.inside, of) for of in tf.constant(drawn)])
        specs = self._handed(specs_of(given_to_model(self.run.then.train), outputs))
        return arrays, self.joined(of_heads(self.run, predictor(self.model, specs)(self._handed(outputs))))

    def joined(self, found: Sequence[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
        """Return the predictions of all targets in one, (batch, outputs), as the export is compared."""
        return in_one(dict(zip(self.mains, found, strict=True)))

    def taken(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, npt.NDArray[Any]]:
        """Return stored examples as the export takes them, by name."""
        features = self.run.then.spec.dataset.examples.features
        known = {name: of for name, of in features.items() if of.is_sequence or None not in of.shape}
        found = self._taken(
            {
                name: (tf.ragged.stack if of.is_sequence else tf.stack)([each[name] for each in examples])
                for name, of in known.items()
            }
        )
        if self.image is not None:
            pixels = [stepped(self.image.caller, of[self.image.name]).numpy() for of in examples]
            found[IMAGE] = np.array(pixels, object if self.image.given.dtype == "string" else None)
        return found

    def _taken(self, batch: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
        """Return columns (batch, ...) as the inputs but the image."""
        found = dict[str, npt.NDArray[Any]]()
        for raw in self.raws:
            values = batch[raw.column]
            if raw.counts:
                values = values.row_lengths()
            elif raw.feature.is_sequence:
                values = tf.cast(values, raw.feature.dtype).to_tensor(padding_of(raw.feature))
            elif raw.is_missing_when_empty:
                values = tf.where(values == MISSING, "", values)
            found[raw.name] = (
                values.numpy() if raw.feature.dtype == "string" else tf.cast(values, raw.feature.dtype).numpy()
            )
        return found

    def _given(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a few inputs but images, by name, and what the columns give for them, by name."""
        return drawn_columns(self.raws, self._columns)

    def _of_each_target(self, found: Any) -> list[Any]:
        """Return the outputs of each target, with a probability of each class, of what the model gives."""
        flow = given_to_model(self.run.then.train)
        if len(flow.targets) == 1:
            return [of_each_class(self.model, found)]
        pairs = ((found[name], flow.features[name].is_binary) for name in flow.targets)
        return [keras.ops.concatenate([1 - of, of], axis=-1) if is_binary else of for of, is_binary in pairs]

    @cached_property
    def _columns(self) -> Columns:
        whole = of_model(self.run.then)
        outputs = tuple(output for output in whole.outputs if output.name not in self._names_of_image)
        return dataclasses.replace(whole, outputs=outputs)

    @cached_property
    def _names_of_image(self) -> tuple[str, ...]:
        """Names of the outputs that are the image again."""
        outputs = () if self.image is None else of_model(self.run.then).outputs
        return tuple(output.name for output in outputs if output.of == (IMAGE,))

    def _layer(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the outputs of the columns; none of an image alone."""
        if not given:
            return {}
        layer = ColumnsLayer(
            self._columns.described(),
            {raw.name: raw.column for raw in self.raws if not raw.counts},
            beside=self._columns.beside,
            dropped=self._columns.dropped,
            empty_is_missing=[raw.name for raw in self.raws if raw.is_missing_when_empty],
            required=[raw.name for raw in self.raws if raw.is_required],
            lists=[raw.name for raw in self.raws if raw.feature.is_sequence],
            lengths={raw.name: raw.lengths for raw in self.raws if raw.lengths},
            name=LAYER,
        )
        found: dict[str, Any] = layer(given)
        return found

    @cached_property
    def _scaling(self) -> tuple[Any, ...]:
        """The steps of the image that layers do: those at the end that scale."""
        steps = () if self.image is None else self.image.inside
        count = next((at for at, step in enumerate(reversed(steps)) if step.stage.rescaling is None), len(steps))
        return steps[len(steps) - count :]

    @property
    def _pixels(self) -> Any:
        """The image as the layers take it."""
        assert self.image is not None  # noqa: S101 - only asked of images
        before = self.image.inside[: len(self.image.inside) - len(self._scaling)]
        return before[-1].gives.features[IMAGE] if before else self.image.given

    def _served(self, given: dict[str, Any]) -> dict[str, Any]:
        if self.image is not None:
            before = self.image.inside[: len(self.image.inside) - len(self._scaling)]
            spec = tf.TensorSpec(self._pixels.shape, self._pixels.dtype)
            pixels = tf.map_fn(lambda of: stepped(before, of), given[IMAGE], fn_output_signature=spec)
            given = {**given, IMAGE: pixels}
        found = self.of_arrays(given, training=False)
        found = dict(found) if isinstance(found, Mapping) else {self.mains[0]: found}
        for head, name in zip(self.heads, self.mains, strict=True):
            if head.names is not None and not head.is_labels:
                likeliest = tf.gather(tf.constant([*head.names]), tf.argmax(found[name], axis=-1))
                found[name.removesuffix(PROBABILITIES) + CLASS] = likeliest
        return found

    def _handed(self, outputs: dict[str, Any]) -> Any:
        again = dict.fromkeys(self._names_of_image, outputs.get(IMAGE))
        return given_to_model(self.run.then.train).given({**outputs, **again})


def drawn_columns(given: Sequence[Raw], columns: Columns) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return four values of each input by name, and what columns give for them, tensors by name."""
    arrays = {raw.name: _array(raw) for raw in given}
    example = {
        raw.column: in_lists(tf.constant(arrays[raw.name]), arrays.get(raw.lengths))
        if raw.feature.is_sequence
        else tf.constant(arrays[raw.name])
        for raw in given
        if not raw.counts
    }
    empty = {raw.name: np.array([of or "" for of in raw.some], object) for raw in given if raw.is_missing_when_empty}
    return {**arrays, **empty}, padded(columns.given(example))


def _output_as_json(head: Head, name: str) -> dict[str, Any]:
    """Return an output as plain values; of several targets with its target and its classes."""
    if head.is_labels:
        found = {**output_as_json(name, is_class=True), "content": "a probability of each label"}
    else:
        found = output_as_json(name, is_class=head.names is not None)
    if not head.target:
        return found
    return {**found, "target": head.target, "classes": None if head.names is None else [*head.names]}


def _image_as_json(image: Split) -> dict[str, Any]:
    """Return the input of an image as plain values, with the keys of the other inputs."""
    return {**input_as_json(IMAGE, image.given, is_image=True), "column": image.name, "missing": None, "example": None}


def _drawn_images(image: Split, folder: Path) -> npt.NDArray[Any]:
    """Return four images as an export takes them, (4,) or (4, height, width, 3)."""
    if image.given.dtype != "string":
        return drawn_arrays(image)
    return np.array([path.read_bytes() for path in drawn_files(folder)], object)


def _array(raw: Raw) -> npt.NDArray[Any]:
    """Return the four values of an input, (4, ...)."""
    values = np.array(raw.values, object if raw.feature.dtype == "string" else raw.feature.dtype)
    if raw.feature.is_sequence:
        return values
    wide = values.reshape(-1, *[1] * len(raw.feature.shape))
    return np.array(np.broadcast_to(wide, (len(values), *(side or 1 for side in raw.feature.shape))))
