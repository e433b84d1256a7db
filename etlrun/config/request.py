"""The config folders of a command line, and what Hydra makes of them."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hydra
from hydra import version
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from etlrun.config.composer import UNCOMPOSABLE, Composer, refusal
from etlrun.config.files import config_files, unreadable
from etlrun.errors import ConfigError, Fault
from etlrun.record.summary import read_summary
from etlrun.stages.base import is_remote

VERSION_BASE = "1.3"
RESUME = "trainer.resume="


def config_dir() -> Path:
    """The folder of the configs: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parents[1]
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
        unknown: Options that are not among these.
        multirun: Whether overrides may have several values, one for each job.
    """

    overrides: list[str]
    base_dir: str | None = None
    config_dir: str | None = None
    config_name: str | None = None
    multirun: bool = False
    unknown: list[str] = field(default_factory=list)

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
            unknown=[word for word in rest if word.startswith("-")],
            config_dir=known.config_dir,
            config_name=known.config_name,
            multirun=known.multirun or "hydra.mode=MULTIRUN" in rest,
        )

    def resuming(self) -> Request:
        """This request with the overrides and the own configs of the run that it resumes; its own ones win."""
        options = [
            word.lstrip("+").removeprefix(RESUME) for word in self.overrides if word.lstrip("+").startswith(RESUME)
        ]
        folders = [option.strip("'\"") for option in options if option != "null"]
        summary = read_summary(Path(folders[-1])) if folders else None
        if summary is None:
            return self
        return dataclasses.replace(
            self,
            overrides=merged(summary.overrides, self.overrides),
            config_dir=self.config_dir or summary.config_dir,
        )

    @property
    def arguments(self) -> list[str]:
        """The command line in an order that Hydra's parser takes: no override stands behind an option."""
        named = {"--config-dir": self.config_dir, "--config-name": self.config_name}
        options = [f"{option}={value}" for option, value in named.items() if value is not None]
        return [*self.overrides, *options, *self.unknown, *(["--multirun"] if self.multirun else [])]


def composed(request: Request) -> dict[str, Any]:
    """The config of `request` as Hydra composes it, neither parsed nor checked."""
    with composer(request) as files:
        return files.values(request.overrides)


def own_folder(path: str) -> Path:
    """The folder of a person's own configs; `ConfigError` where it is not there."""
    folder = Path(path).resolve()
    if not folder.is_dir():
        fault = Fault(
            where="--config-dir",
            found=f"no folder {folder}",
            expected="a folder of configs",
            remedy="give the path of a folder that exists",
        )
        raise ConfigError([fault])
    return folder


@contextmanager
def composer(request: Request) -> Iterator[Composer]:
    """Composes configs of the folders of `request`, for as long as the block lasts."""
    version.setbase(VERSION_BASE)
    search_path = create_config_search_path(request.base_dir or str(config_dir()))
    if request.config_dir is not None:
        folder = own_folder(request.config_dir)
        search_path.prepend("command-line", f"file://{folder}", anchor=SearchPathQuery(provider="schema"))
    Hydra.create_main_hydra2(task_name="etlrun", config_search_path=search_path)
    try:
        yield Composer(GlobalHydra.instance().config_loader(), request.config_name or "config")
    finally:
        GlobalHydra.instance().clear()


def files_digest(request: Request) -> str:
    """16 hex digits of a SHA-256 over all config files that `request` could read; `ConfigError` if one can't be."""
    digest = hashlib.sha256()
    for folder in (config_dir(), *([Path(request.config_dir)] if request.config_dir else [])):
        for path in config_files(folder):
            try:
                text = path.read_bytes()
            except OSError as error:
                raise ConfigError([unreadable(str(path), error)]) from error
            digest.update(os.fsencode(path.relative_to(folder)) + b"\0" + text + b"\0")
    return digest.hexdigest()[:16]


def by_hydra(request: Request, overrides: Sequence[str]) -> DictConfig:
    """With Hydra's own config in it."""
    name = request.config_name or "config"
    config: DictConfig = hydra.compose(config_name=name, overrides=list(overrides), return_hydra_config=True)
    return config


def with_hydra(request: Request) -> DictConfig:
    """Return the config of a run with Hydra's own in it, for `${now:}` as of now, while `composer` is at work.

    Raises:
        ConfigError: `hydra.run.dir` means no folder on this machine.
    """
    try:
        config = by_hydra(request, request.overrides)
        folder = str(config.hydra.run.dir)
    except UNCOMPOSABLE as error:
        raise ConfigError([refusal(error)]) from error
    faults = list(unfit_folder("hydra.run.dir", folder))
    if faults:
        raise ConfigError(faults)
    return config


def unfit_folder(key: str, folder: str) -> Iterator[Fault]:
    """The fault of a folder for runs that would be made in another place than is meant."""
    if not folder or folder.startswith("~") or is_remote(folder):
        found = f"'{folder}'" if folder else "nothing"
        yield Fault(where=key, found=found, expected="the path of a folder on this machine, without ~")


def merged(before: Iterable[str], now: Sequence[str]) -> list[str]:
    """The overrides of a command line that went before, and those of this one, which win."""
    given = {_key(word) for word in now}
    return [*(word for word in before if _key(word) not in given), *now]


def _key(word: str) -> str:
    return word.split("=", maxsplit=1)[0].lstrip("+~")
