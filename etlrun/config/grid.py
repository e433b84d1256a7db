"""All configs that a command line asks for: composed, checked and planned before any of them runs."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from etlrun.config.composer import UNCOMPOSABLE, Composer, plain, refusal
from etlrun.config.jobs import Job, Judge, Unfit
from etlrun.config.overrides import Axis, Chosen, Combinations, covered, one_by_one, parsed, set_last
from etlrun.config.request import Request, by_hydra, composer, unfit_folder
from etlrun.errors import ConfigError, Fault
from etlrun.plan.spec import parse_sweep, show
from etlrun.stages import Stages
from etlrun.stages.sweep import Sweep


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
        unfit: The combinations that are left out by `sweep.unfit`.
        swept: The values of each key that has several, as the command line has them.
        sweep: How they are run.
        multirun: What Hydra's own config says.
    """

    jobs: list[Job]
    unfit: list[Unfit]
    swept: dict[str, list[str]]
    sweep: Sweep
    multirun: Multirun


def of(request: Request, stages: Stages) -> Grid:
    """All configs that `request` asks for, composed and checked; `ConfigError` with all faults of all of them.

    For a search, whose jobs are not known: the first value of each key, and each other value beside first ones.
    """
    with composer(request) as files, _Asked(request, stages, files) as asked:
        sweep, multirun, params = asked.settings()
        axes = [*asked.axes_of([f"{key}={value}" for key, value in params.items()]), *asked.axes]
        axes = [axis for axis in axes if not axis.is_of_sweep]
        swept = {axis.key: [value.text for value in axis.values] for axis in axes if len(axis.values) > 1}
        asked.add(covered(axes))
        if not multirun.is_grid:
            judge = asked.judged(one_by_one(axes), Judge(stages, is_search=True))
            return Grid(jobs=judge.jobs, unfit=[], swept=swept, sweep=sweep, multirun=multirun)
        combinations = Combinations(axes, sweep.zip, sweep.exclude)
        asked.add(combinations.faults)
        asked.add(fault for axis in axes for fault in axis.faults_of_grid())
        judge = Judge(stages, skips_unfit=sweep.unfit == "skip")
        asked.judged([] if combinations.faults else combinations, judge)
        if not asked.faults and not judge.jobs:
            expected = "at least one combination of the overrides' values"
            asked.add([Fault(where=Sweep.key("exclude"), found="rules that leave out every job", expected=expected)])
        return Grid(jobs=judge.jobs, unfit=[*dict.fromkeys(judge.unfit)], swept=swept, sweep=sweep, multirun=multirun)


def settings(request: Request, stages: Stages) -> tuple[Sweep, Multirun]:
    """How the jobs that `request` asks for are run; `ConfigError` with all faults that show without composing them."""
    with composer(request) as files, _Asked(request, stages, files) as asked:
        return asked.settings()[:2]


def changed(sweep: Sweep, words: Sequence[str]) -> Sweep:
    """`sweep` with what overrides of it set; the rules by which its jobs were chosen can't be set any more."""
    overrides, faults = parsed(words, None)
    values = dataclasses.asdict(sweep)
    for override in overrides:
        key = str(override.key_or_group).removeprefix("sweep.")
        if key in {"exclude", "zip"}:
            expected = "the rules with which the sweep began"
            faults.append(Fault(where=f"sweep.{key}", found="other rules", expected=expected, remedy="leave it out"))
        values[key] = override.value()
    if values["vary_seed"] != sweep.vary_seed:
        found, expected = show(values["vary_seed"]), f"{show(sweep.vary_seed)}, with which the sweep began"
        faults.append(Fault(where=Sweep.key("vary_seed"), found=found, expected=expected, remedy="start a new sweep"))
    if faults:
        raise ConfigError(faults)
    return parse_sweep(values)


def resolve(request: Request, stages: Stages) -> Job:
    """The one config that `request` asks for, and its plan; `ConfigError` with all its faults."""
    with composer(request) as files, _Asked(request, stages, files) as asked:
        for axis in asked.axes:
            if axis.is_of_sweep:
                remedy = "add -m, or leave it out"
                asked.add(
                    [Fault(where=axis.key, found="a setting of sweeps", expected="those of a run", remedy=remedy)]
                )
            if len(axis.values) > 1:
                remedy = "give each key one value, or run the sweep with -m"
                asked.add([Fault(where="overrides", found="a sweep", expected="one config", remedy=remedy)])
        judge = asked.judged(one_by_one(asked.axes), Judge(stages))
    return judge.jobs[0]


