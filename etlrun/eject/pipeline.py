"""Text of a pipeline in a program: a function that makes a dataset, with an expression for each stage."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from etlrun.eject.text import call, function, keywords, literal, mapping, of_data
from etlrun.planning.plan import Plan, PlannedStage, at_cache, by_number, keeps_file_order, last_random
from etlrun.stages.base import Scope
from etlrun.stages.cache import DiskCache
from etlrun.stages.columns import Columns
from etlrun.stages.dataset import Dataset
from etlrun.stages.extract import Interleave, Sequential, SkipCorrupt, Tfds
from etlrun.stages.flow import Flow
from etlrun.stages.image import Decode, Turbo
from etlrun.stages.load import Bucket, FullShuffle
from etlrun.stages.made import Parallel, quoted
from etlrun.stages.rows import Rows
from etlrun.stages.step import Map, Step

_EXAMPLE = "dict[str, tf.Tensor]"
_FIRST_SEED = "1 + SEED * 1_000_003"
"""Seed of the first pass."""


def differs_by_pass(stages: Sequence[PlannedStage]) -> bool:
    """Return whether the passes over a pipeline differ; what is before a cache is fixed by the first one."""
    return any(planned.is_random for planned in at_cache(stages)[2])


@dataclass
class Writer:
    """Writes a pipeline of a program, stage after stage.

    Attributes:
        plan: Plan of the run.
        pipeline: `train` or `validation`.
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
        takes_split = self.pipeline != "train" and bool(self.plan.spec.dataset.sets)
        return "split" if takes_split else f"{self.pipeline.upper()}_SPLIT"

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
            stage: Any = planned.stage
            self.planned, called = planned, stage.call()
            if called is None:
                self.assign(next(DATASET_TEXTS[of] for of in type(stage).__mro__ if of in DATASET_TEXTS)(stage, self))
            else:
                given = *map(literal, called.arguments), *keywords(called.keywords)
                self.assign(call(f"{self.dataset}.{called.method}", *given))
            self.carries = self.carries and planned is not self.last
            self.flow = planned.gives
        return self.lines


def _calls_of(number: int | str | None, *, deterministic: bool, most: str = "") -> list[str]:
    """Return the arguments for parallel calls; `most` is tf.data's limit, if the config's number may exceed it."""
    if number is None:
        return []
    calls = literal(Parallel(number))  # type: ignore[arg-type] # of a config
    if most and number != "autotune" and not (calls.isdigit() and most.isdigit()):
        calls = f"min({calls}, {most})"
    return [f"num_parallel_calls={calls}", f"deterministic={deterministic}"]


def _name(step: Any) -> str:
    return step.path.rpartition(".")[2]  # type: ignore[no-any-return]


