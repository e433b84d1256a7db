"""Text of a pipeline in a program: a function that makes a dataset, with an expression for each stage."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from etlrun.eject.text import call, defines, function, keywords, literal, mapping, of_data, parallel, sources
from etlrun.planning.plan import Plan, PlannedStage, at_cache, by_number, keeps_file_order, reads_features
from etlrun.sources.base import parse_examples
from etlrun.stages.base import Scope
from etlrun.stages.cache import DiskCache
from etlrun.stages.columns import Columns, checked, narrowed
from etlrun.stages.dataset import Dataset
from etlrun.stages.extract import Interleave, Sequential, SkipCorrupt, Tfds, read_by_tfds, readable
from etlrun.stages.flow import Flow, handed, numbered
from etlrun.stages.image import Decode, Turbo, decoded_natively, usable
from etlrun.stages.load import Bucket, FullShuffle, PadSequences, drawn, drawn_with_index, in_buckets, padded
from etlrun.stages.made import Constant, Parallel, PassSeed, UpToAll, quoted
from etlrun.stages.mix import Mix, mixed
from etlrun.stages.model import Backbone
from etlrun.stages.plugins import source
from etlrun.stages.rows import Rows
from etlrun.stages.step import Map, ParseBatch, Step

_EXAMPLE = "dict[str, tf.Tensor]"
_FIRST_SEED = "1 + SEED * 1_000_003"
"""Seed of the first pass."""


def differs_by_pass(stages: Sequence[PlannedStage]) -> bool:
    """Return whether the passes over a pipeline differ; what is before a cache is fixed by the first one."""
    return any(planned.is_random for planned in at_cache(stages)[2])


def _last_random(stages: Sequence[PlannedStage]) -> PlannedStage | None:
    """Return the last stage with random steps; None if there is none."""
    return next((planned for planned in reversed(stages) if any(step.is_random for step in planned.steps)), None)


@dataclass
class Writer:
    """Writes a pipeline of a program, stage after stage.

    Attributes:
        plan: Plan of the run.
        pipeline: `train` or `validation`.
        beside: Plan of the phases before, whose pipelines are in the program, too; None if there is none.
        flow: Output of the last stage.
        planned: The stage that is written.
        dataset: Expression of its input.
        variable: Variable to which the lines assign.
        lines: Lines of the function so far.
        functions: Functions that the lines call.
        last: Last stage with random steps, up to which examples carry their numbers; None if they carry none.
        carries: Whether examples carry their numbers up to here.
    """

    plan: Plan
    pipeline: str
    beside: Plan | None
    flow: Flow
    last: PlannedStage | None
    carries: bool
    dataset: str = ""
    variable: str = ""
    planned: Any = None
    lines: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)

    @property
    def data(self) -> Dataset:
        """Dataset of the plan."""
        return self.plan.spec.dataset

    @property
    def split(self) -> str:
        """Name of the constant that is the split of the pipeline."""
        return f"{self.pipeline.upper()}_SPLIT"

    def needs(self, function: Callable[..., Any] | str) -> str:
        """Return the name of a function, or of a printed one by its name, which the program contains then."""
        made = of_data(self.data, function) if isinstance(function, str) else function
        self.functions.extend(sources(self.data, made))
        return made.__name__

    def calls(self, function: Callable[..., Any] | str, *arguments: str) -> str:
        """Return a call of such a function."""
        return call(self.needs(function), *arguments)

    def assign(self, text: str) -> None:
        """Assign an expression, which is the dataset then."""
        if text != self.dataset:
            self.lines.append(f"{self.variable} = {text}")
            self.dataset = self.variable

    def map(self, mapped: str, stage: Any, size: int = 0) -> str:
        """Return the call that maps the dataset, with the parallelism of a stage, in batches of its own or none."""
        if size:
            self.assign(f"{self.dataset}.batch({size})")
        calls = _calls_of(stage.num_parallel_calls, deterministic=stage.deterministic)
        text = call(f"{self.dataset}.map", mapped, *calls)
        if not size:
            return text
        self.assign(text)
        return f"{self.dataset}.unbatch()"

    def write(self, stages: Sequence[PlannedStage], dataset: str, variable: str) -> list[str]:
        """Return an assignment to a variable for each call; the first stage takes `dataset`."""
        self.lines, self.dataset, self.variable = [], dataset, variable
        for planned in stages:
            self.planned, stage = planned, planned.stage
            if not (stage.keeps and reads_features(self.plan)):  # they are in memory already
                self.assign(self._expression(stage))
            self.carries = self.carries and planned is not self.last
            self.flow = planned.gives
        return self.lines

    def _expression(self, stage: Any) -> str:
        called = stage.call()
        if called is None:
            return next(DATASET_TEXTS[kind] for kind in type(stage).__mro__ if kind in DATASET_TEXTS)(stage, self)
        given = (f"{name}={_argument(argument)}" for name, argument in called.keywords.items())
        return call(f"{self.dataset}.{called.method}", *map(_argument, called.arguments), *given)


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


def _calls_of(num_parallel_calls: int | str | None, *, deterministic: bool, most: str = "") -> tuple[str, ...]:
    """Return the arguments for parallel calls; `most` is tf.data's limit, if the config's number may exceed it."""
    if num_parallel_calls is None:
        return ()
    calls = parallel(num_parallel_calls)
    if most and num_parallel_calls != "autotune" and not (calls.isdigit() and most.isdigit()):
        calls = f"min({calls}, {most})"
    return f"num_parallel_calls={calls}", f"deterministic={deterministic}"


def _name(step: Any) -> str:
    return step.path.rpartition(".")[2]  # type: ignore[no-any-return]


def _source_of(op: Callable[..., Any], name: str) -> str:
    """Return the source of a step's function, which has that name in programs."""
    text = source(op).replace("  # type: ignore[override]", "")
    return text.removeprefix("@staticmethod\n").replace("def op(", f"def {name}(", 1)


