"""A run's model behind the steps on its columns, for formats without texts and tables: with its vocabularies beside."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np

from etlrun.planning.plan import given_to_model
from etlrun.stages.column_categories import Embed, Lookup
from etlrun.stages.column_text import Tokenize
from etlrun.stages.columns import Output
from etlrun.stages.dataset import IMAGE
from etlrun.stages.flow import Feature
from etlrun.stages.rows import Rows, Table
from etlrun.stages.sequences import padded
from etlrun.trained.raw import Raw, raws, valid_name
from etlrun.trained.serving_columns import ColumnsServing, drawn_columns

Lines = Sequence[str | int | None]


class OutputsServing(ColumnsServing):
    """A model that takes by name what the steps on its columns give: indices, vectors and numbers."""

    does_columns: ClassVar[bool] = False

    def described(self, name: str, output: str) -> dict[str, Any]:
        """Return its inputs with their vocabularies, the steps that make them, and its output, as plain values."""
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

    def written(self, path: Path, form: str) -> None:
        """Have Keras export `of_arrays` to `path` in one of its own formats, and write the vocabularies beside it."""
        model = self.of_arrays
        outputs = model.output if isinstance(model.output, dict) else {self.mains[0]: model.output}
        signature = {
            name: keras.InputSpec(dtype=of.dtype, shape=of.shape, name=name) for name, of in model.input.items()
        }
        named = keras.Model(model.input, outputs, name=model.name)
        named.export(path, format=form, verbose=False, input_signature=[signature])
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
        outputs = drawn_columns(raws(self.run.then, (self.model.name,)), self._columns)[1]
        return {name: values.numpy() for name, values in outputs.items()}

    @cached_property
    def _outputs(self) -> dict[str, Output]:
        """The outputs of the columns by the names of the inputs that they are."""
        outputs = {output.name: output for output in self._columns.outputs}
        return {raw.name: outputs[raw.column] for raw in self.raws if raw.column in outputs}

    @cached_property
    def _files(self) -> dict[str, Lines]:
        """The lines of the files of vocabularies by their names: null for what is padding or unknown."""
        found = dict[str, Lines]()
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
