"""Examples of a split after each step of its pipeline, in the order of the data, their hashes, or means of pixels."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from etlrun.graph.build import Pipeline
from etlrun.graph.context import Context
from etlrun.graph.datasets import applied, staged
from etlrun.measure.digest import hashes
from etlrun.planning import planner
from etlrun.planning.plan import Plan, PlannedStage, PlannedStep, by_number
from etlrun.planning.rows import require_inputs
from etlrun.sources.base import Source, on_disk, open_source, source_type
from etlrun.sources.corrupt import raise_cause
from etlrun.sources.rows.source import RowsSource
from etlrun.stages.base import Stage
from etlrun.stages.columns import Columns
from etlrun.stages.dataset import IMAGE, Dataset, Fetch
from etlrun.stages.extract import SkipCorrupt
from etlrun.stages.flow import MISSING, MISSING_TIME, Feature, Flow
from etlrun.stages.image import Decode, Resize, Turbo
from etlrun.stages.load import Service
from etlrun.stages.rows import BETWEEN
from etlrun.stages.step import AfterCache, AfterTurbo, Map, Parse
from etlrun.system.errors import ConfigError, Fault, WorldError, headline
from etlrun.system.machine import rounded
from etlrun.system.values import frozen

_IMAGE_RANK, _CHANNELS = 3, (1, 3)
_MOST_CHARACTERS = 160


@frozen
class View:
    """All examples at one point, in one pass or on one side.

    Attributes:
        path: Path of the step.
        name: Such as `pass 1`; empty if the point has no other view.
        features: Features by name, as the plan describes them.
        cells: Values of each example, by feature.
        is_of_model: Whether the model applies the step.
    """

    path: str
    name: str
    features: Mapping[str, Feature]
    cells: tuple[Mapping[str, Any], ...]
    is_of_model: bool = False

    def ends(self, name: str) -> tuple[float, float] | None:
        """Return the smallest and the largest value of a numeric feature in all cells; None if there is none."""
        if self.features[name].dtype == "string":
            return None
        there = [of for value in self.cells if (of := _there(np.asarray(value[name]))).size]
        return (float(min(of.min() for of in there)), float(max(of.max() for of in there))) if there else None

    def shown(self, name: str) -> str:
        """Describe the values of a feature in all cells: their range, or their sizes, and how many are missing."""
        feature, ends = self.features[name], self.ends(name)
        missing = sum(is_missing(cell[name]) for cell in self.cells)
        lacking = f"{missing} of {len(self.cells)} missing" if missing else ""
        if missing == len(self.cells):
            return lacking
        if ends is not None and feature.format == "timestamp":
            span = _span(*(as_text(np.int64(end), feature) for end in ends))
        elif ends is not None:
            span = _span(f"{ends[0]:.4g}", f"{ends[1]:.4g}")
        elif feature.is_sequence:
            counts = [len(cell[name]) for cell in self.cells]
            return f"{_span(f'{min(counts):,}', f'{max(counts):,}')} tokens"
        else:
            sizes = [len(cell[name]) for cell in self.cells if not is_missing(cell[name])]
            span = _span(rounded(min(sizes)), rounded(max(sizes)))
        return f"{span}, {lacking}" if lacking else span


@frozen
class Sheet:
    """Examples, one row each, after each step, one column each.

    Attributes:
        title: What is shown.
        source: Dataset, version and split.
        targets: Target of each example as text, with the name of a class.
        views: All of them, point after point.
        notes: Notes for the reader, one sentence each.
    """

    title: str
    source: str
    targets: tuple[str, ...]
    views: tuple[View, ...]
    notes: tuple[str, ...] = ()


def is_image(feature: Feature) -> bool:
    """Return whether a feature is an image, encoded or not."""
    has_sides = len(feature.shape) == _IMAGE_RANK and feature.shape[-1] in _CHANNELS
    return feature.format == "image" or (has_sides and feature.dtype != "string")


def is_missing(value: Any) -> bool:
    """Return whether a value of a feature is missing: text, a time, or a number, or all numbers of an array."""
    if isinstance(value, bytes):
        return value == MISSING
    values = np.asarray(value)
    return values.dtype.kind in "fi" and values.size > 0 and not _there(values).size


def _there(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the values that are not missing."""
    is_there: npt.NDArray[np.bool_] = ~np.isnan(values) if values.dtype.kind == "f" else values != MISSING_TIME
    return values[is_there]


