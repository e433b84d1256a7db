"""The reference of keys: docs/reference/stages.md, and what `etlrun help` says of them."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
import yaml

from etlrun.config.reference import Key, keys, markdown
from etlrun.planning.schema import DEFAULTS, schema
from etlrun.stages import STAGES
from etlrun.stages.base import SPEED, TRAINING, Flag, Natural, Since, Stage
from etlrun.stages.cache import CACHES
from tests.configs import composed

ROOT = Path(__file__).resolve().parent.parent
KEYS = list(keys(STAGES))
PAGE = ROOT / "docs/reference/stages.md"


def of(path: str, option: str = "") -> Key:
    (found,) = [key for key in KEYS if (key.path, key.option) == (path, option)]
    return found


def test_the_page_is_made_of_the_stages() -> None:
    assert PAGE.read_text() == markdown(STAGES), (
        f"python -m etlrun.config.reference > {PAGE.relative_to(ROOT)} updates it"
    )


def test_the_command_prints_the_page_and_imports_nothing_heavy() -> None:
    code = """
import runpy, sys
runpy.run_module("etlrun.config.reference", run_name="__main__")
heavy = {"tensorflow", "keras", "numpy", "pyarrow", "hydra", "omegaconf", "jinja2"} & sys.modules.keys()
assert not heavy, heavy
"""
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == PAGE.read_text()


def test_a_key_has_what_its_stage_says_of_it() -> None:
    assert of("load.prefetch") == Key(
        path="load.prefetch",
        option="",
        kinds=("speed",),
        values="an integer from 0 to 1,000,000, or autotune",
        default="autotune",
        meaning="Batches to prefetch; 0 for none.",
        since="0.1",
    )
    assert of("cache").values == "one of disk, memory, none"
    assert of("cache").default == "memory"
    assert of("cache.codec").kinds == ("data",)
    assert of("trainer.early_stopping.patience", "trainer.fit").meaning == (
        "Epochs without improvement after which to end; null trains all epochs."
    )
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


def test_a_stage_of_a_package_and_a_later_field_are_in_it() -> None:
    @dataclass(frozen=True, kw_only=True)
    class TapeCache(Stage):
        """A cache on tape | by *reel*.

        Attributes:
            reels: Number of reels, such as `*|*`; a reel has <1> end.
            rewinds: Whether tapes are rewound.
        """

        path: ClassVar[str] = "cache.tape"
        reels: Annotated[Natural, Since("0.2"), TRAINING, SPEED]
        rewinds: Annotated[Flag, SPEED] = True

    found = list(keys({**STAGES, "cache": {**CACHES, "tape": TapeCache}}))
    assert [key for key in found if key.option == "cache.tape"] == [
        Key(
            path="cache.reels",
            option="cache.tape",
            kinds=("training", "speed"),
            values="a non-negative integer",
            default="",
            meaning="Number of reels, such as `*|*`; a reel has <1> end.",
            since="0.2",
        ),
        Key(
            path="cache.rewinds",
            option="cache.tape",
            kinds=("speed",),
            values="true or false",
            default="true",
            meaning="Whether tapes are rewound.",
        ),
    ]
    row = r"| `cache.reels` | Number of reels, such as `*|*`; a reel has \<1> end. | a non-negative integer | required "
    row += "| training, speed | 0.2 |"
    assert row in markdown({**STAGES, "cache": {**CACHES, "tape": TapeCache}}).splitlines()
