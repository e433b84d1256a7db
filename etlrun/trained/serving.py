"""A run's model as others take it: from an image, an array or columns by name, with the steps of the run inside."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from PIL import Image

from etlrun.planning.plan import PlannedStage, given_to_model
from etlrun.sources.content import cut
from etlrun.sources.rows.source import RowsSource
from etlrun.stages.base import DATA, parameters
from etlrun.stages.column_categories import Embed, Lookup
from etlrun.stages.column_text import Tokenize
from etlrun.stages.columns import Columns, Output
from etlrun.stages.dataset import IMAGE
from etlrun.stages.flow import MISSING, Feature
from etlrun.stages.load import padded
from etlrun.stages.rows import Rows, Table
from etlrun.system.errors import EtlrunError
from etlrun.system.values import frozen
from etlrun.trained.columns_layer import ColumnsLayer, in_lists
from etlrun.trained.formats import in_one
from etlrun.trained.load import Trained
from etlrun.trained.model import of_each_class, predictor
from etlrun.trained.predict import SKIP_WITH, EvaluationPass, opened
from etlrun.trained.raw import LAYER, Handover, Raw, is_named, of_model, padding_of, raws, valid_name
from etlrun.trained.rows import Head, Outputs
from etlrun.trained.tables import specs_of

CLASS, PROBABILITIES = "class", "probabilities"
"""Ends of the names of the outputs that have the name of the likeliest class, and what is predicted of each."""
_FILES = "JPEG, PNG, BMP or GIF files"
_SIZES = ((48, 64), (97, 31), (33, 33), (224, 160))
"""Heights and widths of drawn image files."""
_ENDS = ((0.0, 0.2), (0.7, 1.0), (0.0, 1.0), (0.3, 0.6))
"""Ranges of their pixels: a dark, a light and two noisy ones."""


@frozen
class Serving:
    """A model with the steps of its run. One image or array has no name; columns and several inputs have names.

    Attributes:
        run: The run.
        model: Its model.
        image: The steps of its image, or of its only input, and who does them; None if it has columns alone.
        heads: Its targets.
    """

    run: Trained
    model: Any
    image: Handover | None
    heads: Sequence[Head]
    does_columns: ClassVar[bool] = True

    @property
    def noun(self) -> str:
        """What the inputs are, for people."""
        if not self._is_named:
            return "images"
        return "rows" if isinstance(self.run.then.spec.dataset, Rows) else "examples"

    def described(self, name: str, output: str) -> dict[str, Any]:
        """Return its inputs, its steps and its outputs as plain values; a single input and output have these names."""
        several, outputs, before = len(self.heads) > 1, list[dict[str, Any]](), list[dict[str, Any]]()
        for head, main in zip(self.heads, self.mains, strict=True):
            of = "values of the target" if head.names is None else f"a probability of each {head.noun}"
            outputs.append({"name": main if several else output, "dtype": "float32", "content": of})
            if several:
                outputs[-1] |= {"target": head.target, "classes": None if head.names is None else [*head.names]}
        for step in () if self.image is None else self.image.caller:
            values = {each.name: each.value for each in parameters(step.stage) if each.kind == DATA}
            does = (type(step.stage).__doc__ or "").splitlines()[0]
            before.append({"step": step.stage.path, "does": does, "parameters": values})
        images = [] if self.image is None else [self._image_as_json(self.image, name)]
        inputs = [*images, *(raw.described() for raw in self.raws)]
        steps = () if self.image is None else self.image.inside
        has_steps = self.does_columns and bool(self._columns.outputs or self._columns.dropped)
        return {
            **({"inputs": inputs} if self._is_named else {"input": inputs[0]}),
            "before": before,
            "inside": [*[Columns.path] * has_steps, *(step.stage.path for step in (*steps, *self.run.then.by_model))],
            **({"outputs": outputs} if several else {"output": outputs[0]}),
        }

    @cached_property
    def raws(self) -> tuple[Raw, ...]:
        """The inputs but the image."""
        return raws(self.run.then, (self.model.name,)) if self._is_named else ()

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
            feature, name = self._pixels, self.image.name
            pixels = given[name] = keras.Input(feature.shape, dtype=feature.dtype, name=name)
            for step in self.image.inside[self._decoded :]:
                of: Any = step.stage.rescaling
                pixels = keras.ops.flip(pixels, axis=-1) if of.reverses else pixels
                pixels = keras.layers.Rescaling(of.scale, of.offset, dtype="float32")(pixels)
            outputs = {**outputs, name: pixels}
        found = of_each_class(self.run.flow, self.model(self._handed(outputs)))
        several = dict(zip(self.mains, found.values(), strict=True))
        named = several if len(several) > 1 else several[self.mains[0]]
        name = f"{self.model.name}_of_columns" if self._is_named else self.model.name
        return keras.Model(self._named(given), named, name=name)

    def write_saved_model(self, path: Path) -> None:
        """Write the model as a SavedModel, which of classes and inputs by name also gives the name of the likeliest."""
        archive = keras.export.ExportArchive()
        archive.track(self.of_arrays)
        for layer in self.of_arrays.layers:
            for table in layer.tables if isinstance(layer, ColumnsLayer) else ():
                archive.track(table)  # Keras before 3.14 finds no tables of a layer that is not its own
        given = {raw.name: raw.feature for raw in self.raws}
        given |= {} if self.image is None else {self.image.name: self.image.given}
        specs = {name: tf.TensorSpec([None, *of.shape], of.dtype, name) for name, of in given.items()}
        archive.add_endpoint("serve", self._served, input_signature=[self._named(specs)])
        archive.write_out(str(path), verbose=False)

    def written(self, path: Path, form: str, **options: Any) -> None:
        """Have Keras export `of_arrays` to `path` in one of its own formats, for batches of any size.

        A single output has a name, except in torch, whose programs return a tensor.
        """
        model = self.of_arrays
        if form != "torch" and not isinstance(model.output, Mapping):
            model = keras.Model(model.input, {self.mains[0]: model.output}, name=model.name)
        signature = keras.tree.map_structure(
            lambda of: keras.InputSpec(dtype=of.dtype, shape=of.shape, name=of.name), model.input
        )
        model.export(path, format=form, verbose=False, input_signature=[signature], **options)

    def drawn(self, folder: Path) -> tuple[Any, Outputs]:
        """Return a few inputs of the export, and what the model itself predicts for them; files are in `folder`.

        The steps are those of the pipeline, which take what stands for missing values there.
        """
        arrays, outputs = self._given()
        if self.image is not None:
            arrays[self.image.name] = drawn = _drawn(self.image.given, folder)
            outputs[self.image.name] = tf.stack([stepped(self.image.inside, of) for of in tf.constant(drawn)])
        specs = self._handed(specs_of(given_to_model(self.run.then.train), outputs))
        predict = predictor(self.model, self.run.flow, specs)
        return self._named(arrays), self.joined(predict(self._handed(outputs)))

    def joined(self, found: Mapping[str, Outputs]) -> Outputs:
        """Return the predictions of all targets in one, (batch, outputs), as the export is compared."""
        return in_one(dict(zip(self.mains, found.values(), strict=True)))

    def taken(self, examples: Sequence[Mapping[str, Any]]) -> Any:
        """Return stored examples as the export takes them."""
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
            found[self.image.name] = np.array(pixels, object if self.image.given.dtype == "string" else None)
        return self._named(found)

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
            is_text = raw.feature.dtype == "string"
            found[raw.name] = values.numpy() if is_text else tf.cast(values, raw.feature.dtype).numpy()
        return found

    def _given(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a few inputs but images, by name, and what the columns give for them, by name."""
        return _drawn_columns(self.raws, self._columns)

    @cached_property
    def _is_named(self) -> bool:
        return is_named(self.run.plan)

    def _named(self, given: dict[str, Any]) -> Any:
        """Return values of the inputs as the export takes them: by name, or that of its only one."""
        return given if self._is_named else next(iter(given.values()))

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
        taken = [
            {
                "name": raw.name,
                "column": raw.column,
                "lengths": raw.lengths,
                "is_list": raw.feature.is_sequence,
                "is_required": raw.is_required,
                "is_missing_when_empty": raw.is_missing_when_empty,
            }
            for raw in self.raws
            if not raw.counts
        ]
        columns = self._columns
        layer = ColumnsLayer(columns.described(), taken, beside=columns.beside, dropped=columns.dropped, name=LAYER)
        found: dict[str, Any] = layer(given)
        return found

    @cached_property
    def _decoded(self) -> int:
        """Number of the steps of the image inside that no layer does: all but those at the end that scale."""
        steps = () if self.image is None else self.image.inside
        scaling = next((at for at, step in enumerate(reversed(steps)) if step.stage.rescaling is None), len(steps))
        return len(steps) - scaling

    @property
    def _pixels(self) -> Feature:
        """The image as the layers take it."""
        assert self.image is not None  # noqa: S101 - only asked of images
        before = self.image.inside[: self._decoded]
        return before[-1].gives.features[self.image.name] if before else self.image.given

    def _served(self, given: Any) -> dict[str, Any]:
        if self.image is not None:
            steps, name = self.image.inside[: self._decoded], self.image.name
            spec = tf.TensorSpec(self._pixels.shape, self._pixels.dtype)
            files = given[name] if self._is_named else given
            pixels = tf.map_fn(lambda of: stepped(steps, of), files, fn_output_signature=spec)
            given = {**given, name: pixels} if self._is_named else pixels
        found = self.of_arrays(given, training=False)
        found = dict(found) if isinstance(found, Mapping) else {self.mains[0]: found}
        for head, name in zip(self.heads, self.mains, strict=True):
            if self._is_named and head.names is not None and not head.is_labels:
                likeliest = tf.gather(tf.constant([*head.names]), tf.argmax(found[name], axis=-1))
                found[name.removesuffix(PROBABILITIES) + CLASS] = likeliest
        return found

    def _handed(self, outputs: dict[str, Any]) -> Any:
        again = dict.fromkeys(self._names_of_image, outputs.get(IMAGE))
        return given_to_model(self.run.then.train).given({**outputs, **again})

    def _image_as_json(self, image: Handover, name: str) -> dict[str, Any]:
        """Return the image, or the only input, as plain values; beside others with the keys of these."""
        arrays = "images of red, green and blue" if self._is_named or self.run.takes_images else "arrays"
        found = {
            "name": image.name if self._is_named else name,
            "dtype": image.given.dtype,
            "shape": [None, *image.given.shape],
            "range": None if image.given.low is None else [image.given.low, image.given.high],
            "content": _FILES if image.given.dtype == "string" else arrays,
        }
        return {**found, "column": image.name, "missing": None, "example": None} if self._is_named else found


