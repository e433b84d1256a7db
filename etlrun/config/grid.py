"""Configs of a command line: all are composed, validated and planned before any runs; and what ends their faults."""

import copy
import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from omegaconf import DictConfig, OmegaConf

from etlrun.config.composer import UNCOMPOSABLE, Composer, in_folder, refers, refusal
from etlrun.config.files import in_override, in_values
from etlrun.config.overrides import (
    COMMANDS,
    Axis,
    Chosen,
    Combinations,
    Value,
    covered,
    one_by_one,
    override_of,
    parsed,
    rejoined,
    set_last,
    sorted_out,
    spelled,
    stray,
    unlisted,
)
from etlrun.config.request import Request, composer, options_of, put, unfit_callbacks, unfit_folder, with_hydra
from etlrun.config.rounds import own_of, unfit_rounds
from etlrun.planning.hints import INSTALL, kinds_of, meant
from etlrun.planning.plan import Plan
from etlrun.planning.planner import planned
from etlrun.planning.spec import ABSENT, ConflictError, Unused, leaves, parse, parse_command, unused, value_at, without
from etlrun.sources.base import open_source
from etlrun.stages import Stages
from etlrun.stages.base import SPEED
from etlrun.stages.dataset import Dataset, TFRecords
from etlrun.stages.sweep import Sweep, Tune
from etlrun.system.errors import ConfigError, EtlrunError, Fault, Overrides, override, refuse
from etlrun.system.values import Block, Composed, frozen, sha256_of


@frozen
class Job:
    """Job of a multirun.

    Attributes:
        overrides: Overrides with one value each, without those of the sweep itself and those unused in the job.
        config: Composed config as plain values.
        plan: Plan of the config.
    """

    overrides: list[str]
    config: Block
    plan: Plan

    @property
    def used(self) -> Block:
        """Config without unused values."""
        idle = self.plan.spec.unused
        return without(copy.deepcopy(self.config), idle) if idle else self.config


@frozen
class Multirun:
    """Settings of a multirun in Hydra's own config.

    Attributes:
        dir: Folder of the sweep.
        subdir: Folder of a job in it, unresolved.
        sweeper: Class of the sweeper, which selects the jobs.
        launcher: Class of the launcher, which runs them.
        settings: Settings of the launcher, if that is one of submitit's.
    """

    dir: str
    subdir: str
    sweeper: str
    launcher: str
    settings: Composed = field(default_factory=dict)

    @classmethod
    def of(cls, own: DictConfig) -> Self:
        """Create from Hydra's own config."""
        raw: Any = OmegaConf.to_container(own.sweep, resolve=False)
        sweeper, launcher = own.sweeper["_target_"], own.launcher["_target_"]
        found = cls(dir=str(own.sweep.dir), subdir=str(raw["subdir"]), sweeper=sweeper, launcher=launcher)
        settings: Any = OmegaConf.to_container(own.launcher, resolve=True) if found.is_submitit else {}
        return replace(found, settings=settings)

    @property
    def is_grid(self) -> bool:
        """Whether all jobs are known in advance."""
        return self.sweeper == "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"

    @property
    def is_basic(self) -> bool:
        """Whether the jobs run without a launcher plugin."""
        return self.launcher == "hydra._internal.core_plugins.basic_launcher.BasicLauncher"

    @property
    def is_submitit(self) -> bool:
        """Whether submitit runs the jobs, each as a job of its own."""
        return self.launcher.startswith("hydra_plugins.hydra_submitit_launcher.")

    def at_a_time(self, sweep: Sweep) -> int:
        """Return the number of jobs at a time, for which Slurm's launcher has a setting of its own."""
        return int(self.settings.get("array_parallelism", sweep.max_jobs_in_flight))


@frozen
class Unfit:
    """Combination that is skipped, since its values are incompatible.

    Attributes:
        overrides: Overrides as of a job.
        own: Overrides that not all combinations have; empty until they are compared.
        rules: Rules that it breaks, each with what was found.
    """

    overrides: tuple[str, ...]
    own: tuple[str, ...] = ()
    rules: tuple[str, ...]


def identity_of(values: Any) -> str:
    """Return 16 hex digits of a SHA-256 over all values of a config, or over others."""
    return sha256_of(json.dumps(values, sort_keys=True, default=str))


