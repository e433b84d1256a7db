"""Text of the maps in a program: the steps of a map in one function, and the decoding of whole batches."""

from __future__ import annotations

from collections.abc import Mapping

from etlrun.eject.own import sources
from etlrun.eject.place import Expression, Place, calls_of
from etlrun.eject.printed import skipping
from etlrun.eject.steps import Lines, given, lines_of, source_of, sources_of, taken, unpacked, variables
from etlrun.eject.text import call, function, literal, mapping
from etlrun.stages.flow import NUMBERS_APART, Flow
from etlrun.stages.image import Decode
from etlrun.stages.made import quoted
from etlrun.stages.mix import Mix
from etlrun.stages.step import Map, Parse, ParseBatch
from etlrun.stages.turbo import Turbo, usable


def map_steps(stage: Map, place: Place) -> Expression:
    """Return the text of all steps in one function, which also raises on a target that is not a class."""
    name, dataset = (
        _name(place, "transform" if stage.is_first else stage.path.replace(".", "_")),
        place.plan.spec.dataset,
    )
    flow, takes = dataset.examples, _as_read(place.incoming) if stage.is_first else _handed(place.incoming)
    lines = [*(unpacked(dataset) if "features" in takes else ()), *(taken(flow) if "inputs" in takes else ())]
    for step in stage.steps:
        lines += lines_of(step, dataset, is_batched=place.incoming.batch_size is not None)
    ops = dict.fromkeys(source for step in stage.steps if not step.parses for source in sources_of(step))
    target = variables(flow)[flow.target]
    if flow.features[flow.target].is_class and stage.is_first:
        checked = f"tf.gather(tf.range(num_classes(), dtype=tf.int64), {target})"
        lines.append(f"{target} = {checked}  # an error unless it is a class")
    arguments = takes | ({"seed": "tf.Tensor"} if place.planned.is_random else {})
    mapped = _mapped(place, name, takes, arguments)
    says = f"Map {place.incoming} to {place.planned.gives}."
    calls = calls_of(stage.num_parallel_calls, deterministic=stage.deterministic)
    return Expression(
        text=call(f"{place.dataset}.map", mapped, *calls),
        functions=(
            *ops,
            function(_signature(name, arguments, flow), says, *lines, *given(flow)),
        ),
    )


def _mapped(place: Place, name: str, takes: Mapping[str, str], arguments: Mapping[str, str]) -> str:
    """Return the function that a dataset maps: `name`, or a call of it with a seed and without an index."""
    if arguments == takes and not place.carries:
        return name
    seed = f"seed + index * {NUMBERS_APART:_}" if place.carries else "seed"
    called = f"{name}({', '.join([*takes, *([seed] if 'seed' in arguments else [])])})"
    taken = ", ".join([*takes, *(["index"] if place.carries else [])])
    return f"lambda {taken}: {f'(*{called}, index)' if place.gives_index else called}"


def parse_batch(stage: ParseBatch, place: Place) -> Expression:
    """Return the text of parsing several examples in one call."""
    dataset = place.plan.spec.dataset
    names = variables(dataset.examples)
    lines = lines_of(Parse(), dataset, is_batched=True)
    found = mapping("return ", {quoted(key): names[name] for name, key in dataset.keys.items()})
    parsed = function("parsed(record: tf.Tensor) -> dict[str, tf.Tensor]", "Parse a batch of records.", *lines, found)
    calls = calls_of(stage.num_parallel_calls, deterministic=stage.deterministic)
    mapped = "lambda record, index: (parsed(record), index)" if place.carries else "parsed"
    text = call(f"{place.dataset}.batch({stage.examples}).map", mapped, *calls)
    return Expression(text=f"{text}.unbatch()", functions=(parsed,))