def _name_of_op(op: Callable[..., Any]) -> str:
    """Return the name of a step's function in programs, such as `one_hot_values` for that of `OneHot`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", op.__qualname__.split(".")[0]).lower() + "_values"


def _sources_of(step: Step | Mix, dataset: Dataset) -> Iterator[str]:
    """Yield the sources of a step: of the functions that its own calls, and its own; to parse, that of the dataset."""
    if isinstance(step, Columns):
        yield from (_source_of(op, _name_of_op(op)) for op in step.makers)
        yield source(narrowed)
    elif isinstance(step, Step) and step.parses:
        yield from _parse(dataset)
    else:
        yield from map(source, step.calls)
        yield _source_of(step.op, _name(step))


def _parse(dataset: Dataset) -> tuple[str, ...]:
    """Return the function that parses a record, or several: that of the dataset, or one of serialised examples."""
    if defines(dataset, "parse"):
        return sources(dataset, of_data(dataset, "parse"))
    parsed = call("return parse_examples", "record", literal(dataset.stored))
    says = "Return the features of records by name."
    return *sources(dataset, parse_examples), function(f"parse(record: tf.Tensor) -> {_EXAMPLE}", says, parsed)


def map_steps(stage: Map, writer: Writer) -> str:
    """Return the text of all steps in one function, which also raises on a target that is not a class."""
    planned, is_record = writer.planned, writer.flow.is_serialised
    name = _name_at(writer, "transform" if stage.is_first else stage.path.replace(".", "_"))
    is_numbered = is_record and any(map(_last_random, writer.plan.pipelines.values()))
    given = ["record", *["*number"] * is_numbered] if is_record else ["example"]
    lines = ["example = numbered(parse(record), *number)" if is_numbered else "example = parse(record)"] * is_record
    lines += ["seed += example[NUMBER] * NUMBERS_APART"] * planned.is_random
    lines += [line for step in stage.steps for line in _lines_of(step, writer)]
    if stage.is_first and not isinstance(writer.data, Rows):  # whose lookup checks them
        lines += _checks(writer)
    lines += ["del example[NUMBER]"] * (planned is writer.last)
    *lines, last = lines or ["example = example"]
    is_made = last.startswith("example = ")
    lines += [last.replace("example =", "return", 1)] if is_made else [last, "return example"]
    typed = [f"{of}: {_EXAMPLE if of == 'example' else 'tf.Tensor'}" for of in given]
    typed += ["seed: tf.Tensor"] * planned.is_random
    if is_numbered:
        writer.needs(numbered)
    writer.functions += [text for step in stage.steps for text in _sources_of(step, writer.data)]
    signature = f"{name}({', '.join(typed)}) -> {_EXAMPLE}"
    writer.functions.append(function(signature, f"Map {writer.flow} to {planned.gives}.", *lines))
    called = f"{name}({', '.join(given)}, seed=seed)"
    mapped = f"lambda {', '.join(given)}: {called}" if planned.is_random else name
    return writer.map(mapped, stage, stage.at_once or 0)


def _lines_of(step: Step, writer: Writer) -> Iterator[str]:
    """Yield the lines of a step."""
    if isinstance(step, Columns):
        yield from _lines_of_columns(step, writer)
    elif not step.parses:
        feature = f"example[{quoted(step.feature)}]"
        seed = ["seed=seed"] if step.random else []
        yield call(f"{feature} = {_name(step)}", feature, *keywords(step.arguments), *seed)


def _lines_of_columns(step: Columns, writer: Writer) -> Iterator[str]:
    """Yield the lines that make the outputs, from the features before them or from outputs above them."""
    features, above = writer.data.examples.features, dict(writer.data.examples.features)
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


def _checks(writer: Writer) -> list[str]:
    """Return the line that raises on a target that is not a class, and on a weight that is none."""
    flow, features = writer.planned.gives, writer.data.examples.features
    targets = {name: features[name] for name in flow.targets if features[name].is_class or features[name].is_labels}
    counts = {name: 2 if of.is_labels else len(of.classes) or "num_classes()" for name, of in targets.items()}
    indices = {quoted(name): f"tf.range({count}, dtype=tf.int64)" for name, count in counts.items()}
    weight = [f"weight={quoted(flow.weight)}"] if flow.weight else []
    if not indices and not weight:
        return []
    return [f"example = {writer.calls(checked, 'example', mapping('', indices), *weight)}"]


def parse_batch(stage: ParseBatch, writer: Writer) -> str:
    """Return the text of parsing several examples in one call."""
    writer.functions.extend(_parse(writer.data))
    numbers = "lambda record, number: " + writer.calls(numbered, "parse(record)", "number") if writer.carries else ""
    return writer.map(numbers or "parse", stage, stage.examples)


def mix(stage: Mix, writer: Writer) -> str:
    """Return the text of mixing the images of each batch."""
    writer.functions.extend(_sources_of(stage, writer.data))
    mixing = call("functools.partial", "mix", *keywords(stage.arguments), "seed=seed")
    mapped = writer.calls(mixed, "batch", mixing, quoted(stage.feature), quoted(writer.flow.target))
    return writer.map(f"lambda batch: {mapped}", stage)


def pad(stage: PadSequences, writer: Writer) -> str:
    """Return the text of putting padding behind the sequences of each batch."""
    return f"{writer.dataset}.map(functools.partial({writer.needs(padded)}, boundaries={literal([*stage.boundaries])}))"


def _name_at(writer: Writer, name: str) -> str:
    name = _name_in(writer.plan, writer.planned, writer.pipeline, name)
    beside = writer.beside.pipelines.values() if writer.beside else ()
    return f"{name}_of_images" if beside and all(writer.planned not in stages for stages in beside) else name


def _name_in(plan: Plan, planned: PlannedStage, pipeline: str, name: str) -> str:
    """Return the name of a stage's function: the same for both pipelines if their stages are the same."""
    same = not plan.evaluation or all(planned in stages for stages in plan.pipelines.values())
    return name if same else f"{name}_for_{pipeline}"


