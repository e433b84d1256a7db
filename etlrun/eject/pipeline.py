"""Text of a pipeline in a program: a function that makes a dataset, with an expression for each stage."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from textwrap import indent
from typing import Any

from etlrun.eject.own import Place, calls_of, defines, differs_by_pass, last_random, of_data, sources
from etlrun.eject.printed import loops, numbered, skipping
from etlrun.eject.text import call, function, keywords, literal, mapping, parallel
from etlrun.planning.plan import Plan, PlannedStage, at_cache, by_number, keeps_file_order, reads_features
from etlrun.stages.base import Scope
from etlrun.stages.cache import DiskCache
from etlrun.stages.columns import Columns, checked_weight, narrowed
from etlrun.stages.dataset import Dataset
from etlrun.stages.extract import Interleave, Sequential, SkipCorrupt, SkippedInBatches, Tfds, read_by_tfds
from etlrun.stages.flow import Flow
from etlrun.stages.image import Decode
from etlrun.stages.load import FullShuffle, SampleByClass, drawn, drawn_with_index
from etlrun.stages.made import Call, Constant, Parallel, PassSeed, UpToAll, quoted
from etlrun.stages.mix import Mix, mixed
from etlrun.stages.model import Backbone
from etlrun.stages.plugins import source
from etlrun.stages.rows import Rows
from etlrun.stages.sequences import Bucket, PadSequences, in_buckets, padded
from etlrun.stages.step import AfterCache, AfterTurbo, Map, ParseBatch, Step
from etlrun.stages.turbo import Turbo, TurboAfterCache, decoded_natively, usable

Lines = tuple[str, ...]
_EXAMPLE = "dict[str, tf.Tensor]"


def source_of(step: Step | Mix | type[Turbo] | FullShuffle) -> str:
    """Return the source of a step's function, named like the step."""
    return _source_as(_name(step), step.op)


def _source_as(name: str, op: Callable[..., Any]) -> str:
    text = source(op).replace("  # type: ignore[override]", "")
    return text.removeprefix("@staticmethod\n").replace("def op(", f"def {name}(", 1)


def _name(step: Step | Mix | type[Turbo] | FullShuffle) -> str:
    return step.path.rpartition(".")[2]