class Judge:
    """Creates jobs from combinations, and collects their faults.

    Attributes:
        jobs: Jobs of the valid combinations.
        unfit: Combinations whose only faults are broken rules between values.
        idle: Values of overrides that are unused in some combinations, by key; an entry for each of these.
    """

    def __init__(self, stages: Stages, *, skips_unfit: bool = False, is_search: bool = False) -> None:
        self.jobs: list[Job] = []
        self.unfit: list[Unfit] = []
        self.idle: dict[str, list[Unused]] = {}
        self._stages, self._skips_unfit, self._is_search = stages, skips_unfit, is_search
        self._faults: dict[str, Fault] = {}
        self._broken: Counter[str] = Counter()
        self._given: Counter[str] = Counter()
        self._combinations = 0

    def add(self, chosen: Chosen, config: Block) -> None:
        """Validate a combination and its composed config."""
        self._combinations += 1
        try:
            job_plan = planned(config, self._stages)
        except ConfigError as error:
            words = self._words(chosen, unused(config, self._stages))
            self._faults |= {str(fault): fault for fault in error.faults}
            self._broken.update({str(fault) for fault in error.faults})
            if all(fault.is_rule for fault in error.faults):
                rules = tuple(str(replace(fault, remedy="")) for fault in error.faults)
                self.unfit.append(Unfit(overrides=tuple(words), rules=rules))
        else:
            words = self._words(chosen, job_plan.spec.unused)
            self.jobs.append(Job(overrides=words, config=config, plan=job_plan))

    def _words(self, chosen: Chosen, idle: Iterable[Unused]) -> list[str]:
        """Return the overrides of a combination that have an effect on its job."""
        by_key = {value.key: value for value in idle}
        return [axis.word(value) for axis, value in chosen.items() if self._has_effect(axis, value, by_key)]

    def _has_effect(self, axis: Axis, value: Value, idle: Mapping[str, Unused]) -> bool:
        """Return whether an override has an effect on a job: not if all values that it sets are unused."""
        if axis.override.is_hydra_override():
            return False
        if axis.is_group or axis.override.is_delete():
            return True
        keys = [key for key, _ in leaves(axis.override.key_or_group, value.plain)]
        self._given.update(keys)
        for key in keys:
            if key in idle:
                self.idle.setdefault(key, []).append(idle[key])
        return not all(key in idle for key in keys)

    def faults(self) -> Iterator[Fault]:
        """Yield the faults that end the command: invalid or unused values, and rules that all jobs break."""
        for key, idle in self.idle.items():
            if len(idle) == self._given[key] or self._is_search:
                yield idle[0].fault
        nothing_fits = not self.jobs and not [fault for fault in self._faults.values() if not fault.is_rule]
        for text, fault in self._faults.items():
            breaks_all = self._broken[text] == self._combinations
            if not fault.is_rule or not self._skips_unfit or nothing_fits or breaks_all:
                yield fault


_ELSEWHERE = {"sweep": "run a sweep with: etlrun -m", "tune": "run etlrun tune"}


@frozen
class Grid:
    """All jobs of a command line.

    Attributes:
        jobs: Jobs in the order of the grid.
        unfit: Combinations that `sweep.unfit` skips.
        swept: Values of each key with several values, as on the command line.
        sweep: Settings of the sweep.
        multirun: Settings in Hydra's own config.
    """

    jobs: list[Job]
    unfit: list[Unfit]
    swept: dict[str, list[str]]
    sweep: Sweep
    multirun: Multirun


def of(request: Request, stages: Stages) -> Grid:
    """Compose and validate all configs of `request`; `ConfigError` with the faults of all of them.

    For a search, whose jobs are unknown, each value is combined with the first values of the other keys.
    """
    with _Command(request, stages) as command:
        sweep, multirun, params = command.settings()
        axes = [*command.axes_of([f"{key}={value}" for key, value in params.items()]), *command.axes]
        command.refuse_settings("tune")
        axes = [axis for axis in axes if not axis.command]
        swept = {axis.key: [value.text for value in axis.values] for axis in axes if len(axis.values) > 1}
        command.add(covered(axes))
        chosen: Iterable[Chosen] = one_by_one(axes)
        if multirun.is_grid:
            combinations = Combinations(axes, sweep.zip, sweep.exclude)
            command.add(combinations.faults)
            for axis in (axis for axis in axes if axis.override.is_interval_sweep()):
                remedy = "list the values, or search: hydra/sweeper=optuna"
                command.add([Fault(axis.key, "an interval", "values for a grid", remedy)])
            chosen = () if combinations.faults else combinations
        skips_unfit = multirun.is_grid and sweep.unfit == "skip"
        judge = command.judged(chosen, Judge(stages, skips_unfit=skips_unfit, is_search=not multirun.is_grid))
        if not command.faults and multirun.is_grid:
            command.add(_of_rounds(sweep, judge.jobs, stages))
        if not command.faults and not judge.jobs:
            expected = "at least one combination of the overrides' values"
            command.add([Fault(Sweep.key("exclude"), "rules that exclude every job", expected)])
        return Grid(jobs=judge.jobs, unfit=[*dict.fromkeys(judge.unfit)], swept=swept, sweep=sweep, multirun=multirun)


