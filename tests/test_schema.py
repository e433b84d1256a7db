"""The JSON schema of config files: it accepts each file of conf/, and refuses wrong keys and values."""

import json
import typing
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pytest
import yaml
from jsonschema import Draft7Validator
from omegaconf import OmegaConf
from pydantic import TypeAdapter, ValidationError

from etlrun.cli import main as cli
from etlrun.planning import schema as schemas
from etlrun.planning.schema import schema
from etlrun.planning.spec import GROUPS
from etlrun.stages import STAGES
from etlrun.stages.base import DATA, Expected, Number, Stage, field_metadata
from etlrun.stages.dataset import SOURCES, TfdsDataset
from etlrun.stages.load import Load
from etlrun.stages.measure import Measure
from etlrun.stages.step import Map, Step
from etlrun.stages.sweep import Sweep
from etlrun.stages.trainer import EarlyStopping
from etlrun.system.errors import ConfigError, Fault
from tests.configs import CONF, EXPERIMENTS, composed, experiment, yaml_files

SCHEMA = schema(STAGES)
ANY_FILE = Draft7Validator(SCHEMA)


def validator(definition: str) -> Draft7Validator:
    return Draft7Validator({"$ref": f"#/definitions/{definition}", "definitions": SCHEMA["definitions"]})


OF_CONFIGS = validator("config")


def definition_of(path: str) -> str:
    """The definition of a file of conf/: its group, or that of a whole config."""
    group = path.partition("/")[0]
    return group if group in SCHEMA["definitions"] else "config"


def faults_of(text: str, definition: str = "config") -> list[str]:
    """The places of what the schema refuses in a file, the innermost ones."""
    places = set()
    for error in validator(definition).iter_errors(yaml.safe_load(text)):
        found = [error]
        while found:
            one = found.pop()
            found += one.context or []
            if not one.context:
                extra = one.message.split("'")[1:2] if one.validator == "additionalProperties" else []
                places.add(".".join(map(str, [*one.absolute_path, *extra])))
    return sorted(places)


def test_the_schema_is_one_of_draft_7() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert "(?P" not in json.dumps(SCHEMA), "a pattern that JavaScript can't read"


@pytest.mark.parametrize("path", yaml_files())
def test_each_file_of_conf_is_accepted_by_its_definition_and_by_the_whole_schema(path: str) -> None:
    content = OmegaConf.to_container(OmegaConf.load(CONF / path), resolve=False)
    assert list(validator(definition_of(path)).iter_errors(content)) == []
    assert ANY_FILE.is_valid(content)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_composed_config_is_accepted(name: str) -> None:
    assert list(OF_CONFIGS.iter_errors(composed(*experiment(name)))) == []


@pytest.mark.parametrize(
    ("definition", "text", "places"),
    [
        ("config", "lode: {batch_size: 3}", ["lode"]),
        ("config", "load: {batch_sise: 3}", ["load", "load.batch_sise"]),
        ("config", "defaults: [{overide /model: emulated}]", ["defaults.0"]),
        ("config", "defaults: [{override /model: 3}]", ["defaults.0", "defaults.0.override /model"]),
        ("load", "batch_size: 0", ["batch_size"]),
        ("load", "batch_size: two", ["batch_size"]),
        ("load", "batch_size: true", ["batch_size"]),
        ("load", "batch_size: null", ["batch_size"]),
        ("load", "prefetch: 1000001", ["prefetch"]),
        ("load", "prefetch: cores", ["prefetch"]),
        ("load", "shuffle: most", ["shuffle"]),
        ("extract", "name: interleav", ["name"]),
        ("extract", "{cycle_length: 0}", ["cycle_length"]),
        ("cache", "at: transfromed", ["at"]),
        ("dataset", "version: newest", ["version"]),
        ("dataset", "features: {size: float31}", ["features", "features.size"]),
        ("dataset", "features: {size: float32 0x3}", ["features", "features.size"]),
        ("dataset", "files: {'a b': x}", ["files", "files.a b"]),
        ("transform", "steps: [decode, resise]", ["steps", "steps.1"]),
        ("transform", "steps: [decode, decode]", ["steps"]),
        ("transform", "resise: {}", ["resise"]),
        ("transform", "resize: {size: [3, 0]}", ["resize", "resize.size", "resize.size.1"]),
        ("transform", "resize: {size: [3]}", ["resize", "resize.size"]),
        ("trainer", "early_stopping: {monitor: los}", ["early_stopping", "early_stopping.monitor"]),
        ("trainer", "{name: fit, epochs: 0}", ["epochs"]),
        ("trainer", "optimizer: adan", ["optimizer"]),
        ("profile", "windows: [[1, 2, 3]]", ["windows", "windows.0"]),
        ("measure", "au_min: 1.5", ["au_min"]),
        ("sweep", "objectives: [speed]", ["objectives", "objectives.0"]),
    ],
)
def test_a_typical_fault_is_refused_where_it_is(definition: str, text: str, places: list[str]) -> None:
    found = faults_of(text, definition)
    assert found == places
    if definition != "config":
        inner = faults_of(f"{definition}: {{{text}}}" if not text.startswith("{") else f"{definition}: {text}")
        assert inner == [definition, *(f"{definition}.{place}" for place in places)]


