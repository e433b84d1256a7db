"""Configs, specs, plans and refusals as a command line's overrides make them."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli.parsers import call
from etlrun.config import grid
from etlrun.config.composer import Composer
from etlrun.config.request import Request, composer
from etlrun.planning.plan import Plan
from etlrun.planning.planner import plan
from etlrun.planning.spec import RunSpec, parse
from etlrun.stages import STAGES
from etlrun.stages.base import Kind, Stage, field_metadata
from etlrun.stages.dataset import TfdsDataset
from etlrun.stages.load import Load
from etlrun.stages.measure import Measure
from etlrun.stages.step import Map
from etlrun.stages.trainer import EarlyStopping, Schedule
from etlrun.system.errors import ConfigError
from tests import steps

CONF = Path(__file__).resolve().parent.parent / "conf"
EXPERIMENTS = tuple(sorted(path.stem for path in (CONF / "experiment").glob("*.yaml")))
ROWS = ("dataset.files={train: '*.tfrecord'}", "dataset.target={label: class}")
MANDATORY = {"table": ROWS, "text": ROWS}
"""Values that experiments leave to the user, by experiment, as `check` gives them."""
TENSORFLOW = "transform.decode.library=tensorflow"
"""Where a test is about steps and maps, not about the stage that does the work of some of them."""


def experiment(name: str) -> tuple[str, ...]:
    """Overrides that choose an experiment, with values for what it leaves to the user."""
    return (f"experiment={name}", *MANDATORY.get(name, ()))


@cache
def _files() -> Composer:
    return composer(Request(overrides=[], base_dir=str(CONF)))


@cache
def _composed(*overrides: str) -> dict[str, Any]:
    return _files().values(overrides)


def composed(*overrides: str) -> dict[str, Any]:
    """The config that Hydra composes of `overrides`, neither parsed nor checked."""
    return deepcopy(_composed(*overrides))


def spec_of(*overrides: str) -> RunSpec:
    return parse(composed(*overrides), STAGES)


@cache
def plan_of(*overrides: str) -> Plan:
    return plan(spec_of(*overrides))


def raised(error: type[Exception], call: Callable[..., Any], *given: Any, **named: Any) -> str:
    """The whole message of the error that a call raises."""
    with pytest.raises(error) as caught:
        call(*given, **named)
    return str(caught.value)


def refusal_of_config(config: dict[str, Any]) -> str:
    """The whole message with which `parse` refuses `config`."""
    return raised(ConfigError, parse, config, STAGES)


def refusal_of_spec(*overrides: str) -> str:
    return refusal_of_config(composed(*overrides))


def refusal_of_plan(*overrides: str) -> str:
    """The whole message with which `plan` refuses what `parse` accepts."""
    return raised(ConfigError, plan, spec_of(*overrides))


def refusal_of(*overrides: str) -> str:
    """The whole message with which `parse` refuses a config, or else `plan`."""
    return raised(ConfigError, plan_of, *overrides)


def refusal_of_request(*overrides: str, config_dir: Path | None = None) -> str:
    """The whole message with which a run of `overrides` is refused."""
    folder = None if config_dir is None else str(config_dir)
    return raised(ConfigError, grid.of, Request(overrides=list(overrides), config_dir=folder), STAGES)


def refusal_of_diff(*words: str) -> str:
    """The whole message with which `etlrun diff` is refused."""
    return raised(ConfigError, call, "diff", list(words))


def yaml_files() -> list[str]:
    """All config files, by their paths in `conf/`."""
    return sorted(path.relative_to(CONF).as_posix() for path in CONF.rglob("*.yaml"))


STAGES_BY_KEY: list[tuple[str, type[Stage]]] = [
    ("dataset", TfdsDataset),
    ("load", Load),
    ("transform", Map),
    *((f"transform.{name}", step) for name, step in STAGES["transform"].items()),
    *(
        (group, stage)
        for group in ("extract", "cache", "model", "trainer", "profile", "logger")
        for stage in STAGES[group].values()
    ),
    ("trainer.early_stopping", EarlyStopping),
    ("trainer.schedule", Schedule),
    ("measure", Measure),
]
"""The keys under which configs set the parameters of each stage."""

KINDS: dict[str, Kind] = {
    f"{key}.{field}": min(kinds, key=[*Kind].index)
    for key, stage in STAGES_BY_KEY
    for field, metadata in field_metadata(stage).items()
    if (kinds := [item for item in metadata if isinstance(item, Kind)])
}
"""The strongest kind of every parameter that a config can set."""

OTHER_VALUES: dict[str, str] = steps.TABLE["others"]
"""For each of them a value that the base config doesn't have."""


_COSINE = ("trainer.schedule.name=cosine",)


def beside(parameter: str) -> tuple[str, ...]:
    """With which the base config can have that other value: a step of its own, a model that takes several inputs."""
    if parameter == "load.shuffle":
        return "extract=sequential", "cache=none"
    if parameter == "load.sample":
        return "extract=sequential", "cache=none", "load.shuffle=full"
    if parameter == "trainer.hosts":
        return "load.drop_remainder=true", "trainer.jit_compile=auto"
    if parameter in ("trainer.schedule.decay_steps", "trainer.schedule.alpha"):
        return _COSINE
    step = parameter.removeprefix("transform.").partition(".")[0]
    if step in steps.VALUES:
        return steps.words_with(step)
    others = {
        "dataset.features": "model=emulated",
        "model.name": "model=keras_application",
        "trainer.devices": "load.drop_remainder=true",
        **dict.fromkeys(("logger.tracking_uri", "logger.experiment_name"), "logger=mlflow"),
        **dict.fromkeys(("logger.project", "logger.entity", "logger.mode"), "logger=wandb"),
    }
    return (others[parameter],) if parameter in others else ()
