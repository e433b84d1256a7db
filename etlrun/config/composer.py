"""Composition of many configs from the same folders: each file is read once, and Hydra's own config is omitted."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import hydra
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.defaults_list import DefaultsList, create_defaults_list
from hydra.core.default_element import InputDefault, ResultDefault
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from etlrun.config import resolvers
from etlrun.config.choices import Choices
from etlrun.config.files import Copying, Readable
from etlrun.config.refusals import UNCOMPOSABLE, refusal
from etlrun.system.errors import ConfigError

NOT_OF_A_RUN = {"hydra", "sweep", "tune"}
"""Config keys that are not part of a plan."""
MISSING = "???"
"""Placeholder for a mandatory value in a config."""


@dataclass(frozen=True)
class Layer:
    """File that a config is composed of.

    Attributes:
        path: Path of the file.
        package: Dotted path of its package; empty for the root.
    """

    path: Path
    package: str


class Composer:
    """Composes configs while Hydra is set up for their folders."""

    def __init__(self, loader: Any, config_name: str) -> None:
        self.loader: ConfigLoaderImpl = loader
        self.loader.repository = Copying(loader.config_search_path)
        self._name = config_name
        self._files: ConfigRepository = Readable(loader.config_search_path)
        self._parser = OverridesParser.create()
        self._blocks: dict[str, dict[str, Any]] = {}
        self._lists: dict[tuple[str, ...], DefaultsList] = {}
        self._configs: dict[tuple[str, ...], DictConfig] = {}
        self._containers: dict[tuple[str, ...], Any] = {}
        self._choices: Choices | None = None

    def values(self, overrides: Sequence[str]) -> dict[str, Any]:
        """Return the config as plain values with references resolved and missing values (`???`) removed."""
        return _of_a_run(_without_missing(self._container(overrides)))

    def block(self, name: str, overrides: Sequence[str]) -> Any:
        """Return the values of a group that is not part of a run; None if the config has none of that name."""
        return self._container(overrides).get(name)

    def missing(self, overrides: Sequence[str]) -> list[str]:
        """Return the dotted keys of missing values (`???`)."""
        return _missing(self._container(overrides), "")

    def _container(self, overrides: Sequence[str]) -> Any:
        """Return the whole config with references resolved; where it has none, OmegaConf is not asked, which is slow.

        Raises:
            ConfigError: It can't be composed.
        """
        key = tuple(overrides)
        if key not in self._containers:
            try:
                merged, defaults = self._merged(overrides)
                is_plain = not defaults.config_overrides and "${" not in repr(merged)
            except (*UNCOMPOSABLE, _NotPlainError):
                is_plain = False
            try:
                found: Any = merged if is_plain else with_references(self.config(overrides))
            except UNCOMPOSABLE as error:
                raise ConfigError([refusal(error)]) from error
            self._containers[key] = found
        return self._containers[key]

    def config(self, overrides: Sequence[str]) -> DictConfig:
        """Compose a config as Hydra does; if it fails without Hydra's own config, it is composed with it."""
        key = tuple(overrides)
        if key not in self._configs:
            try:
                self._configs[key] = self._without_hydra(overrides)
            except (*UNCOMPOSABLE, _NotPlainError):
                with maps_where_needed():
                    self._configs[key] = hydra.compose(config_name=self._name, overrides=list(overrides))
        return self._configs[key]

    def layers(self, overrides: Sequence[str]) -> tuple[Layer, ...]:
        """Return the files of a config in merge order; empty if only Hydra can compose it."""
        try:
            defaults = self._defaults(overrides).defaults
        except (*UNCOMPOSABLE, ConfigError):
            return ()
        return tuple(Layer(self._path(default), _package(default)) for default in defaults)

    def options(self, group: str) -> list[str]:
        """Return the options of a group, as Hydra's loader does, which copies its whole repository for each."""
        return list(self._files.get_group_options(group, ObjectType.CONFIG))

    def groups(self) -> list[str]:
        """Return the groups in the defaults list of the primary config, in its order."""
        found = reversed(self._defaults(()).overrides.known_choices)
        return [group for group in found if not group.startswith("hydra/")]

    def _defaults(self, overrides: Sequence[str]) -> DefaultsList:
        key = tuple(overrides)
        if key not in self._lists:
            if faults := [fault for word in overrides for fault in resolvers.in_override(word)]:
                raise ConfigError(faults)
            try:
                self._lists[key] = self._chosen(key) or self._listed(key, with_hydra=False)
            except HydraException:  # it may select options of Hydra's own groups
                self._lists[key] = self._listed(key, with_hydra=True)
        return self._lists[key]

    def _chosen(self, overrides: tuple[str, ...]) -> DefaultsList | None:
        """Return the defaults list of the primary config with other options; None if it takes Hydra to make it."""
        if not overrides:
            return None
        primary = self._defaults(())
        self._choices = self._choices or Choices(self._files, self._parser, primary)
        defaults = self._choices.defaults(overrides)
        return None if defaults is None else replace(primary, defaults=defaults)

    def _listed(self, overrides: tuple[str, ...], *, with_hydra: bool) -> DefaultsList:
        with maps_where_needed():
            found = create_defaults_list(
                repo=self._files,
                config_name=self._name,
                overrides_list=self._parser.parse_overrides(list(overrides)),
                prepend_hydra=with_hydra,
                skip_missing=False,
            )
        found.defaults = [default for default in found.defaults if not default.config_path.startswith("hydra/")]
        return found

    def _without_hydra(self, overrides: Sequence[str]) -> DictConfig:
        merged, defaults = self._merged(overrides)
        config = OmegaConf.create(merged)
        OmegaConf.set_struct(config, value=True)
        ConfigLoaderImpl._apply_overrides_to_config(defaults.config_overrides, config)  # noqa: SLF001 - Hydra's own
        return config

    def _merged(self, overrides: Sequence[str]) -> tuple[dict[str, Any], DefaultsList]:
        """Return the values of all files of a config, and its defaults list with the overrides yet to be applied."""
        primary = self._files.load_config(self._name)
        if primary is None or OmegaConf.select(primary.config, "hydra.searchpath") is not None:
            raise _NotPlainError
        defaults = self._defaults(overrides)
        merged: dict[str, Any] = {}
        for default in defaults.defaults:
            _merge(merged, self._block(default))
        merged.pop("hydra", None)
        return merged, defaults

    def _block(self, default: ResultDefault) -> dict[str, Any]:
        """Return the values of a file, nested in its package."""
        package = _package(default)
        key = f"{default.config_path} {package}"
        if key not in self._blocks:
            loaded: Any = self._files.load_config(default.config_path)
            values: Any = OmegaConf.to_container(loaded.config, resolve=False)
            for part in reversed(package.split(".") if package else []):
                values = {part: values}
            self._blocks[key] = values
        return self._blocks[key]

    def _path(self, default: ResultDefault) -> Path:
        loaded: Any = self._files.load_config(default.config_path)
        return Path(loaded.path.removeprefix("file://")) / f"{default.config_path}.yaml"


