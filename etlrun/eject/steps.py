"""Text of a step in a program: the source of its function, and the line that calls it."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Mapping

from etlrun.eject.columns import sources_of_columns
from etlrun.eject.own import defines, of_data, sources
from etlrun.eject.text import call, literal, mapping
from etlrun.stages import STAGES
from etlrun.stages.columns import Columns
from etlrun.stages.dataset import Dataset
from etlrun.stages.flow import Flow
from etlrun.stages.load import FullShuffle
from etlrun.stages.made import quoted
from etlrun.stages.mix import Mix
from etlrun.stages.plugins import source
from etlrun.stages.sequences import PadSequences
from etlrun.stages.step import Step
from etlrun.stages.turbo import Turbo

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
    text = source(step.op).replace("  # type: ignore[override]", "")
    return text.removeprefix("@staticmethod\n").replace("def op(", f"def {_name(step)}(", 1)


def sources_of(step: Step | Mix, dataset: Dataset) -> Lines:
    """Return the sources of a step: of the functions that its own calls, and its own; to parse, that of the dataset."""
    if isinstance(step, Step) and step.parses:
        return sources(dataset, of_data(dataset, "parse")) if defines(dataset, "parse") else ()
    if isinstance(step, Columns):
        return sources_of_columns(step)
    return (*(source(called) for called in step.calls), source_of(step))


def _name(step: Step | Mix | type[Turbo] | FullShuffle | PadSequences) -> str:
    return step.path.rpartition(".")[2]


def _parsed(dataset: Dataset, parse: str) -> Lines:
    if defines(dataset, "parse"):
        return "features = parse(record)", *unpacked(dataset)
    features = {key: dataset.examples.features[name] for name, key in dataset.keys.items()}
    specs = [f"{quoted(key)}: tf.io.FixedLenFeature({of.shape}, tf.{of.stored})," for key, of in features.items()]
    casts = {key: of.dtype for key, of in features.items() if of.dtype != of.stored}
    return (
        f"features = tf.io.{parse}(",
        "    record,",
        "    {",
        *(f"        {spec}" for spec in specs),
        "    },",
        ")",
        *unpacked(dataset, casts),
    )


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
