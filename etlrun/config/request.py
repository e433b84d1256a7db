"""Requests: the part of a command line that selects a config, and its composition by Hydra."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from omegaconf import DictConfig

from etlrun.config.composer import UNCOMPOSABLE, Composer, refusal
from etlrun.config.files import ConfigFiles, ConfigFolders, config_files, unreadable
from etlrun.config.folders import config_dir, found_folder, own_folder
from etlrun.config.overrides import parsed, set_to, spelled
from etlrun.planning.spec import GROUPS, leaves, parse_command, show
from etlrun.record.folders import found_by
from etlrun.stages.paths import is_remote
from etlrun.stages.sweep import Sweep
from etlrun.system.errors import ConfigError, Fault, did_you_mean, refuse
from etlrun.system.values import Block, Composed, frozen

VERSION_BASE = "1.3"
RESUME = "trainer.resume="
PRIMARY = "config"
"""Name of the primary config, unless another one is named."""


@frozen
class Request:
    """Part of a command line that selects a config.

    Attributes:
        overrides: Overrides in Hydra's grammar.
        base_dir: Folder of the project's configs; None for those of this installation.
        config_dir: Folder of the user's own configs that is named; None for that of the current folder.
        config_name: Name of the primary config.
        multirun: Whether overrides may have several values, one for each job.
        options: Options of the command, beside those that every command has.
    """

    overrides: list[str]
    base_dir: str | None = None
    config_dir: str | None = None
    config_name: str | None = None
    multirun: bool = False
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Quote texts for Hydra's grammar, which refuses them: all that follows reads it."""
        object.__setattr__(self, "overrides", [*map(spelled, self.overrides)])

    @classmethod
    def of(cls, arguments: list[str]) -> Request:
        """Return the request in `arguments`, whose other words are its overrides, whether they are any or not."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--config-dir", "-cd")
        parser.add_argument("--config-name", "-cn")
        parser.add_argument("--multirun", "-m", action="store_true")
        known, rest = parser.parse_known_args(arguments)
        return cls(
            overrides=rest,
            config_dir=known.config_dir,
            config_name=known.config_name,
            multirun=known.multirun or "hydra.mode=MULTIRUN" in rest,
        )

    def resuming(self) -> Request:
        """Return this request merged with the overrides and configs of the run it resumes; its own take precedence."""
        word = self.folder_of(RESUME)
        if not word:
            return self
        from etlrun.record.summary import read_summary  # whose models take a tenth of a second to define

        folder = found_by(word, RESUME, "run")
        summary, own = read_summary(folder), self.overrides
        named = set_to(RESUME, folder)
        own = [re.sub(rf"^(\+*){RESUME}.*", lambda plus: plus[1] + named, of, flags=re.DOTALL) for of in own]
        if summary is None:
            return self
        return dataclasses.replace(
            self,
            overrides=merged(summary.overrides, own),
            config_dir=self.config_dir or summary.config_dir,
            config_name=self.config_name or summary.config_name,
        )

    @property
    def own_dir(self) -> str | None:
        """Folder of the user's own configs, searched after the project's; None for none."""
        return found_folder() if self.config_dir is None and self.base_dir is None else self.config_dir

    @property
    def files(self) -> list[str]:
        """Options that name the folder and the name of config files."""
        named = {"--config-dir": self.config_dir, "--config-name": self.config_name}
        return [word for option, value in named.items() if value is not None for word in (option, value)]

    def folder_of(self, key: str) -> str | None:
        """Return the folder that the last override of a key, which ends in `=`, names; None for none, or for null."""
        overrides, _ = parsed([word for word in self.overrides if word.lstrip("+").startswith(key)], None)
        folder = overrides[-1].value() if overrides else None
        if isinstance(folder, int | float):  # of which a name may consist
            return str(overrides[-1].get_value_element_as_str())
        return folder if isinstance(folder, str) else None


def requested(parser: argparse.ArgumentParser, arguments: list[str]) -> tuple[argparse.Namespace, Request]:
    """Return the options of a command whose `parser` takes overrides, and the request for the config they select."""
    known, unknown = parser.parse_known_intermixed_args(arguments)
    overrides = known.overrides
    if unknown:  # in their order, since a value stands behind its option
        overrides = [word for word in arguments if word in {*known.overrides, *unknown}]
    options = tuple(re.findall(r"--[a-z-]+", parser.format_usage()))
    return known, Request(
        overrides=overrides, config_dir=known.config_dir, config_name=known.config_name, options=options
    )


def composed(request: Request) -> Block:
    """Return the config of `request` as Hydra composes it, without validation."""
    return composer(request).values(request.overrides)


def changed_from_defaults(request: Request, config: Composed) -> Block:
    """Return what differs in a composed config from the defaults.

    These are the options that the primary config does not choose, by group, and the values that the files of the
    options do not have, by dotted key.
    """
    own = composer(request)
    plain = own if request.config_name is None else composer(dataclasses.replace(request, config_name=None))
    before, now = options_of(plain, []), options_of(own, request.overrides)
    options = {group: option for group, option in now.items() if option != before.get(group)}
    defaults = dict(leaves("", plain.values([f"{group}={option}" for group, option in options.items()])))
    values = {key: of for key, of in leaves("", config) if key not in defaults or defaults[key] != of}
    return options | values


def options_of(files: Composer, overrides: Sequence[str]) -> dict[str, str]:
    """Return the option of each group of a run that overrides choose."""
    layers = files.layers(overrides)
    return {of.package: of.path.stem for of in layers if of.package in GROUPS and of.package == of.path.parent.name}


def composer(request: Request) -> Composer:
    """Return a composer for the config folders of `request`."""
    for plugin in (ConfigFiles, ConfigFolders):
        Plugins.instance().register(plugin)
    base = request.base_dir or str(config_dir())
    ConfigFolders.own = [] if (own := request.own_dir) is None else [own_folder(own)]
    before, GlobalHydra.instance().hydra = GlobalHydra.instance().hydra, None  # of a program that uses Hydra itself
    try:
        with hydra.initialize_config_dir(base, job_name="etlrun", version_base=VERSION_BASE):
            return Composer(GlobalHydra.instance().config_loader(), request.config_name or PRIMARY)
    finally:
        ConfigFolders.own = None
        GlobalHydra.instance().hydra = before


def by_hydra(arguments: Sequence[str], job: Callable[[DictConfig], Any]) -> None:
    """Let Hydra print what its options ask for, or call `job`; some of its errors it reports itself."""
    is_named = any(word.partition("=")[0] in ("--config-dir", "-cd") for word in arguments)
    own = None if is_named else found_folder()
    sys.argv[1:] = [*map(spelled, arguments), *(() if own is None else ("--config-dir", own))]
    try:
        hydra.main(str(config_dir()), PRIMARY, VERSION_BASE)(job)()
    except UNCOMPOSABLE as error:
        raise ConfigError([refusal(error)]) from error


def files_digest(request: Request) -> str:
    """Return 16 hex digits of a SHA-256 over all config files of `request`; `ConfigError` if one is unreadable."""
    digest = hashlib.sha256()
    for folder in (config_dir(), *([Path(own)] if (own := request.own_dir) else [])):
        for path in config_files(folder):
            try:
                text = path.read_bytes()
            except OSError as error:
                raise ConfigError([unreadable(str(path), error)]) from error
            digest.update(os.fsencode(path.relative_to(folder)) + b"\0" + text + b"\0")
    return digest.hexdigest()[:16]


def with_hydra(files: Composer, overrides: Sequence[str]) -> DictConfig:
    """Return the config of a run with Hydra's own; `ConfigError` if `hydra.run.dir` or `hydra.callbacks` are unfit."""
    try:
        config = files.with_hydra(overrides)
        folder = str(config.hydra.run.dir)
    except UNCOMPOSABLE as error:
        raise ConfigError([refusal(error)]) from error
    refuse([*unfit_folder("hydra.run.dir", folder, folder), *unfit_callbacks(config.hydra)])
    return config