def as_text(value: Any, feature: Feature | None = None) -> str:
    """Return a value of a feature as text on one line, the middle of a long one left out."""
    if is_missing(value):
        return "missing"
    if isinstance(value, bytes):
        text = value.decode(errors="replace").replace(BETWEEN, ", ")
    elif feature is not None and feature.format == "timestamp":
        text = str(np.datetime64(int(value), "us")).removesuffix(".000000").removesuffix("T00:00:00")
    elif np.asarray(value).dtype == object:
        text = " | ".join(as_text(token) for token in value)
    else:
        text = np.array2string(np.asarray(value), precision=4, threshold=16, edgeitems=4, separator=", ")
    text = " ".join(text.split())
    half = _MOST_CHARACTERS // 2
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:half]} … {text[-half:]}"


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


StageT = TypeVar("StageT", bound=Stage)


@frozen
class Point:
    """The output of a step, or of a stage that changes examples as a step does.

    Attributes:
        path: Path of the step.
        stages: Stages from a record to here, without those that only move, keep or batch examples.
        features: Features that the step has made, by name.
        is_random: Whether they differ from pass to pass.
        is_of_model: Whether the model applies the step.
    """

    path: str
    stages: tuple[Stage, ...]
    features: Mapping[str, Feature]
    is_random: bool
    is_of_model: bool = False


def points(plan: Plan, pipeline: str) -> list[Point]:
    """Return the points of the pipeline `train` or `validation`, in order, up to the base of a model."""
    first, *others = reading(plan, pipeline)
    found: list[Point] = []
    if not first.gives.is_serialised:
        found.append(Point(path=first.stage.path, stages=(), features=_inputs(first.gives), is_random=False))
    chain: tuple[Stage, ...] = ()
    incoming = first.gives
    for planned in others:
        stage = planned.stage
        if isinstance(stage, Map):
            _add_steps(found, chain, stage, planned.steps, incoming)
            chain = (*chain, in_order(stage))
        elif isinstance(stage, Turbo):
            *before, last = planned.steps
            if not stage.arguments["fast"]:  # TensorFlow's steps then give the same pixels
                _add_steps(found, chain, AfterTurbo.like(plan.spec.transform, stage.steps), before, incoming)
            chain = (*chain, in_order(stage))
            made = {stage.feature: planned.gives.features[stage.feature]}
            path = last.stage.path
            found.append(Point(path=path, stages=chain, features=made, is_random=_is_random(made, found)))
        incoming = planned.gives
    scaling = AfterCache.like(plan.spec.transform, tuple(planned.stage for planned in plan.by_model))
    _add_steps(found, chain, scaling, plan.by_model, incoming, is_of_model=True)
    return found


def reading(plan: Plan, pipeline: str) -> list[PlannedStage]:
    """Return the stages of a pipeline from the one that reads on: a fetch before it has nothing to show."""
    return [planned for planned in plan.pipelines[pipeline] if not isinstance(planned.stage, Fetch)]


def in_order(stage: StageT) -> StageT:
    """Return the same stage for one example after the other, without parallel calls, which might change the order."""
    values = {"num_parallel_calls": 1, "deterministic": True}
    values |= {"at_once": 1, "skips": False} if isinstance(stage, Turbo) else {}
    return replace(stage, **{name: of for name, of in values.items() if name in vars(stage)})  # type: ignore[type-var]