class _Asked:
    """What a command line asks for. Collects faults while it goes on, each once, and refuses them in the end.

    Attributes:
        axes: Its overrides that are without fault.
        faults: By their texts.
    """

    def __init__(self, request: Request, stages: Stages, files: Composer) -> None:
        self.request, self.stages, self.files = request, stages, files
        self.faults: dict[str, Fault] = {}
        self._composed: dict[tuple[str, ...], DictConfig] = {}
        self.axes = self.axes_of(request.overrides)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Refuse what is wrong, all at once."""
        if isinstance(error, ConfigError):
            self.add(error.faults)
        if self.faults and (error is None or isinstance(error, ConfigError)):
            raise ConfigError(list(self.faults.values())) from None

    def settings(self) -> tuple[Sweep, Multirun, dict[str, Any]]:
        """How the jobs are run, and the grid that stands in Hydra's own config."""
        first = {axis: axis.values[0] for axis in self.axes}
        try:
            own = by_hydra(self.request, _words(first)).hydra
        except (*UNCOMPOSABLE, AttributeError) as error:  # the latter is OmegaConf's, of a mapping for what is null
            raise ConfigError([refusal(error)]) from error
        self.add(unfit_folder("hydra.sweep.dir", str(own.sweep.dir)))
        raw: Any = OmegaConf.to_container(own.sweep, resolve=False)
        multirun = Multirun(
            dir=str(own.sweep.dir),
            subdir=str(raw["subdir"]),
            sweeper=own.sweeper["_target_"],
            launcher=own.launcher["_target_"],
        )
        block = self._config(first).get("sweep")
        sweep = None if block is None else OmegaConf.to_container(block, resolve=True)
        return parse_sweep(sweep), multirun, own.sweeper.get("params") or {}

    def judged(self, combinations: Iterable[Chosen], judge: Judge) -> Judge:
        """`judge`, after it has judged all of them."""
        chosen = None
        for chosen in combinations:
            try:
                judge.add(chosen, plain(self._config(chosen)))
            except ConfigError as error:
                self.add(error.faults)
            except UNCOMPOSABLE as error:
                self.add([refusal(error)])
        self.add(judge.faults())
        if chosen is not None and not self.faults:
            self.add(_unlisted(self.files.config(_words(chosen)), set_last(chosen), judge.idle))
        return judge

    def add(self, faults: Iterable[Fault]) -> None:
        self.faults |= {str(fault): fault for fault in faults}

    def axes_of(self, words: Sequence[str]) -> list[Axis]:
        """The axes without fault; the others' faults are kept."""
        overrides, faults = parsed(words, self.files.loader)
        self.add(faults)
        axes = []
        for override in overrides:
            axis = Axis.of(override, self.files.loader)
            fault = axis.fault(self.files.loader.get_group_options(override.key_or_group))
            self.add([fault] if fault else [])
            axes += [] if fault else [axis]
        return axes

    def _config(self, chosen: Chosen) -> DictConfig:
        """Composed as Hydra does, in the order of the command line, but for plain values that may as well be set last.

        These are set as Hydra's `++` sets them: unknown ones are for the strict parser to report.

        Those that differ in nothing else are one, which holds until the next is asked for: all set the same keys.
        Mappings are merged, and so would hold what another one has set.
        """
        words = _words(chosen)
        key = (*words, *(axis.word(value) for axis, value in chosen.items() if isinstance(value.plain, dict)))
        if key not in self._composed:
            self._composed[key] = copy.deepcopy(self.files.config(words))
        config = self._composed[key]
        try:
            for axis in set_last(chosen):
                OmegaConf.update(config, axis.key, chosen[axis].plain, merge=True, force_add=True)
        except OmegaConfBaseException as error:
            raise ConfigError([refusal(error)]) from error
        return config


def _words(chosen: Chosen) -> tuple[str, ...]:
    """All overrides but the values that are set last."""
    left = {id(axis) for axis in set_last(chosen)}
    return tuple(axis.word(value) for axis, value in chosen.items() if id(axis) not in left)


def _unlisted(base: DictConfig, axes: Sequence[Axis], idle: Container[str]) -> Iterator[Fault]:
    """Keys that are right, but that Hydra does not take without a `+`, since no file of this config has them.

    Those that are `idle` in some combination are another option's, and no file of this one need have them.
    """
    config = OmegaConf.to_container(base)
    for axis in axes:
        for value in axis.values:
            nested = value.plain
            for part in reversed(axis.key.split(".")):
                nested = {part: nested}
            for key in _absent(config, nested):
                if key not in idle:
                    yield Fault(
                        where=key,
                        found="a key that no file of this config sets",
                        expected="a key to change",
                        remedy=f"write +{axis.override.input_line} to add it",
                    )


def _absent(block: Any, values: Any, prefix: str = "") -> Iterator[str]:
    """The dotted keys of `values` that a composed `block` does not have."""
    if isinstance(block, dict) and isinstance(values, dict):
        for key, value in values.items():
            if key in block:
                yield from _absent(block[key], value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}"