def _name_of_op(op: Callable[..., Any]) -> str:
    """Return the name of a step's function in programs, such as `one_hot_values` for that of `OneHot`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", op.__qualname__.split(".")[0]).lower() + "_values"


def _sources_of(step: Step | Mix, dataset: Dataset) -> Lines:
    """Return the sources of a step: of the functions that its own calls, and its own; to parse, that of the dataset."""
    if isinstance(step, Step) and step.parses:
        return _parse(dataset)
    if isinstance(step, Columns):
        return (*(_source_as(_name_of_op(op), op) for op in step.makers), source(narrowed))
    return (*(source(called) for called in step.calls), source_of(step))


def _parse(dataset: Dataset) -> Lines:
    """Return the function that parses a record, or several: that of the dataset, or one of serialised examples."""
    if defines(dataset, "parse"):
        return sources(dataset, of_data(dataset, "parse"))
    specs, found = [], {}
    for name, key in dataset.keys.items():
        of, value = dataset.examples.features[name], f"features[{quoted(key)}]"
        specs.append(f"        {quoted(key)}: tf.io.FixedLenFeature({of.shape}, tf.{of.stored}),")
        found[quoted(name)] = value if of.dtype == of.stored else f"tf.cast({value}, tf.{of.dtype})"
    lines = (
        "read = tf.io.parse_example if record.shape.rank else tf.io.parse_single_example",
        "features = read(",
        "    record,",
        *("    {", *specs, "    },"),
        ")",
        mapping("return ", found),
    )
    return (function(f"parse(record: tf.Tensor) -> {_EXAMPLE}", "Return the features of records by name.", *lines),)


def given(flow: Flow) -> str:
    """Return the function that gives a model what it takes of a batch."""
    several = {"inputs": flow.inputs, "targets": flow.targets, "weight": (flow.weight,) if flow.weight else ()}
    lines, found = [], []
    for of, names in several.items():
        if names[1:]:
            lines.append(mapping(f"{of} = ", {quoted(name): f"batch[{quoted(name)}]" for name in names}))
        found += [of] if names[1:] else [f"batch[{quoted(name)}]" for name in names]
    gives = [_EXAMPLE if names[1:] else "tf.Tensor" for names in several.values() if names]
    signature = f"given(batch: {_EXAMPLE}) -> tuple[{', '.join(gives)}]"
    return function(signature, "Return what the model takes of a batch.", *lines, f"return {', '.join(found)}")


def _map(dataset: str, mapped: str, stage: Any) -> str:
    """Return the call that maps a dataset, with the parallelism of a stage."""
    return call(f"{dataset}.map", mapped, *calls_of(stage.num_parallel_calls, deterministic=stage.deterministic))


def _map_batches(dataset: str, size: int, mapped: str, stage: Any) -> str:
    """Return the calls that map a dataset in batches of its own, in one line or in parentheses."""
    line = _map(f"{dataset}.batch({size})", mapped, stage)
    if "\n" not in line:
        return f"{line}.unbatch()"
    batched = [f"{dataset}.batch({size})"] if dataset.isidentifier() else [dataset, f".batch({size})"]
    return "\n".join(["(", *(indent(of, "    ") for of in (*batched, _map("", mapped, stage), ".unbatch()")), ")"])


def map_steps(stage: Map, place: Place) -> str:
    """Return the text of all steps in one function, which also raises on a target that is not a class."""
    name = _name_at(place, "transform" if stage.is_first else stage.path.replace(".", "_"))
    is_record = place.incoming.is_serialised
    given_to = ["record", *["number"] * place.carries] if is_record else ["example"]
    takes = [*given_to, "seed"] if place.planned.is_random else given_to[:1]
    lines = [*_lines_of_steps(stage, place), *(_checks(place) if stage.is_first else ())]
    lines += [] if is_record or not place.carries or place.gives_index else ["del example[NUMBER]"]
    lines = [*lines, "return example"] if lines[1:] or not is_record else ["return parse(record)"]
    typed = [f"{of}: {_EXAMPLE if of == 'example' else 'tf.Tensor'}" for of in takes]
    says = f"Map {place.incoming} to {place.planned.gives}."
    place.functions.extend(text for step in stage.steps for text in _sources_of(step, place.data))
    signature = f"{name}({', '.join(typed)}) -> {_EXAMPLE}"
    place.functions.append(function(signature, says, *lines))
    mapped = f"{name}({', '.join(takes)})"
    mapped = f"{{**{mapped}, NUMBER: number}}" if is_record and place.gives_index else mapped
    mapped = name if mapped == f"{name}({', '.join(given_to)})" else f"lambda {', '.join(given_to)}: {mapped}"
    if not stage.at_once:
        return _map(place.dataset, mapped, stage)
    return _map_batches(place.dataset, stage.at_once, mapped, stage)


def _lines_of_steps(stage: Map, place: Place) -> Iterator[str]:
    """Yield the lines of all steps."""
    is_record = place.incoming.is_serialised
    if is_record:
        yield "example = parse(record)"
    if place.planned.is_random and place.carries:
        yield f"seed += {'number' if is_record else 'example[NUMBER]'} * NUMBERS_APART"
    for step in stage.steps:
        if isinstance(step, Columns):
            yield from _lines_of_columns(step, place)
        elif not step.parses:
            feature = f"example[{quoted(step.feature)}]"
            seed = ["seed=seed"] if step.random else []
            yield call(f"{feature} = {_name(step)}", feature, *keywords(step.arguments), *seed)


def _lines_of_columns(step: Columns, place: Place) -> Iterator[str]:
    """Yield the lines that make the outputs, from the features before them or from outputs above them."""
    features, above = place.data.examples.features, dict(place.data.examples.features)
    yield f"features, example = example, {'{**example}' if step.beside else '{}'}"
    for output in step.outputs:
        variable = f"example[{quoted(output.name)}]"
        taken = [f"{'features' if name in features else 'example'}[{quoted(name)}]" for name in output.of]
        value, incoming = taken[0] if len(taken) == 1 else f"({', '.join(taken)})", above[output.of[0]]
        for each in output.steps:
            name = _name_of_op(each.op)
            of_items = incoming.is_sequence and not each.of_sequences
            called = ("tf.ragged.map_flat_values", name) if of_items else (name,)
            yield call(f"{variable} = {called[0]}", *called[1:], value, *keywords(each.arguments))
            value, incoming = variable, incoming if each.takes > 1 else each.gives(incoming)
        yield f"{variable} = narrowed({value})"
        above.setdefault(output.name, output.gives(above))
    for name in step.dropped:
        yield f"del example[{quoted(name)}]"


def _checks(place: Place) -> Iterator[str]:
    """Yield the lines that raise on a target that is not a class, and on a weight that is none."""
    flow, is_of_rows = place.planned.gives, isinstance(place.data, Rows)
    for name in flow.targets:
        of = place.data.examples.features[name]
        count: int | str = len(of.classes) or ("num_classes()" if of.is_class and len(flow.targets) == 1 else 0)
        if of.is_labels:
            count = 0 if is_of_rows else 2
        if count:
            yield f"# The next line is an error unless it is {'0 or 1' if of.is_labels else 'a class'}."
            target = f"example[{quoted(name)}]"
            yield call(f"{target} = tf.gather", f"tf.range({count}, dtype=tf.int64)", target)
    if flow.weight and not is_of_rows:
        place.functions.append(source(checked_weight))
        weight = f"example[{quoted(flow.weight)}]"
        yield call(f"{weight} = checked_weight", weight)


def parse_batch(stage: ParseBatch, place: Place) -> str:
    """Return the text of parsing several examples in one call."""
    place.functions.extend(_parse(place.data))
    mapped = "lambda record, number: {**parse(record), NUMBER: number}" if place.carries else "parse"
    return _map_batches(place.dataset, stage.examples, mapped, stage)


def mix(stage: Mix, place: Place) -> str:
    """Return the text of mixing the images of each batch."""
    place.functions.extend((*_sources_of(stage, place.data), *sources(place.data, mixed)))
    lines = (
        call("mixing = functools.partial", "mix", *keywords(stage.arguments), "seed=seed"),
        f"return mixed(batch, mixing, {quoted(stage.feature)}, {quoted(place.incoming.target)})",
    )
    signature = f"mix_batch(batch: {_EXAMPLE}, seed: tf.Tensor) -> {_EXAMPLE}"
    place.functions.append(function(signature, "Mix the images of a batch.", *lines))
    return _map(place.dataset, "lambda batch: mix_batch(batch, seed)", stage)


def pad(stage: PadSequences, place: Place) -> str:
    """Return the text of putting padding behind the sequences of each batch."""
    place.functions.extend(sources(place.data, padded))
    return f"{place.dataset}.map(functools.partial(padded, boundaries={literal([*stage.boundaries])}))"


def _name_at(place: Place, name: str) -> str:
    name = _name_in(place.plan, place.planned, place.pipeline, name)
    is_other = place.beside and all(place.planned not in stages for stages in place.beside.pipelines.values())
    return f"{name}_of_images" if is_other else name


def _name_in(plan: Plan, planned: PlannedStage, pipeline: str, name: str) -> str:
    """Return the name of a stage's function: the same for both pipelines if their stages are the same."""
    same = not plan.evaluation or all(planned in stages for stages in plan.pipelines.values())
    return name if same else f"{name}_for_{pipeline}"


