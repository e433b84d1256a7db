"""Reference of the keys of configs, made from the types of the stages: for `etlrun help` and docs/reference/stages.md.

Defaults are those of the files of `conf/`, which a run is composed of; where they don't have a key, those of the types.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from etlrun.config.composer import Composer
from etlrun.config.folders import config_dir, options_of
from etlrun.config.request import Request, composer
from etlrun.planning.hints import DATASETS, Options, attributes_of, listed_stage, nested_stage, summary_of
from etlrun.planning.schema import COLUMNS, STEPS
from etlrun.planning.spec import GROUPS, RunSpec
from etlrun.stages import Stages
from etlrun.stages.base import DATA, Kind, Stage, described, field_metadata, hints_of
from etlrun.stages.columns import COLUMN_STEPS
from etlrun.stages.load import Load
from etlrun.stages.measure import Measure
from etlrun.stages.step import Map
from etlrun.stages.sweep import Sweep, Tune
from etlrun.system.values import Block, Composed

_GROUPS = (*GROUPS, "sweep", "tune")
_FIXED: Options = {"load": Load, "measure": Measure, "sweep": Sweep, "tune": Tune}
"""Groups that have the same keys whatever option of them is chosen."""
_OUTPUT = "transform.columns.NAME"
"""Path of an output of rows, whose name is the user's."""
_REQUIRED = "???"


@dataclass(frozen=True)
class Key:
    """A key of a config.

    Attributes:
        path: Dotted path, as on the command line: `load.prefetch`. `[]` stands for each item of a list.
        kinds: What it can change, the strongest first; empty for a group, and for what changes no run.
        values: What is expected, as in errors.
        default: Its default as YAML; empty if it is required.
        meaning: What it does: a sentence.
        option: Option or stage that has it, such as `cache.disk`; empty if all of its group have it.
    """

    path: str
    kinds: tuple[str, ...]
    values: str
    default: str
    meaning: str
    option: str = ""


def keys(stages: Stages) -> Iterator[Key]:
    """Yield the keys of all groups in order: each group itself, what all its options have, and what some have."""
    for group in _GROUPS:
        meaning = attributes_of(RunSpec).get(group) or summary_of(_FIXED[group])
        yield Key(group, (), f"one of {', '.join(_options()[group])}", _chosen()[group], meaning)
        yield from _listed_steps() if group == "transform" else ()
        of_options = {option: [*_fields(*found)] for option, found in stages_of(group, stages).items()}
        first, *others = of_options.values()
        shared = [key for key in first if all(key in other for other in others)]
        yield from shared
        for option, found in of_options.items():
            yield from (dataclasses.replace(key, option=option) for key in found if key not in shared)


def merged(found: Iterable[Key]) -> dict[Key, dict[str, str]]:
    """Return keys without their options and defaults, each with the default of each option that doesn't set it."""
    defaults: dict[Key, dict[str, str]] = {}
    for key in found:
        if not key.option or key.default != key.option.rpartition(".")[2]:
            defaults.setdefault(dataclasses.replace(key, option="", default=""), {})[key.option] = key.default
    return defaults


def options(stages: Stages) -> dict[str, str]:
    """Return what each option of a group and each step is, by its dotted name such as `cache.disk`: a sentence."""
    of_types = {
        option: summary_of(stage)
        for group in _GROUPS
        for option, (_, stage, _) in stages_of(group, stages).items()
        if option
    }
    names = [(group, name) for group, names in _options().items() for name in names]
    return of_types | {f"{group}.{name}": _about(config_dir() / group / f"{name}.yaml") for group, name in names}


