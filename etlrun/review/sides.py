"""Sides of a diff: overrides, a config file, a run's folder, or a git revision, each resolved to plans."""

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from etlrun.config import grid
from etlrun.config import request as requests
from etlrun.config.composer import MISSING, NOT_OF_A_RUN, UNCOMPOSABLE, Composer, refusal
from etlrun.config.files import Layer, unloadable, unreadable
from etlrun.config.overrides import in_one_argument, quoted
from etlrun.planning.learned import FILE, recalled
from etlrun.planning.plan import Plan, as_recorded
from etlrun.planning.planner import plan
from etlrun.planning.spec import GROUPS, leaves, parse, parse_command
from etlrun.record.config import CONFIG, PLAN, known_config
from etlrun.review.folders import Folders, Policy, at_revision, is_revision, located, no_side, policy_of
from etlrun.review.revisions import Changes, Process, Scratch, Sources, packages_of, sources_of
from etlrun.stages import STAGES
from etlrun.stages.paths import is_remote
from etlrun.stages.sweep import Sweep
from etlrun.system.errors import ConfigError, Fault, of_file
from etlrun.system.values import Composed, frozen

Given = Callable[[], Composed]
Words = tuple[str, ...]
DEFAULT = "default"
"""Name of the run without an experiment."""
_OF_DATA = {"dir", "file", "files", "folder", "weights", "words"}
"""Keys of files, patterns and folders of data in the groups `dataset`, `transform` and `model`."""


@frozen
class Variant:
    """Config of a side.

    Attributes:
        config: Composed config; None if it cannot be composed.
        plan: Plan of the config; None if the config has faults.
        faults: Faults, with files and lines.
        layers: Files that the config is composed of.
        files: Names of these files in messages.
        missing: Keys that the config leaves to the command line, which have stand-ins here.
        runs: Folders of the runs of this config, none if no one has begun; None if it is not that of runs.
        overrides: Overrides of a job of a sweep; empty for any other config.
        sweep: Settings of the sweep; None for any other config.
        sources: Sources of what packages of a revision add to it; None for what this process has imported.
    """

    config: Composed | None
    plan: Plan | None
    faults: tuple[Fault, ...] = ()
    layers: tuple[Layer, ...] = ()
    files: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    runs: tuple[Path, ...] | None = None
    overrides: tuple[str, ...] = ()
    sweep: Sweep | None = None
    sources: Sources | None = None

    @property
    def data_files(self) -> dict[tuple[str, str], None]:
        """Files, patterns and folders that it names as data, each with its dotted key; but stand-ins."""
        groups = {group: (self.config or {}).get(group) for group in ("dataset", "transform", "model")}
        stand_ins = tuple(f"{key}." for key in self.missing)
        return {
            (key, text): None
            for key, text in _texts("", groups)
            if not (is_remote(text) or _OF_DATA.isdisjoint(key.split(".")) or f"{key}.".startswith(stand_ins))
        }

    @property
    def code(self) -> Sources:
        """Sources of what packages add to it; none of a run, whose code is as it was noted."""
        if self.sources is not None or self.plan is None or self.runs:
            return self.sources or {}
        return sources_of(self.plan)

    @property
    def is_unfit(self) -> bool:
        """Whether its only faults are values that conflict with each other."""
        return self.plan is None and all(fault.is_rule for fault in self.faults)


@frozen
class Side:
    """One of the two sides of a diff.

    Attributes:
        word: Argument as given.
        variants: Configs by the name of their experiment; a single one with an empty name if the side is one config.
        files: Content of all config files of a revision; empty for other sides.
        listed: Names of the variants of a revision that a review of all of them has.
        policy: Policy in the folders of a revision; None if there is none.
        jobs: Configs of the jobs of a sweep; empty for other sides.
        revision: Git revision of the configs, or the commit of a run that had no other files, if the repository has it;
            empty for those of the working tree, and for other sides.
        process: Process that has the code and the data files of the revision; None if this one has them.
        note: What is known of the commit of a run beside a revision; empty for other sides.
    """

    word: str
    variants: Mapping[str, Variant]
    files: Mapping[str, bytes] = field(default_factory=dict)
    listed: tuple[str, ...] = ()
    policy: Policy | None = None
    jobs: tuple[Variant, ...] = ()
    revision: str = ""
    process: Process | None = None
    note: str = ""

    def call(self, function: Callable[..., Any], *given: Any) -> Any:
        """Return what a function returns where the code and the data files of this side are."""
        return function(*given) if self.process is None else self.process.call(function, *given)

    @property
    def is_revision(self) -> bool:
        """Whether this is a revision, which may have several experiments."""
        return bool(self.files)

    @property
    def is_of_runs(self) -> bool:
        """Whether this is a run, or a sweep."""
        return bool(self.jobs) or any(variant.runs is not None for variant in self.variants.values())


