"""Functions of the stages, from dataset to dataset."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from etlrun.graph.context import Context, as_is, autotuned, blank_like, computed, ended, parallel_map
from etlrun.graph.decoders import decoders
from etlrun.graph.shards import batches_of_rows, count_of_batched, full_shuffle, interleave, sequential, whole
from etlrun.planning.plan import Plan, PlannedStage, stage_of
from etlrun.sources.base import Example
from etlrun.sources.corrupt import MOST_PIXELS, SMALL_JPEG_BYTES, without_refused
from etlrun.sources.rows.reader import items_of, keep_items
from etlrun.sources.rows.source import RowsSource
from etlrun.sources.tfds import TfdsSource
from etlrun.stages.base import Stage
from etlrun.stages.column_categories import Lookup
from etlrun.stages.column_numbers import ColumnStep
from etlrun.stages.columns import Columns, checked
from etlrun.stages.dataset import IMAGE, Fetch
from etlrun.stages.extract import Interleave, Sequential, SkipCorrupt, SkippedInBatches, Tfds, read_by_tfds, readable
from etlrun.stages.flow import IMAGE_RANK, NUMBER, NUMBERS_APART, Flow, numbered
from etlrun.stages.image import Decode, Turbo, decoded_natively, usable
from etlrun.stages.lazy import tf, tfds
from etlrun.stages.load import FullShuffle, Service
from etlrun.stages.made import Constant, Parallel, Partial, PassSeed, UpToAll
from etlrun.stages.model import Backbone
from etlrun.stages.rows import Rows
from etlrun.stages.step import Map, Step
from etlrun.system.machine import CORES, calls_here, cores


def skip_corrupt(dataset: tf.data.Dataset, _stage: SkipCorrupt, context: Context) -> tf.data.Dataset:
    """Drop elements that raise; at the end of a pass, all missing examples have to be corrupt records."""
    numbered = readable(dataset, context.split.num_examples)
    return _counted_to_end(numbered.concatenate(_end(dataset)).enumerate(), context)


def complete(batches: tf.data.Dataset, context: Context) -> tf.data.Dataset:
    """Return the same batches; at the end of a pass, all examples that are in none have to be corrupt records."""

    def count(kept: tf.Tensor, numbered: Any) -> Any:
        return kept + tf.shape(tf.nest.flatten(numbered[1])[0], tf.int64)[0], (kept, numbered)

    numbered = batches.enumerate().concatenate(_end(batches))
    return _counted_to_end(numbered.scan(tf.constant(0, tf.int64), as_is(count)), context)


def _end(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return an element of number -1 behind all others, like those of `dataset`."""
    return tf.data.Dataset.from_tensors((tf.constant(-1, tf.int64), blank_like(dataset)))


def _counted_to_end(counted: tf.data.Dataset, context: Context) -> tf.data.Dataset:
    """Return elements, which come with their numbers and how many examples were kept before: checked at their end."""

    def explain(kept: np.int64) -> np.bool_:
        context.losses.explain(context.split, int(kept))
        return np.bool_(False)  # noqa: FBT003 - the type that TensorFlow requires

    def is_element(kept: tf.Tensor, numbered: Any) -> tf.Tensor:
        at_end = lambda: computed(explain, kept, dtype=tf.bool)  # noqa: E731
        return tf.cond(numbered[0] < 0, at_end, lambda: tf.constant(True))  # noqa: FBT003

    return counted.filter(as_is(is_element)).map(as_is(lambda _, numbered: numbered[1]))


def turbo(dataset: tf.data.Dataset, stage: Turbo, context: Context) -> tf.data.Dataset:
    """Return the features by name with decoded images, from batches or from single examples."""
    number = calls_here(stage.processes, cores()) if stage.processes in CORES else stage.processes
    decode: partial[Any] = partial(decoders(number) if number else type(stage).op, **stage.arguments)
    if stage.skips:
        decode = partial(usable, decode=decode, size=stage.size)

    def compute(encoded: Any) -> Any:
        if not context.source.knows_refused:
            encoded = [without_refused(data) if isinstance(data, bytes) else data for data in encoded]
        try:
            return decode(encoded)
        except tf.errors.InvalidArgumentError as error:
            # of all Python's errors the one that TensorFlow hands on as that, with the traceback of what it is from
            raise ValueError(error.message) from None

    def apply(example: Example) -> Example:
        flags = {"is_single": stage.at_once == 1, "skips": stage.skips}
        return decoded_natively(example, compute, stage.size, feature=stage.feature, **flags)

    if stage.at_once <= 1 or not stage.skips:
        return parallel_map(dataset, apply, stage, context, stage.at_once if stage.at_once > 1 else None)
    numbered = readable(dataset, context.split.num_examples).batch(stage.at_once)  # an error would lose the batch
    # TensorFlow names inputs after parameters, and warns of `_`
    batches = parallel_map(numbered, lambda *given: apply(given[1]), stage, context)
    return complete(batches, context).unbatch()


