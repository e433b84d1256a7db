"""What each file of conf/ says; the JSON schema, which accepts them and refuses what is wrong; the page of keys."""

import json
import re
import subprocess
import sys
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
import yaml
from jsonschema import Draft7Validator
from omegaconf import OmegaConf
from pydantic import TypeAdapter, ValidationError

from benchmarks.reference import page_of_keys
from etlrun.cli import main as cli
from etlrun.config.reference import Key, keys
from etlrun.planning import schema as schemas
from etlrun.planning.schema import DEFAULTS, schema
from etlrun.planning.spec import GROUPS
from etlrun.stages import STAGES
from etlrun.stages.base import DATA, SPEED, TRAINING, Expected, Natural, Number, Stage, field_metadata, selected
from etlrun.stages.cache import CACHES
from etlrun.stages.dataset import SOURCES, TfdsDataset, dataset_type
from etlrun.stages.load import Load, Service
from etlrun.stages.measure import Measure
from etlrun.stages.step import Map, Step
from etlrun.stages.sweep import Sweep
from etlrun.stages.trainer import EarlyStopping, Schedule
from etlrun.system.errors import ConfigError, Fault
from tests.configs import CONF, EXPERIMENTS, composed, experiment, yaml_files
from tests.golden import Case, Golden, Says, cases

OPTIONS = [tuple(path.removesuffix(".yaml").split("/")) for path in yaml_files() if "/" in path]
NAMED = [(group, option) for group, option in OPTIONS if group in STAGES and group != "transform"]


def text_of(path: str) -> str:
    return (CONF / path).read_text(encoding="utf-8")


def header_of(path: str) -> list[str]:
    """The comment lines with which a file begins."""
    lines = text_of(path).splitlines()
    return lines[: next(number for number, line in enumerate(lines) if not line.startswith("#"))]


def fields(stage: type[Stage]) -> set[str]:
    return set(field_metadata(stage))


def options_of(group: str) -> list[str]:
    return [option for name, option in OPTIONS if name == group]


@pytest.mark.parametrize("path", yaml_files())
def test_a_file_begins_with_a_comment(path: str) -> None:
    assert text_of(path).startswith("# ")


@pytest.mark.parametrize("path", yaml_files())
def test_a_config_names_stages_and_never_python(path: str) -> None:
    assert "_target_" not in text_of(path)


def stage_of(group: str, name: str) -> type[Stage]:
    """The stage that a name selects; an image model of Keras has its own."""
    return STAGES[group][selected(STAGES[group], name) or ""]


@pytest.mark.parametrize(("group", "option"), NAMED)
def test_an_option_names_every_field_of_its_stage(group: str, option: str) -> None:
    block = composed(f"{group}={option}")[group]
    assert block.keys() == {"name"} | fields(stage_of(group, block["name"]))


@pytest.mark.parametrize(
    ("words", "block", "stage"),
    [
        (["trainer=fit"], "trainer.early_stopping", EarlyStopping),
        (["trainer=fit"], "trainer.schedule", Schedule),
        *(([f"measure={option}"], "measure", Measure) for option in options_of("measure")),
        *(([f"load={option}"], "load", Load) for option in options_of("load")),
        (["load=service", "load.service={address: cpu1:5050, trusted_network: true}"], "load.service", Service),
    ],
)
def test_an_option_names_every_field_of_a_block(words: list[str], block: str, stage: type[Stage]) -> None:
    found: Any = composed(*words)
    for name in block.split("."):
        found = found[name]
    assert found.keys() == fields(stage)


@pytest.mark.parametrize("option", options_of("dataset"))
def test_a_dataset_option_names_every_field(option: str) -> None:
    missing = {
        "tfds": ["name"],
        "folder": ["dir"],
        "tfrecord": ["files", "num_classes"],
        "table": ["files", "target"],
        "arrays": ["files", "target"],
        "python": ["of", "target"],
        "text_folder": ["folder"],
    }
    block = composed(f"dataset={option}", *(f"dataset.{key}=1" for key in missing.get(option, [])))["dataset"]
    assert block.keys() == fields(dataset_type(block["name"])) - {"known"}  # which reading finds


