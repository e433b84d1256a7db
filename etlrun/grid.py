"""All configs that a command line asks for: composed, checked and planned before any of them runs."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from hydra.core.config_loader import ConfigLoader
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from etlrun.compose import Request, by_hydra, loader, of_job, refusal, resolved
from etlrun.errors import ConfigError, Fault
from etlrun.overrides import Axis, Chosen, Combinations, one_by_one, parsed
from etlrun.plan import Plan
from etlrun.planning import plan
from etlrun.spec import parse, parse_sweep
from etlrun.stages import Stages
from etlrun.stages.sweep import Sweep

_ABSENT = object()


@dataclass(frozen=True, kw_only=True)
class Job:
    """One config of a multirun.

    Attributes:
        overrides: With one value each; those of the sweep itself left out.
        config: Composed; plain values.
        plan: What it would do.
    """

    overrides: list[str]
    config: dict[str, Any]
    plan: Plan


@dataclass(frozen=True, kw_only=True)
class Multirun:
    """What Hydra's own config says of a multirun.

    Attributes:
        dir: Of the sweep.
        subdir: Of a job in it, unresolved.
        sweeper: Its class, which chooses the jobs.
        launcher: Its class, which runs them.
    """

    dir: str
    subdir: str
    sweeper: str
    launcher: str

    @property
    def is_grid(self) -> bool:
        """Whether all jobs are known at the start."""
        return self.sweeper == "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"

    @property
    def is_basic(self) -> bool:
        """Whether no launcher of a plugin runs the jobs."""
        return self.launcher == "hydra._internal.core_plugins.basic_launcher.BasicLauncher"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What a command line asks for, as a whole.

    Attributes:
        jobs: Every config, in the order of the grid.
        sweep: How they are run.
        multirun: What Hydra's own config says.
    """

    jobs: list[Job]
    sweep: Sweep
    multirun: Multirun


def of(request: Request, stages: Stages) -> Grid:
    """All configs that `request` asks for, composed and checked; `ConfigError` with all faults of all of them.

    For a search, whose jobs are not known: the first value of each key, and each other value beside first ones.
    """
    with loader(request) as configs, _Composer(request, stages, configs) as composer:
        sweep, multirun = composer.settings()
        return Grid(jobs=composer.jobs(sweep, multirun), sweep=sweep, multirun=multirun)


def settings(request: Request, stages: Stages) -> tuple[Sweep, Multirun]:
    """How the jobs that `request` asks for are run; `ConfigError` with all faults that show without composing them."""
    with loader(request) as configs, _Composer(request, stages, configs) as composer:
        return composer.settings()