def noted(settings: DictConfig) -> Block:
    """Return what a run notes of its command line, from Hydra's own config: its overrides and a person's configs."""
    own_configs = [source.path for source in settings.runtime.config_sources if source.provider == "command-line"]
    return {
        "overrides": list(settings.overrides.task),
        "config_dir": next(iter(own_configs), None),
        "config_name": None if settings.job.config_name == PRIMARY else settings.job.config_name,
    }


def unfit_folder(key: str, folder: str, text: str) -> Iterator[Fault]:
    """Yield the fault of a run folder that is not a local path; `text` is what the config says."""
    if not folder or folder.startswith("~") or is_remote(folder):
        found = f"'{text}'" if folder else "nothing"
        yield Fault(key, found, "the path of a folder on this machine, without ~")


def unfit_callbacks(own: DictConfig) -> Iterator[Fault]:
    """Yield the fault of callbacks in Hydra's own config, which nothing calls."""
    if own.callbacks:
        remedy = "leave them out, or use callbacks of Keras: trainer.callbacks"
        yield Fault("hydra.callbacks", ", ".join(own.callbacks), "none: Hydra's callbacks are not called", remedy)


def merged(before: Iterable[str], now: Sequence[str]) -> list[str]:
    """Return the overrides of a previous command line and of the current one, which takes precedence."""
    given = {_key(word) for word in now}
    return [*(word for word in before if _key(word) not in given), *now]