def name_of_transform(plan: Plan, pipeline: str) -> str:
    """Return the name of the function of the first map of a pipeline."""
    first = next(of for of in plan.pipelines[pipeline] if isinstance(of.stage, Map) and of.stage.is_first)
    return _name_in(plan, first, pipeline, "transform")


def turbo(stage: Turbo, place: Place) -> str:
    """Return the text of decoding batches of images: those of the model, or batches of its own."""
    dataset = place.dataset
    partial = ["turbo", *keywords(stage.arguments)]
    given_to = ["example", "decode", f"size={stage.size}"]
    if stage.skips:
        partial = ["usable", f"decode={call('functools.partial', *partial)}", f"size={stage.size}"]
        dataset = place.calls(skipping.readable, dataset, place.split)
        place.functions.extend(sources(place.data, usable))
        given_to.append("skips=True")
    given_to += ["is_single=True"] if stage.at_once == 1 else []
    name = _name_at(place, "decode_batch" if stage.path == Turbo.path else "decode_cached")
    says = f"Decode a batch: {place.incoming} to {place.planned.gives}."
    place.functions.extend((source_of(Turbo), *sources(place.data, decoded_natively)))
    lines = call("decode = functools.partial", *partial), call("return decoded_natively", *given_to)
    place.functions.append(function(f"{name}(example: {_EXAMPLE}) -> {_EXAMPLE}", says, *lines))
    if stage.at_once <= 1:
        return _map(dataset, name, stage)
    return _map_batches(dataset, stage.at_once, name, stage)


