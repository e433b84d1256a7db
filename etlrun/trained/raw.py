"""What an export takes: steps that it holds, and columns by name as the data has them; without TensorFlow."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import PurePath
from typing import Any, NamedTuple

from etlrun.planning.plan import Plan, PlannedStage, given_to_model
from etlrun.planning.planner import NO_CACHE, plan
from etlrun.planning.spec import RunSpec
from etlrun.sources.rows.read import ending
from etlrun.stages.columns import Columns
from etlrun.stages.dataset import IMAGE
from etlrun.stages.extract import Sequential
from etlrun.stages.flow import MISSING, MISSING_TIME, Feature, UnfitError
from etlrun.stages.image import Decode
from etlrun.stages.rows import Table
from etlrun.system.values import Block

LAYER = "columns"
"""Name of the layer that computes the columns, which no input has."""
_BYTE = "the byte 0xFF"
"""`MISSING`, which is no text."""
_DELIMITED = {".csv", ".tsv"}


class Raw(NamedTuple):
    """An input of an export.

    Attributes:
        name: Its name there: that of its column, of letters, digits and underscores alone.
        column: Name of its column.
        feature: Its values.
        missing: What stands for a missing value: NaN, the smallest integer, or a text; None if no value may be missing.
        counts: Name of the input of lists whose numbers of items it has, since their items may be missing; else empty.
        lengths: Name of the input with the numbers of items of its lists; empty if padding alone shows them.
    """

    name: str
    column: str
    feature: Feature
    missing: float | int | str | None = None
    counts: str = ""
    lengths: str = ""

    @property
    def content(self) -> str:
        """What it holds, for people."""
        if self.feature.format == "timestamp":
            return "times, in microseconds since 1970 in UTC"
        if self.feature.categories is not None:
            return f"indices of categories{', with 0 behind those of each list' * self.feature.is_sequence}"
        if self.counts:
            return f"numbers of items of the lists of {self.counts}"
        if self.feature.is_sequence:
            padding = "" if self.lengths else f", with {padding_of(self.feature)} behind their items"
            return f"lists of numbers{padding}"
        return {"string": "texts", "bool": "truth values"}.get(self.feature.dtype, "numbers")

    def described(self) -> Block:
        """Return it as plain values: NaN, which JSON lacks, as its name."""
        missing = "NaN" if isinstance(self.missing, float) else self.missing
        missing = _BYTE if missing == MISSING.decode("latin-1") else missing
        low, high = self.feature.low, self.feature.high
        return {
            "name": self.name,
            "column": self.column,
            "dtype": self.feature.dtype,
            "shape": [None, *self.feature.shape],
            "content": self.content,
            "range": None if low is None or high is None else [low, high],
            "missing": missing,
        }

    def taken(self) -> Block:
        """Return how `ColumnsLayer` takes it: a missing value, which its type has, may be an error."""
        is_list, has_missing = self.feature.is_sequence, self.feature.dtype in ("string", "float32", "float64")
        return {
            "name": self.name,
            "column": self.column,
            "lengths": self.lengths,
            "is_list": is_list,
            "is_required": self.missing is None and has_missing and not is_list,  # NaN stands behind items
            "is_missing_when_empty": self.is_missing_when_empty,
        }

    @property
    def is_missing_when_empty(self) -> bool:
        """Whether the empty text stands for a missing value."""
        return self.missing == ""


def is_named(planned: Plan) -> bool:
    """Return whether an export of the model of a plan takes inputs by name: columns, or several, or for targets so."""
    examples = planned.spec.dataset.examples
    return planned.spec.columns is not None or len(examples.inputs) > 1 or len(examples.targets) > 1


def images_of(planned: Plan) -> dict[str, str]:
    """Return the encoded images from which inputs of a model are made: their features by the names of the inputs."""
    examples, columns, found = planned.spec.dataset.examples, planned.spec.columns, {IMAGE: IMAGE}
    if columns is not None and not columns.beside:
        found = {of.name: of.of[0] for of in columns.outputs if not of.steps}
    encoded = {name for name, of in examples.features.items() if of.format == "image"}
    inputs = given_to_model(planned.train).inputs
    return {name: feature for name, feature in found.items() if name in inputs and feature in encoded}


def of_model(planned: Plan) -> Columns:
    """Return the columns of a plan that make inputs of the model; none of a plan without columns."""
    columns, flow = planned.spec.columns, given_to_model(planned.train)
    if columns is None:
        return Columns(outputs=(), beside=True)
    return replace(columns, outputs=tuple(output for output in columns.outputs if output.name in flow.inputs))


def raws(planned: Plan, taken: Sequence[str]) -> tuple[Raw, ...]:
    """Return the inputs of an export but its image; `taken` are names that none of them may have."""
    columns, examples = of_model(planned), planned.spec.dataset.examples
    features = examples.features
    needed = dict.fromkeys(name for output in columns.outputs for name in output.of if name in features)
    if columns.beside:  # all others stay, unless an output has their name
        made = {*columns.dropped, *columns.output_names}
        needed |= dict.fromkeys(name for name in examples.inputs if name not in made)
    names, found = {*taken, LAYER}, list[Raw]()
    for name, feature in images_of(planned).items():
        needed.pop(feature, None)
        names.add(name)
    for column in needed:
        names.add(name := valid_name(column, names))
        missing, given = _missing(columns, features, column, planned.spec), features[column]
        if given.is_sequence:  # of integers as int64, since float64 has no others beyond 2**53
            given = given.replace(dtype="float64" if given.dtype.startswith("float") else "int64")
        raw = Raw(name, column, given, missing)
        if given.is_sequence and missing is not None:
            names.add(lengths := valid_name(f"{name}_length", names))
            found.append(raw._replace(lengths=lengths))
            raw = Raw(lengths, column, Feature(dtype="int64"), counts=name)
        found.append(raw)
    return tuple(found)


def padding_of(lists: Feature) -> float | int:
    """Return what stands behind the items of lists: NaN, or of integers the smallest one."""
    return math.nan if lists.dtype.startswith("float") else MISSING_TIME


def valid_name(column: str, taken: set[str]) -> str:
    """Return the name of a column as TensorFlow's signatures have names, unlike those that are taken."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", column)
    name = name if name[:1].isalpha() else f"column_{name}"
    return next(of for of in (name, *(f"{name}_{number}" for number in range(2, 10_000))) if of not in taken)


