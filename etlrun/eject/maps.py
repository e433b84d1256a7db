"""Text of the maps in a program: the steps of a map in one function, columns, and the decoding of whole batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from textwrap import indent
from typing import Any

from etlrun.eject.own import Place, calls_of, defines, of_data, sources
from etlrun.eject.printed import skipping
from etlrun.eject.text import call, function, literal, mapping
from etlrun.planning.plan import Plan, PlannedStage
from etlrun.stages.columns import Columns, checked_weight, narrowed
from etlrun.stages.dataset import Dataset
from etlrun.stages.flow import Flow
from etlrun.stages.load import FullShuffle
from etlrun.stages.made import quoted
from etlrun.stages.mix import Mix, mixed
from etlrun.stages.plugins import source
from etlrun.stages.rows import Rows
from etlrun.stages.sequences import PadSequences, padded
from etlrun.stages.step import Map, ParseBatch, Step
from etlrun.stages.turbo import Turbo, decoded_natively, usable

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
            values = {name: literal(value) for name, value in step.values.items()}
            values |= {"seed": "seed"} if step.random else {}
            yield call(f"{feature} = {_name(step)}", feature, *(f"{name}={text}" for name, text in values.items()))


def _lines_of_columns(step: Columns, place: Place) -> Iterator[str]:
    """Yield the lines that make the outputs, from the features before them or from outputs above them."""
    features, above = place.data.examples.features, dict(place.data.examples.features)
    yield f"features, example = example, {'{**example}' if step.beside else '{}'}"
    for output in step.outputs:
        variable = f"example[{quoted(output.name)}]"
        taken = [f"{'features' if name in features else 'example'}[{quoted(name)}]" for name in output.of]
        value, incoming = taken[0] if len(taken) == 1 else f"({', '.join(taken)})", above[output.of[0]]
        for each in output.steps:
            arguments = (f"{name}={literal(of)}" for name, of in each.arguments.items())
            name = _name_of_op(each.op)
            of_items = incoming.is_sequence and not each.of_sequences
            called = ("tf.ragged.map_flat_values", name) if of_items else (name,)
            yield call(f"{variable} = {called[0]}", *called[1:], value, *arguments)
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
    values = [f"{name}={literal(value)}" for name, value in stage.values.items()]
    place.functions.extend((*_sources_of(stage, place.data), *sources(place.data, mixed)))
    name = _name_at(place, "mix_batch")
    lines = (
        call("mixing = functools.partial", "mix", *values, "seed=seed"),
        f"return mixed(batch, mixing, {quoted(stage.feature)}, {quoted(place.incoming.target)})",
    )
    signature = f"{name}(batch: {_EXAMPLE}, seed: tf.Tensor) -> {_EXAMPLE}"
    place.functions.append(function(signature, "Mix the images of a batch.", *lines))
    return _map(place.dataset, f"lambda batch: {name}(batch, seed)", stage)


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
    values = (f"{name}={literal(value)}" for name, value in stage.values.items())
    lines = [call("decode = functools.partial", "turbo", *values)]
    given_to = ["example", "decode", f"size={stage.size}"]
    if stage.skips:
        lines.append(f"decode = functools.partial(usable, decode=decode, size={stage.size})")
        dataset = place.calls(skipping.readable, dataset, place.split)
        place.functions.extend(sources(place.data, usable))
        given_to.append("skips=True")
    given_to += ["is_single=True"] if stage.at_once == 1 else []
    name = _name_at(place, "decode_batch" if stage.path == Turbo.path else "decode_cached")
    says = f"Decode a batch: {place.incoming} to {place.planned.gives}."
    place.functions.extend((source_of(Turbo), *sources(place.data, decoded_natively)))
    lines.append(f"return {call('decoded_natively', *given_to)}")
    place.functions.append(function(f"{name}(example: {_EXAMPLE}) -> {_EXAMPLE}", says, *lines))
    if stage.at_once <= 1:
        return _map(dataset, name, stage)
    return _map_batches(dataset, stage.at_once, name, stage)
