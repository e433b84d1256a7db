"""A run's model as others take it: from an image, an array or columns by name, with the steps of the run inside."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from etlrun.planning.plan import PlannedStage, given_to_model
from etlrun.sources.content import cut
from etlrun.sources.rows.source import RowsSource
from etlrun.stages.base import DATA, parameters
from etlrun.stages.columns import Columns
from etlrun.stages.dataset import IMAGE
from etlrun.stages.flow import MISSING
from etlrun.stages.load import padded
from etlrun.stages.rows import Rows
from etlrun.system.errors import EtlrunError, counted
from etlrun.system.values import Block
from etlrun.trained.columns_layer import ColumnsLayer
from etlrun.trained.formats import Format, in_one, largest_difference
from etlrun.trained.load import Trained
from etlrun.trained.model import of_each_class, require_finite, tester
from etlrun.trained.predict import SKIP_WITH, of_plan, opened
from etlrun.trained.raw import LAYER, Raw, is_named, of_model, padding_of, raws, split, valid_name
from etlrun.trained.rows import Head
from etlrun.trained.scores import HALF, Outputs, Tensors

CLASS, PROBABILITIES = "class", "probabilities"
"""Ends of the names of the outputs that have the name of the likeliest class, and what is predicted of each."""
_BLOCKS, _OF_BLOCK = 4, 16
"""Parts of a split from which so many examples are compared: those of one class may stand together."""


class Serving:
    """A model with the steps of its run, as the users of a format take it.

    One image or array has no name; columns and several inputs have names.

    Attributes:
        run: The run.
        model: Its model.
        heads: Its targets.
        images: The steps of its images, or of its only input, and who does them; none if it has columns alone.
        mains: Names of the outputs that have the numbers of each target.
        raws: The inputs but the images: columns, or by name what the steps on them give, where these are left out.
    """

    def __init__(self, run: Trained, model: Any, heads: Sequence[Head], of: Format) -> None:
        self.run, self.model, self.heads, self._is_named = run, model, heads, is_named(run.plan)
        self.images = split(run.plan, takes_files=of.takes_files)
        self._flow, columns = given_to_model(run.then.train), of_model(run.then)
        names = [image.name for image in self.images]
        self._again = [of.name for of in columns.outputs if of.of == (IMAGE,) and IMAGE in names]
        outputs = {of.name: of for of in columns.outputs if of.name not in (*self._again, *names)}
        self._columns, self.mains = replace(columns, outputs=(*outputs.values(),)), list[str]()
        for head in heads:
            name = PROBABILITIES if head.names is not None else "value"
            self.mains.append(valid_name(f"{head.target}_{name}" if head.target else name, {*self.mains}))
        self._takes_columns = of.takes_columns or not self._is_named
        if not self._takes_columns:
            self.raws = self._made({*self._again, *names})
        else:
            self.raws = raws(run.then, (model.name,)) if self._is_named else ()

    def _made(self, others: Collection[str]) -> tuple[Raw, ...]:
        """Return what the steps on columns give as inputs, but these `others`."""
        found = list[Raw]()
        for name in (name for name in self._flow.inputs if name not in others):
            feature = self._flow.features[name]
            if feature.categories is not None:
                feature = feature.replace(low=0, high=feature.categories - 1)
            valid = valid_name(name, {IMAGE, self.model.name, *self.mains, *(raw.name for raw in found)})
            found.append(Raw(valid, name, feature))
        return tuple(found)

    def described(self, name: str, output: str) -> Block:
        """Return its inputs, its steps and its outputs as plain values; a single input and output have these names."""
        several, outputs = len(self.heads) > 1, list[Block]()
        for head, main in zip(self.heads, self.mains, strict=True):
            of = "values of the target" if head.names is None else f"a probability of each {head.noun}"
            outputs.append({"name": main if several else output, "dtype": "float32", "content": of})
            if several:
                outputs[-1] |= {"target": head.target, "classes": head.names and [*head.names]}
        inputs, images, before = [raw.described() for raw in self.raws], list[Block](), list[Block]()
        for step in (step for image in self.images for step in image.caller):
            values = {each.name: each.value for each in parameters(step.stage) if each.kind == DATA}
            before.append({"step": step.stage.path, "does": _does(step.stage), "parameters": values})
        if not self._takes_columns:
            values = {"outputs": self._columns.described()}
            before.append({"step": Columns.path, "does": _does(self._columns), "parameters": values})
        for image in self.images:
            arrays = "images of red, green and blue" if self._is_named or self.run.takes_images else "arrays"
            found = Raw(image.name if self._is_named else name, image.stored, image.given).described()
            found["content"] = "JPEG, PNG, BMP or GIF files" if image.given.dtype == "string" else arrays
            others = () if self._is_named else ("column", "missing")
            images.append({key: of for key, of in found.items() if key not in others})
        inputs = images + inputs
        has_steps = self._takes_columns and bool(self._columns.outputs or self._columns.dropped)
        of_images = (step for image in self.images for step in image.inside)
        inside = (step.stage.path for step in (*of_images, *self.run.then.by_model))
        return {
            **({"inputs": inputs} if self._is_named else {"input": inputs[0]}),
            "before": before,
            "inside": [*[Columns.path] * has_steps, *inside],
            **({"outputs": outputs} if several else {"output": outputs[0]}),
        }

    @cached_property
    def of_arrays(self) -> Any:
        """The model with layers for the steps that are inside, without its optimizer; each class has an output.

        Of an image, these are the steps behind those that the caller of arrays does.
        """
        given = {raw.name: keras.Input(raw.feature.shape, dtype=raw.feature.dtype, name=raw.name) for raw in self.raws}
        outputs = {raw.column: given[raw.name] for raw in self.raws}
        if self._takes_columns and given:
            taken, columns = [raw.taken() for raw in self.raws if not raw.counts], self._columns
            layer = ColumnsLayer(columns.described(), taken, beside=columns.beside, dropped=columns.dropped, name=LAYER)
            outputs = layer(given)
        for image in self.images:
            feature, name = image.pixels, image.name
            pixels = given[name] = keras.Input(feature.shape, dtype=feature.dtype, name=name)
            for step in image.scaled:
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
        given |= {image.name: image.given for image in self.images}
        specs = {name: tf.TensorSpec([None, *of.shape], of.dtype, name) for name, of in given.items()}
        archive.add_endpoint("serve", self._served, input_signature=[self._named(specs)])
        archive.write_out(str(path), verbose=False)

    def written(self, path: Path, form: str, **options: Any) -> None:
        """Have Keras export `of_arrays` to `path` in one of its own formats, for batches of any size.

        A single output has a name, except in torch, whose programs return a tensor.
        """
        model = self.of_arrays
        if form == "torch":
            import torch

            options = {"dynamic_shapes": {0: torch.export.Dim("batch", min=1)}}
        elif not isinstance(model.output, Mapping):
            model = keras.Model(model.input, {self.mains[0]: model.output}, name=model.name)
        signature = keras.tree.map_structure(
            lambda of: keras.InputSpec(dtype=of.dtype, shape=of.shape, name=of.name), model.input
        )
        model.export(path, format=form, verbose=False, input_signature=[signature], **options)

    def predicted(self, stored: Tensors) -> Outputs:
        """Return what the model itself predicts for examples, whose steps are those of the export."""
        given, outputs = self._inputs(stored), self._outputs(stored)
        for image in self.images:
            outputs[image.name] = tf.stack([stepped(image.inside, of) for of in tf.constant(given[image.name])])
        shapes = {name: of.shape[1:] for name, of in outputs.items()}
        shapes |= {name: self._flow.features[name].shape for name in self._flow.sequences}  # of any length
        specs = {name: tf.TensorSpec([None, *shapes[name]], of.dtype) for name, of in outputs.items()}
        test = tester(self.model, self.run.flow, self._handed(specs))
        return self.joined(test(self._handed(outputs))[0])

    def joined(self, found: Mapping[str, Outputs]) -> Outputs:
        """Return the predictions of all targets in one, (batch, outputs), as the export is compared."""
        return in_one(dict(zip(self.mains, found.values(), strict=True)))

    def taken(self, stored: Tensors) -> Any:
        """Return examples, whose features are tensors by name as they are stored, as the export takes them."""
        return self._named(self._inputs(stored))

    def _inputs(self, stored: Tensors) -> Block:
        found = self._arrays(stored)
        for image in self.images:
            pixels = [stepped(image.caller, of).numpy() for of in stored[image.stored]]
            found[image.name] = np.array(pixels, object if image.given.dtype == "string" else None)
        return found

    def _outputs(self, stored: Tensors) -> Block:
        """Return what the steps give for columns by name as they are stored."""
        return padded(self._columns.given(stored)) if self.raws else {}

    def _arrays(self, stored: Tensors) -> Block:
        """Return the inputs but the image by name, of columns by name as they are stored."""
        found, given = Block(), stored if self._takes_columns else self._outputs(stored)
        for raw in self.raws:
            values, dtype = given[raw.column], raw.feature.dtype
            if raw.counts:
                values = values.row_lengths()
            elif isinstance(values, tf.RaggedTensor):
                values = tf.cast(values, dtype).to_tensor(padding_of(raw.feature))
            elif raw.is_missing_when_empty:
                values = tf.where(values == MISSING, "", values)
            found[raw.name] = values.numpy() if dtype == "string" else tf.cast(values, dtype).numpy()
        return found

    def _named(self, given: Block) -> Any:
        """Return values of the inputs as the export takes them: by name, or that of its only one."""
        return given if self._is_named else next(iter(given.values()))

    def _served(self, given: Any) -> Block:
        given = given if self._is_named else {self.images[0].name: given}
        for image in self.images:
            spec, steps = tf.TensorSpec(image.pixels.shape, image.pixels.dtype), image.decoded
            pixels = tf.map_fn(partial(stepped, steps), given[image.name], fn_output_signature=spec)
            given = {**given, image.name: pixels}
        found = self.of_arrays(self._named(given), training=False)
        found = dict(found) if isinstance(found, Mapping) else {self.mains[0]: found}
        for head, name in zip(self.heads, self.mains, strict=True):
            if self._is_named and head.names is not None and not head.is_labels:
                likeliest = tf.gather(tf.constant([*head.names]), tf.argmax(found[name], axis=-1))
                found[name.removesuffix(PROBABILITIES) + CLASS] = likeliest
        return found

    def _handed(self, outputs: Tensors) -> Any:
        return self._flow.given({**outputs, **dict.fromkeys(self._again, outputs.get(IMAGE))})


def _does(step: object) -> str:
    """Return what a step does, for people."""
    return (type(step).__doc__ or "").splitlines()[0]


def stepped(steps: Iterable[PlannedStage], value: Any) -> Any:
    """Return one input after some steps, as the pipeline of the run computes them."""
    for step in steps:
        value = step.stage.op(value, **step.stage.arguments)  # type: ignore[attr-defined] # all are steps
    return value


def differing(heads: Mapping[str, Head], found: Outputs, expected: Outputs) -> int:
    """Return for how many examples two predictions of targets, as `in_one` has them, are of other classes or labels."""
    is_other, start = np.zeros(len(found), bool), 0
    for _, head in sorted(heads.items(), key=itemgetter(0)):
        one, other = (of.reshape(len(found), -1)[:, start : start + head.outputs] for of in (found, expected))
        start += head.outputs
        if head.is_labels:
            is_other |= ((one > HALF) != (other > HALF)).any(axis=1)
        elif head.names is not None:
            is_other |= one.argmax(axis=1) != other.argmax(axis=1)
    return int(is_other.sum())


def compared(run: Trained, model: Any, serving: Serving, compute: Callable[[Any], Outputs]) -> Block:
    """Return how far `compute`, which is an export, is from the model of its run, on examples of its validation.

    It is in relation to values above 1: from the model behind the export's own steps, and from what `predict` says.
    What the export leaves to its user is done by TensorFlow. If the split can't be read as it is on this machine, why.

    Raises:
        WorldError: Predictions are not finite.
    """
    if run.plan.spec.dataset.urls:
        return {"none": "its dataset is at a URL"}
    dataset = run.plan.spec.dataset.as_it_is()
    plan = replace(run.plan, spec=replace(run.plan.spec, dataset=dataset))
    try:
        whole = opened(plan, run.split_key)
        known = source.kept.known if isinstance(source := whole.source, RowsSource) else None
        if known is not None and isinstance(dataset, Rows) and known.identity != dataset.found.identity:
            return {"none": "its dataset has changed"}
        every = whole.num_examples
        count = min(every, _BLOCKS * _OF_BLOCK)
        blocks = [(every * of // _BLOCKS, count * (of + 1) // _BLOCKS - count * of // _BLOCKS) for of in range(_BLOCKS)]
        shards = tuple(shard for start, many in blocks for shard in cut(whole.shards, start, start + many))
        reading = of_plan(plan, replace(whole, shards=shards))
        test, found = tester(model, run.flow, reading.inputs_spec), list[tuple[Any, Outputs]]()
        for batch in reading.batches(SKIP_WITH):
            found.append((batch.numbers, serving.joined(test(batch.inputs)[0])))
        if not found:
            return {"none": f"none of {counted(count, 'example')} of its split can be used"}
        stored = reading.stored([*dataset.examples.features])
    except (EtlrunError, tf.errors.OpError) as error:
        why = error.faults[0].found if isinstance(error, EtlrunError) else error
        return {"none": f"its dataset can't be read here: {why}"}
    numbers, predicted = map(np.concatenate, zip(*found, strict=True))
    require_finite(run, predicted, numbers, reading)
    given = {name: tf.gather(of, numbers) for name, of in stored.items()}
    served = compute(serving.taken(given))
    return {
        "split": whole.name,
        "examples": len(numbers),
        "largest_difference": largest_difference(served, serving.predicted(given)),
        "from_predict": largest_difference(served, predicted),
        "classes_differ": differing(dict(zip(serving.mains, serving.heads, strict=True)), served, predicted),
    }