def _name_of_op(op: Callable[..., Any]) -> str:
    """Return the name of a step's function in programs, such as `one_hot_values` for that of `OneHot`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", op.__qualname__.split(".")[0]).lower() + "_values"


def functions_of(plan: Plan) -> dict[str, Callable[..., Any]]:
    """Return the functions of the stages and steps of a plan, and those that these call, by their names in programs."""
    found: dict[str, Callable[..., Any]] = {"decode": Decode.op, "turbo": Turbo.op}
    outer = [planned for stages in plan.pipelines.values() for planned in stages]
    for stage in (inner.stage for planned in outer for inner in (planned, *planned.steps)):
        if isinstance(stage, Columns):
            found |= {_name_of_op(op): op for op in stage.makers}
        elif hasattr(stage, "op"):
            found |= {made.__name__: made for made in getattr(stage, "calls", ())} | {_name(stage): stage.op}
    return found


def map_steps(stage: Map, writer: Writer) -> str:
    """Return the text of all steps in one function, which also raises on a target that is not a class."""
    planned, is_record = writer.planned, writer.flow.is_serialised
    name = name_of(writer.plan, writer.pipeline, planned)
    is_numbered = is_record and any(map(last_random, writer.plan.pipelines.values()))
    given = ["record", *["*number"] * is_numbered] if is_record else ["example"]
    lines = [f"example = {'numbered(parse(record), *number)' if is_numbered else 'parse(record)'}"] * is_record
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
    is_numbered = any(map(last_random, writer.plan.pipelines.values()))
    number = "{name: of for name, of in example.items() if name == NUMBER}" if is_numbered else "{}"
    stays = "{**example}" if step.beside else number
    yield f"features, example = example, {stays}"
    for output in step.outputs:
        variable = f"example[{quoted(output.name)}]"
        taken = [f"{'features' if name in features else 'example'}[{quoted(name)}]" for name in output.of]
        value = taken[0] if len(taken) == 1 else f"({', '.join(taken)})"
        incoming: Any = tuple(above[name] for name in output.of) if len(taken) > 1 else above[output.of[0]]
        for each in output.steps:
            name = _name_of_op(each.op)
            of_items = each.takes == 1 and incoming.is_sequence and not each.of_sequences
            called = ("tf.ragged.map_flat_values", name) if of_items else (name,)
            yield call(f"{variable} = {called[0]}", *called[1:], value, *keywords(each.arguments))
            value, incoming = variable, each.gives(incoming)
        yield f"{variable} = narrowed({value})"
        above.setdefault(output.name, output.gives(above))
    for name in step.dropped:
        yield f"del example[{quoted(name)}]"


def _checks(writer: Writer) -> list[str]:
    """Return the line that raises on a target that is not a class, and on a weight that is none."""
    flow, features = writer.planned.gives, writer.data.examples.features
    indices = {}
    for name in flow.targets:
        if (of := features[name]).is_class or of.is_labels:
            count = 2 if of.is_labels else len(of.classes) or "num_classes()"
            indices[quoted(name)] = f"tf.range({count}, dtype=tf.int64)"
    weight = [f"weight={quoted(flow.weight)}"] if flow.weight else []
    if not indices and not weight:
        return []
    return [f"example = {call('checked', 'example', mapping('', indices), *weight)}"]


def stages_of(plan: Plan, pipeline: str) -> Sequence[PlannedStage]:
    """Return the stages of the pipeline `train`, or of `validation`, which are those of named sets, too."""
    return plan.train if pipeline == "train" else plan.evaluation


def name_of(plan: Plan, pipeline: str, planned: Any = None) -> str:
    """Return the name of the function of a map, the first one if none is given.

    It is the same for both pipelines if their stages are the same. Those behind each of several images are numbered.
    """
    maps = [planned for planned in stages_of(plan, pipeline) if isinstance(planned.stage, Map)]
    planned = planned or maps[0]
    place = [of for of in maps if of.stage.path == planned.stage.path].index(planned)
    name = "transform" if planned.stage.is_first else planned.stage.path.replace(".", "_")
    name += f"_{place + 1}" * (place > 0)
    same = not plan.evaluation or (planned in plan.train and planned in plan.evaluation)
    return name if same else f"{name}_for_{pipeline}"


def turbo(stage: Turbo, writer: Writer) -> str:
    """Return the text of decoding batches of images: those of the model, or batches of its own."""
    decode, size = call("functools.partial", "turbo", *keywords(stage.arguments)), f"size={stage.size}"
    flags = [f"feature={quoted(stage.feature)}"] * (stage.feature != Decode.feature)
    flags += ["is_single=True"] * (stage.at_once == 1)
    if stage.skips:
        writer.assign(_readable(writer))
        decode = call("functools.partial", "usable", f"decode={decode}", size)
        flags.append("skips=True")
    mapped = call("functools.partial", "decoded_natively", f"decode={decode}", size, *flags)
    return writer.map(mapped, stage, stage.at_once if stage.at_once > 1 else 0)


def _readable(writer: Writer) -> str:
    return f"{call('readable', writer.dataset, call('num_examples', writer.split))}.map(lambda _, example: example)"


def tfds_load(stage: Tfds, writer: Writer) -> str:
    """Return the text of reading with TFDS, without its own cache."""
    keys, features = writer.data.keys, writer.data.examples.features
    decoder = "tfds.decode.SkipDecoding()"
    if stage.decode:  # to three channels, whatever the feature declares
        decoder = "tfds.decode.make_decoder(tf.uint8)(lambda image, _: decode(image))()"
    decoders = {quoted(key): decoder for name, key in keys.items() if features[name].format == "image"}
    given = call("builder"), writer.split, literal(dict(keys)), mapping("", decoders)
    read = call("read_by_tfds", *given)
    if not writer.carries:
        return read
    writer.assign(read)
    return f"{writer.dataset}.enumerate().map(lambda number, example: {call('numbered', 'example', 'number')})"


def _shards(writer: Writer) -> tuple[str, str]:
    """Return the dataset of shards in the order of their names, of the pass or of a cache's first one, and a reader."""
    seed = _FIRST_SEED if keeps_file_order(writer.plan.spec) else "seed"
    given = [f"seed={seed}"] * writer.planned.is_random
    read = f"reader({writer.split})" if "reader" in of_data(writer.data) else "records"
    return call("shards", f"parts_of({writer.split})", *given), f"with_number({read})" if writer.carries else read


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
    return call("without_broken", writer.dataset, writer.split)