def _texts(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts in a value, those in lists too, with their dotted keys."""
    for path, inner in leaves(key, value):
        if isinstance(inner, str):
            yield path, inner
        for item in inner if isinstance(inner, list | tuple) else ():
            yield from _texts(path, item)


def of_runs(config: Composed, *runs: Path) -> Variant:
    """Return the config of some runs; `EtlrunError` if it has faults."""
    spec = parse(config, STAGES)
    run = next((run for run in runs if (run / PLAN).is_file() or (run / FILE).is_file()), None)
    if run is None:
        return Variant(config=config, plan=plan(spec), runs=runs or None)
    return Variant(config=config, plan=as_recorded(plan(recalled(spec, run)), run / PLAN), runs=runs)


def resolve(
    word: str, now: Folders, experiment: str | None, like: Side | None = None, run: requests.Request | None = None
) -> Side:
    """Return the side that `word` names; `ConfigError` if it names nothing, or an invalid config.

    Configs that `like` has composed of the same files are reused. Of a revision it is the config that the request of a
    `run` composes there, if given.
    """
    path = Path(word)
    try:
        if word and os.path.isfile(path / CONFIG):  # noqa: PTH113 - false for many overrides, too long for a name
            config = known_config(path, "restore the file, or name another run")
            return Side(word=word, variants={"": of_runs(config, path)})
        if path.suffix in {".yaml", ".yml"} and path.is_file():
            return _of_file(word, path.resolve(), now)
        if not word or "=" in word or word.startswith(("+", "~")):
            try:
                return of_request(word, now.request(shlex.split(word)).resuming())
            except ConfigError as error:
                raise ConfigError([in_one_argument(fault, word) for fault in error.faults]) from error
        if is_revision(word):
            scratch = Scratch()
            return _of_revision(word, at_revision(word, now, scratch.path / "tree"), experiment, like, run)
    except UNCOMPOSABLE as error:
        raise ConfigError([replace(refusal(error), where=word)]) from error
    except OSError as error:
        raise ConfigError([unreadable(word, error)]) from error
    raise ConfigError([no_side(word)])


def of_request(word: str, request: requests.Request) -> Side:
    """Return the side of the config of a request; `ConfigError` with all of its faults."""
    job = grid.resolve(request, STAGES)
    return Side(word=word, variants={"": Variant(config=job.config, plan=job.plan)})


def _of_revision(
    word: str, then: Folders, experiment: str | None, like: Side | None, run: requests.Request | None
) -> Side:
    """Return the side of a revision, planned with its own code and data files, in a process where it has others."""
    changes = Changes(word)
    packages = packages_of(changes.top, word)
    if all(package.is_same(changes) for package in packages):
        side = of_folders(word, then, experiment, like) if run is None else _of_run_at(word, then, run)
        variants = side.variants.values() if changes.names else ()
        if not changes.files(path for of in variants for _, path in of.data_files):
            return side
    process = Process(changes, word, packages)
    planned: Side = process.call(_planned_there, word, then, experiment, run)
    return replace(planned, process=process)


def _planned_there(word: str, then: Folders, experiment: str | None, run: requests.Request | None) -> Side:
    side = of_folders(word, then, experiment) if run is None else _of_run_at(word, then, run)
    return replace(side, variants={name: replace(of, sources=of.code) for name, of in side.variants.items()})


def _of_run_at(word: str, then: Folders, run: requests.Request) -> Side:
    """Return the side of the config that the overrides of a run compose at a revision; `ConfigError` as they do."""
    try:
        side = of_request(word, then.request(run.overrides, run.config_name).resuming())
    except ConfigError as error:
        raise ConfigError([replace(of, where=f"{word}: {of.where}") for of in error.faults]) from error
    return replace(side, policy=policy_of(then), revision=then.revision)


class Options:
    """The options of config folders, each combination of which is composed once.

    Attributes:
        files: Composer of the folders.
        folders: The folders.
        experiments: Experiments to review: those of the user, or, without own configs, of the project.
        made: Configs by their overrides.
    """

    def __init__(self, folders: Folders) -> None:
        self.files, self.folders = requests.composer(folders.request([])), folders
        self.experiments = [of for of in self.files.options("experiment") if folders.is_own(f"experiment={of}")]
        self.made: dict[Words, Variant] = {}

    @cached_property
    def by_group(self) -> dict[str, list[str]]:
        """Overrides that select the other options; none for own configs with experiments alone."""
        homes = {path.parent.name for path in self.folders.paths.values() if self.folders.own in path.parents}
        has_options = self.folders.own is None or bool(homes - {"experiment"})
        groups = [group for group in self.files.groups() if group != "experiment"] if has_options else []
        return {group: [f"{group}={option}" for option in self.files.options(group)] for group in groups}

    @property
    def own(self) -> list[str]:
        """Those of these overrides to review."""
        return [word for words in self.by_group.values() for word in words if self.folders.is_own(word)]

    def variant(self, *words: str) -> Variant:
        """Return the config of some options, and of the defaults of the other groups."""
        if words not in self.made:
            self.made[words] = composed(list(words), self.files, self.folders, self._stand_ins if words else None)
        return self.made[words]

    def _stand_ins(self) -> dict[str, object]:
        """Return values for mandatory keys (`???`), by dotted key: those of the default run, and some that it lacks."""
        return {
            "dataset.dir": ".",
            "dataset.files": {"train": "*.tfrecord"},
            "dataset.of": "rows",
            "dataset.folder": "no/folder",
            "dataset.num_classes": 2,
            "load.service.address": "localhost:5050",
            "load.service.trusted_network": True,
            **dict(leaves("", self.variant().config or {})),
            "dataset.target": {"label": "class"},
        }


def of_folders(word: str, folders: Folders, experiment: str | None, like: Side | None = None) -> Side:
    """Return the side with the experiments of the folders, or one of them; their faults are kept in the variants.

    Of a user's own configs it has the own experiments, and the options that none of these uses. Configs that `like` has
    composed of the same files, with the same code, are reused.
    """
    options = Options(folders)
    known = options.files.options("experiment")
    if DEFAULT in known:
        raise ConfigError([named_default(folders)])
    if like is not None and like.process is None and like.files.keys() == folders.files.keys():
        same = {name for name, content in like.files.items() if folders.files[name] == content}
        taken = {_words(name): of for name, of in like.variants.items() if of.plan and of.files}
        options.made = {words: of for words, of in taken.items() if same.issuperset(of.files)}
    listed = [DEFAULT] * (folders.own is None) + options.experiments if experiment is None else [experiment]
    names = [DEFAULT, *(name for name in listed if name in known)]
    if folders.own is not None and experiment is None:
        used = {name for of in names for name in options.variant(*_words(of)).files}
        further = [of for of in options.own if of.partition("=")[0] not in NOT_OF_A_RUN]
        names += further
        listed += [of for of in further if folders.file_of(of) not in used]
    made = {name: options.variant(*_words(name)) for name in names}
    return Side(
        word=word,
        variants=made,
        files=folders.files,
        listed=tuple(name for name in listed if name in made),
        policy=policy_of(folders),
        revision=folders.revision,
    )


def _words(name: str) -> Words:
    return () if name == DEFAULT else (name if "=" in name else f"experiment={name}",)


def named_default(folders: Folders) -> Fault:
    """Return the fault of an experiment with the name of the run without one."""
    name = next(name for name in folders.files if name.endswith(f"experiment/{DEFAULT}.yaml"))
    expected = "another name: this one is reserved for the run without an experiment"
    return of_file(f"{folders.prefix}{name}", DEFAULT, expected)


def composed(words: list[str], files: Composer, folders: Folders, given: Given | None = None) -> Variant:
    """Compose the options `words`. Mandatory values (`???`) are taken from what `given` returns, by dotted key."""
    config, made = None, None
    faults, missing = tuple[Fault, ...](), tuple[str, ...]()
    overrides = [quoted(word) for word in words]
    layers = files.layers(overrides)
    try:
        whole = files.whole(overrides)
        is_open = given is not None and MISSING in repr(whole)
        missing = tuple(key for key, value in leaves("", whole) if value == MISSING) if is_open else ()
        values = given() if given is not None and missing else {}
        config = files.values(overrides, [(key, values.get(key, ".")) for key in missing])  # mostly paths
        if (swept := whole.get("sweep")) is not None:  # as in old revisions
            parse_command(swept, Sweep)
        made = plan(parse(config, STAGES))
        # An error in files; on a command line, the user may have selected another option.
        if idle := [value.fault for value in made.spec.unused if not value.is_default]:
            raise ConfigError(idle)  # noqa: TRY301
    except ConfigError as error:
        faults = tuple(located(fault, layers, folders, words) for fault in error.faults)
    names = tuple(dict.fromkeys(folders.name(layer.path) for layer in layers))
    return Variant(config=config, plan=made, faults=faults, layers=layers, files=names, missing=missing)


def _of_file(word: str, path: Path, now: Folders) -> Side:
    """Return the side of a file: a group option, a composed config, a primary config, or an overlay."""
    for folder in (now.base, now.own):
        if folder is not None and path.is_relative_to(folder) and path.parent != folder:
            option = path.relative_to(folder).with_suffix("")
            if folder is now.own and (now.base / option).with_suffix(".yaml").is_file():
                raise ConfigError([hidden(word)])
            return of_request(word, now.request([quoted(f"{option.parent.as_posix()}={option.name}")]))
    if broken := unloadable(path, word):
        raise ConfigError([broken])
    values = yaml.safe_load(path.read_bytes())
    if isinstance(values, dict) and "defaults" in values:
        return of_request(word, replace(now.request([], path.stem), config_dir=str(path.parent)))
    if isinstance(values, dict) and values.keys() >= set(GROUPS):
        config = {key: value for key, value in values.items() if key not in NOT_OF_A_RUN}
        return Side(word=word, variants={"": of_runs(config)})
    scratch = Scratch()
    overlay = scratch.path / "experiment" / "overlay.yaml"
    overlay.parent.mkdir()
    overlay.write_bytes(path.read_bytes())
    return of_request(word, replace(now.request(["experiment=overlay"]), config_dir=str(scratch.path)))


def hidden(name: str) -> Fault:
    """Return the fault of a user's file with the name of one of the project's."""
    found = "a file that Hydra never reads, since the project has a file of that name"
    return of_file(name, found, "a unique name", "rename it; it may begin with `defaults: [NAME, _self_]`")