@pytest.mark.parametrize("option", options_of("transform"))
def test_a_transform_option_names_every_field_of_its_map_and_of_its_steps(option: str) -> None:
    block = composed(f"transform={option}")["transform"]
    steps = STAGES["transform"]
    named = {step for step in (*block["steps"], *block["eval_steps"]) if fields(steps[step])}
    columns = {"columns"} & block.keys()  # of rows alone
    assert block.keys() == fields(Map) - {"at_once"} | {"eval_steps"} | named | columns  # which planning finds
    assert {step: set(block[step]) for step in named} == {step: fields(steps[step]) for step in named}


@pytest.mark.parametrize("group", sorted(STAGES.keys() - {"transform"}))
def test_every_stage_has_an_option(group: str) -> None:
    named = {stage_of(group, composed(f"{group}={option}")[group]["name"]) for option in options_of(group)}
    assert named == {*STAGES[group].values()}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_tells_its_command_and_its_costs(name: str) -> None:
    header = header_of(f"experiment/{name}.yaml")
    assert header[0] == "# @package _global_"
    assert header[1].startswith("# ")
    assert f"python -m etlrun experiment={name}" in header[1]
    assert [line for line in header if line.startswith("# Costs")]


ROOT = Path(__file__).resolve().parent.parent
KEYS = list(keys(STAGES))
PAGE = ROOT / "docs/reference/stages.md"


def of(path: str, option: str = "") -> Key:
    (found,) = [key for key in KEYS if (key.path, key.option) == (path, option)]
    return found


def test_the_page_is_made_of_the_stages() -> None:
    assert PAGE.read_text() == page_of_keys(STAGES), "python -m benchmarks.reference updates it"


def test_the_keys_are_found_without_importing_what_is_heavy() -> None:
    code = """
import sys
from etlrun.config.reference import keys
from etlrun.stages import STAGES
assert [*keys(STAGES)]
heavy = {"tensorflow", "keras", "numpy", "pyarrow", "jinja2"} & sys.modules.keys()
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_key_has_what_its_stage_says_of_it(says: Says) -> None:
    says(repr(of("load.prefetch")))
    says(repr(of("cache")))
    assert of("cache.codec").kinds == ("data",)
    says(of("trainer.early_stopping.patience", "trainer.fit").meaning)
    assert of("transform.columns.NAME.steps[].lookup.oov", "columns.lookup").default == "1"
    assert of("trainer.phases[].epochs", "trainer.fit").default == "", "it is required"


def _in_schema(path: str, node: Any, definitions: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of all properties of a schema, with the names of `keys`."""
    if isinstance(node, list):
        for item in node:
            yield from _in_schema(path, item, definitions)
    if not isinstance(node, dict):
        return
    reference = str(node.get("$ref", "")).removeprefix("#/definitions/")
    if reference.startswith("transform."):
        yield from _in_schema(path, definitions[reference], definitions)
    for name, value in node.get("properties", {}).items():
        if name != DEFAULTS:
            yield f"{path}.{name}"
            yield from _in_schema(f"{path}.{name}", value, definitions)
    for name in ("anyOf", "allOf", "then"):
        yield from _in_schema(path, node.get(name), definitions)
    yield from _in_schema(f"{path}[]", node.get("items"), definitions)
    if path == "transform.columns":
        yield from _in_schema(f"{path}.NAME", node.get("additionalProperties"), definitions)


def test_each_key_of_the_schema_is_in_it_and_no_other() -> None:
    definitions = schema(STAGES)["definitions"]
    groups = [key.path for key in KEYS if "." not in key.path]
    found = {path for group in groups for path in _in_schema(group, definitions[group], definitions)}
    blocks = {f"transform.{name}" for name in STAGES["transform"]}
    blocks |= {path for path in found if re.fullmatch(r"transform\.columns\.NAME\.steps\[\]\.\w+", path)}
    chosen = {f"{group}.name" for group in groups} - {"dataset.name", "model.name"}
    assert {key.path for key in KEYS} - {*groups} == found - blocks - chosen


