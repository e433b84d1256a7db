"""Functions of the stages, from dataset to dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from etlrun.graph.context import Context
from etlrun.graph.held import held_by
from etlrun.graph.items import with_items
from etlrun.graph.numbered import batches_of_rows, count_of_batched, full_shuffle
from etlrun.graph.parallel import autotuned, pad, parallel_map
from etlrun.graph.records import usable
from etlrun.graph.shards import interleave, sequential, whole
from etlrun.graph.skip import skip_corrupt
from etlrun.graph.turbo import turbo
from etlrun.planning.plan import PlannedStage
from etlrun.sources.base import Example
from etlrun.sources.remote import RemoteSplit
from etlrun.sources.tfds import TfdsSource
from etlrun.stages.base import Stage
from etlrun.stages.columns import Columns, checked_weight
from etlrun.stages.dataset import IMAGE, Fetch
from etlrun.stages.extract import Interleave, Sequential, SkipCorrupt, SkippedInBatches, Tfds
from etlrun.stages.flow import NUMBER, Flow, numbered
from etlrun.stages.image import Decode
from etlrun.stages.lazy import tf, tfds
from etlrun.stages.load import FullShuffle, SampleByClass, Service
from etlrun.stages.made import Call, Constant, Parallel, PassSeed, UpToAll
from etlrun.stages.mix import Mix
from etlrun.stages.model import Backbone
from etlrun.stages.rows import Rows
from etlrun.stages.sequences import PadSequences
from etlrun.stages.step import AfterCache, AfterTurbo, Map, ParseBatch, RowsMap, Step
from etlrun.stages.turbo import Turbo, TurboAfterCache


def tfds_load(_nothing: None, stage: Tfds, context: Context) -> tf.data.Dataset:
    """Return the features by name, read by TFDS; images as encoded strings, or as uint8 (height, width, 3)."""
    keys, features = context.source.dataset.keys, context.source.dataset.examples.features

    def decoded(image: tf.Tensor, _feature: Any) -> tf.Tensor:
        """Decode like the step `decode`: TFDS's decoder would keep the channels and the 16 bits of the feature."""
        return Decode.op(usable(image, context))

    decoder = tfds.decode.make_decoder(tf.uint8)(decoded)() if stage.decode else tfds.decode.SkipDecoding()
    decoders = {key: decoder for name, key in keys.items() if features[name].format == "image"}
    wanted = tfds.decode.PartialDecoding(dict.fromkeys(keys.values(), True), decoders=decoders)
    source = cast("TfdsSource", context.source)  # a rule between the two groups
    if isinstance(context.split, RemoteSplit):
        context.split.fetch()
    read = source.builder.as_dataset(
        split=context.split.name,
        decoders=wanted,
        shuffle_files=False,
        read_config=tfds.ReadConfig(try_autocache=False, assert_cardinality=False),
    )
    chosen = read.map(lambda example: {name: example[key] for name, key in keys.items()})
    dataset = whole(chosen, context.split.num_examples, context)
    if context.numbered_to is None:
        return dataset
    return tf.data.Dataset.zip((dataset, tf.data.Dataset.range(context.split.num_examples)))


def parser_of(context: Context) -> Callable[[Any], Example]:
    """Return the function that parses a record, or several of them."""
    parse, compare = context.source.parser(), context.compare
    if compare is None or not context.split.is_read_by_parser:
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
        return held_by(step, context)[0].given if context.calls_python else step.given

    def apply(example: Example) -> Example:
        seed = {"seed": context.example_seed(example)} if step.random else {}
        value = example[step.feature]
        value = usable(value, context) if isinstance(step, Decode) else value
        return {**example, step.feature: step.op(value, **step.values, **seed)}

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
    known = {name: tf.range(count, dtype=tf.int64) for name, count in counts.items()}
    weight = dataset_of.examples.weight if is_checked else ""

    def apply(element: Any, *number: tf.Tensor) -> Example:
        for function in functions:
            element = function(numbered(element, *number) if isinstance(element, dict) else element)
        example: Example = numbered(element, *number)
        if stage == context.numbered_to:
            example.pop(NUMBER, None)
        for name, indices in known.items():  # the cheapest check: looking up an index outside the classes is an error
            example[name] = tf.gather(indices, example[name])
        if weight:
            example[weight] = checked_weight(example[weight])
        return example

    if stage.at_once:
        return parallel_map(dataset.batch(stage.at_once), apply, stage, context).unbatch()
    return parallel_map(dataset, apply, stage, context)


def parse_batch(dataset: tf.data.Dataset, stage: ParseBatch, context: Context) -> tf.data.Dataset:
    """Return the features by name, parsed for several examples in one call."""
    parse = parser_of(context)

    def parsed(records: tf.Tensor, *numbers: tf.Tensor) -> Any:
        return (parse(records), *numbers) if numbers else parse(records)

    return parallel_map(dataset.batch(stage.examples), parsed, stage, context).unbatch()