class _Composer:
    """Collects faults while it goes on, each once.

    Attributes:
        faults: By their texts.
    """

    def __init__(self, request: Request, stages: Stages, configs: ConfigLoader) -> None:
        self.request, self.stages, self.configs = request, stages, configs
        self.faults: dict[str, Fault] = {}
        self._bases: dict[tuple[str, ...], DictConfig] = {}

    def __enter__(self) -> Self:
        self.axes = self._axes(self.request.overrides)
        self.first = {axis: axis.values[0] for axis in self.axes}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Refuse what is wrong, all at once."""
        if isinstance(error, ConfigError):
            self._add(error.faults)
        if self.faults and (error is None or isinstance(error, ConfigError)):
            raise ConfigError(list(self.faults.values())) from None

    def settings(self) -> tuple[Sweep, Multirun]:
        """How the jobs are run."""
        own = self._base(self.first).hydra
        raw: Any = OmegaConf.to_container(own.sweep, resolve=False)
        multirun = Multirun(
            dir=str(own.sweep.dir),
            subdir=str(raw["subdir"]),
            sweeper=own.sweeper["_target_"],
            launcher=own.launcher["_target_"],
        )
        return parse_sweep(self._container(self.first)["sweep"]), multirun

    def jobs(self, sweep: Sweep, multirun: Multirun) -> list[Job]:
        """All of them, composed."""
        params = self._base(self.first).hydra.sweeper.get("params") or {}
        axes = [*self._axes([f"{key}={value}" for key, value in params.items()]), *self.axes]
        axes = [axis for axis in axes if not axis.is_of_sweep]
        if multirun.is_grid:
            self._add(fault for axis in axes for fault in axis.faults_of_grid())
        combinations = Combinations(axes, sweep.zip, sweep.exclude)
        self._add(combinations.faults)
        if combinations.faults:
            return []
        chosen: Iterable[Chosen] = combinations if multirun.is_grid else one_by_one(axes)
        jobs = [job for each in chosen if (job := self._job(each)) is not None]
        if not self.faults and not jobs:
            expected = "at least one combination of the overrides' values"
            self._add([Fault(where="sweep.exclude", found="rules that leave out every job", expected=expected)])
        if not self.faults:
            self._add(_unlisted(self._base(self.first), axes))
        return jobs

    def _job(self, chosen: Chosen) -> Job | None:
        try:
            config = of_job(self._container(chosen))
            job_plan = plan(parse(config, self.stages))
        except ConfigError as error:
            self._add(error.faults)
            return None
        words = [axis.word(value) for axis, value in chosen.items() if not axis.key.startswith("hydra")]
        return Job(overrides=words, config=config, plan=job_plan)

    def _add(self, faults: Iterable[Fault]) -> None:
        self.faults |= {str(fault): fault for fault in faults}

    def _axes(self, words: Sequence[str]) -> list[Axis]:
        """The axes without fault; the others' faults are kept."""
        overrides, faults = parsed(words, self.configs)
        self._add(faults)
        axes = []
        for override in overrides:
            axis = Axis.of(override, self.configs)
            fault = axis.fault(self.configs.get_group_options(override.key_or_group))
            self._add([fault] if fault else [])
            axes += [] if fault else [axis]
        return axes

    def _base(self, chosen: Chosen) -> DictConfig:
        """What Hydra makes of all but plain values, which cost it as much again for each job."""
        words = tuple(axis.word(value) for axis, value in chosen.items() if not axis.is_plain)
        if words not in self._bases:
            try:
                self._bases[words] = by_hydra(self.request, words)
            except (HydraException, OmegaConfBaseException) as error:
                raise ConfigError([refusal(error)]) from error
        return self._bases[words]

    def _container(self, chosen: Chosen) -> dict[str, Any]:
        """The config, plain values set as Hydra's `++` sets them: unknown ones are for the strict parser to report."""
        config = copy.deepcopy(self._base(chosen))
        try:
            with open_dict(config):
                del config["hydra"]
            for axis, value in chosen.items():
                if axis.is_plain:
                    OmegaConf.update(config, axis.key, value.plain, merge=True, force_add=True)
            return resolved(config)
        except OmegaConfBaseException as error:
            raise ConfigError([refusal(error)]) from error


def _unlisted(base: DictConfig, axes: Sequence[Axis]) -> Iterator[Fault]:
    """Keys that are right, but that Hydra does not take without a `+`, since no file of this config has them."""
    config = OmegaConf.to_container(base)
    for axis in axes:
        block: Any = config
        for part in axis.key.split(".") if axis.is_plain else ():
            block = block.get(part, _ABSENT) if isinstance(block, dict) else _ABSENT
        if block is _ABSENT:
            yield Fault(
                where=axis.key,
                found="a key that no file of this config sets",
                expected="a key to change",
                remedy=f"write +{axis.override.input_line} to add it",
            )


def planned(request: Request, stages: Stages) -> Plan:
    """The plan of the one config that `request` asks for; `ConfigError` with all its faults."""
    own = [word.partition("=")[0] for word in request.overrides if word.lstrip("+").startswith("sweep.")]
    if own:
        told = {"found": "a setting of sweeps", "expected": "those of a run", "remedy": "add -m, or leave it out"}
        raise ConfigError([Fault(where=key, **told) for key in own])
    jobs = of(request, stages).jobs
    if len(jobs) > 1:
        fault = Fault(
            where="overrides",
            found="a sweep",
            expected="one config",
            remedy="give each key one value, or run the sweep with -m",
        )
        raise ConfigError([fault])
    return jobs[0].plan