def name_of_transform(plan: Plan, pipeline: str) -> str:
    """Return the name of the function of the first map of a pipeline."""
    first = next(of for of in plan.pipelines[pipeline] if isinstance(of.stage, Map) and of.stage.is_first)
    return _name_in(plan, first, pipeline, "transform")


def turbo(stage: Turbo, writer: Writer) -> str:
    """Return the text of decoding batches of images: those of the model, or batches of its own."""
    decode, size = call("functools.partial", "turbo", *keywords(stage.arguments)), f"size={stage.size}"
    flags = ["is_single=True"] * (stage.at_once == 1)
    writer.functions.append(_source_of(Turbo.op, "turbo"))
    if stage.skips:
        writer.assign(_readable(writer))
        decode = call("functools.partial", writer.needs(usable), f"decode={decode}", size)
        flags.append("skips=True")
    mapped = call("functools.partial", writer.needs(decoded_natively), f"decode={decode}", size, *flags)
    return writer.map(mapped, stage, stage.at_once if stage.at_once > 1 else 0)


def _readable(writer: Writer) -> str:
    count = writer.calls("num_examples", writer.split)
    return f"{writer.calls(readable, writer.dataset, count)}.map(lambda _, example: example)"


def tfds_load(stage: Tfds, writer: Writer) -> str:
    """Return the text of reading with TFDS, without its own cache."""
    keys, features = writer.data.keys, writer.data.examples.features
    decoder = "tfds.decode.SkipDecoding()"
    if stage.decode:  # to three channels, whatever the feature declares
        decoder = "tfds.decode.make_decoder(tf.uint8)(lambda image, _: decode(image))()"
        writer.functions.append(_source_of(Decode.op, "decode"))
    decoders = {quoted(key): decoder for name, key in keys.items() if features[name].format == "image"}
    given = writer.calls("builder"), writer.split, literal(dict(keys)), mapping("", decoders)
    read = writer.calls(read_by_tfds, *given)
    if not writer.carries:
        return read
    writer.assign(read)
    return f"{writer.dataset}.enumerate().map(lambda number, example: {writer.calls(numbered, 'example', 'number')})"