def _key(word: str) -> str:
    return word.split("=", maxsplit=1)[0].lstrip("+~")


def overlaid(config: Composed, words: Sequence[str], config_dir: str | None) -> tuple[Block, set[str]]:
    """Return `config` with overrides, and their keys: options replace whole groups, values replace single ones.

    Options are those of the project's configs, and of the folder `config_dir`.

    Raises:
        ConfigError: Overrides are not in Hydra's grammar, have several values, or name an unknown group or option.
    """
    overrides, faults = parsed(words, None)
    faults += [fault for override in overrides for fault in _unfit(override)]
    overlay = copy.deepcopy(dict(config))
    for override in sorted(overrides, key=lambda override: "." in override.key_or_group):  # groups first, as in Hydra
        *path, name = override.key_or_group.split(".")
        if not path and name in GROUPS:
            try:
                overlay[name] = composed(Request(overrides=[str(override.input_line)], config_dir=config_dir))[name]
            except ConfigError as error:
                faults += [dataclasses.replace(fault, where=name) for fault in error.faults]
        elif path:
            put(overlay, override.key_or_group, override.value())
    refuse(faults)
    return overlay, {override.key_or_group for override in overrides}


def changed(sweep: Sweep, words: Sequence[str]) -> Sweep:
    """Return `sweep` with overrides applied; the rules that selected its jobs can no longer be changed."""
    overrides, faults = parsed(words, None)
    values = dataclasses.asdict(sweep)
    for override in overrides:
        key = str(override.key_or_group).removeprefix("sweep.")
        if key in {"exclude", "zip"}:
            expected = "the rules that the sweep started with"
            faults.append(Fault(f"sweep.{key}", "different rules", expected, "leave it out"))
        then, values[key] = values.get(key), override.value()
        now = tuple(values[key]) if isinstance(values[key], list) else values[key]
        if key in {"folds", "vary", "comparisons"} and now != then:
            expected = f"{show(then)}, as at the start of the sweep"
            faults.append(Fault(Sweep.key(key), show(now), expected, "start a new sweep"))
    refuse(faults)
    return parse_command(values, Sweep)


def _unfit(override: Override) -> Iterator[Fault]:
    key = override.key_or_group
    if override.is_delete() or override.is_add() or override.is_sweep_override():
        found = "several values" if override.is_sweep_override() else str(override.input_line)
        yield Fault(key, found, "KEY=VALUE with one value, for a key of the run's config")
    elif "." not in key and key not in GROUPS:
        expected = f"one of the groups {', '.join(GROUPS)}"
        yield Fault(key, "an unknown group", expected, did_you_mean(key, GROUPS))


def put(values: Block, key: str, value: Any) -> None:
    """Set the value of a dotted key; what stands in the place of a block on the way is replaced."""
    *path, name = key.split(".")
    for part in path:
        inner = values.get(part)
        values[part] = values = inner if isinstance(inner, dict) else {}
    values[name] = value