def mix(dataset: tf.data.Dataset, stage: Mix, context: Context) -> tf.data.Dataset:
    """Return batches whose images are mixed in pairs, with the targets of such images."""
    target = context.source.dataset.examples.target

    def apply(batch: Example) -> Example:
        seed = context.pass_seed(context.passes_begun)
        image, targets = stage.op(batch[stage.feature], batch[target], **stage.values, seed=seed)
        image = tf.ensure_shape(image, batch[stage.feature].shape)
        return {**batch, stage.feature: image, target: targets}

    return parallel_map(dataset, apply, stage, context)


def backbone(dataset: tf.data.Dataset, stage: Backbone, context: Context) -> tf.data.Dataset:
    """Return the features of the model's base for its input, in the same order; it processes them in batches."""
    function, (name,) = context.backbone.features if context.backbone else None, context.source.dataset.examples.inputs

    def features(batch: Example) -> Example:
        found = tf.numpy_function(function, [batch[name]], tf.float32)
        return {**batch, name: tf.ensure_shape(found, (None, stage.features))}

    return dataset.batch(stage.pictures_at_once).prefetch(1).map(features).unbatch()


def counted(dataset: tf.data.Dataset, flow: Flow, context: Context) -> tf.data.Dataset:
    """Return the same examples, and count the bytes of a pass over them; where all have one size, at its end."""
    as_is = tf.autograph.experimental.do_not_convert
    if flow.example_bytes is not None and context.source.dataset.on_corrupt != "skip":
        whole = int(flow.example_bytes * context.split.num_examples)
        end = tf.data.Dataset.from_tensors(tf.constant(0, tf.int64))
        none = as_is(lambda zero: dataset.take(context.held_bytes.assign(whole) * zero))
        return dataset.concatenate(end.flat_map(none))

    def count(number: tf.Tensor, example: Any) -> Any:
        size = tf.add_n([_size(feature) for name, feature in example.items() if name != NUMBER])
        before = tf.where(number == 0, tf.constant(0, tf.int64), context.held_bytes)
        with tf.control_dependencies([context.held_bytes.assign(before + size)]):
            return tf.nest.map_structure(tf.identity, example)

    return dataset.enumerate().map(as_is(count))


def _size(feature: tf.Tensor) -> tf.Tensor:
    """Return the size in bytes; int64 scalar."""
    size = tf.strings.length(feature) if feature.dtype == tf.string else tf.size(feature) * feature.dtype.size
    return tf.cast(size, tf.int64)


DATASET_STAGES: dict[type, Callable[[Any, Any, Context], tf.data.Dataset]] = {
    Fetch: lambda dataset, _stage, _context: dataset,
    Tfds: tfds_load,
    Sequential: sequential,
    Interleave: interleave,
    ParseBatch: parse_batch,
    Map: map_steps,
    AfterCache: map_steps,
    AfterTurbo: map_steps,
    RowsMap: map_steps,
    Turbo: turbo,
    TurboAfterCache: turbo,
    Mix: mix,
    PadSequences: pad,
    SkipCorrupt: skip_corrupt,
    FullShuffle: full_shuffle,
    SampleByClass: full_shuffle,
    Backbone: backbone,
    SkippedInBatches: lambda dataset, _stage, _context: dataset,
    Service: lambda dataset, _stage, _context: dataset,
}
"""Functions of the stages that are not method calls, by type. A cache on disk has several: see `disk`. What a
service computes elsewhere is in `parts`; what the stage `extract.fetch` does is in `fetch`."""


def staged(dataset: tf.data.Dataset | None, stage: Stage, context: Context) -> tf.data.Dataset:
    """Return `dataset` after `stage`."""
    call = stage.call()
    return DATASET_STAGES[type(stage)](dataset, stage, context) if call is None else _called(dataset, call, context)


def chained(dataset: tf.data.Dataset | None, stages: Iterable[PlannedStage], context: Context) -> tf.data.Dataset:
    """Return `dataset` after all of these stages; the first one reads if there is none."""
    stages = [*stages]
    count = count_of_batched(stages, context) if dataset is None else 0
    dataset = batches_of_rows(stages[:count], context) if count else dataset
    for planned in stages[count:]:
        dataset = staged(dataset, planned.stage, context)
    return dataset


def _called(dataset: tf.data.Dataset, call: Call, context: Context) -> tf.data.Dataset:
    arguments = [_argument(argument, context) for argument in call.arguments]
    keywords = {name: _argument(argument, context) for name, argument in call.keywords.items()}
    return getattr(dataset, call.method)(*arguments, **keywords)


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
    return argument