def stages_of(group: str, stages: Stages) -> dict[str, tuple[str, type[Stage], Composed]]:
    """Return the stages of a group by option, empty for a fixed one: path, type, and values of the option's file."""
    if group in _FIXED:
        return {"": (group, _FIXED[group], _values(group, _chosen()[group]))}
    if group == "transform":
        values = _values(group, _chosen()[group])
        steps = {
            f"transform.{name}": (f"transform.{name}", step, values.get(name) or {})
            for name, step in stages["transform"].items()
        }
        of_columns = {
            f"columns.{name}": (f"{_OUTPUT}.steps[].{name}", step, Block()) for name, step in COLUMN_STEPS.items()
        }
        return {"": (group, Map, values), **steps, **of_columns}
    options = DATASETS if group == "dataset" else stages[group]
    return {f"{group}.{name}": (group, stage, _values(group, name)) for name, stage in options.items()}


def _fields(path: str, stage: type[Stage], values: Composed) -> Iterator[Key]:
    """Yield the keys of a stage, and those of the stages in its fields; `values` are those of its option."""
    hints, texts = hints_of(stage, include_extras=True), attributes_of(stage)
    for field in dataclasses.fields(stage):  # type: ignore[arg-type] # as in field_metadata
        metadata, nested = field_metadata(stage)[field.name], nested_stage(hints[field.name])
        if not metadata and nested is None:
            continue  # no value of a config, such as the steps of a map
        value = values.get(field.name, _REQUIRED if field.default is dataclasses.MISSING else field.default)
        yield Key(
            path=f"{path}.{field.name}",
            kinds=tuple(str(item) for item in metadata if isinstance(item, Kind)),
            values=described(hints[field.name]),
            default=_yaml(value),
            meaning=texts.get(field.name, ""),
        )
        if nested is not None:
            yield from _fields(f"{path}.{field.name}", nested, value if isinstance(value, Mapping) else {})
        elif (listed := listed_stage(hints[field.name])) is not None:
            yield from _fields(f"{path}.{field.name}[]", listed, {})


def _listed_steps() -> Iterator[Key]:
    """Yield the keys of the steps of `transform`, which are no fields."""
    values = _values("transform", _chosen()["transform"])
    of = "Column, or columns, of which an output is made; without it that of its name."
    for name, expected, default, meaning in (
        ("transform.steps", "a list of steps", _yaml(values["steps"]), STEPS.format("training")),
        ("transform.eval_steps", "a list of steps", _yaml(values["eval_steps"]), STEPS.format("validation")),
        ("transform.columns", "auto, or a mapping from names to columns", "null", COLUMNS),
        (f"{_OUTPUT}.of", "a column, or a list of columns", "NAME", of),
        (f"{_OUTPUT}.steps", "a list of steps on columns", "[]", "Steps on the column, in order."),
    ):
        yield Key(name, (str(DATA),), expected, default, meaning)


def _yaml(value: object) -> str:
    """Return a value as YAML in a line; empty for a missing one."""
    if value == _REQUIRED:
        return ""
    plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
    plain = list(plain) if isinstance(plain, tuple) else plain
    text = yaml.safe_dump(plain, default_flow_style=True, sort_keys=False, allow_unicode=True, width=float("inf"))
    return text.removesuffix("...\n").strip()


@cache
def _options() -> dict[str, list[str]]:
    return options_of(config_dir())


@cache
def _composer() -> Composer:
    return composer(Request(overrides=[], base_dir=str(config_dir())))


@cache
def _chosen() -> dict[str, str]:
    """Return the option of each group that the primary config chooses."""
    return dict(_composer().with_hydra(()).hydra.runtime.choices)


def _values(group: str, option: str) -> Composed:
    """Return the values of an option; none if no file has it, as of what a package adds."""
    if option not in _options()[group]:
        return {}
    values: Composed = _composer().unresolved([f"{group}={option}"])[group]
    return values


def _about(path: Path) -> str:
    """Return the first sentence of the comment that a file of an option begins with."""
    lines = itertools.takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
    text = " ".join(line[2:] for line in lines if not line.startswith(("# @package", "# python", "#   ")))
    return re.split(r"(?<=[.?])\s", text)[0]