def _of_rounds(sweep: Sweep, jobs: Iterable[Job], stages: Stages) -> Iterator[Fault]:
    """Yield why jobs can't have splits of their own in each round: of the splits, or of what is read from them."""
    for job in jobs if sweep.cuts else ():
        faults = [*unfit_rounds(sweep, job.config), *_sorted(job.plan.spec.dataset)]
        yield from faults
        for turn in () if faults else range(sweep.rounds):
            config = copy.deepcopy(job.config)
            own = own_of(sweep, config, turn, 0)
            for key, value in own.items():
                put(config, key, value)
            try:
                planned(config, stages)
            except EtlrunError as error:
                for of in error.faults:
                    yield replace(of, remedy="set fewer sweep.folds") if sweep.folds and of.where in own else of
                break  # since other rounds have like ones


def _sorted(dataset: Dataset) -> Iterator[Fault]:
    """Yield the fault of records on this machine that are sorted by class, of which parts are no samples."""
    if isinstance(dataset, TFRecords) and not dataset.urls:
        with suppress(EtlrunError):  # that a run has without the files
            for note in open_source(dataset).notes:
                remedy = "write them again in random order"
                expected = "records in random order, so that a part of them is a sample"
                yield Fault(
                    dataset.key("files"),
                    note.partition(",")[0].removeprefix("The ").replace(" are ", " that are "),
                    expected,
                    remedy,
                )


def settings(request: Request, stages: Stages) -> tuple[Sweep, Multirun]:
    """Return the sweep settings of `request`; `ConfigError` with the faults found without composing jobs."""
    with _Command(request, stages) as command:
        return command.settings()[:2]


def resolve(request: Request, stages: Stages) -> Job:
    """Return the single config of `request` and its plan; `ConfigError` with all of its faults."""
    with _Command(request, stages) as command:
        command.refuse_settings("sweep", "tune")
        return command.only_job()


def to_start(request: Request, stages: Stages) -> tuple[Job, DictConfig]:
    """Return the single job of `request`, as `resolve` does, and its config with Hydra's own, `${now:}` resolved."""
    with _Command(request, stages) as command:
        command.refuse_settings("sweep", "tune")
        job = command.only_job()
    return job, with_hydra(command.files, request.overrides)


def tuned(request: Request, stages: Stages) -> tuple[Tune, Job]:
    """Return the settings of a search, and the config that it starts from; `ConfigError` with all faults of both."""
    with _Command(request, stages) as command:
        command.refuse_settings("sweep")
        try:
            tune = parse_command(command.block("tune"), Tune)
        except ConfigError as error:
            command.add(error.faults)
            command.only_job()  # for its faults
            raise
        return tune, command.only_job()


