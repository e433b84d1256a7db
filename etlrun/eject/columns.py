"""Text of `transform.columns` in a program: calls of the functions of its steps, with what they have learned."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from etlrun.eject.text import call, literal, mapping
from etlrun.stages.columns import Columns, Output, narrowed
from etlrun.stages.flow import Feature
from etlrun.stages.made import quoted
from etlrun.stages.plugins import source


def lines_of_columns(step: Columns, names: Mapping[str, str], features: Mapping[str, Feature]) -> Iterator[str]:
    """Yield the lines that make the outputs, variables of these `names`, from the dict of these `features`."""
    above: dict[str, Feature] = {}
    for output in step.outputs:
        known = {**above, **features}
        taken = [f"features[{quoted(name)}]" if name in features else names[name] for name in output.of]
        yield from _lines(output, taken, names[output.name], known[output.of[0]])
        above[output.name] = output.gives(known)


def packed(names: Mapping[str, str]) -> str:
    """Return the line that puts variables of these `names` into the dict `features`."""
    return mapping("features = ", {quoted(name): variable for name, variable in names.items()})


def sources_of_columns(step: Columns) -> tuple[str, ...]:
    """Return the sources of the functions of the steps."""
    return (*(_named(op) for op in step.makers), source(narrowed))


def _lines(output: Output, taken: Sequence[str], variable: str, given: Feature) -> Iterator[str]:
    value = taken[0] if len(taken) == 1 else f"({', '.join(taken)})"
    for step in output.steps:
        arguments = (f"{name}={literal(of)}" for name, of in step.arguments.items())
        if given.is_sequence and not step.of_sequences:
            yield call(f"{variable} = tf.ragged.map_flat_values", _name(step.op), value, *arguments)
        else:
            yield call(f"{variable} = {_name(step.op)}", value, *arguments)
        value, given = variable, given if step.takes > 1 else step.gives(given)
    yield f"{variable} = narrowed({value})"


def _named(op: Callable[..., Any]) -> str:
    return source(op).removeprefix("@staticmethod\n").replace("def op(", f"def {_name(op)}(", 1)


def _name(op: Callable[..., Any]) -> str:
    """Return the name of a step's function in programs, such as `one_hot_values` for that of `OneHot`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", op.__qualname__.split(".")[0]).lower() + "_values"