def _shards(writer: Writer) -> tuple[str, str]:
    """Return the dataset of shards in the order of their names, of the pass or of a cache's first one, and a reader."""
    seed = _FIRST_SEED if keeps_file_order(writer.plan.spec) else "seed"
    given = [f"seed={seed}"] * writer.planned.is_random + ["numbered=True"] * writer.carries
    shards = writer.calls("shards", writer.split, *given)
    is_own = defines(writer.data, "reader")
    read = writer.calls("reader", writer.split) if is_own else writer.needs("records")
    return shards, writer.calls("with_number", read) if writer.carries else read


def sequential(_stage: Sequential, writer: Writer) -> str:
    """Return the text of reading shard by shard."""
    shards, read = _shards(writer)
    return f"{shards}.flat_map({read})"


def interleave(stage: Interleave, writer: Writer) -> str:
    """Return the text of reading shards in turn; after an error, the number of parallel calls decides which is next."""
    least = 1 if writer.data.on_corrupt == "skip" else None
    cycle = f"len(parts_of({writer.split}))" if stage.cycle_length == "all" else str(stage.cycle_length)
    calls = _calls_of(stage.num_parallel_calls or least, deterministic=stage.deterministic, most=cycle)
    shards, read = _shards(writer)
    return call(f"{shards}.interleave", read, f"cycle_length={cycle}", f"block_length={stage.block_length}", *calls)


def skip_corrupt(_stage: SkipCorrupt, writer: Writer) -> str:
    """Return the text of dropping elements that raise; a file that can't be opened is an error at the end of a pass."""
    if isinstance(writer.data, Rows):  # whose files have all been read before
        return _readable(writer)
    return writer.calls("without_broken", writer.dataset, writer.split)


def full_shuffle(stage: FullShuffle, writer: Writer) -> str:
    """Return the text of reading all examples of a split in the order of the pass."""
    writer.functions.append(_source_of(stage.op, _name(stage)))
    examples = writer.calls("labels_of" if stage.is_by_class else "num_examples", writer.split)
    numbers = writer.calls(drawn_with_index if writer.carries else drawn, _name(stage), examples, "seed")
    if reads_features(writer.plan):
        return writer.calls("of_numbers", numbers, writer.dataset, writer.calls("num_examples", writer.split))
    return writer.calls("by_number", numbers, writer.split)


def bucket(stage: Bucket, writer: Writer) -> str:
    """Return the text of cutting the rows of a pass into batches of sequences of like lengths."""
    order = f"{writer.dataset}.batch(len(records_of({writer.split})))"
    lengths = writer.calls("lengths_of", writer.split, name_of_transform(writer.plan, writer.pipeline))
    drops = f"drop_remainder={stage.drop_remainder}"
    return writer.calls(in_buckets, order, lengths, "BOUNDARIES", "BATCH_SIZES", drops)


def cache_disk(stage: DiskCache, writer: Writer) -> str:
    """Return the text of tf.data's cache, in a folder for one process: it can't tell if it is stale or in use."""
    folder = writer.calls("cache_folder", *["CACHE_DIR"] * bool(stage.dir))
    return f'{writer.dataset}.cache(f"{{{folder}}}/{writer.pipeline}")'