def _add_steps(
    found: list[Point],
    chain: tuple[Stage, ...],
    whole: Map,
    steps: Sequence[PlannedStep],
    incoming: Flow,
    *,
    is_of_model: bool = False,
) -> None:
    """Add the points after the steps of one map, which follows the stages `chain` and takes `incoming`."""
    for number, planned in enumerate(steps, 1):
        step = planned.stage
        for path, columns, features in _of_columns(step, incoming) if isinstance(step, Columns) else ():
            stages = (*chain, replace(in_order(whole), steps=(*whole.steps[: number - 1], columns)))
            found.append(Point(path=path, stages=stages, features=features, is_random=_is_random(features, found)))
        made = (
            _inputs(planned.gives)
            if step.parses or isinstance(step, Columns)
            else {step.feature: planned.gives.features[step.feature]}
        )
        point = Point(
            path=step.path,
            stages=(*chain, replace(in_order(whole), steps=whole.steps[:number])),
            features=made,
            is_random=planned.is_random or _is_random(made, found),
            is_of_model=is_of_model,
        )
        found.append(point)
        incoming = planned.gives


def _of_columns(step: Columns, incoming: Flow) -> Iterator[tuple[str, Columns, dict[str, Feature]]]:
    """Yield the outputs of columns after each of their steps but the last: path, the columns so far, and features."""
    # those of which others are made are whole at once, since the others begin with them
    whole = {name for output in step.outputs for name in output.of if name not in incoming.features}
    for count in range(1, max((len(output.steps) for output in step.outputs), default=0)):
        shown = {output.name for output in step.outputs if len(output.steps) > count and output.name not in whole}
        outputs = tuple(
            replace(output, steps=output.steps[:count]) if output.name in shown else output for output in step.outputs
        )
        columns = replace(step, outputs=outputs)
        features = columns.flow(incoming).features
        if shown:
            yield f"{step.path} after step {count}", columns, {name: features[name] for name in sorted(shown)}


def _is_random(made: Iterable[str], before: Sequence[Point]) -> bool:
    """Return whether one of these features was random before."""
    return any(point.is_random and not point.features.keys().isdisjoint(made) for point in before)


def _inputs(flow: Flow) -> dict[str, Feature]:
    return {name: flow.features[name] for name in flow.inputs}


DEFAULT_PASSES = 3
"""Passes that are shown of a random step."""

_TITLES = {"train": "Training", "validation": "Validation"}


def collect(plan: Plan, pipeline: str, examples: int, passes: int | None = None) -> Sheet:
    """Return so many examples of a pipeline, such as `train` or a named validation set, after each of its steps.

    What is random is shown in these `passes`; None for `DEFAULT_PASSES`.

    The graphs are those of a run, without shuffling and caches, and with one call at a time, so that the order is that
    of the data. A dataset that is missing is prepared, if the config allows it.

    Raises:
        WorldError: Data is missing or corrupt, or a step can't process an example.
    """
    source = _opened(plan, plan.spec.dataset.read_by(pipeline))
    split = source.split(plan.spec.dataset.splits.get(pipeline, ""), plan.spec.dataset.key_of(pipeline))
    stages = reading(plan, pipeline)
    context = Context(split=split, seed=plan.spec.trainer.seed).numbered(stages)
    with explained(context, stages[0].stage.path):
        records = _records(plan, pipeline, context, examples)
    found = points(plan, pipeline)
    shown = (passes or DEFAULT_PASSES) if any(point.is_random for point in found) else 1
    read = [(point, [*_passes(point, records, context, shown if point.is_random else 1)]) for point in found]
    target, names, targets = source.dataset.examples.target, source.class_names, []
    for cell in read[-1][1][0]:
        value = cell[target]
        text = f"{target} {as_text(value, source.dataset.examples.features[target])}"
        targets.append(text if names is None else f"{names[int(value)]} ({int(value)})")
    return Sheet(
        title=f"{_TITLES.get(pipeline, pipeline)} examples after each step",
        source=f"{source.full_name} {split.name}",
        targets=tuple(targets),
        views=tuple(
            View(
                path=point.path,
                name=f"pass {number}" if len(each) > 1 else "",
                features=point.features,
                cells=tuple({name: cell[name] for name in point.features} for cell in cells),
                is_of_model=point.is_of_model,
            )
            for point, each in read
            for number, cells in enumerate(each, 1)
        ),
        notes=(*_notes(plan, shown, passes), *source.notes),
    )