_LOOKED_AT = r"(BM|GIF8|RIFF|\CPNG)\C*"
"""BMPs, GIFs, WebPs and PNGs, by their first bytes."""
_SMALL_PNG = r"\CPNG\C{12}(\x00\x00[\x00-\x1f]\C){2}\C*"
"""PNGs of fewer than 8,192 pixels a side."""
_UNKNOWN = (
    "an image that is neither a JPEG nor a PNG of fewer than 8,192 pixels a side, whose header the processes of a "
    "service do not read: set load=shuffled"
)


def accepted(image: tf.Tensor, context: Context) -> tf.Tensor:
    """Return an encoded image (string scalar); an empty one, which is an error to decode, in place of a refused one.

    Most JPEGs take two operations more, and nothing calls Python for them or for PNGs.
    """
    if context.source.knows_refused:
        return image

    is_odd = tf.strings.regex_full_match(image, _LOOKED_AT) | (tf.strings.length(image) > SMALL_JPEG_BYTES)
    return tf.cond(is_odd, lambda: _looked_at(calls_python=context.calls_python)(image), lambda: image)


@functools.cache
def _looked_at(*, calls_python: bool) -> Any:
    """Return a function of an encoded image that no pipeline traces again: it was a third of the tracing of each."""

    def of_jpeg(image: tf.Tensor) -> tf.Tensor:
        sides = tf.cast(tf.image.extract_jpeg_shape(image)[:2], tf.int64)
        return tf.where(tf.reduce_prod(sides) > MOST_PIXELS, "", image)

    def of_others(image: tf.Tensor) -> tf.Tensor:
        if calls_python:
            return computed(without_refused, image, dtype=tf.string)
        with tf.control_dependencies([tf.debugging.Assert(tf.constant(False), [_UNKNOWN])]):  # noqa: FBT003
            return tf.identity(image)

    def looked_at(image: tf.Tensor) -> Any:
        is_small_png = tf.strings.regex_full_match(image, _SMALL_PNG)
        kinds = [(is_small_png, lambda: image), (tf.io.is_jpeg(image), lambda: of_jpeg(image))]
        return tf.case(kinds, default=lambda: of_others(image))

    return tf.function(looked_at, input_signature=[tf.TensorSpec((), tf.string)], autograph=False)


class _WithTable:
    """A lookup in a table."""

    applied = ColumnStep.applied

    def __init__(self, step: Lookup, table: Any) -> None:
        self.op, self.arguments = partial(type(step).op, table=table), {**step.arguments, "values": []}
        self.of_sequences = step.of_sequences


def with_tables(columns: Columns) -> tuple[Columns, list[Any]]:
    """Return columns whose lookups use tables, and these, as TensorFlow's objects that a model may track."""
    tables: list[Any] = []

    def held(step: ColumnStep) -> ColumnStep:
        if not isinstance(step, Lookup):
            return step
        tables.append(step.table())
        return cast("ColumnStep", _WithTable(step, tables[-1]))

    outputs = (dataclasses.replace(output, steps=tuple(map(held, output.steps))) for output in columns.outputs)
    return dataclasses.replace(columns, outputs=tuple(outputs)), tables


def held_by(columns: Columns, context: Context) -> Columns:
    """Return columns whose tables are made once for all passes, and kept beside them."""
    if columns not in context.traced:
        with tf.init_scope():  # they outlive the graph of a pass
            context.traced[columns] = with_tables(columns)
    return context.traced[columns][0]  # type: ignore[no-any-return]


def columns_in(stage: Map) -> Columns | None:
    """Return the columns that a map makes of the numbers of rows; None for any other map."""
    second = stage.steps[1] if stage.at_once is not None and stage.steps[1:] else None
    return second if isinstance(second, Columns) else None


