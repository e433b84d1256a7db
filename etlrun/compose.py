"""Composes configs with Hydra, and finds all faults of a command line before any job starts."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any

from hydra import version
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import OmegaConf

from etlrun.composer import Composer, one_line
from etlrun.composer import plain as plain  # noqa: PLC0414 - for `launch`
from etlrun.errors import ConfigError, Fault, did_you_mean
from etlrun.plan import Plan
from etlrun.planning import plan
from etlrun.spec import parse
from etlrun.stages import Stages

VERSION_BASE = "1.3"
MOST_JOBS_CHECKED = 256
"""Jobs of a multirun whose configs are checked before the first one starts."""

_ABSENT = object()


def config_dir() -> Path:
    """The folder of the configs: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


@dataclass(frozen=True, kw_only=True)
class Request:
    """The part of a command line that decides a config.

    Attributes:
        overrides: In Hydra's grammar.
        base_dir: The project's configs; None for those of this installation.
        config_dir: A person's own configs, searched after the project's; None for none.
        config_name: Of the primary config.
        multirun: Whether overrides may have several values, one for each job.
    """

    overrides: list[str]
    base_dir: str | None = None
    config_dir: str | None = None
    config_name: str | None = None
    multirun: bool = False

    @classmethod
    def of(cls, arguments: list[str]) -> Request:
        """The request in `arguments`, of which Hydra's other options are ignored."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--config-dir", "-cd")
        parser.add_argument("--config-name", "-cn")
        parser.add_argument("--multirun", "-m", action="store_true")
        known, rest = parser.parse_known_args(arguments)
        return cls(
            overrides=[word for word in rest if not word.startswith("-")],
            config_dir=known.config_dir,
            config_name=known.config_name,
            multirun=known.multirun,
        )


def planned(request: Request, stages: Stages) -> Plan:
    """The plan of the one config that `request` asks for; `ConfigError` with all its faults."""
    plans = _plans(request, stages)
    if len(plans) > 1:
        fault = Fault(
            where="overrides",
            found="a sweep",
            expected="one config",
            remedy="give each key one value, or run the sweep with -m",
        )
        raise ConfigError([fault])
    return plans[0]


def composed(request: Request) -> dict[str, Any]:
    """The config of `request` as Hydra composes it, neither parsed nor checked."""
    with composer(request) as files:
        return files.values(request.overrides)


def check(request: Request, stages: Stages) -> None:
    """Refuse a wrong config, or any wrong config of a multirun, with `ConfigError` and all faults."""
    if request.multirun:
        _plans(request, stages)
    else:
        planned(request, stages)


def _plans(request: Request, stages: Stages) -> list[Plan]:
    faults: dict[str, Fault] = {}
    plans, axes = [], []
    with composer(request) as files:
        loader = files.loader
        overrides, ungrammatical = _parsed(request.overrides, loader)
        faults |= {str(fault): fault for fault in ungrammatical}
        for override in overrides:
            options = loader.get_group_options(override.key_or_group)
            fault = _group_fault(override, options)
            if fault is None:
                axes.append(_Axis(override, is_group=bool(options)))
            else:
                faults[str(fault)] = fault
        for job in islice(product(*(axis.words() for axis in axes)), MOST_JOBS_CHECKED):
            try:
                plans.append(plan(parse(files.values(job), stages)))
            except ConfigError as error:
                faults |= {str(fault): fault for fault in error.faults}
        if not faults:
            faults = {str(fault): fault for fault in _unlisted(files, axes)}
    if faults:
        raise ConfigError(list(faults.values()))
    return plans


def _unlisted(files: Composer, axes: list[_Axis]) -> Iterator[Fault]:
    """Keys that are right, but that Hydra does not take without a `+`, since no file of this config has them."""
    words = [axis.words()[0] for axis in axes if not axis.is_plain]
    config = OmegaConf.to_container(files.config(words))
    for axis in axes:
        key = axis.override.get_key_element()
        block: Any = config
        for part in key.split(".") if axis.is_plain else ():
            block = block.get(part, _ABSENT) if isinstance(block, dict) else _ABSENT
        if block is _ABSENT:
            yield Fault(
                where=key,
                found="a key that no file of this config sets",
                expected="a key to change",
                remedy=f"write +{axis.override.input_line} to add it",
            )


@dataclass(frozen=True)
class _Axis:
    """An override, and whether it chooses an option of a group."""

    override: Override
    is_group: bool

    @property
    def is_plain(self) -> bool:
        """Whether it sets a value that Hydra expects to be there."""
        key = self.override.get_key_element()
        return not (self.is_group or key.startswith(("+", "~", "hydra.")))

    def words(self) -> list[str]:
        """Once for each value. Keys that may be absent are added, for the strict parser to report."""
        if self.override.is_delete():
            return [self.override.input_line or ""]
        prefix = "++" if self.is_plain else ""
        return [f"{prefix}{self.override.get_key_element()}={value}" for value in _values(self.override)]


@contextmanager
def composer(request: Request) -> Iterator[Composer]:
    """Composes configs of the folders of `request`, for as long as the block lasts."""
    version.setbase(VERSION_BASE)
    search_path = create_config_search_path(request.base_dir or str(config_dir()))
    if request.config_dir is not None:
        folder = Path(request.config_dir).resolve()
        if not folder.is_dir():
            fault = Fault(
                where="--config-dir",
                found=f"no folder {folder}",
                expected="a folder of configs",
                remedy="give the path of a folder that exists",
            )
            raise ConfigError([fault])
        search_path.prepend("command-line", f"file://{folder}", anchor=SearchPathQuery(provider="schema"))
    Hydra.create_main_hydra2(task_name="etlrun", config_search_path=search_path)
    try:
        yield Composer(GlobalHydra.instance().config_loader(), request.config_name or "config")
    finally:
        GlobalHydra.instance().clear()


def _parsed(overrides: list[str], loader: ConfigLoader) -> tuple[list[Override], list[Fault]]:
    """The overrides that are in Hydra's grammar, and a fault for each that is not."""
    parser, parsed, faults = OverridesParser.create(config_loader=loader), [], []
    for word in overrides:
        try:
            parsed += parser.parse_overrides([word if word.partition("=")[0] else ""])
        except HydraException as error:
            key, _, value = word.partition("=")
            quoted = f"""quote the value, once for Hydra and once for the shell: '{key}="{value}"'"""
            remedy = quoted if value else f"write {key}=VALUE"
            found = one_line(error).split(" See http")[0]
            faults.append(Fault(where=word, found=found, expected="KEY=VALUE in Hydra's grammar", remedy=remedy))
    return parsed, faults


def _group_fault(override: Override, options: list[str]) -> Fault | None:
    """The fault of an override that chooses an option which its group lacks; lists are left to Hydra."""
    for value in _values(override):
        if options and not override.is_delete() and value not in options and value[:1] != "[":
            return Fault(
                where=override.key_or_group,
                found=f"the unknown option '{value}'",
                expected=f"one of {', '.join(options)}",
                remedy=did_you_mean(value, options, f"{override.key_or_group}={{}}"),
            )
    return None


def _values(override: Override) -> list[str]:
    """The values of an override, one for each job that it makes; as texts in Hydra's grammar."""
    if override.is_discrete_sweep():
        return [str(value) for value in override.sweep_string_iterator()]
    return [override.get_value_element_as_str()]