def _missing(columns: Columns, features: Any, column: str, spec: RunSpec) -> float | int | str | None:
    """Return what stands for a missing value of a column; None if its steps need a value, or its type has none."""
    feature = features[column]
    if feature.dtype not in ("string", "float64") and feature.format != "timestamp":
        return None
    some, known = {**features, column: feature.replace(has_missing=True)}, dict[str, Feature]()
    try:
        for output in columns.outputs:
            known[output.name] = output.gives({**known, **some})
        if any(of.has_missing for of in known.values()):
            return None
    except UnfitError:
        return None
    if feature.format == "timestamp":
        return MISSING_TIME
    if feature.dtype != "string":
        return math.nan
    dataset, suffixes = spec.dataset, set[str]()
    if isinstance(dataset, Table) and "" in dataset.missing:  # of csv and tsv no text can be empty then
        patterns = (of for several in dataset.patterns.values() for of in several)
        suffixes = {PurePath(ending(of).removesuffix(".gz")).suffix for of in patterns}
    return "" if suffixes and suffixes <= _DELIMITED else MISSING.decode("latin-1")


def of_validation(planned: Plan) -> list[PlannedStage]:
    """Return the stages of the validation without a cache: the base of a model is part of the whole model.

    What only the training does is left out, since it may not fit together with records that are skipped.
    """
    spec = planned.spec
    load = replace(spec.load, shuffle="buffer", sample="all")
    if load.boundaries:  # batches of sequences in their order, none of which is left out
        load = replace(load, boundaries=(), tokens_per_batch=None, drop_long=False)
    changes: Block = {"load": load}
    if spec.cache.quality is None:  # a codec changes images, which are then in one with the steps
        changes["cache"] = NO_CACHE
    if spec.fit is not None:
        changes["trainer"] = replace(spec.fit, steps_per_epoch=None)
    is_of_tfds = spec.extract.parses
    if is_of_tfds:
        changes["extract"] = Sequential(shuffle_files=False)
    for name, steps in (("transform", spec.transform), ("eval_transform", spec.eval_transform)):
        first = (Decode(library="tensorflow"),) if is_of_tfds and spec.extract.decode else ()
        changes[name] = replace(steps, steps=(*first, *steps.steps))
    return [of for of in plan(replace(spec, **changes)).evaluation if not of.stage.keeps]


class Handover(NamedTuple):
    """The steps of a run's validation for its one input, or an image, split between an export and whoever uses it.

    Attributes:
        name: Name of the input.
        stored: Name of the feature that it is made of.
        given: The input as the export takes it.
        pixels: The input as its model takes it.
        caller: What has to be done before, with outputs.
        decoded: What the export does before its model.
        scaled: What layers of its model do, which scale.
    """

    name: str
    stored: str
    given: Feature
    pixels: Feature
    caller: Sequence[PlannedStage]
    decoded: Sequence[PlannedStage]
    scaled: Sequence[PlannedStage]

    @property
    def inside(self) -> Sequence[PlannedStage]:
        """What the export does, in order."""
        return (*self.decoded, *self.scaled)


def split(planned: Plan, *, takes_files: bool) -> tuple[Handover, ...]:
    """Return the steps of a plan for an export: all are inside if it takes files, else those that scale at the end.

    Of several inputs they are those of the images. TensorFlow does what is inside, whatever library a run decodes with.
    """
    examples, found = planned.spec.dataset.examples, list[Handover]()
    every = [step for of in of_validation(planned) for step in of.steps]  # that works on the input of a pass
    every = [of for of in every if not of.stage.parses and not isinstance(of.stage, Columns)]
    several = images_of(planned) if is_named(planned) else {examples.inputs[0]: examples.inputs[0]}
    for name, feature in several.items():
        steps = [of for of in every if len(several) == 1 or of.stage.feature == name]
        scaled = [*takewhile(lambda step: step.stage.rescaling is not None, reversed(steps))][::-1]
        first = steps[: len(steps) - len(scaled)]
        stored = examples.features[feature]
        pixels = first[-1].gives.features[name] if first else stored
        inside = (stored, pixels, (), first, scaled) if takes_files else (pixels, pixels, first, (), scaled)
        found.append(Handover(name, feature, *inside))
    return tuple(found)
