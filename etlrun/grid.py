"""All configs that a command line asks for: composed, checked and planned before any of them runs."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from etlrun.compose import Request, by_hydra, loader, of_job, refusal, resolved
from etlrun.errors import ConfigError, Fault
from etlrun.overrides import Axis, Chosen, Combinations, parsed
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
class Grid:
    """What a command line asks for, as a whole.

    Attributes:
        jobs: Every config, in the order of the grid.
        sweep: How they are run.
        hydra: What Hydra's own config says of a multirun: `dir`, `subdir`, and the targets `sweeper` and `launcher`.
    """

    jobs: list[Job]
    sweep: Sweep
    hydra: dict[str, str]


def of(request: Request, stages: Stages) -> Grid:
    """All configs that `request` asks for, composed and checked; `ConfigError` with all faults of all of them."""
    with loader(request) as configs:
        composer = _Composer(request, stages, configs)
        found = composer.grid()
    if composer.faults or found is None:
        raise ConfigError(list(composer.faults.values()))
    return found


class _Composer:
    """Collects faults while it goes on, each once.

    Attributes:
        faults: By their texts.
    """

    def __init__(self, request: Request, stages: Stages, configs: ConfigLoader) -> None:
        self.request, self.stages, self.configs = request, stages, configs
        self.faults: dict[str, Fault] = {}
        self._bases: dict[tuple[str, ...], DictConfig] = {}

    def grid(self) -> Grid | None:
        axes = self._axes(self.request.overrides)
        first = {axis: axis.values[0] for axis in axes}
        try:
            base = self._base(first)
            sweep = parse_sweep(self._container(first)["sweep"])
        except ConfigError as error:
            self._add(error.faults)
            return None
        params = base.hydra.sweeper.get("params") or {}
        axes = [*self._axes([f"{key}={value}" for key, value in params.items()]), *axes]
        jobs = list(self._jobs(axes, sweep))
        if not self.faults:
            self._add(_unlisted(base, axes))
        return Grid(jobs=jobs, sweep=sweep, hydra=_of_multirun(base))

    def _jobs(self, axes: Sequence[Axis], sweep: Sweep) -> Iterator[Job]:
        combinations = Combinations([axis for axis in axes if not axis.is_of_sweep], sweep.zip, sweep.exclude)
        self._add(combinations.faults)
        chosen = None
        for chosen in [] if combinations.faults else combinations:
            try:
                config = of_job(self._container(chosen))
                job_plan = plan(parse(config, self.stages))
            except ConfigError as error:
                self._add(error.faults)
                continue
            words = [axis.word(value) for axis, value in chosen.items() if not axis.key.startswith("hydra")]
            yield Job(overrides=words, config=config, plan=job_plan)
        if chosen is None and not combinations.faults:
            expected = "at least one combination of the overrides' values"
            self._add([Fault(where="sweep.exclude", found="rules that leave out every job", expected=expected)])

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


def _of_multirun(base: DictConfig) -> dict[str, str]:
    own = base.hydra
    raw: Any = OmegaConf.to_container(own.sweep, resolve=False)
    return {
        "dir": str(own.sweep.dir),
        "subdir": str(raw["subdir"]),
        "sweeper": str(own.sweeper._target_),
        "launcher": str(own.launcher._target_),
    }


def planned(request: Request, stages: Stages) -> Plan:
    """The plan of the one config that `request` asks for; `ConfigError` with all its faults."""
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