@pytest.mark.parametrize(
    ("group", "name", "own", "other"),
    [
        ("extract", "sequential", "shuffle_files: true", "cycle_length: 4"),
        ("dataset", "folder", "dir: x", "download: true"),
        ("dataset", "mnist", "download: true", "dir: x"),
        ("trainer", "drain", "epochs: null", "optimizer: sgd"),
    ],
)
def test_a_field_of_another_option_is_refused_beside_a_name(group: str, name: str, own: str, other: str) -> None:
    assert faults_of(f"{{name: {name}, {own}}}", group) == []
    assert faults_of(f"{{{own}, {other}}}", group) == []
    assert faults_of(f"{{name: {name}, {own}, {other}}}", group) != []
    assert faults_of(f"{group}: {{name: {name}, {own}, {other}}}") != []


def test_a_defaults_list_within_a_config_is_refused() -> None:
    assert faults_of("load: {defaults: [plain]}") == ["load"]
    assert faults_of("defaults: [plain]", "load") == []


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ("config", "load: ${mine}"),
        ("config", "transform: {resize: '${mine}', pad: null}"),
        ("config", "trainer: {early_stopping: '???'}"),
        ("config", "hydra: {sweeper: {params: {load.prefetch: '0,1', cache: 'none,memory'}}}"),
        ("config", "defaults: [base, _self_, {optional /model@x.y: null}, {override hydra/launcher: joblib}]"),
        ("config", "defaults: [{/experiment: [one, two]}, {cache: '${oc.env:CACHE}'}]"),
        ("load", "{batch_size: '${trainer.epochs}', shuffle: '???', defaults: [plain]}"),
        ("transform", "{steps: [decode, '${mine}'], eval_steps: '${.steps}', resize: {size: ['${a}', 224]}}"),
        ("dataset", "{name: '${mine}', dir: x, version: null, features: {size: '${mine}'}}"),
        ("dataset", "{name: '???', files: {train: a.tfrecord}}"),
        ("extract", "{name: '${mine}', cycle_length: all}"),
        ("trainer", "epochs: null"),
        ("cache", "at: random_crop"),
    ],
)
def test_references_missing_values_and_sweeps_are_accepted(definition: str, text: str) -> None:
    assert faults_of(text, definition) == []


STAGES_OF: dict[str, tuple[Any, Any]] = {
    **{f"dataset={name}": ("dataset", stage) for name, stage in {**SOURCES, "x": TfdsDataset}.items()},
    **{
        f"{group}={name}": (group, stage)
        for group, options in STAGES.items()
        for name, stage in options.items()
        if group != "transform"
    },
    **{f"transform.{name}": (f"transform.{name}", stage) for name, stage in STAGES["transform"].items()},
    "transform": ("transform", Map),
    "load": ("load", Load),
    "measure": ("measure", Measure),
    "sweep": ("sweep", Sweep),
}
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 31, 20_000, 2**40, 2**63, -0.5, 0.5, 1.5, 1e9 + 0.5, "", "x", "auto", "autotune", "all",
    "cores", "none", "4.*.*", "uint8", "bilinear", [], [1], [1, 2], [0.5, 2.0], [0.1, 0.2, 0.3], ["a", "b"],
    [["a", "b"]], [[1, 2]], [[0, 0]], ["throughput"], {}, {"a": "float32"}, {"a": "x"}, {"a": "class", "b": "text 3"},
    {"a b": "x"},
)  # fmt: skip
"""Values of each type, within and beyond the limits; `1.0` is an integer for a schema, and none for `parse`."""


