"""Text of the maps in a program: the steps of a map in one function, columns, and the decoding of whole batches."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Callable, Iterator, Mapping
from textwrap import indent
from typing import Any

from etlrun.eject.own import Place, calls_of, defines, of_data, sources
from etlrun.eject.printed import skipping
from etlrun.eject.text import call, function, literal, mapping
from etlrun.planning.plan import Plan, PlannedStage
from etlrun.stages import STAGES
from etlrun.stages.columns import Columns, checked_weight, narrowed
from etlrun.stages.dataset import Dataset
from etlrun.stages.flow import NUMBERS_APART, Feature, Flow
from etlrun.stages.image import Decode
from etlrun.stages.load import FullShuffle
from etlrun.stages.made import quoted
from etlrun.stages.mix import Mix
from etlrun.stages.plugins import source
from etlrun.stages.rows import Rows
from etlrun.stages.sequences import PadSequences
from etlrun.stages.step import Map, Parse, ParseBatch, Step
from etlrun.stages.turbo import Turbo, usable


def lines_of_columns(step: Columns, names: Mapping[str, str], features: Mapping[str, Feature]) -> Iterator[str]:
    """Yield the lines that make the outputs, variables of these `names`, from the dict of these `features`."""
    above: dict[str, Feature] = {}
    for output in step.outputs:
        known, variable = {**above, **features}, names[output.name]
        taken = [f"features[{quoted(name)}]" if name in features else names[name] for name in output.of]
        value, given = taken[0] if len(taken) == 1 else f"({', '.join(taken)})", known[output.of[0]]
        for each in output.steps:
            arguments = (f"{name}={literal(of)}" for name, of in each.arguments.items())
            name = _name_of_op(each.op)
            of_items = given.is_sequence and not each.of_sequences
            called = ("tf.ragged.map_flat_values", name) if of_items else (name,)
            yield call(f"{variable} = {called[0]}", *called[1:], value, *arguments)
            value, given = variable, given if each.takes > 1 else each.gives(given)
        yield f"{variable} = narrowed({value})"
        above[output.name] = output.gives(known)


def _name_of_op(op: Callable[..., Any]) -> str:
    """Return the name of a step's function in programs, such as `one_hot_values` for that of `OneHot`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", op.__qualname__.split(".")[0]).lower() + "_values"


Lines = tuple[str, ...]

_TAKEN = re.compile(
    r"record|features|inputs|targets|seed|index|tf|tfds|num_classes|parse|narrowed|\w+_values|feature_\d+"
)
"""Names that are already used in the functions of steps."""


def variables(flow: Flow) -> dict[str, str]:
    """Return the variable of each feature, by name: the name itself if possible."""

    def is_free(name: str) -> bool:
        is_known = keyword.iskeyword(name) or hasattr(builtins, name)
        is_taken = is_known or name in STAGES["transform"] or _TAKEN.fullmatch(name)
        return name.isidentifier() and not is_taken

    return {name: name if is_free(name) else f"feature_{place}" for place, name in enumerate(flow.columns)}


def lines_of(step: Step, dataset: Dataset, *, is_batched: bool) -> Lines:
    """Return the lines that compute the feature of a step; for a step that parses, all features."""
    if step.parses:
        return _parsed(dataset, "parse_example" if is_batched else "parse_single_example")
    feature = variables(dataset.examples)[step.feature]
    values = {name: literal(value) for name, value in step.values.items()}
    seed = {"seed": "seed"} if step.random else {}
    arguments = [f"{name}={text}" for name, text in (values | seed).items()]
    return (call(f"{feature} = {_name(step)}", feature, *arguments),)


def source_of(step: Step | Mix | type[Turbo] | FullShuffle | PadSequences) -> str:
    """Return the source of a step's function, named like the step."""
    return _source_as(_name(step), step.op)


def _source_as(name: str, op: Callable[..., Any]) -> str:
    text = source(op).replace("  # type: ignore[override]", "")
    return text.removeprefix("@staticmethod\n").replace("def op(", f"def {name}(", 1)