def _records(plan: Plan, pipeline: str, context: Context, examples: int) -> tf.data.Dataset:
    """Return the records of the examples to show, as they are read."""
    stages = [planned.stage for planned in reading(plan, pipeline)]
    dataset = through = staged(None, in_order(plan.spec.extract.for_evaluation()), context)
    spec = dataset.element_spec
    skip = next((place for place, stage in enumerate(stages) if isinstance(stage, SkipCorrupt)), None)
    if skip is not None:
        for stage in stages[1:skip]:
            through = staged(through, in_order(stage), context)
        dataset = staged(tf.data.Dataset.zip((dataset, through)), SkipCorrupt(), context).map(lambda record, _: record)
    found = list(dataset.take(examples).as_numpy_iterator())
    if not found:
        where, remedy = plan.spec.dataset.key_of(pipeline), "repair the data, or choose a larger part of the split"
        raise WorldError(where, "no example that can be read", "at least one", remedy)
    return tf.data.Dataset.from_generator(lambda: iter(found), output_signature=spec)


def _passes(point: Point, records: tf.data.Dataset, context: Context, passes: int) -> Iterator[list[dict[str, Any]]]:
    """Yield the features of each example at a point, target included, for each pass."""
    with explained(context, point.path):
        dataset = records
        for stage in point.stages:
            dataset = staged(dataset, stage, context)
        for number in range(1, passes + 1):
            context.passes_begun.assign(number)
            elements = dataset.as_numpy_iterator()
            yield [of[0] if isinstance(of, tuple) else of for of in elements]  # with a number beside what was read


_UNKNOWN_VALUE = "a value that is in no vocabulary"
"""What the steps of columns say of one."""


@contextmanager
def explained(context: Context, path: str) -> Iterator[None]:
    """Raise TensorFlow's errors as those of a file, a record, or the step `path`."""
    try:
        yield
    except tf.errors.OpError as error:
        raise_cause(error, [(context.split, context.losses)])
        expected, remedy = "a step that can process each example", "leave the step out to see its input"
        _, is_value, values = error.message.partition(f"assertion failed: [{_UNKNOWN_VALUE}] ")
        if is_value:
            found = f"{_UNKNOWN_VALUE}, among {values.splitlines()[0]}"
            raise WorldError(Columns.path, found, "values of the training", remedy) from error
        raise WorldError(path, headline(error), expected, remedy) from error


def _opened(plan: Plan, dataset: Dataset) -> Source:
    """Return the source of a dataset; `EtlrunError` also if its rows lack columns that a run has learned of."""
    source, columns = open_source(dataset), plan.spec.columns
    if isinstance(source, RowsSource) and columns is not None:
        require_inputs(source, columns.outputs)
    return source


def _notes(plan: Plan, passes: int, asked: int | None) -> Iterator[str]:
    if passes > 1:
        yield f"What is random, and what follows from it, is shown in {passes} passes."
    elif asked is not None and asked > 1:
        yield "No step is random: all passes give the same."
    if plan.spec.cache.keeps_features:
        yield "The frozen base of the model, whose features are cached, takes the last column."


_PARTS = 16
"""Parts of a sample at most, which are spread evenly over a split, so that it has examples of several files."""