FIRST_SEED = "1 + SEED * 1_000_003"
"""Seed of the first pass."""


def tfds_load(stage: Tfds, place: Place) -> str:
    """Return the text of reading with TFDS, without its own cache."""
    keys, features = place.data.keys, place.data.examples.features
    decoder = "tfds.decode.make_decoder(tf.uint8)(decoded)()" if stage.decode else "tfds.decode.SkipDecoding()"
    decoders = {quoted(key): decoder for name, key in keys.items() if features[name].format == "image"}
    place.functions.extend(sources(place.data, of_data(place.data, "builder")))
    place.functions.extend((source_of(Decode()), *sources(place.data, loops.decoded)) if stage.decode else ())
    read = place.calls(read_by_tfds, "builder()", place.split, literal(dict(keys)), mapping("", decoders))
    return place.calls(loops.with_numbers, read) if place.carries else read


def _shards(place: Place) -> str:
    """Return the dataset of shards in the order of their names, of the pass, or of a cache's first pass."""
    seed = FIRST_SEED if keeps_file_order(place.plan.spec) else "seed"
    given_to = [f"seed={seed}"] * place.planned.is_random + ["numbered=True"] * place.carries
    return place.calls(loops.shards, place.split, *given_to)


def _reader(place: Place) -> str:
    """Return the function that reads a shard."""
    if defines(place.data, "reader"):
        read = place.calls(of_data(place.data, "reader"), place.split)
    else:
        read = place.calls(loops.records).removesuffix("()")
    return place.calls(loops.with_number, read) if place.carries else read


def sequential(_stage: Sequential, place: Place) -> str:
    """Return the text of reading shard by shard."""
    return f"{_shards(place)}.flat_map({_reader(place)})"


def interleave(stage: Interleave, place: Place) -> str:
    """Return the text of reading shards in turn; after an error, the number of parallel calls decides which is next."""
    least = 1 if place.data.on_corrupt == "skip" else None
    cycle = f"len(parts_of({place.split}))" if stage.cycle_length == "all" else str(stage.cycle_length)
    calls = calls_of(stage.num_parallel_calls or least, deterministic=stage.deterministic, most=cycle)
    sizes = f"cycle_length={cycle}", f"block_length={stage.block_length}"
    return call(f"{_shards(place)}.interleave", _reader(place), *sizes, *calls)


def skip_corrupt(_stage: SkipCorrupt, place: Place) -> str:
    """Return the text of dropping elements that raise; a file that can't be opened is an error at the end of a pass."""
    return place.calls(skipping.without_broken, place.dataset, place.split)