def full_shuffle(stage: FullShuffle, writer: Writer) -> str:
    """Return the text of reading all examples of a split in the order of the pass."""
    examples = call("labels_of" if stage.is_by_class else "num_examples", writer.split)
    numbers = call("draw_numbers_with_index" if writer.carries else "draw_numbers", _name(stage), examples, "seed")
    return call("by_number", numbers, writer.split)


def bucket(stage: Bucket, writer: Writer) -> str:
    """Return the text of cutting the rows of a pass into batches of sequences of like lengths."""
    order = f"{writer.dataset}.batch(len(records_of({writer.split})))"
    lengths = call("lengths_of", writer.split, name_of(writer.plan, writer.pipeline))
    drops = f"drop_remainder={stage.drop_remainder}"
    return call("in_buckets", order, lengths, "BOUNDARIES", "BATCH_SIZES", drops)


DATASET_TEXTS: dict[type, Callable[[Any, Writer], str]] = {
    Tfds: tfds_load,
    Sequential: sequential,
    Interleave: interleave,
    Map: map_steps,
    Turbo: turbo,
    Bucket: bucket,
    SkipCorrupt: skip_corrupt,
    FullShuffle: full_shuffle,
    DiskCache: lambda _, writer: writer.dataset,  # which a program reads again: tf.data can't tell if one is stale
}
"""Functions that return the text of stages that are not method calls, by type or base."""


def pipeline(plan: Plan, name: str) -> tuple[str, ...]:
    """Return `train_dataset` or `validation_dataset` after the functions that it needs.

    All training passes are in one dataset, and Keras reads a fixed number of steps of it in each epoch. If it has to
    find the end of a pass by itself, it counts one step of the optimizer too many (Keras 3.15).
    """
    trainer, gives = plan.spec.trainer, "Return the batches of a pass"
    arguments = list[str]()
    if name == "train":
        gives = "Return the batches of so many passes, one after the other"
        is_endless = trainer.all_epochs is None or trainer.steps_per_epoch is not None
        arguments += ["first: int = 1"] * differs_by_pass(plan.train)
        arguments.append(f"passes: int = {-1 if is_endless else 'EPOCHS'}")
    elif plan.spec.dataset.sets:
        arguments.append(f"split: str{' = VALIDATION_SPLIT' * (plan.spec.dataset.eval_split is not None)}")
    last = last_random(stages_of(plan, name))
    writer = Writer(plan, name, plan.spec.dataset.examples, last, carries=last is not None)
    body = _body(writer)
    made = f"{name}_dataset({', '.join(arguments)}) -> tf.data.Dataset"
    return (*writer.functions, function(made, f"{gives}: {writer.flow}.", *body))


def _body(writer: Writer) -> list[str]:
    """Return the lines of the function. Random stages are rebuilt for each pass; prefetching spans all passes."""
    stages = stages_of(writer.plan, writer.pipeline)
    ahead = [planned for planned in stages if planned.stage.scope is Scope.AROUND]
    in_pass: Sequence[PlannedStage] = [planned for planned in stages if planned not in ahead]
    if shuffled := by_number(in_pass):
        writer.flow, in_pass = shuffled[0].gives, shuffled[1:]
    kept = len(at_cache(in_pass)[0])  # these are fixed by the first pass
    place = next((place for place, planned in enumerate(in_pass) if planned.is_random and place >= kept), None)
    if place is None:
        lines = writer.write(in_pass, "", "dataset")
        lines += ["dataset = dataset.repeat(passes)"] * (writer.pipeline == "train")
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
        lines += ["", one_pass, "", "dataset = tf.data.Dataset.counter(first).take(passes).flat_map(one_pass)"]
    flow = writer.flow
    given = keywords(
        {"inputs": flow.inputs, "targets": flow.targets, **({"weight": flow.weight} if flow.weight else {})}
    )
    lines.append(call("dataset = dataset.map", call("functools.partial", "handed", *given)))
    return [*lines, *writer.write(ahead, "dataset", "dataset"), "return dataset.with_options(AS_WRITTEN)"]