def with_items(stage: Map, context: Context) -> tuple[list[Callable[[Any], Example]], Sequence[Step]]:
    """Return the function, if anything is kept, from numbers of rows to columns that takes it, and the steps left."""
    columns = columns_in(stage)
    if columns is None:
        return [], stage.steps
    source, split = cast("RowsSource", context.source), context.split
    with tf.init_scope():  # files are mapped now, even where a graph is traced
        kept = items_of(source, split, columns)
    if not kept:
        return [], stage.steps
    others = dataclasses.replace(columns, outputs=tuple(of for of in columns.outputs if of.name not in kept))
    given, parse = held_by(others, context).given, source.parser({name for of in others.outputs for name in of.of})

    def take(record: tf.Tensor) -> Example:
        items = {name: gather(record) for name, gather in kept.items()}
        return {**items, **given({**items, **parse(record)})}

    return [take], stage.steps[2:]


def tfds_load(_nothing: None, stage: Tfds, context: Context) -> tf.data.Dataset:
    """Return the features by name, read by TFDS; images as encoded strings, or as uint8 (height, width, 3)."""
    keys, features = context.source.dataset.keys, context.source.dataset.examples.features

    def decoded(image: tf.Tensor, _feature: Any) -> tf.Tensor:
        """Decode like the step `decode`: TFDS's decoder would keep the channels and the 16 bits of the feature."""
        return Decode.op(accepted(image, context))

    decoder = tfds.decode.make_decoder(tf.uint8)(decoded)() if stage.decode else tfds.decode.SkipDecoding()
    decoders = {key: decoder for name, key in keys.items() if features[name].format == "image"}
    source = cast("TfdsSource", context.source)  # a rule between the two groups
    context.split.fetch()
    read = read_by_tfds(source.builder, context.split.name, keys, decoders)
    dataset = whole(read, context.split.num_examples, context)
    if context.numbered_to is None:
        return dataset
    return tf.data.Dataset.zip((dataset, tf.data.Dataset.range(context.split.num_examples)))


def parser_of(context: Context) -> Callable[[Any], Example]:
    """Return the function that parses a record, or several of them."""
    compare = context.compare
    if isinstance(context.source, RowsSource):
        return context.source.parser(compare=compare)
    parse = context.source.parser()
    if compare is None or not context.source.is_read_by_parser:
        return parse

    def compared(record: Any) -> Example:
        example = parse(record)
        return {**example, IMAGE: compare(record, example[IMAGE])}

    return compared


def applied(step: Step, context: Context) -> Callable[[Any], Example]:
    """Return the function of `step` for an example: for a serialised one if it parses, else for one of its features."""
    if step.parses:
        return parser_of(context)
    if isinstance(step, Columns):
        return held_by(step, context).given if context.calls_python else step.given

    def apply(example: Example) -> Example:
        seed = {"seed": context.pass_seed(context.passes_begun)} if step.random else {}
        if seed and NUMBER in example:  # another one for each number
            seed["seed"] += example[NUMBER] * NUMBERS_APART
        value = example[step.feature]
        value = accepted(value, context) if isinstance(step, Decode) else value
        return {**example, step.feature: step.op(value, **step.arguments, **seed)}

    return apply


def map_steps(dataset: tf.data.Dataset, stage: Map, context: Context) -> tf.data.Dataset:
    """Return the features by name after all steps in one map.

    A target that is a class is checked against the classes where it is read, so that a corrupt one can be skipped; and
    so is a weight.
    """
    functions, steps = with_items(stage, context)
    functions, dataset_of = [*functions, *(applied(step, context) for step in steps)], context.source.dataset
    is_checked = stage.is_first and not isinstance(dataset_of, Rows)  # whose lookup checks them
    counts = context.source.limits if is_checked else {}
    indices = {name: tf.range(count, dtype=tf.int64) for name, count in counts.items()}
    weight = dataset_of.examples.weight if is_checked else ""

    def apply(element: Any, *number: tf.Tensor) -> Example:
        for function in functions:
            element = function(numbered(element, *number) if isinstance(element, dict) else element)
        example: Example = numbered(element, *number)
        if stage == context.numbered_to:
            example.pop(NUMBER, None)
        return checked(example, indices, weight)

    return parallel_map(dataset, apply, stage, context, stage.at_once)


def backbone(dataset: tf.data.Dataset, stage: Backbone, context: Context) -> tf.data.Dataset:
    """Return the features of the model's base for each image, in the same order; it processes them in batches."""
    function, spec = context.backbone.features if context.backbone else None, dataset.element_spec

    def features_of(images: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(function, [images], tf.float32), (None, stage.features))

    def features(batch: Example) -> Example:
        return batch | {name: features_of(batch[name]) for name, of in spec.items() if of.shape.rank == IMAGE_RANK}

    return dataset.batch(stage.pictures_at_once).prefetch(1).map(features).unbatch()