@pytest.mark.parametrize("option", STAGES_OF)
def test_the_schema_accepts_what_the_types_accept(option: str) -> None:
    definition, stage = STAGES_OF[option]
    check, chosen = (
        validator(definition),
        {"name": [*stage.names, option.partition("=")[2]][0]} if "=" in option else {},
    )
    hints = typing.get_type_hints(stage, include_extras=True)
    own = [name for name, of in field_metadata(stage).items() if any(isinstance(item, Expected) for item in of)]
    for name in own:
        if name in ("name", "early_stopping", "schedule") or (definition, name) == ("cache", "at"):
            continue
        types = TypeAdapter(hints[name], config=Stage.__pydantic_config__)
        for value in VALUES:
            assert check.is_valid({**chosen, name: value}) == is_valid(types, value), (name, value)


def is_valid(types: TypeAdapter[Any], value: object) -> bool:
    try:
        types.validate_json(json.dumps(value))
    except ValidationError:
        return False
    return True


def test_each_field_says_what_it_means_expects_and_changes() -> None:
    batch_size = SCHEMA["definitions"]["load"]["properties"]["batch_size"]
    assert batch_size["description"] == "Examples per batch.\nExpected: a positive integer. Changes: training, order."
    download = SCHEMA["definitions"]["dataset"]["properties"]["split"]
    assert download["description"].startswith("Training examples, in TFDS's slicing language.\nExpected: ")
    assert SCHEMA["definitions"]["load"]["properties"]["shuffle_at"]["default"] == "auto"
    extract = SCHEMA["definitions"]["extract"]["properties"]["name"]["description"]
    assert "- sequential: Reads one shard after the other.\n" in extract
    stopping = SCHEMA["definitions"]["trainer"]["properties"]["early_stopping"]["anyOf"][0]["properties"]
    assert stopping.keys() == set(field_metadata(EarlyStopping))
    for group in (*GROUPS, "sweep"):
        for name, node in SCHEMA["definitions"][group]["properties"].items():
            nodes = node.get("anyOf", []) if "description" not in node else [node]
            assert name == "defaults" or all(one["description"] for one in nodes), (group, name)


@dataclass(frozen=True, kw_only=True)
class Grey(Step):
    """Moves each pixel towards its brightness.

    Attributes:
        strength: How far,
            from 0
            to 1.
    """

    path: ClassVar[str] = "transform.grey"

    strength: Annotated[Number, DATA]


def test_steps_of_other_packages_are_part_of_it() -> None:
    steps: dict[str, type[Stage]] = {**STAGES["transform"], "grey": Grey}
    found = schema({**STAGES, "transform": steps})
    assert Draft7Validator(found).is_valid({"steps": ["grey"], "grey": {"strength": 0.5}})
    assert not Draft7Validator(found).is_valid({"steps": ["grey"], "grey": {"strength": "much"}})
    assert Draft7Validator(found).is_valid({"cache": {"at": "grey"}})
    assert not ANY_FILE.is_valid({"steps": ["grey"]})
    grey = found["definitions"]["transform.grey"]
    assert grey["description"] == "Moves each pixel towards its brightness."
    assert grey["properties"]["strength"]["description"] == (
        "How far, from 0 to 1.\nExpected: a finite number. Changes: data."
    )


def test_it_is_refused_where_an_installed_package_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Fault(where="the package grey", found="x", expected="y")
    monkeypatch.setattr(schemas, "UNUSABLE", (fault,))
    with pytest.raises(ConfigError, match=r"^the package grey: found x; expected y$"):
        schema(STAGES)


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["schema"])
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(SCHEMA))