DATASET_TEXTS: dict[type, Callable[[Any, Writer], str]] = {
    Tfds: tfds_load,
    Sequential: sequential,
    Interleave: interleave,
    ParseBatch: parse_batch,
    Map: map_steps,
    Turbo: turbo,
    Mix: mix,
    Bucket: bucket,
    PadSequences: pad,
    SkipCorrupt: skip_corrupt,
    Backbone: lambda stage, writer: writer.calls(
        "features_of", "base", writer.dataset, quoted(writer.flow.inputs[0]), str(stage.pictures_at_once)
    ),
    FullShuffle: full_shuffle,
    DiskCache: cache_disk,
}
"""Functions that return the text of stages that are not method calls, by type or base."""


def has_phases(plan: Plan) -> bool:
    """Return whether a plan trains in phases."""
    return plan.spec.fit is not None and plan.spec.fit.phases is not None


def pipeline(plan: Plan, name: str, beside: Plan | None = None) -> tuple[str, ...]:
    """Return `train_dataset` or `validation_dataset` after the functions that it needs.

    They are `train_images` and `validation_images` of the phases that follow those of the plan `beside`.

    All training passes are in one dataset, and Keras reads a fixed number of steps of it in each epoch. If it has to
    find the end of a pass by itself, it counts one step of the optimizer too many (Keras 3.15).
    """
    trainer, skips = plan.spec.trainer, plan.spec.dataset.on_corrupt == "skip"
    is_endless = trainer.all_epochs is None or trainer.steps_per_epoch is not None
    passes = "" if is_endless else "EPOCHS"
    arguments = ["base: keras.Model"] if reads_features(plan) else []
    gives = "Return the batches of a pass"
    if name == "train":
        gives = "Return the batches of all epochs, pass by pass"
        if has_phases(plan):
            gives = "Return the batches of so many passes"
            arguments += [*["first: int"] * differs_by_pass(plan.train), "passes: int"]
        elif skips:
            arguments.append(f"passes: int = {passes or -1}")
    last = _last_random(plan.pipelines[name])
    writer = Writer(plan, name, beside, plan.spec.dataset.examples, last, carries=last is not None)
    body = _body(writer, "passes" if skips or has_phases(plan) else passes)
    suffix = "images" if beside else "dataset"
    made = f"{name}_{suffix}({', '.join(arguments)}) -> tf.data.Dataset"
    return (*writer.functions, function(made, f"{gives}: {writer.flow}.", *body))


def _body(writer: Writer, passes: str) -> list[str]:
    """Return the lines of the function. Random stages are rebuilt for each pass; prefetching spans all passes."""
    stages = writer.plan.pipelines[writer.pipeline]
    ahead = [planned for planned in stages if planned.stage.scope is Scope.AROUND]
    in_pass: Sequence[PlannedStage] = [planned for planned in stages if planned not in ahead]
    shuffled = [] if reads_features(writer.plan) else by_number(in_pass)
    if shuffled:
        writer.flow, in_pass = shuffled[0].gives, shuffled[1:]
    kept = len(at_cache(in_pass)[0])  # these are fixed by the first pass
    place = next((place for place, planned in enumerate(in_pass) if planned.is_random and place >= kept), None)
    if place is None:
        lines = writer.write(in_pass, "", "dataset")
        lines += [f"dataset = dataset.repeat({passes})"] * (writer.pipeline == "train")
    else:
        lines = writer.write(in_pass[:place], "", "examples")
        *others, last = writer.write(in_pass[place:], "examples", "dataset")
        one_pass = function(
            "one_pass(number: tf.Tensor) -> tf.data.Dataset",
            "Return pass `number`, from 1; SEED and `number` determine its randomness.",
            "seed = number + SEED * 1_000_003",
            *others,
            f"return {last.removeprefix('dataset = ')}",
        )
        first, count = "first" if has_phases(writer.plan) else 1, f".take({passes})" if passes else ""
        lines += ["", one_pass, "", f"dataset = tf.data.Dataset.counter({first}){count}.flat_map(one_pass)"]
    flow = writer.flow
    weight = {"weight": flow.weight} if flow.weight else {}
    given = keywords({"inputs": flow.inputs, "targets": flow.targets, **weight})
    lines.append(call("dataset = dataset.map", call("functools.partial", writer.needs(handed), *given)))
    return [*lines, *writer.write(ahead, "dataset", "dataset"), "return dataset.with_options(AS_WRITTEN)"]
