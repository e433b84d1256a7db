"""Examples of a split after each step of its pipeline, in the order of the data; no cache is read or filled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from etlrun.datasets.examine.points import Point, in_order, points, reading
from etlrun.datasets.examine.sheet import Column, Row, Sheet, View, as_text
from etlrun.graph.context import Context
from etlrun.graph.datasets import staged
from etlrun.planning.plan import Plan, reads_features, stage_of
from etlrun.sources.base import Source, open_source
from etlrun.sources.corrupt import raise_cause
from etlrun.stages.extract import SkipCorrupt
from etlrun.system.errors import WorldError, headline

DEFAULT_PASSES = 3
"""Passes that are shown of a random step."""

_TITLES = {"train": "Training", "validation": "Validation"}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What to show.

    Attributes:
        batches: Number of batches.
        examples: Largest number of examples of each batch.
        passes: Passes in which random steps are shown; None for `DEFAULT_PASSES` if there are any.
    """

    batches: int
    examples: int
    passes: int | None = None


def collect(plan: Plan, pipeline: str, wanted: Wanted) -> Sheet:
    """Return examples of the pipeline `train` or `validation` after each of its steps.

    The graphs are those of a run, without shuffling and caches, and with one call at a time, so that the order is that
    of the data. A dataset that is missing is prepared, if the config allows it.

    Raises:
        WorldError: Data is missing or corrupt, or a step can't process an example.
    """
    source = open_source(plan.spec.dataset)
    split = source.split(plan.spec.dataset.split_of(pipeline) or "", plan.spec.dataset.key_of(pipeline))
    stages = reading(plan, pipeline)
    context = Context(source=source, split=split, seed=plan.spec.trainer.seed).numbered(stages)
    with explained(context, stages[0].stage.path):
        places, records = _records(plan, pipeline, context, wanted)
    if not places:
        raise WorldError(
            plan.spec.dataset.key_of(pipeline),
            "no example that can be read",
            "at least one",
            "repair the data, or choose a larger part of the split",
        )
    found = points(plan, pipeline)
    passes = (wanted.passes or DEFAULT_PASSES) if any(point.is_random for point in found) else 1
    read = [(point, [*_passes(point, records, context, passes if point.is_random else 1)]) for point in found]
    target, describe = context.source.dataset.examples.target, _target_text(source)
    last = read[-1][1][0]
    rows = [
        Row(batch=batch, example=example, target=describe(cell[target]))
        for (batch, example), cell in zip(places, last, strict=True)
    ]
    return Sheet(
        title=f"{_TITLES[pipeline]} examples after each step",
        source=f"{source.full_name} {split.name}",
        rows=tuple(rows),
        columns=tuple(_column(point, cells) for point, cells in read),
        notes=tuple(_notes(plan, passes, wanted)),
        notes_on_data=source.notes,
    )


def _records(
    plan: Plan, pipeline: str, context: Context, wanted: Wanted
) -> tuple[list[tuple[int, int]], tf.data.Dataset]:
    """Return the batch and the place in it of each example to show, and their records as they are read."""
    stages, batch_size = reading(plan, pipeline), plan.spec.load.batch_size
    dataset = staged(None, in_order(plan.spec.extract.for_evaluation()), context)
    spec = dataset.element_spec
    skip = stage_of(stages, SkipCorrupt)
    if skip is not None:
        through, end = dataset, next(place for place, planned in enumerate(stages) if planned.stage is skip)
        for planned in stages[1:end]:
            through = staged(through, in_order(planned.stage), context)
        dataset = staged(tf.data.Dataset.zip((dataset, through)), SkipCorrupt(), context).map(lambda record, _: record)
    each = min(wanted.examples, batch_size)
    shown = dataset.enumerate().filter(lambda number, _: number % batch_size < each).take(wanted.batches * each)
    numbers, records = list[int](), list[Any]()
    for number, record in shown.as_numpy_iterator():
        numbers.append(int(number))
        records.append(record)
    places = [(number // batch_size + 1, number % batch_size + 1) for number in numbers]
    return places, tf.data.Dataset.from_generator(lambda: records, output_signature=spec)


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


@contextmanager
def explained(context: Context, path: str) -> Iterator[None]:
    """Raise TensorFlow's errors as those of a file, a record, or the step `path`."""
    try:
        yield
    except tf.errors.OpError as error:
        raise_cause(error, context.source, [(context.split, context.losses)])
        raise WorldError(
            path,
            headline(error),
            "a step that can process each example",
            "leave the step out to see its input",
        ) from error


def _column(point: Point, passes: Sequence[Sequence[dict[str, Any]]]) -> Column:
    views = [
        View(
            name=f"pass {number}" if len(passes) > 1 else "",
            features=point.features,
            cells=tuple({name: cell[name] for name in point.features} for cell in cells),
        )
        for number, cells in enumerate(passes, 1)
    ]
    return Column(path=point.path, views=tuple(views), is_of_model=point.is_of_model)


def _target_text(source: Source) -> Callable[[Any], str]:
    """Return the function from a target to its text: a class by its name and its number."""
    name, names = source.dataset.examples.target, source.class_names
    if names is None:
        return lambda value: f"{name} {as_text(value, source.dataset.examples.features[name])}"
    return lambda value: f"{names[int(value)]} ({int(value)})"


def _notes(plan: Plan, passes: int, wanted: Wanted) -> Iterator[str]:
    if passes > 1:
        yield f"What is random, and what follows from it, is shown in {passes} passes."
    elif wanted.passes is not None and wanted.passes > 1:
        yield "No step is random: all passes give the same."
    if reads_features(plan):
        yield "The frozen base of the model, whose features are cached, takes the last column."