def sources_of(step: Step | Mix, dataset: Dataset) -> Lines:
    """Return the sources of a step: of the functions that its own calls, and its own; to parse, that of the dataset."""
    if isinstance(step, Step) and step.parses:
        return sources(dataset, of_data(dataset, "parse")) if defines(dataset, "parse") else ()
    if isinstance(step, Columns):
        return (*(_source_as(_name_of_op(op), op) for op in step.makers), source(narrowed))
    return (*(source(called) for called in step.calls), source_of(step))


def _name(step: Step | Mix | type[Turbo] | FullShuffle | PadSequences) -> str:
    return step.path.rpartition(".")[2]


def _parsed(dataset: Dataset, parse: str) -> Lines:
    if defines(dataset, "parse"):
        return "features = parse(record)", *unpacked(dataset)
    features = {key: dataset.examples.features[name] for name, key in dataset.keys.items()}
    specs = [
        f"        {quoted(key)}: tf.io.FixedLenFeature({of.shape}, tf.{of.stored})," for key, of in features.items()
    ]
    casts = {key: of.dtype for key, of in features.items() if of.dtype != of.stored}
    return (f"features = tf.io.{parse}(", "    record,", "    {", *specs, "    },", ")", *unpacked(dataset, casts))


def unpacked(dataset: Dataset, casts: Mapping[str, str] | None = None) -> Lines:
    """Return the lines that take features from the dict `features` by their keys, with casts for some."""
    names, found = variables(dataset.examples), {key: f"features[{quoted(key)}]" for key in dataset.keys.values()}
    found |= {key: f"tf.cast({found[key]}, tf.{dtype})" for key, dtype in (casts or {}).items()}
    return tuple(f"{names[name]} = {found[key]}" for name, key in dataset.keys.items())


def taken(flow: Flow) -> Lines:
    """Return the lines that take features from the inputs and the targets of a model."""
    names, several = variables(flow), {"inputs": flow.inputs, "targets": flow.targets}
    return tuple(
        f"{names[name]} = {of}[{quoted(name)}]" for of, each in several.items() if len(each) > 1 for name in each
    )


def given(flow: Flow) -> Lines:
    """Return the lines that return the inputs of a model, the targets, and the weight if there is one."""
    names, several = variables(flow), {"inputs": flow.inputs, "targets": flow.targets}
    packed = [
        mapping(f"{of} = ", {quoted(name): names[name] for name in each}) for of, each in several.items() if each[1:]
    ]
    return *packed, f"return {', '.join(handed(flow))}"


def handed(flow: Flow) -> dict[str, str]:
    """Return what a model takes: inputs, targets and perhaps a weight, as variables with their types."""
    names, several = variables(flow), {"inputs": flow.inputs, "targets": flow.targets}
    found: dict[str, str] = {}
    for of, each in several.items():
        found |= {of: "dict[str, tf.Tensor]"} if each[1:] else {names[each[0]]: "tf.Tensor"}
    return found | ({names[flow.weight]: "tf.Tensor"} if flow.weight else {})


_TRANSFORM = "transform"


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
    name = _name_at(place, _TRANSFORM if stage.is_first else stage.path.replace(".", "_"))
    flow, takes = place.planned.gives, handed(place.incoming)
    if stage.is_first:
        takes = {"record": "tf.Tensor"} if place.incoming.is_serialised else {"features": "dict[str, tf.Tensor]"}
    lines = _lines_of_steps(stage, place, takes)
    if stage.is_first:
        lines += _checks(place, flow)
    arguments = takes | ({"seed": "tf.Tensor"} if place.planned.is_random else {})
    says = f"Map {place.incoming} to {place.planned.gives}."
    place.functions.extend(text for step in stage.steps for text in sources_of(step, place.data))
    place.functions.append(function(_signature(name, arguments, flow), says, *lines, *given(flow)))
    mapped = _mapped(place, name, takes, arguments)
    if not stage.at_once:
        return _map(place.dataset, mapped, stage)
    return _map_batches(place.dataset, stage.at_once, mapped, stage)


