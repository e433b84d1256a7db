"""Text of the maps in a program: the steps of a map in one function, and the decoding of whole batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import indent
from typing import Any

from etlrun.eject.columns import lines_of_columns, packed
from etlrun.eject.own import defines, sources
from etlrun.eject.place import Place, calls_of
from etlrun.eject.printed import skipping
from etlrun.eject.steps import Lines, given, handed, lines_of, source_of, sources_of, taken, unpacked, variables
from etlrun.eject.text import call, function, literal, mapping
from etlrun.planning.plan import Plan, PlannedStage
from etlrun.stages.columns import Columns, checked_weight
from etlrun.stages.flow import NUMBERS_APART, Flow
from etlrun.stages.image import Decode
from etlrun.stages.made import quoted
from etlrun.stages.mix import Mix
from etlrun.stages.plugins import source
from etlrun.stages.rows import Rows
from etlrun.stages.sequences import PadSequences
from etlrun.stages.step import Map, Parse, ParseBatch
from etlrun.stages.turbo import Turbo, usable

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
    name = _name(place, _TRANSFORM if stage.is_first else stage.path.replace(".", "_"))
    flow, takes = place.planned.gives, _as_read(place.incoming) if stage.is_first else handed(place.incoming)
    lines = _lines(stage, place, takes)
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


def _lines(stage: Map, place: Place, takes: Mapping[str, str]) -> list[str]:
    """Return the lines of all steps; columns take the dict of features as it is parsed, all others their variables."""
    lines, is_packed = [*(() if stage.is_first else taken(place.incoming))], "features" in takes
    names = variables(place.data.examples)
    for step in stage.steps:
        if isinstance(step, Columns):
            lines += [] if is_packed else [packed(names)]
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


def _as_read(flow: Flow) -> dict[str, str]:
    """Return the argument of a function of examples as they are read, with its type."""
    return {"record": "tf.Tensor"} if flow.is_serialised else {"features": "dict[str, tf.Tensor]"}


def _name(place: Place, name: str) -> str:
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
    name = _name(place, f"{of_batch}_with_index" if place.carries else of_batch)
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