def read(plan: Plan, pipeline: str, examples: int) -> tuple[tuple[bytes, ...], int]:
    """Return hashes of at most so many examples of a split, as its first pass has them, and the number of them all.

    Caches are left out, but not what they do to examples; of a model whose base is cached, its input is read.

    Raises:
        AbsentError: Data are elsewhere, or the sample has no whole batch.
        EtlrunError: Data are corrupt.
    """
    if plan.spec.cache.keeps_features:
        plan = planner.plan(replace(plan.spec, cache=planner.NO_CACHE))
    dataset = plan.spec.dataset.read_by(pipeline)
    if dataset.urls:
        raise AbsentError(dataset.key(dataset.given_by), f"{dataset.urls[0]}, from which nothing is fetched")
    if plan.spec.load.service is not None:
        raise AbsentError(Service.path, "a service, which no one starts")
    if not source_type(dataset).is_there(dataset):
        raise AbsentError(dataset.key(dataset.given_by), f"no {dataset.title} on this machine")
    source = _opened(plan, dataset.as_it_is())
    name, key = plan.spec.dataset.splits.get(pipeline, ""), dataset.key_of(pipeline)
    whole = source.split(name, key)
    some = source.split(on_disk(source.dataset).thinned(name, examples, min(_PARTS, len(whole.shards))), key)
    some = some.part(0, examples) if some.num_examples > examples else some
    context = Context(split=some, seed=plan.spec.trainer.seed)
    planned = plan.pipelines[pipeline]
    stages = by_number(planned) or [stage for stage in planned if not stage.stage.keeps]
    with explained(context, stages[-1].stage.path), closing(Pipeline(stages, context)) as reading:
        found = [of for batch in reading.dataset for of in hashes(stages[-1].gives.sequences, *batch)]
    if not found:
        raise AbsentError("--examples", f"a sample of {some.num_examples:,} without a whole batch")
    return tuple(found), whole.num_examples


class AbsentError(WorldError):
    """Data that are not on this machine, or no examples of them to read."""

    def __init__(self, where: str, found: str) -> None:
        super().__init__(where, found, "examples in files of this machine", "")


def measured(plan: Plan) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], int]:
    """Return the means and the standard deviations of the channels, of pixels in [0, 1], and the number of examples.

    The pixels are those of the training split after `resize`, or after `decode` if the steps have no other, without the
    random steps before it. Sums of an image are exact for uint8, and of float64 for float32; those of all images are of
    float64.

    Raises:
        ConfigError: The steps decode no image.
        WorldError: Data is missing or corrupt.
    """
    steps = plan.spec.transform.steps
    places = [place for place, step in enumerate(steps, 1) if isinstance(step, Decode | Resize)]
    if not places:
        found, remedy = "no step `decode`", "choose a transform of images"
        raise ConfigError([Fault("transform.steps", found, "images to measure", remedy)])
    dataset_of = plan.spec.dataset.without_download()
    source = open_source(dataset_of)
    split = source.split(dataset_of.split, dataset_of.key_of("train"))
    context = Context(split=split, seed=plan.spec.trainer.seed)
    dataset = staged(None, plan.spec.extract.for_evaluation(), context)
    before = [] if plan.spec.extract.parses else [Parse()]
    flow = plan.spec.extract.flow(dataset_of.examples)
    for step in (*before, *(step for step in steps[: max(places)] if not step.random)):
        dataset, flow = dataset.map(applied(step, context), num_parallel_calls=-1), step.flow(flow)
    if dataset_of.on_corrupt == "skip":
        dataset = staged(dataset, SkipCorrupt(), context)
    with explained(context, steps[max(places) - 1].path):
        sums, squares, pixels, count = np.zeros(3), np.zeros(3), 0, 0
        for example in dataset.prefetch(8).as_numpy_iterator():
            flat = example[IMAGE].reshape(-1, 3)
            flat = flat.astype(np.int64 if flat.dtype == np.uint8 else np.float64)
            sums, squares = sums + flat.sum(0), squares + (flat * flat).sum(0)
            pixels, count = pixels + len(flat), count + 1
    mean = sums / pixels
    deviation = np.sqrt(np.maximum(squares / pixels - mean * mean, 0))
    low, high = flow.features[IMAGE].low or 0.0, flow.features[IMAGE].high or 255.0
    return (mean - low) / (high - low), deviation / (high - low), count