def _checks(place: Place, flow: Flow) -> Iterator[str]:
    """Yield the lines that raise on a target that is not a class, and on a weight that is none."""
    names, is_of_rows = variables(flow), isinstance(place.data, Rows)
    for name in flow.targets:
        of = place.data.examples.features[name]
        count: int | str = len(of.classes) or ("num_classes()" if of.is_class and len(flow.targets) == 1 else 0)
        if of.is_labels:
            count = 0 if is_of_rows else 2
        if count:
            checked = f"tf.gather(tf.range({count}, dtype=tf.int64), {names[name]})"
            yield f"{names[name]} = {checked}  # an error unless it is {'0 or 1' if of.is_labels else 'a class'}"
    if flow.weight and not is_of_rows:
        place.functions.append(source(checked_weight))
        yield f"{names[flow.weight]} = checked_weight({names[flow.weight]})"


def _lines_of_steps(stage: Map, place: Place, takes: Mapping[str, str]) -> list[str]:
    """Return the lines of all steps; columns take the dict of features as it is parsed, all others their variables."""
    lines, is_packed = [*(() if stage.is_first else taken(place.incoming))], "features" in takes
    names = variables(place.data.examples)
    for step in stage.steps:
        if isinstance(step, Columns):
            named = {quoted(name): variable for name, variable in names.items()}
            lines += [] if is_packed else [mapping("features = ", named)]
            lines += lines_of_columns(step, variables(place.planned.gives), place.data.examples.features)
            is_packed = False
        elif step.parses and defines(place.data, "parse"):
            lines, is_packed = [*lines, "features = parse(record)"], True
        else:
            lines += unpacked(place.data) if is_packed else ()
            lines += lines_of(step, place.data, is_batched=place.incoming.batch_size is not None)
            is_packed = False
    return [*lines, *(unpacked(place.data) if is_packed else ())]


def _mapped(place: Place, name: str, takes: Mapping[str, str], arguments: Mapping[str, str]) -> str:
    """Return the function that a dataset maps: `name`, or a call of it with a seed and without an index."""
    if arguments == takes and not place.carries:
        return name
    seed = f"seed + index * {NUMBERS_APART:_}" if place.carries else "seed"
    called = f"{name}({', '.join([*takes, *([seed] if 'seed' in arguments else [])])})"
    taken = ", ".join([*takes, *(["index"] if place.carries else [])])
    return f"lambda {taken}: {f'(*{called}, index)' if place.gives_index else called}"


def parse_batch(stage: ParseBatch, place: Place) -> str:
    """Return the text of parsing several examples in one call."""
    names, lines = variables(place.data.examples), lines_of(Parse(), place.data, is_batched=True)
    found = mapping("return ", {quoted(key): names[name] for name, key in place.data.keys.items()})
    signature = "parsed(record: tf.Tensor) -> dict[str, tf.Tensor]"
    place.functions.extend(sources_of(Parse(), place.data))
    place.functions.append(function(signature, "Parse a batch of records.", *lines, found))
    mapped = "lambda record, index: (parsed(record), index)" if place.carries else "parsed"
    return _map_batches(place.dataset, stage.examples, mapped, stage)


def mix(stage: Mix, place: Place) -> str:
    """Return the text of mixing the images of each batch."""
    flow, names, takes = place.incoming, variables(place.incoming), handed(place.incoming)
    values = [f"{name}={literal(value)}" for name, value in stage.values.items()]
    image, target = names[stage.feature], names[flow.target]
    mixed = call(f"{image}, {target} = mix", image, target, *values, "seed=seed")
    lines = (*taken(flow), mixed, f"{image} = tf.ensure_shape({image}, {(None, *flow.features[stage.feature].shape)})")
    signature = _signature("mixed", takes | {"seed": "tf.Tensor"}, flow)
    place.functions.extend((*sources_of(stage, place.data), function(signature, "Mix a batch.", *lines, *given(flow))))
    return _map(place.dataset, f"lambda {', '.join(takes)}: mixed({', '.join(takes)}, seed)", stage)