class OutputsServing(Serving):
    """A model that takes by name what the steps on its columns give: indices, vectors and numbers."""

    does_columns: ClassVar[bool] = False

    def described(self, name: str, output: str) -> dict[str, Any]:
        """Return its inputs with their vocabularies, the steps that make them, and its outputs, as plain values."""
        found = super().described(name, output)
        for given in found["inputs"]:
            if given["name"] in self._outputs:
                given["column"] = ", ".join(self._outputs[given["name"]].of)
                given["vocabulary"] = self._vocabulary(given["name"])
        steps = [step for name, output in self._outputs.items() for step in self._steps(name, output)]
        return {**found, "before": [*found["before"], *steps]}

    @cached_property
    def raws(self) -> tuple[Raw, ...]:
        """The inputs but the image: those of the model."""
        flow, found = given_to_model(self.run.then.train), list[Raw]()
        for name in flow.inputs:
            if name not in self._names_of_image and not (name == IMAGE and self.image is not None):
                feature = flow.features[name]
                if feature.categories is not None:
                    feature = feature.replace(low=0, high=feature.categories - 1)
                valid = valid_name(name, {IMAGE, self.model.name, *self.mains, *(raw.name for raw in found)})
                some = (_without_padding(self._drawn[name][0], feature),)
                found.append(Raw(name=valid, column=name, feature=feature, missing=None, some=some))
        return tuple(found)

    def written(self, path: Path, form: str, **options: Any) -> None:
        """Have Keras export `of_arrays` to `path` in one of its own formats, and write the vocabularies beside it."""
        super().written(path, form, **options)
        for name, lines in self._files.items():
            text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
            (path.parent / name).write_text(text, encoding="utf-8")

    def _layer(self, given: dict[str, Any]) -> dict[str, Any]:
        return {raw.column: given[raw.name] for raw in self.raws}

    def _given(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {raw.name: self._drawn[raw.column] for raw in self.raws}, {**self._drawn}

    def _taken(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        outputs = padded(self._columns.given(batch))
        return {raw.name: outputs[raw.column].numpy() for raw in self.raws}

    @cached_property
    def _drawn(self) -> dict[str, Any]:
        """What the columns give for a few rows, by name."""
        outputs = _drawn_columns(raws(self.run.then, (self.model.name,)), self._columns)[1]
        return {name: values.numpy() for name, values in outputs.items()}

    @cached_property
    def _outputs(self) -> dict[str, Output]:
        """The outputs of the columns by the names of the inputs that they are."""
        outputs = {output.name: output for output in self._columns.outputs}
        return {raw.name: outputs[raw.column] for raw in self.raws if raw.column in outputs}

    @cached_property
    def _files(self) -> dict[str, Sequence[str | int | None]]:
        """The lines of the files of vocabularies by their names: null for what is padding or unknown."""
        found = dict[str, Sequence[str | int | None]]()
        for name, output in self._outputs.items():
            for step in output.steps:
                if isinstance(step, Lookup):
                    reserved = _is_padded(output) + (step.oov if isinstance(step.oov, int) else 0)
                    found[_file(name)] = (*[None] * reserved, *(step.values or ()))
                elif isinstance(step, Tokenize) and step.vocabulary is not None:
                    found[_file(name, "pieces")] = step.vocabulary
        return found

    def _vocabulary(self, name: str) -> dict[str, Any] | None:
        """Return where the vocabulary of an input is, and which of its indices are none of a value."""
        lines, padding = self._files.get(_file(name)), int(_is_padded(self._outputs[name]))
        if lines is None:
            return None
        unknown = [index for index in range(padding, len(lines)) if lines[index] is None]
        return {"file": _file(name), "padding": 0 if padding else None, "unknown": unknown}

    def _steps(self, name: str, output: Output) -> Iterator[dict[str, Any]]:
        """Yield the steps that make an input, as plain values; the indices of a vocabulary are those of its file."""
        dataset, features = self.run.then.spec.dataset, self.run.then.spec.dataset.examples.features
        if isinstance(dataset, Rows) and any(of in features and features[of].format == "text" for of in output.of):
            yield {"input": name, "step": "NFC", "does": "Brings texts into Unicode's NFC.", "parameters": {}}
            if isinstance(dataset, Table) and dataset.strip:
                yield {"input": name, "step": "strip", "does": "Removes blanks around texts.", "parameters": {}}
        for step in output.steps:
            given = {key: value for key, value in step.arguments.items() if value is not None}
            does = (type(step).__doc__ or "").splitlines()[0]
            if isinstance(step, Lookup):
                given["values"] = _file(name)
            elif isinstance(step, Tokenize) and step.vocabulary is not None:
                given["vocabulary"] = _file(name, "pieces")
            elif isinstance(step, Embed):
                if not step.padding or _file(name) in self._files:
                    continue
                given, does = {}, "Adds 1 to each index, since 0 is padding."
            yield {"input": name, "step": step.name, "does": does, "parameters": given}


def stepped(steps: Iterable[PlannedStage], value: Any) -> Any:
    """Return one input after some steps, as the pipeline of the run computes them."""
    for step in steps:
        value = step.stage.op(value, **step.stage.arguments)  # type: ignore[attr-defined] # all are steps
    return value


def _drawn(given: Feature, folder: Path) -> npt.NDArray[Any]:
    """Return four images as an export takes them: in the range of the input, or as files, the last of which is PNG."""
    noise, is_file = np.random.default_rng(0), given.dtype == "string"
    shapes = [(*size, 3) if is_file else tuple(side or 1 for side in given.shape) for size in _SIZES]
    shares = [noise.uniform(*ends, shape) for ends, shape in zip(_ENDS, shapes, strict=True)]
    if not is_file:
        low, high = (0.0, 1.0) if given.low is None else (given.low, given.high or 0.0)
        values = low + np.stack(shares) * (high - low)
        return (np.rint(values) if given.dtype.startswith(("int", "uint")) else values).astype(given.dtype)
    paths = [folder / f"{number}.{'png' if number == len(shares) - 1 else 'jpg'}" for number in range(len(shares))]
    for path, share in zip(paths, shares, strict=True):
        Image.fromarray(np.rint(255 * share).astype(np.uint8)).save(path)
    return np.array([path.read_bytes() for path in paths], object)


def _drawn_columns(given: Sequence[Raw], columns: Columns) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return four values of each input by name, and what columns give for them, tensors by name."""
    if not given:
        return {}, {}
    arrays = {}
    for raw in given:
        values = np.array(raw.values, object if raw.feature.dtype == "string" else raw.feature.dtype)
        if not raw.feature.is_sequence:
            shape = tuple(side or 1 for side in raw.feature.shape)
            values = np.array(np.broadcast_to(values.reshape(-1, *[1] * len(shape)), (len(values), *shape)))
        arrays[raw.name] = values
    example = {
        raw.column: in_lists(tf.constant(arrays[raw.name]), arrays.get(raw.lengths))
        if raw.feature.is_sequence
        else tf.constant(arrays[raw.name])
        for raw in given
        if not raw.counts
    }
    empty = {raw.name: np.array([of or "" for of in raw.some], object) for raw in given if raw.is_missing_when_empty}
    return {**arrays, **empty}, padded(columns.given(example))


def _without_padding(value: Any, feature: Feature) -> Any:
    """Return a value of an input as plain ones, a sequence without its padding."""
    if not feature.is_sequence:
        return value.tolist()
    is_padding = np.isnan(value) if value.dtype.kind == "f" else value == 0
    return value[~is_padding.reshape(len(value), -1).all(axis=1)].tolist()


def _is_padded(output: Output) -> bool:
    """Return whether 0 is the padding of an output, and no index."""
    last = output.steps[-1] if output.steps else None
    return isinstance(last, Embed) and bool(last.padding)


def _file(name: str, what: str = "vocabulary") -> str:
    """Return the name of the file of a vocabulary of an input."""
    return f"{name}.{what}.jsonl"


_BLOCKS, _OF_BLOCK = 4, 16
"""Parts of a split from which so many examples are compared: those of one class may stand together."""


def seen(run: Trained, model: Any, serving: Any, compute: Callable[[Any], Outputs]) -> dict[str, Any] | str:
    """Return how far `compute`, which is an export, is from the pipeline and the model of its run.

    It is in relation to values above 1; beside it are the number of examples, and the split that has them.

    What the export leaves to its user is done by TensorFlow. If the split can't be read as it is on this machine, why.
    """
    if run.plan.spec.dataset.urls:
        return "its dataset is at a URL"
    plan = dataclasses.replace(
        run.plan, spec=dataclasses.replace(run.plan.spec, dataset=run.plan.spec.dataset.as_it_is())
    )
    try:
        source, whole = opened(plan, run.split_key)
        known = plan.spec.dataset.found if isinstance(plan.spec.dataset, Rows) else None
        if known is not None and isinstance(source, RowsSource) and source.kept.known.identity != known.identity:
            return "its dataset has changed"
        count = min(whole.num_examples, _BLOCKS * _OF_BLOCK)
        bounds = [(whole.num_examples * block // _BLOCKS, count * block // _BLOCKS) for block in range(_BLOCKS + 1)]
        blocks = [(start, start + then - now) for (start, now), (_, then) in pairwise(bounds)]
        shards = tuple(shard for block in blocks for shard in cut(whole.shards, *block))
        split, parser = dataclasses.replace(whole, shards=shards, num_examples=count), source.parser()
        stored = (split.read(shard.path, shard.skip, shard.take).map(parser) for shard in split.shards)
        reading, examples = EvaluationPass(plan, source, split), [example for dataset in stored for example in dataset]
        predict, found = predictor(model, run.flow, reading.inputs_spec), list[tuple[int, Outputs]]()
        for batch in reading.batches(SKIP_WITH):
            found += zip(batch.numbers.tolist(), serving.joined(predict(batch.inputs)), strict=True)
    except (EtlrunError, tf.errors.OpError) as error:
        return f"its dataset can't be read here: {error.faults[0].found if isinstance(error, EtlrunError) else error}"
    expected = np.stack([of for _, of in found])
    served = compute(serving.taken([examples[number] for number, _ in found]))
    difference = float(np.max(np.abs(served - expected) / np.maximum(1, np.abs(expected))))
    return {"split": whole.name, "examples": len(found), "largest_difference": difference}