_NO_CHOICES = DictConfig({})
_map_of = defaults_list._create_interpolation_map  # noqa: SLF001 - Hydra's own


def _map_where_needed(overrides: Any, defaults: Sequence[InputDefault], self_added: bool) -> DictConfig:  # noqa: FBT001
    """Return the choices to which references in a defaults list resolve; empty if it has no reference."""
    if any(not default.is_self() and default.is_interpolation() for default in defaults):
        choices: DictConfig = _map_of(overrides, defaults, self_added)
        return choices
    return _NO_CHOICES


@contextmanager
def maps_where_needed() -> Iterator[None]:
    """Let Hydra make that map for lists with references alone, not for each file: it took a third of a composition."""
    defaults_list._create_interpolation_map = _map_where_needed  # noqa: SLF001
    try:
        yield
    finally:
        defaults_list._create_interpolation_map = _map_of  # noqa: SLF001


class _NotPlainError(Exception):
    """Raised for a config that only Hydra can compose."""


def _package(default: ResultDefault) -> str:
    return default.package or ""


def _merge(values: dict[str, Any], layer: Mapping[str, Any]) -> None:
    """Merge `layer` into `values`, as OmegaConf does if there are no references to whole blocks."""
    for key, value in layer.items():
        there = values.get(key)
        if isinstance(value, dict) and isinstance(there, str) and "${" in there:
            raise _NotPlainError
        if isinstance(value, dict) and isinstance(there, dict):
            _merge(there, value)
        elif value != MISSING or key not in values:
            values[key] = copy.deepcopy(value)


def plain(config: DictConfig) -> dict[str, Any]:
    """Return a job's config as plain values with references resolved and missing values (`???`) removed.

    Settings of sweeps and of `tune` are not part of it.
    """
    return _of_a_run(resolved(config))


def _of_a_run(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in NOT_OF_A_RUN}


def resolved(config: DictConfig) -> dict[str, Any]:
    """Return the whole config as plain values, like `plain`."""
    return {str(key): value for key, value in _without_missing(with_references(config)).items()}


def with_references(config: DictConfig) -> Any:
    """Return a config as plain values with references resolved; `ConfigError` for a resolver that reads the machine."""
    values = OmegaConf.to_container(config, resolve=False)
    if "${" not in repr(values):
        return values
    if faults := list(resolvers.in_values(values)):
        raise ConfigError(faults)
    return OmegaConf.to_container(config, resolve=True)


def _missing(value: Any, key: str) -> list[str]:
    if isinstance(value, dict):
        return [found for name, item in value.items() for found in _missing(item, f"{key}.{name}".lstrip("."))]
    return [key] if value == MISSING else []


def _without_missing(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: _without_missing(item) for key, item in value.items() if item != MISSING}
