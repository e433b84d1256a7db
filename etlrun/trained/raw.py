"""What an export takes: steps that it holds, and columns by name as the data has them; without TensorFlow."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from etlrun.planning.plan import Plan, PlannedStage, given_to_model
from etlrun.planning.planner import NO_CACHE, plan
from etlrun.planning.spec import RunSpec
from etlrun.sources.rows.lines import ending
from etlrun.stages.column_categories import Lookup
from etlrun.stages.column_text import Tokenize
from etlrun.stages.columns import Columns
from etlrun.stages.dataset import IMAGE
from etlrun.stages.extract import Sequential
from etlrun.stages.flow import MISSING, MISSING_TIME, Feature, UnfitError
from etlrun.stages.image import Decode
from etlrun.stages.rows import Table
from etlrun.system.values import frozen

LAYER = "columns"
"""Name of the layer that computes the columns, which no input has."""
_SOME_TIMES = (1_600_000_000_123_456, 0, -86_400_000_000, 1_709_210_096_000_000)
"""Times of examples, in microseconds since 1970."""
_LENGTHS = (3, 3, 1, 0)
"""Numbers of items of the lists of examples, if items may be missing."""
_BYTE = "the byte 0xFF"
"""`MISSING`, which is no text."""
_DELIMITED = {".csv", ".tsv"}


@frozen
class Raw:
    """An input of an export.

    Attributes:
        name: Its name there: that of its column, of letters, digits and underscores alone.
        column: Name of its column.
        feature: Its values.
        missing: What stands for a missing value: NaN, the smallest integer, or a text; None if no value may be missing.
        some: Four values, as examples; a missing one is None.
        counts: Name of the input of lists whose numbers of items it has, since their items may be missing; else empty.
        lengths: Name of the input with the numbers of items of its lists; empty if padding alone shows them.
    """

    name: str
    column: str
    feature: Feature
    missing: float | int | str | None
    some: tuple[Any, ...]
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

    def described(self) -> dict[str, Any]:
        """Return it as plain values: NaN, which JSON lacks, as its name, and so in the example."""
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
            "example": self.some[0],
        }

    @property
    def is_required(self) -> bool:
        """Whether a missing value, which its type has, is an error."""
        is_list = self.feature.is_sequence  # behind whose items NaN stands
        return self.missing is None and self.feature.dtype in ("string", "float32", "float64") and not is_list

    @property
    def is_missing_when_empty(self) -> bool:
        """Whether the empty text stands for a missing value."""
        return self.missing == ""

    @property
    def values(self) -> list[Any]:
        """The four values as the steps of the columns take them, those of missing ones too."""
        stand_in = {"string": MISSING, "int64": MISSING_TIME}.get(self.feature.dtype, float("nan"))
        given = [stand_in if value is None else value for value in self.some]
        return [of.encode() if isinstance(of, str) else of for of in given]


def is_named(planned: Plan) -> bool:
    """Return whether an export of the model of a plan takes inputs by name: columns, or several, or for targets so."""
    examples = planned.spec.dataset.examples
    return planned.spec.columns is not None or len(examples.inputs) > 1 or len(examples.targets) > 1


def has_image(planned: Plan) -> bool:
    """Return whether one of the inputs of a model is made from an encoded image."""
    feature = planned.spec.dataset.examples.features.get(IMAGE)
    return feature is not None and feature.format == IMAGE and IMAGE in given_to_model(planned.train).inputs


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
    if has_image(planned):
        needed.pop(IMAGE, None)
        taken = (*taken, IMAGE)
    found: list[Raw] = []
    for column in needed:
        name = valid_name(column, {*taken, LAYER, *(raw.name for raw in found)})
        missing = _missing(columns, features, column, planned.spec)
        some = tuple(_some(columns, column, features[column], can_miss=missing is not None))
        given = features[column]
        if given.is_sequence:  # of integers as int64, since float64 has no others beyond 2**53
            given = given.replace(dtype="float64" if given.dtype.startswith("float") else "int64")
        raw = Raw(name=name, column=column, feature=given, missing=missing, some=some)
        if given.is_sequence and missing is not None:
            lengths = valid_name(f"{name}_length", {*taken, LAYER, name, *(raw.name for raw in found)})
            found.append(replace(raw, lengths=lengths))
            raw = Raw(
                name=lengths, column=column, feature=Feature(dtype="int64"), missing=None, some=_LENGTHS, counts=name
            )
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
    return ("" if _empty_is_missing(spec) else MISSING.decode("latin-1")) if feature.dtype == "string" else float("nan")


def _empty_is_missing(spec: RunSpec) -> bool:
    """Return whether no text of the rows can be empty, since that is a missing one of csv and tsv."""
    dataset = spec.dataset
    if not isinstance(dataset, Table) or "" not in dataset.missing:
        return False
    paths = [
        PurePath(ending(pattern).removesuffix(".gz")) for patterns in dataset.patterns.values() for pattern in patterns
    ]
    return all(path.suffix in _DELIMITED for path in paths)


def _some(columns: Columns, column: str, feature: Feature, *, can_miss: bool) -> Iterator[Any]:
    """Yield four values of a column, the last one of them missing, if that may be."""
    found: list[Any]
    steps = [step for output in columns.outputs if output.of == (column,) for step in output.steps]
    lookups = sorted((step for step in steps if isinstance(step, Lookup)), key=lambda step: step.oov != "error")
    if lookups and lookups[0].values:  # those of a strict vocabulary, if there is one
        known = [lookups[0].values[0], lookups[0].values[-1], lookups[0].values[0]]
        found = known if lookups[0].oov == "error" or feature.dtype != "string" else [*known[:2], "etlrun"]
    elif feature.format == "timestamp":
        found = [*_SOME_TIMES[:3]]
    elif feature.dtype == "string":
        found = ["a", "b", "etlrun"]
    elif feature.dtype == "bool":
        found = [False, True, True]
    else:
        low, high = (0.0, 1.0) if feature.low is None or feature.high is None else (feature.low, feature.high)
        found = [low, high, (low + high) / 2]
        found = [round(value) for value in found] if feature.dtype.startswith(("int", "uint")) else found
    tokens = next((step for step in steps if isinstance(step, Tokenize)), None)
    if tokens is not None and not any(step.oov == "error" for step in lookups):
        found[1] = ("" if tokens.by == "characters" else " ").join(map(str, found))
    if feature.is_sequence:
        pad = padding_of(feature)  # if items may be missing, the last one of the second list is
        yield from ([*found], [*found[1:], pad], [found[0], pad, pad], [pad, pad, pad])
        return
    yield from found
    yield None if can_miss else found[0]


def of_validation(planned: Plan) -> list[PlannedStage]:
    """Return the stages of the validation without a cache: the base of a model is part of the whole model.

    What only the training does is left out, since it may not fit together with records that are skipped.
    """
    spec = planned.spec
    load = dataclasses.replace(spec.load, shuffle="buffer", sample="all")
    if load.boundaries:  # batches of sequences in their order, none of which is left out
        load = dataclasses.replace(load, boundaries=(), batch_sizes=None, tokens_per_batch=None, drop_long=False)
    changes: dict[str, Any] = {"load": load}
    if spec.cache.quality is None:  # a codec changes images, which are then in one with the steps
        changes["cache"] = NO_CACHE
    if spec.fit is not None:
        changes["trainer"] = dataclasses.replace(spec.fit, steps_per_epoch=None)
    is_of_tfds = spec.extract.parses
    if is_of_tfds:
        changes["extract"] = Sequential(shuffle_files=False)
    for name, steps in (("transform", spec.transform), ("eval_transform", spec.eval_transform)):
        first = (Decode(library="tensorflow"),) if is_of_tfds and spec.extract.decode else ()
        parse_batch = None if spec.dataset.on_corrupt == "skip" else steps.parse_batch
        changes[name] = dataclasses.replace(steps, steps=(*first, *steps.steps), parse_batch=parse_batch)
    return [of for of in plan(dataclasses.replace(spec, **changes)).evaluation if not of.stage.keeps]


@frozen
class Handover:
    """The steps of a run's validation for its one input, or its image, split between an export and whoever uses it.

    Attributes:
        name: Name of the input.
        given: The input as the export takes it.
        caller: What has to be done before, with outputs.
        inside: What the export does before the model, in order.
    """

    name: str
    given: Feature
    caller: tuple[PlannedStage, ...]
    inside: tuple[PlannedStage, ...]


def split(planned: Plan, *, takes_files: bool) -> Handover:
    """Return the steps of a plan for an export: all are inside if it takes files, else those that scale at the end.

    Of several inputs they are those of the image. TensorFlow does what is inside, whatever library a run decodes with.
    """
    names = planned.spec.dataset.examples.inputs
    name = names[0] if len(names) == 1 else IMAGE
    steps = [of for of in _each(planned) if not isinstance(of.stage, Columns)]
    inside = len(steps) if takes_files else 0
    while inside < len(steps) and steps[-1 - inside].stage.rescaling is not None:
        inside += 1
    place = len(steps) - inside
    before = steps[place - 1].gives if place else planned.spec.dataset.examples
    return Handover(name=name, given=before.features[name], caller=tuple(steps[:place]), inside=tuple(steps[place:]))


def _each(planned: Plan) -> Iterator[PlannedStage]:
    """Yield the steps that work on the input of a pass, with their outputs."""
    for of in of_validation(planned):
        yield from (step for step in of.steps if not step.stage.parses)
