"""JSON schema of config files, from the types of the stages: for the language servers of editors.

It accepts parts of a config, as files have them: nothing is required, and each value may be a reference (`${…}`) or
missing (`???`). Rules between values, and files on this machine, are checked by `parse` and by a run.
"""

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter

from etlrun.planning.hints import Options, attributes_of, listed_stage, nested_stage, summary_of
from etlrun.planning.spec import GROUPS
from etlrun.stages import UNUSABLE, Stages
from etlrun.stages.base import Kind, Stage, described, field_metadata, hints_of, names_of
from etlrun.stages.cache import POINTS
from etlrun.stages.columns import COLUMN_STEPS
from etlrun.stages.dataset import SOURCES, TfdsDataset
from etlrun.stages.load import Load
from etlrun.stages.measure import Measure
from etlrun.stages.step import Map
from etlrun.stages.sweep import Sweep, Tune
from etlrun.system.errors import refuse

Node = dict[str, Any]

DRAFT = "http://json-schema.org/draft-07/schema#"
"""The latest version that all editors support."""
CONFIG, REFERENCE, DEFAULTS = "config", "reference", "defaults"
"""Definitions of a whole config, of references, and of defaults lists; the others have the names of their groups."""
_REFERENCE: Node = {"type": "string", "pattern": r"\$\{|^\?\?\?$"}
_KEY = r"^((optional|override) +)*/?[\w./-]+(@[\w.:]+)?$"
_OPTION: Node = {"anyOf": [{"type": ["string", "null"]}, {"type": "array", "items": {"type": "string"}}]}
_CHOICE: Node = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": 1,
    "propertyNames": {"pattern": _KEY},
    "additionalProperties": _OPTION,
}
_DEFAULTS: Node = {
    "type": "array",
    "description": "Hydra's defaults list: the files that this one is merged with, in order; `_self_` is this one.",
    "items": {"anyOf": [{"type": "string"}, _CHOICE]},
}
_HYDRA: Node = {"type": "object", "description": "Hydra's own config."}
COLUMNS = (
    "Outputs of rows by name: {price_log: {of: price, steps: [log1p, standardize]}}; auto chooses them; null for none."
)
STEPS = "Names of the steps in the order in which they are applied to {} examples."


def schema(stages: Stages) -> Node:
    """Return the schema of a config file: a whole config, an experiment, or an option of a group.

    Each of them is a definition, too: `config`, and the name of each group. Raises `ConfigError` if an installed
    package has a stage that can't be used.
    """
    refuse(UNUSABLE)
    groups: dict[str, Node] = {
        "dataset": _chosen({**SOURCES, "": TfdsDataset}, _fields([*SOURCES.values(), TfdsDataset])["name"]),
        "transform": _transform(stages["transform"]),
        "load": _object(Load),
        "measure": _object(Measure),
        "sweep": _object(Sweep),
        "tune": _object(Tune),
    }
    for group in stages.keys() - groups.keys():
        options = stages[group]
        described = "\n".join(f"- {name}: {summary_of(stage)}" for name, stage in options.items())
        groups[group] = _chosen(options, {"description": described, **_open({"enum": names_of(options)})})
    groups["cache"]["properties"]["at"] |= _open({"enum": [*dict.fromkeys([*POINTS, *stages["transform"]])]})
    definitions = {name: groups[name] for name in (*GROUPS, "sweep", "tune")}
    properties: dict[str, Node] = {DEFAULTS: _ref(DEFAULTS)}
    for name, block in definitions.items():
        block["properties"] = {DEFAULTS: _ref(DEFAULTS), **block["properties"]}
        inside = {"allOf": [_ref(name), {"properties": {DEFAULTS: False}}]}
        properties[name] = {"description": block["description"], "anyOf": [inside, _ref(REFERENCE)]}
    properties["hydra"] = _HYDRA
    return {
        "$schema": DRAFT,
        "title": "Config file of etlrun",
        "anyOf": [_ref(name) for name in (CONFIG, *definitions)],
        "definitions": {
            CONFIG: _block(properties),
            **definitions,
            **{f"transform.{name}": _object(step) for name, step in stages["transform"].items()},
            REFERENCE: _REFERENCE,
            DEFAULTS: _DEFAULTS,
        },
    }


def _transform(steps: Options) -> Node:
    block = _object(Map)
    listed = _open({"type": "array", "uniqueItems": True, "items": _open({"enum": [*steps]})})
    null: Node = {"type": "null"}
    outputs = {"type": "object", "minProperties": 1, "additionalProperties": _output()}
    block["properties"] |= {
        "steps": {"description": STEPS.format("training"), **listed},
        "eval_steps": {"description": STEPS.format("validation"), **listed},
        "columns": {"description": COLUMNS, "anyOf": [{"enum": ["auto"]}, outputs, null, _ref(REFERENCE)]},
    }
    for name, step in steps.items():
        choices = [_ref(f"transform.{name}"), null, _ref(REFERENCE)]
        block["properties"][name] = {"description": summary_of(step), "anyOf": choices}
    return block