def mix(stage: Mix, place: Place) -> Expression:
    """Return the text of mixing the images of each batch."""
    flow, names, takes = place.incoming, variables(place.incoming), _handed(place.incoming)
    values = [f"{name}={literal(value)}" for name, value in stage.values.items()]
    image, target = names[stage.feature], names[flow.target]
    mixed = call(f"{image}, {target} = mix", image, target, *values, "seed=seed")
    lines = (*taken(flow), mixed, f"{image} = tf.ensure_shape({image}, {(None, *flow.features[stage.feature].shape)})")
    apply = function(_signature("mixed", takes | {"seed": "tf.Tensor"}, flow), "Mix a batch.", *lines, *given(flow))
    calls = calls_of(stage.num_parallel_calls, deterministic=stage.deterministic)
    text = call(f"{place.dataset}.map", f"lambda {', '.join(takes)}: mixed({', '.join(takes)}, seed)", *calls)
    return Expression(text=text, functions=(*sources_of(stage), apply))


def _as_read(flow: Flow) -> dict[str, str]:
    """Return the argument of a function of examples as they are read, with its type."""
    return {"record": "tf.Tensor"} if flow.is_serialised else {"features": "dict[str, tf.Tensor]"}


def _handed(flow: Flow) -> dict[str, str]:
    """Return the arguments of a function of inputs and a target, with their types."""
    names = variables(flow)
    inputs = {"inputs": "dict[str, tf.Tensor]"} if len(flow.inputs) > 1 else {names[flow.inputs[0]]: "tf.Tensor"}
    return inputs | {names[flow.target]: "tf.Tensor"}


def _name(place: Place, name: str) -> str:
    """Return the name of a stage's function: the same for both pipelines if their stages are the same."""
    same = not place.plan.evaluation or all(place.planned in stages for stages in place.plan.pipelines.values())
    return name if same else f"{name}_for_{place.pipeline}"


def turbo(stage: Turbo, place: Place) -> Expression:
    """Return the text of decoding batches of images: those of the model, or batches of its own."""
    flow, names = place.incoming, variables(place.incoming)
    image, takes = names[Decode.feature], _handed(flow) | ({"index": "tf.Tensor"} if place.carries else {})
    values = ", ".join(f"{name}={literal(value)}" for name, value in stage.values.items())
    shape = f"(None, {', '.join(map(str, stage.size or (None, None)))}, 3)"
    decode = f"functools.partial(turbo, {values})"
    lines = (
        *taken(flow),
        *(
            _skipping(decode, stage, flow, carries=place.carries)
            if stage.skips
            else (f"{image} = tf.numpy_function({decode}, [{image}], tf.uint8)",)
        ),
        f"{image} = tf.ensure_shape({image}, {shape})",
        *_with_index(given(flow), carries=place.carries),
    )
    own = sources(place.plan.spec.dataset, skipping.readable, usable) if stage.skips else ()
    of_batch = "decode_batch" if stage.path == Turbo.path else "decode_cached"
    name = _name(place, f"{of_batch}_with_index" if place.carries else of_batch)
    says = f"Decode a batch: {flow} to {place.planned.gives}."
    calls = calls_of(stage.num_parallel_calls, deterministic=stage.deterministic)
    read = f"readable({place.dataset}, {place.split})" if stage.skips else place.dataset
    dataset = f"{read}.batch({stage.at_once})" if stage.at_once else read
    text = call(f"{dataset}.map", name, *calls)
    return Expression(
        text=f"{text}.unbatch()" if stage.at_once else text,
        functions=(
            *own,
            source_of(Turbo),
            function(_signature(name, takes, flow, carries=place.carries), says, *lines),
        ),
    )


def _with_index(lines: Lines, *, carries: bool) -> Lines:
    """Return the lines that return inputs and a target, with the index of each example if they carry it."""
    return (*lines[:-1], f"{lines[-1]}, index") if carries else lines


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
    """Return the signature of a function that returns inputs and a target, and the index of the example if wanted."""
    typed = ", ".join(f"{argument}: {kind}" for argument, kind in takes.items())
    inputs = "dict[str, tf.Tensor]" if len(flow.inputs) > 1 else "tf.Tensor"
    return f"{name}({typed}) -> tuple[{inputs}, tf.Tensor{', tf.Tensor' if carries else ''}]"