def counted(dataset: tf.data.Dataset, flow: Flow, context: Context) -> tf.data.Dataset:
    """Return the same examples, and count the bytes of a pass over them; where all have one size, at its end."""
    if flow.example_bytes is not None and context.source.dataset.on_corrupt != "skip":
        whole = int(flow.example_bytes * context.split.num_examples)
        return ended(dataset, lambda: context.held_bytes.assign(whole) * 0)

    def size_of(feature: tf.Tensor) -> tf.Tensor:
        size = tf.strings.length(feature) if feature.dtype == tf.string else tf.size(feature) * feature.dtype.size
        return tf.cast(size, tf.int64)

    def count(number: tf.Tensor, example: Any) -> Any:
        size = tf.add_n([size_of(feature) for name, feature in example.items() if name != NUMBER])
        before = tf.where(number == 0, tf.constant(0, tf.int64), context.held_bytes)
        with tf.control_dependencies([context.held_bytes.assign(before + size)]):
            return tf.nest.map_structure(tf.identity, example)

    return dataset.enumerate().map(as_is(count))


def _unchanged(dataset: tf.data.Dataset, _stage: Stage, _context: Context) -> tf.data.Dataset:
    return dataset


DATASET_STAGES: dict[type, Callable[[Any, Any, Context], tf.data.Dataset]] = {
    Fetch: _unchanged,
    Tfds: tfds_load,
    Sequential: sequential,
    Interleave: interleave,
    Map: map_steps,
    Turbo: turbo,
    SkipCorrupt: skip_corrupt,
    FullShuffle: full_shuffle,
    Backbone: backbone,
    SkippedInBatches: _unchanged,
    Service: _unchanged,
}
"""Functions of the stages that are not method calls, by type or base. A cache on disk has several: see `disk`. What a
service computes elsewhere is in `build`; what the stage `extract.fetch` does is in `fetch`."""


def staged(dataset: tf.data.Dataset | None, stage: Stage, context: Context) -> tf.data.Dataset:
    """Return `dataset` after `stage`."""
    call = stage.call()
    if call is None:
        function = next(DATASET_STAGES[kind] for kind in type(stage).__mro__ if kind in DATASET_STAGES)
        return function(dataset, stage, context)
    arguments = [_argument(argument, context) for argument in call.arguments]
    keywords = {name: _argument(argument, context) for name, argument in call.keywords.items()}
    return getattr(dataset, call.method)(*arguments, **keywords)


def chained(dataset: tf.data.Dataset | None, stages: Iterable[PlannedStage], context: Context) -> tf.data.Dataset:
    """Return `dataset` after all of these stages; the first one reads if there is none."""
    stages = [*stages]
    count = count_of_batched(stages, context) if dataset is None else 0
    dataset = batches_of_rows(stages[:count], context) if count else dataset
    for planned in stages[count:]:
        dataset = staged(dataset, planned.stage, context)
    return dataset


def _argument(argument: Any, context: Context) -> Any:
    match argument:
        case Constant():
            return argument.value
        case Parallel():
            return autotuned(argument.value)
        case UpToAll():  # a larger buffer would take memory without changing the order
            return min(argument.value, context.split.num_examples)
        case PassSeed():
            return context.pass_seed(context.pass_number)
        case Partial():
            given = {name: _argument(value, context) for name, value in argument.keywords.items()}
            return as_is(partial(argument.function, **given))
    return argument


def keep_sequences(plan: Plan, contexts: Mapping[str, Context]) -> None:
    """Keep the items of all sequences of a run that reads its rows more than once; `EtlrunError` if that fails."""
    trainer = plan.spec.trainer
    if trainer.all_epochs == 1 or trainer.steps_per_epoch is not None or trainer.seconds is not None:
        return
    for name, context in contexts.items():
        stage = stage_of(plan.pipelines[name], Map)
        if stage is not None and (columns := columns_in(stage)) is not None:
            apart = dataclasses.replace(context, traced={})  # since this map has no items to take yet
            made = partial(_batches_of, dataclasses.replace(stage, at_once=0), apart)
            keep_items(cast("RowsSource", context.source), context.split, columns, made)


def _batches_of(stage: Map, context: Context, rows: npt.NDArray[np.int64], count: int) -> Iterator[Mapping[str, Any]]:
    return iter(map_steps(tf.data.Dataset.from_tensor_slices(rows).batch(count), stage, context))