def test_the_meaning_of_each_key_is_a_whole_sentence() -> None:
    for key in KEYS:
        assert re.fullmatch(r"[A-Z`\[\d].*\w.*\.", key.meaning), f"{key.path}: {key.meaning!r}"
        assert key.meaning.count("`") % 2 == 0, key.path


def test_each_key_is_there_once() -> None:
    names = [(key.path, key.option) for key in KEYS]
    assert sorted({*names}) == sorted(names)
    shared = {key.path for key in KEYS if not key.option}
    assert not shared & {key.path for key in KEYS if key.option}


@pytest.mark.parametrize("group", ["dataset", "extract", "cache", "model", "trainer", "profile", "logger"])
def test_defaults_are_those_of_a_composed_config(group: str) -> None:
    options = {key.option for key in KEYS if key.option.startswith(f"{group}.")}
    options |= {f"{group}.{option}" for option in STAGES.get(group, {})}
    for option in options:
        values = composed(f"{group}={option.partition('.')[2]}")[group]
        for key in (key for key in KEYS if key.path.startswith(f"{group}.") and key.option in ("", option)):
            _has_default(key, values)


def test_defaults_of_other_groups_are_those_of_the_default_run() -> None:
    config = composed()
    for key in (
        key for key in KEYS if key.path.startswith(("load.", "measure.", "transform.")) and "[" not in key.path
    ):
        _has_default(key, config[key.path.partition(".")[0]])


def _has_default(key: Key, values: Any) -> None:
    """Assert that the default of a key is its value in the block of its group, where that has it."""
    *blocks, name = key.path.split(".")[1:]
    for block in blocks:
        values = values.get(block) if isinstance(values, Mapping) else None
    if isinstance(values, Mapping) and name in values:
        assert yaml.safe_load(key.default) == values[name], (key, values[name])


def test_a_stage_of_a_package_and_a_later_field_are_in_it(says: Says) -> None:
    @dataclass(frozen=True, kw_only=True)
    class TapeCache(Stage):
        """A cache on tape | by *reel*.

        Attributes:
            reels: Number of reels, such as `*|*`; a reel has <1> end.
            rewinds: Whether tapes are rewound.
        """

        path: ClassVar[str] = "cache.tape"
        reels: Annotated[Natural, TRAINING, SPEED]
        rewinds: Annotated[bool, SPEED] = True

    stages = {**STAGES, "cache": {**CACHES, "tape": TapeCache}}
    says([repr(key) for key in keys(stages) if key.option == "cache.tape"])
    says([line for line in page_of_keys(stages).splitlines() if "cache.reels" in line])


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


@pytest.mark.parametrize("case", cases("schema"))
def test_a_typical_fault_is_refused_where_it_is(case: Case, golden: Golden) -> None:
    definition, text = case["definition"], case["text"]
    found = faults_of(text, definition)
    golden(case, "\n".join(found))
    if definition != "config":
        inner = faults_of(f"{definition}: {{{text}}}" if not text.startswith("{") else f"{definition}: {text}")
        assert inner == [definition, *(f"{definition}.{place}" for place in found)]


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


def test_steps_of_other_packages_are_part_of_it(says: Says) -> None:
    steps: dict[str, type[Stage]] = {**STAGES["transform"], "grey": Grey}
    found = schema({**STAGES, "transform": steps})
    assert Draft7Validator(found).is_valid({"steps": ["grey"], "grey": {"strength": 0.5}})
    assert not Draft7Validator(found).is_valid({"steps": ["grey"], "grey": {"strength": "much"}})
    assert Draft7Validator(found).is_valid({"cache": {"at": "grey"}})
    assert not ANY_FILE.is_valid({"steps": ["grey"]})
    grey = found["definitions"]["transform.grey"]
    assert grey["description"] == "Moves each pixel towards its brightness."
    says(grey["properties"]["strength"]["description"])


def test_it_is_refused_where_an_installed_package_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Fault(where="the package grey", found="x", expected="y")
    monkeypatch.setattr(schemas, "UNUSABLE", (fault,))
    with pytest.raises(ConfigError, match=r"^the package grey: found x; expected y$"):
        schema(STAGES)


@pytest.mark.smoke
def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["config", "schema"])
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(SCHEMA))