class _Command:
    """Command line whose faults are collected, each once, and raised together at the end; `axes` have none."""

    def __init__(self, request: Request, stages: Stages) -> None:
        self.request, self.stages, self.files = request, stages, composer(request)
        self.faults: dict[str, Fault] = {}
        self.unread: set[str] = set()  # keys that Hydra's grammar refuses, whose values are missing in all configs
        self._of_grammar: list[Fault] = []
        words, split = rejoined(request.overrides)
        self.add(split)
        self._of_grammar += split
        self.unread |= {fault.where for fault in split}
        overrides, strays = sorted_out(words)
        self.axes = self.axes_of(overrides)
        self.add(stray(*of, request.options, self._known_config(), stages) for of in strays)

    def __enter__(self) -> Self:
        if (objects := sys.modules.get("etlrun.remote.objects")) is not None:  # else none were looked up
            objects.look_up_again()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Raise all faults at once, except those that only follow from overrides that could not be read."""
        if isinstance(error, ConfigError):
            self.add(error.faults)
        faults = [fault for fault in self.faults.values() if not (self.unread and self._may_follow(fault))]
        if faults and (error is None or isinstance(error, ConfigError)):
            request, words = self.request, [of.override.input_line or "" for of in self.axes if not of.command]
            found = mended(faults, words, self.files, self.stages, self._composed)
            own = request.own_dir
            raise ConfigError([in_folder(of, own, request.overrides) for of in found]) from None

    def settings(self) -> tuple[Sweep, Multirun, Block]:
        """Return the sweep settings, and the grid in Hydra's own config."""
        try:
            own = self.files.with_hydra(self._first()[0]).hydra
        except UNCOMPOSABLE as error:
            raise ConfigError([refusal(error)]) from error
        raw: Any = OmegaConf.to_container(own, resolve=False)
        sweeper = {name: raw["sweeper"].get(name) for name in ("_target_", "params")}
        refuse(in_values(sweeper, "hydra.sweeper"))  # which become overrides, and are told
        self.add([*unfit_folder("hydra.sweep.dir", str(own.sweep.dir), raw["sweep"]["dir"]), *unfit_callbacks(own)])
        return parse_command(self.block("sweep"), Sweep), Multirun.of(own), own.sweeper.get("params") or {}

    def block(self, name: str) -> Any:
        """Return the values of a group of the first config; None if it has none of that name."""
        found = self.files.unresolved(*self._first()).get(name)
        return self.files.whole(*self._first()).get(name) if refers(found) else found

    def _first(self) -> tuple[list[str], list[tuple[str, Any]]]:
        return _words(next(one_by_one(self.axes)))

    def judged(self, combinations: Iterable[Chosen], judge: Judge) -> Judge:
        """Judge all combinations, and return `judge`."""
        chosen = None
        for chosen in combinations:
            try:
                judge.add(chosen, self.files.values(*_words(chosen)))
            except ConfigError as error:
                self.add(error.faults)
        self.add(judge.faults())
        if chosen is not None and not self.faults:
            self.add(unlisted(self.files.unresolved(_words(chosen)[0]), set_last(chosen), judge.idle))
        return judge

    def only_job(self) -> Job:
        """Return the job of a command line with one config."""
        self.add(axis.several for axis in self.axes if len(axis.values) > 1)
        chosen = one_by_one([axis for axis in self.axes if not axis.command])
        judge = self.judged(chosen, Judge(self.stages))
        if not judge.jobs:
            raise ConfigError([])  # with the faults that have been added
        return judge.jobs[0]

    def refuse_settings(self, *groups: str) -> None:
        """Add a fault for each setting of these commands."""
        for axis in self.axes:
            if axis.command in groups:
                found, remedy = f"a {COMMANDS[axis.command]} setting", f"{_ELSEWHERE[axis.command]}, or leave it out"
                self.add([Fault(axis.key, found, "settings of a run", remedy)])

    def add(self, faults: Iterable[Fault]) -> None:
        self.faults |= {str(fault): fault for fault in faults}

    def _composed(self, words: Sequence[str]) -> Block:
        """Return the first config of other words."""
        overrides = parsed(words, self.files.loader)[0]
        axes = [Axis.of(override, self.files.options(override.key_or_group)) for override in overrides]
        return self.files.values(*_words(next(one_by_one(axes))))

    def _may_follow(self, fault: Fault) -> bool:
        """Return whether a fault may come from the value that is missing for an override that could not be read."""
        is_of_them = any(f"{fault.where}.".startswith(f"{key}.") for key in self.unread)
        return fault not in self._of_grammar and (fault.is_rule or "experiment" in self.unread or is_of_them)

    def axes_of(self, words: Sequence[str]) -> list[Axis]:
        """Return the axes without faults; the faults of the others are collected."""
        overrides, faults = parsed(words, self.files.loader)
        self.add(faults)
        self._of_grammar += faults
        self.unread |= {fault.where.partition("=")[0].lstrip("+~") for fault in faults}
        axes = []
        for each in overrides:
            options = self.files.options(each.key_or_group)
            axis = Axis.of(each, options)
            stages = self.stages.get(each.key_or_group, {})
            fault = axis.fault(options, {name: option for option, stage in stages.items() for name in stage.names})
            if fault := fault or next(in_override(each.input_line or ""), None):
                self.add([fault])
            else:
                axes.append(axis)
        return axes

    def _known_config(self) -> Block:
        """Return the first config; empty if it can't be composed."""
        try:
            return self.files.values(_words(next(one_by_one([of for of in self.axes if not of.command])))[0])
        except ConfigError:
            return {}


def _words(chosen: Chosen) -> tuple[list[str], list[tuple[str, Any]]]:
    """Return the overrides of a combination, and the plain values that are set behind them, like Hydra's `++`."""
    last = set_last(chosen)
    left = {id(axis) for axis in last}
    words = [axis.word(value) for axis, value in chosen.items() if id(axis) not in left]
    return words, [(axis.key, chosen[axis].plain) for axis in last]


Compose = Callable[[list[str]], Block]
"""Function that composes words."""