def pad(stage: PadSequences, place: Place) -> str:
    """Return the text of putting zeros behind the sequences of each batch."""
    flow, takes = place.incoming, handed(place.incoming)
    names = {quoted(name): variables(flow)[name] for name in flow.sequences}
    lines = [
        *taken(flow),
        call("sequences = pad", mapping("", names), f"boundaries={literal([*stage.boundaries])}"),
        *(f"{variable} = sequences[{name}]" for name, variable in names.items()),
    ]
    says = "Put zeros behind the sequences of a batch."
    place.functions.extend((source_of(stage), function(_signature("padded", takes, flow), says, *lines, *given(flow))))
    return f"{place.dataset}.map(padded)"


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
    return _name_in(plan, first, pipeline, _TRANSFORM)


def turbo(stage: Turbo, place: Place) -> str:
    """Return the text of decoding batches of images: those of the model, or batches of its own."""
    flow, names, dataset = place.incoming, variables(place.incoming), place.dataset
    image, takes = names[Decode.feature], handed(flow) | ({"index": "tf.Tensor"} if place.carries else {})
    values = ", ".join(f"{name}={literal(value)}" for name, value in stage.values.items())
    is_single = stage.at_once == 1
    shape = f"({1 if is_single else None}, {', '.join(map(str, stage.size))}, 3)"
    decode = f"functools.partial(turbo, {values})"
    given_to = f"tf.expand_dims({image}, 0)" if is_single else image
    decoded: Lines = (call(f"{image} = tf.numpy_function", decode, f"[{given_to}]", "tf.uint8"),)
    if stage.skips:
        decoded = _skipping(decode, stage, flow, carries=place.carries)
        dataset = place.calls(skipping.readable, dataset, place.split)
        place.functions.extend(sources(place.data, usable))
    *lines, returned = given(flow)
    with_index = f"{returned}, index" if place.carries else returned
    single = [f"{image} = tf.squeeze({image}, 0)"] if is_single else []
    lines = [*taken(flow), *decoded, f"{image} = tf.ensure_shape({image}, {shape})", *single, *lines, with_index]
    of_batch = "decode_batch" if stage.path == Turbo.path else "decode_cached"
    name = _name_at(place, f"{of_batch}_with_index" if place.carries else of_batch)
    signature = _signature(name, takes, flow, carries=place.carries)
    says = f"Decode a batch: {flow} to {place.planned.gives}."
    place.functions.extend((source_of(Turbo), function(signature, says, *lines)))
    if stage.at_once <= 1:
        return _map(dataset, name, stage)
    return _map_batches(dataset, stage.at_once, name, stage)


def _skipping(decode: str, stage: Turbo, flow: Flow, *, carries: bool) -> Lines:
    """Return the lines that leave out the images of a batch that can't be decoded, with all that belongs to them."""
    names = variables(flow)
    return (
        f"decode = {decode}",
        call(
            f"{names[Decode.feature]}, is_usable = tf.numpy_function",
            f"functools.partial(usable, decode=decode, size={stage.size})",
            f"[{names[Decode.feature]}]",
            "(tf.uint8, tf.bool)",
        ),
        *(
            f"{name} = tf.boolean_mask({name}, tf.ensure_shape(is_usable, (None,)))"
            for of, name in (*names.items(), *([("", "index")] if carries else []))
            if of != Decode.feature
        ),
    )


def _signature(name: str, takes: Mapping[str, str], flow: Flow, *, carries: bool = False) -> str:
    """Return the signature of a function that returns what a model takes, and the index of the example if wanted."""
    typed = ", ".join(f"{argument}: {kind}" for argument, kind in takes.items())
    gives = [*handed(flow).values(), *(["tf.Tensor"] if carries else [])]
    return f"{name}({typed}) -> tuple[{', '.join(gives)}]"