def full_shuffle(stage: FullShuffle, place: Place) -> str:
    """Return the text of reading all examples of a split in the order of the pass."""
    place.functions.append(source_of(stage))
    examples = place.calls(of_data(place.data, "labels_of" if stage.is_by_class else "num_examples"), place.split)
    draw = drawn_with_index if place.carries else drawn
    numbers = place.calls(draw, stage.path.rpartition(".")[2], examples, "seed")
    if reads_features(place.plan):
        count = place.calls(of_data(place.data, "num_examples"), place.split)
        return place.calls(numbered.of_numbers, numbers, place.dataset, count)
    return place.calls(of_data(place.data, "by_number"), numbers, place.split)


def bucket(stage: Bucket, place: Place) -> str:
    """Return the text of cutting the rows of a pass into batches of sequences of like lengths."""
    order = f"{place.dataset}.batch(len(records_of({place.split})))"
    lengths = place.calls(loops.lengths_of, place.split, name_of_transform(place.plan, place.pipeline))
    drops = f"drop_remainder={stage.drop_remainder}"
    return place.calls(in_buckets, order, lengths, "BOUNDARIES", "BATCH_SIZES", drops)


def backbone(stage: Backbone, place: Place) -> str:
    """Return the text of computing features before the first epoch, which makes a cache unnecessary."""
    image = quoted(place.incoming.inputs[0])
    return place.calls(loops.features_of, "base", place.dataset, image, str(stage.pictures_at_once))


def cache_disk(stage: DiskCache, place: Place) -> str:
    """Return the text of tf.data's cache, in a folder for one process: it can't tell if it is stale or in use."""
    folder = place.calls(inspect.unwrap(loops.cache_folder), *(["CACHE_DIR"] if stage.dir else []))
    return f'{place.dataset}.cache(f"{{{folder}}}/{place.pipeline}")'


DATASET_TEXTS: dict[type, Callable[[Any, Place], str]] = {
    Tfds: tfds_load,
    Sequential: sequential,
    Interleave: interleave,
    ParseBatch: parse_batch,
    Map: map_steps,
    AfterCache: map_steps,
    AfterTurbo: map_steps,
    Turbo: turbo,
    TurboAfterCache: turbo,
    Mix: mix,
    Bucket: bucket,
    PadSequences: pad,
    SkipCorrupt: skip_corrupt,
    SkippedInBatches: skip_corrupt,
    Backbone: backbone,
    FullShuffle: full_shuffle,
    SampleByClass: full_shuffle,
    DiskCache: cache_disk,
}
"""Functions that return the text of stages that are not method calls, by type."""


def expression(place: Place) -> str:
    """Return the expression of a stage. Features of a frozen base are in memory already, and need no cache."""
    stage = place.planned.stage
    if stage.keeps and reads_features(place.plan):
        return place.dataset
    called = stage.call()
    return DATASET_TEXTS[type(stage)](stage, place) if called is None else _called(place, called)


def _called(place: Place, called: Call) -> str:
    keywords = (f"{name}={_argument(argument)}" for name, argument in called.keywords.items())
    return call(f"{place.dataset}.{called.method}", *map(_argument, called.arguments), *keywords)


def _argument(argument: Any) -> str:
    match argument:
        case Constant():
            return argument.name
        case Parallel():
            return parallel(argument.value)
        case UpToAll():
            return str(argument.value)
        case PassSeed():
            return "seed"
    return literal(argument)


def pipeline(plan: Plan, name: str, beside: Plan | None = None) -> tuple[str, ...]:
    """Return `train_dataset` or `validation_dataset` after the functions that it needs.

    They are `train_images` and `validation_images` of the phases that follow those of the plan `beside`.
    """
    writer, suffix = _Writer(plan, name, beside), "images" if beside else "dataset"
    body = writer.body(plan.pipelines[name])
    arguments = ["base: keras.Model"] if reads_features(plan) else []
    if name == "train":
        gives = f"Return the batches of all epochs, pass by pass: {writer.flow}."
        if _has_phases(plan):
            gives = f"Return the batches of so many passes: {writer.flow}."
            arguments += ["first: int"] if differs_by_pass(plan.train) else []
            arguments.append("passes: int")
        elif plan.spec.dataset.on_corrupt == "skip":
            arguments.append(f"passes: int = {_passes(plan) or -1}")
    else:
        gives = f"Return the batches of a pass: {writer.flow}."
    made = function(f"{name}_{suffix}({', '.join(arguments)}) -> tf.data.Dataset", gives, *body)
    return (*writer.needed, made)