def _output() -> Node:
    """Return the schema of an output of `transform.columns`: steps stand alone, or with parameters, or the main one."""
    name: Node = {"type": "string"}
    of = {"description": "Column, or columns, of which it is made.", **_open({"anyOf": [name, _list_of(name)]})}
    alone, values = list[str](), dict[str, Node]()
    for step_name, step in COLUMN_STEPS.items():
        block = _object(step)
        main = [block["properties"][step.main]] if step.main else []
        values[step_name] = {"description": block["description"], "anyOf": [block, *main]}
        if all(field.default is not dataclasses.MISSING for field in dataclasses.fields(step)):  # type: ignore[arg-type] # as in field_metadata
            alone.append(step_name)
    one = _block(values, minProperties=1, maxProperties=1)
    steps = {"description": "Steps in order.", **_open(_list_of({"anyOf": [{"enum": alone}, one]}))}
    return {"anyOf": [_block({"of": of, "steps": steps}), {"enum": ["drop"]}, _ref(REFERENCE)]}


def _list_of(items: Node) -> Node:
    return {"type": "array", "items": items}


def _chosen(options: Options, name: Node) -> Node:
    """Return the block of a group whose `name` selects one of `options`; with all fields if it has no name."""
    every = _fields(options.values())
    known, cases = {"not": {"anyOf": [{"enum": [*options]}, _ref(REFERENCE)]}}, list[Node]()
    for option, stage in options.items():
        own, named = _fields([stage]), {"enum": [*(stage.names or (option,))]} if option else known
        only = {name: own.get(name, False) for name in every if name != "name" and own.get(name) != every[name]}
        cases.append({"if": {"properties": {"name": named}, "required": ["name"]}, "then": {"properties": only}})
    return _block({**every, "name": name}, description=summary_of(*options.values()), allOf=cases)


def _object(stage: type[Stage]) -> Node:
    return _block(_fields([stage]), description=summary_of(stage))


def _block(properties: dict[str, Node], **more: Any) -> Node:
    """Return a mapping that has no other properties."""
    return {"type": "object", **more, "properties": properties, "additionalProperties": False}


def _fields(stages: Iterable[type[Stage]]) -> dict[str, Node]:
    """Return the schemas of the fields of `stages`; a field of several of them accepts what it does in one of them."""
    found: dict[str, list[Node]] = {}
    for stage in stages:
        hints, texts = hints_of(stage, include_extras=True), attributes_of(stage)
        for field in dataclasses.fields(stage):  # type: ignore[arg-type] # as in field_metadata
            annotation, nested = hints[field.name], nested_stage(hints[field.name])
            if not field_metadata(stage)[field.name] and nested is None:
                continue  # no value of a config, such as the steps of a map
            if nested is not None:
                choices = [_object(nested), *([{"type": "null"}] if field.default is None else [])]
                value: Node = _open({"anyOf": choices} if choices[1:] else choices[0])
            elif (listed := listed_stage(annotation)) is not None:
                items = {"type": "array", "minItems": 1, "items": _open(_object(listed))}
                value = {"anyOf": [items, {"type": "null"}, _ref(REFERENCE)]}
            else:
                value = _open(TypeAdapter(annotation).json_schema())
            kinds = ", ".join(item for item in field_metadata(stage)[field.name] if isinstance(item, Kind))
            facts = f"Expected: {described(annotation)}.{f' Changes: {kinds}.' if kinds else ''}"
            node = {**value, "description": "\n".join(filter(None, [texts.get(field.name, ""), facts]))}
            if field.default is not dataclasses.MISSING:
                is_block = dataclasses.is_dataclass(field.default) and not isinstance(field.default, type)
                node["default"] = dataclasses.asdict(field.default) if is_block else field.default
            known = found.setdefault(field.name, [])
            known += [node] if node not in known else []
    return {name: nodes[0] if len(nodes) == 1 else {"anyOf": nodes} for name, nodes in found.items()}


def _open(node: Node) -> Node:
    """Return pydantic's schema of a value in draft 7, which also accepts references, at every depth."""
    choices = [_draft_7(choice) for choice in node.get("anyOf", [node])]
    return {"anyOf": [*choices, _ref(REFERENCE)]}


def _draft_7(node: Node) -> Node:
    node = {key: value for key, value in node.items() if key != "title"}
    if "pattern" in node:
        node["pattern"] = re.sub(r"\(\?P<\w+>", "(?:", node["pattern"])  # other languages name groups differently
    if "prefixItems" in node:
        node["items"] = [_open(item) for item in node.pop("prefixItems")]
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            node[key] = _open(node[key])
    if "patternProperties" in node:
        node["patternProperties"] = {key: _open(value) for key, value in node["patternProperties"].items()}
        node["additionalProperties"] = False
    return node


def _ref(name: str) -> Node:
    return {"$ref": f"#/definitions/{name}"}