def mended(
    faults: Sequence[Fault], words: Sequence[str], files: Composer, stages: Stages, compose: Compose | None = None
) -> Iterator[Fault]:
    """Yield the faults of the config that `words` compose with what ends each, and whether a person chooses.

    Those of rules have been tried. Others are known keys in the place of unknown ones, and defaults in the place of
    wrong values: what they leave is composed and parsed once more, and planned where planning has found the faults, or
    where there are several, since the data may refuse some.
    """
    compose = compose or files.values
    config, default = _values(words, compose), _values(_choices(words, files), compose)
    plan, usual = partial(planned, stages=stages), _judge(config, stages)
    for fault in faults:
        found, is_default = fault.overrides, False
        if not fault.is_rule and fault.remedy != INSTALL:
            if not found:
                found, is_default = _proposed(fault, words, config, default, stages)
            others = [word for word in words if not _sets(word, fault.where)]
            judge = plan if found[1:] else usual
            found = tuple(of for of in found if not _has(fault, [*others, *of], compose, judge))
        keys = [word.lstrip("~").partition("=")[0] for of in found for word in of if is_default or word[0] != "~"]
        changes = any(kinds_of(key, config, stages) != {SPEED} for key in keys)
        yield replace(fault, overrides=found, decide=changes and (is_default or len(found) > 1))


def _proposed(
    fault: Fault, words: Sequence[str], config: Composed, default: Composed, stages: Stages
) -> tuple[Overrides, bool]:
    """Return overrides that may end the fault of a value or of an unknown key, and whether they set the default."""
    where, path = fault.where, fault.where.split(".")
    value, usual = value_at(config, path), value_at(default, path)
    if fault.found == "an unknown key":
        gone = (f"~{where}",) * (value is not ABSENT and not any(_sets(word, where) for word in words))
        keys = [of for of in meant(where, config, stages) if of.path != where and (not of.needs or "=" in of.needs)]
        found = ((*filter(None, [of.needs]), *gone, override_of(of.path, value)) for of in keys)
        return tuple(found) or (gone,) * bool(gone), False
    wrong = value[0] if isinstance(value, list) and fault.found.startswith("[") else fault.found.strip("'")
    if fault.meant and (right := _corrected(value, wrong, fault.meant)) != value:
        return ((override_of(where, right),),), False
    names = [*value] if isinstance(value, list | Mapping) else [value]
    if where == "dataset.target" and len(names) == 1 and isinstance(names[0], str):
        return tuple((spelled(shlex.split(override(where, names[0], kind))[0]),) for kind in ("class", "number")), False
    if isinstance(usual, Mapping) or where == "dataset.storage":  # of a group or a block; or a store would be asked
        return (), False
    if usual is ABSENT:
        return ((f"~{where}",),) * (value is not ABSENT and "[" not in where), True
    fewer = [of for of in value if of != fault.found] if isinstance(value, list) else value
    return tuple((override_of(where, of),) for of in (fewer, usual) if of not in (value, [])), True


def _corrected(value: Any, wrong: object, meant: str) -> Any:
    """Return a value with the name that was meant in the place of a wrong one."""
    if isinstance(value, Mapping):
        return {_corrected(key, wrong, meant): of for key, of in value.items()}
    if isinstance(value, list):
        return [_corrected(of, wrong, meant) for of in value]
    return meant if value == wrong else value


def _sets(word: str, key: str) -> bool:
    return word.lstrip("+~").partition("=")[0] == key


def _choices(words: Sequence[str], files: Composer) -> list[str]:
    """Return the options that a config chooses of its groups, without what an experiment sets beside them."""
    with suppress(*UNCOMPOSABLE, ConfigError):
        return [f"{group}={of}" for group, of in options_of(files, [of for of in words if "." not in of]).items()]
    return []


def _judge(config: Composed, stages: Stages) -> Callable[[Block], object]:
    """Return what finds faults where those of a config are found: planning reads data, which values may not need."""
    try:
        parse(config, stages)
    except ConflictError as error:
        if error.spec is None:
            return partial(parse, stages=stages)
    return partial(planned, stages=stages)


def _values(words: Sequence[str], compose: Compose) -> Composed:
    """Return the config of some words; empty if it can't be composed."""
    with suppress(ConfigError):
        return compose([*words])
    return {}


def _has(fault: Fault, words: list[str], compose: Compose, judge: Callable[[Block], object]) -> bool:
    """Return whether a config has a fault, or can't be composed, of which Hydra tells one reason after the other."""
    try:
        judge(compose(words))
    except ConfigError as error:
        found = [of for of in error.faults if of.where in (fault.where, "config")]
        return any(fault.where not in ("", "config") or of.found == fault.found for of in found)
    except EtlrunError:  # of data, which are looked at behind all faults of values
        return False
    return False