def _passes(plan: Plan) -> str:
    """Return the number of passes as text; an empty one for endless passes."""
    trainer = plan.spec.trainer
    is_endless = trainer.all_epochs is None or trainer.steps_per_epoch is not None
    return "" if is_endless else "EPOCHS"


def _has_phases(plan: Plan) -> bool:
    return plan.spec.fit is not None and plan.spec.fit.phases is not None


class _Writer:
    """Writes stage after stage.

    All training passes are in one dataset, and Keras reads a fixed number of steps of it in each epoch. If it
    has to find the end of a pass by itself, it counts one step of the optimizer too many (Keras 3.15).

    Attributes:
        flow: Output of the last stage.
        needed: Functions that the stages call.
    """

    def __init__(self, plan: Plan, name: str, beside: Plan | None) -> None:
        self.plan, self.name, self._beside = plan, name, beside
        self.flow = plan.spec.dataset.examples
        self.needed: list[str] = []
        self._last = last_random(plan.pipelines[name])
        self._carries = self._last is not None

    def body(self, stages: Sequence[PlannedStage]) -> list[str]:
        """Return the lines of the function. Random stages are rebuilt for each pass; prefetching spans all passes."""
        ahead = [planned for planned in stages if planned.stage.scope is Scope.AROUND]
        in_pass = [planned for planned in stages if planned not in ahead]
        numbered = [] if reads_features(self.plan) else by_number(in_pass)
        if numbered:
            self.flow, in_pass = numbered[0].gives, list(numbered[1:])
        kept = len(at_cache(in_pass)[0])  # these are fixed by the first pass
        place = next((place for place, planned in enumerate(in_pass) if planned.is_random and place >= kept), None)
        is_given = self.plan.spec.dataset.on_corrupt == "skip" or _has_phases(self.plan)
        passes, first = "passes" if is_given else _passes(self.plan), "first" if _has_phases(self.plan) else 1
        if place is not None:
            count = f".take({passes})" if passes else ""
            before = self._chain(in_pass[:place], "", "examples")
            lines = [
                *before,
                "",
                self._one_pass(in_pass[place:]),
                "",
                f"dataset = tf.data.Dataset.counter({first}){count}.flat_map(one_pass)",
            ]
        else:
            lines = self._chain(in_pass, "", "dataset")
            lines += [f"dataset = dataset.repeat({passes})"] if self.name == "train" else []
        self.needed.append(given(self.flow))
        lines.append("dataset = dataset.map(given)")
        return [*lines, *self._chain(ahead, "dataset", "dataset"), "return dataset.with_options(AS_WRITTEN)"]

    def _one_pass(self, stages: Sequence[PlannedStage]) -> str:
        *lines, last = self._chain(stages, "examples", "dataset")
        return function(
            "one_pass(number: tf.Tensor) -> tf.data.Dataset",
            "Return pass `number`, from 1; SEED and `number` determine its randomness.",
            "seed = number + SEED * 1_000_003",
            *lines,
            f"return {last.removeprefix('dataset = ')}",
        )

    def _chain(self, stages: Sequence[PlannedStage], dataset: str, name: str) -> list[str]:
        """Return an assignment to `name` for each stage; the first one takes `dataset`."""
        lines = []
        for planned in stages:
            place = Place(
                plan=self.plan,
                pipeline=self.name,
                planned=planned,
                incoming=self.flow,
                dataset=dataset,
                last_random=self._last,
                carries=self._carries,
                beside=self._beside,
            )
            text, self._carries = expression(place), place.gives_index
            self.needed += place.functions
            self.flow = planned.gives
            if text != dataset:
                lines.append(f"{name} = {text}")
                dataset = name
        return lines
