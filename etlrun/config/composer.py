"""Composition of configs by Hydra, which are kept; those of options alone are merged of the files that Hydra lists."""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from etlrun.config import resolvers
from etlrun.config.files import ConfigFiles, Layer, configures_hydra, fits_hydra, is_alone, is_of_group, merged, refers
from etlrun.config.refusals import UNCOMPOSABLE, refusal
from etlrun.config.values import Settable, missing, of_a_run, without_missing
from etlrun.system.errors import ConfigError

Words = tuple[str, ...]
_SETTING = {OverrideType.CHANGE, OverrideType.ADD, OverrideType.FORCE_ADD}


class Composer:
    """Composes configs of the same folders, and keeps them."""

    def __init__(self, loader: ConfigLoader, config_name: str) -> None:
        self.loader = loader
        self._name = config_name
        self._parser = OverridesParser.create()
        self._overrides: dict[str, Override] = {}
        self._composed: dict[Words, DictConfig] = {}
        self._unresolved: dict[Words, dict[str, Any] | Exception] = {}
        self._resolved: dict[Words, Any] = {}
        self._settable: dict[Words, Settable | None] = {}
        self._layers: dict[Words, tuple[Layer, ...]] = {}
        self._blocks: dict[tuple[Layer, ...], Any] = {}
        self._files: dict[str, Path | None] = {}

    def with_hydra(self, overrides: Sequence[str]) -> DictConfig:
        """Return a config as Hydra composes it, with Hydra's own in it."""
        words = tuple(overrides)
        if words not in self._composed:
            if faults := [fault for word in words for fault in resolvers.in_override(word)]:
                raise ConfigError(faults)
            self._composed[words] = self.loader.load_configuration(
                self._name, list(words), run_mode=RunMode.RUN, from_shell=False
            )
        return self._composed[words]

    def config(self, overrides: Sequence[str]) -> DictConfig:
        """Return a new config without Hydra's own, with its references."""
        return OmegaConf.create(self._with_references(tuple(overrides)))

    def values(self, overrides: Sequence[str]) -> dict[str, Any]:
        """Return the config as plain values with references resolved and missing values (`???`) removed."""
        return of_a_run(without_missing(self._container(overrides)))

    def settable(self, overrides: Sequence[str]) -> Settable | None:
        """Return a config in which values are set without OmegaConf; None if it can't be composed or resolved."""
        words = tuple(overrides)
        if words not in self._settable:
            try:
                self._settable[words] = Settable(self._with_references(words), self._container(words))
            except (*UNCOMPOSABLE, ConfigError):
                self._settable[words] = None
        return self._settable[words]

    def block(self, name: str, overrides: Sequence[str]) -> Any:
        """Return the values of a group that is not part of a run; None if the config has none of that name."""
        return self._container(overrides).get(name)

    def missing(self, overrides: Sequence[str]) -> list[str]:
        """Return the dotted keys of missing values (`???`)."""
        return missing(self._container(overrides))

    def layers(self, overrides: Sequence[str]) -> tuple[Layer, ...]:
        """Return the files of a config in merge order; empty if its defaults lists are invalid."""
        words = tuple(word for word in overrides if not self._is_value(word))
        if words not in self._layers:
            others, blocks = self._parts(words)
            layers = self.layers(others) if blocks else self._listed(words)
            for block in blocks.values():
                place = next(place for place, layer in enumerate(layers) if layer.package == block[0].package)
                layers = *layers[:place], *block, *_outside(layers[place:], block[0].package)
            self._layers[words] = layers
        return self._layers[words]

    def options(self, group: str) -> list[str]:
        """Return the options of a group, sorted."""
        sources = [source for source in self.loader.get_sources() if source.is_group(group)]
        return sorted({option for source in sources for option in source.list(group, ObjectType.CONFIG)})

    def groups(self) -> list[str]:
        """Return the groups in the defaults list of the primary config, in its order."""
        try:
            found = reversed(list(self.with_hydra(()).hydra.runtime.choices))
        except UNCOMPOSABLE as error:
            raise ConfigError([refusal(error)]) from error
        return [group for group in found if not group.startswith("hydra/")]

    def _container(self, overrides: Sequence[str]) -> Any:
        """Return the whole config with references resolved; `ConfigError` if it can't be composed."""
        words = tuple(overrides)
        if words not in self._resolved:
            try:
                values = self._with_references(words)
                self._resolved[words] = with_references(self.config(words)) if "${" in repr(values) else values
            except UNCOMPOSABLE as error:
                raise ConfigError([refusal(error)]) from error
        return self._resolved[words]

    def _with_references(self, words: Words) -> dict[str, Any]:
        if words not in self._unresolved:
            is_new = words not in self._composed and (self._composed or self._layers)  # else it may be the only one
            try:
                found = self._kept(words) if is_new else None
                self._unresolved[words] = found or _without_hydra(self.with_hydra(words))
            except (*UNCOMPOSABLE, ConfigError) as error:
                self._unresolved[words] = error
        config = self._unresolved[words]
        if isinstance(config, Exception):
            raise config.with_traceback(None)
        return config

    def _kept(self, words: Words) -> dict[str, Any] | None:
        """Return a config that rests on others, which are composed once; None if Hydra must make it."""
        values = [word for word in words if self._is_value(word)]
        if not values:
            return self._together(words)
        if not all(map(self._is_choice, _without(words, values))):  # an override beside them, whose place counts
            return None
        config = OmegaConf.create(self._with_references(_without(words, values)))
        OmegaConf.set_struct(config, value=True)
        try:
            for word in values:
                override = self._parsed(word)
                key, adds = override.key_or_group, override.is_add() or override.is_force_add()
                if override.is_add() and OmegaConf.select(config, key) is not None:
                    return None
                OmegaConf.update(config, key, override.value(), merge=True, force_add=adds)
        except UNCOMPOSABLE:
            return None
        return _without_hydra(config)

    def _is_value(self, word: str) -> bool:
        """Return whether an override sets a value, and so is applied to the config that options have made."""
        override = self._parsed(word)
        key = override.key_or_group
        is_value = "." in key and "/" not in key and not override.is_hydra_override() and "${" not in word
        is_plain = override.type in _SETTING and override.package is None
        return is_value and is_plain and not override.is_sweep_override()

    def _is_choice(self, word: str) -> bool:
        """Return whether an override chooses an option."""
        override = self._parsed(word)
        is_group = any(source.is_group(override.key_or_group) for source in self.loader.get_sources())
        return (
            is_group and "${" not in word and override.type == OverrideType.CHANGE and isinstance(override.value(), str)
        )

    def _parsed(self, word: str) -> Override:
        if word not in self._overrides:
            self._overrides[word] = self._parser.parse_override(word)
        return self._overrides[word]

    def _together(self, words: Words) -> dict[str, Any] | None:
        """Return a config of options alone, merged of their files; None if Hydra must make it."""
        others, blocks = self._parts(words)
        before = self.layers(others) if blocks else ()
        changed = {word: block for word, block in blocks.items() if block != _inside(before, block[0].package)}
        if not all(map(self._is_choice, others)):
            return None
        try:
            if not blocks:
                layers = self.layers(words)
                if any(configures_hydra(layer) for layer in layers if not self._is_checked(layer)):
                    return None
                return merged(layers) or None
            config = dict(self._with_references(others))
            for word, block in changed.items():
                group = block[0].package
                files = tuple(layer for layer in self.layers((*others, word)) if layer.sets(group))
                if files not in self._blocks:
                    self._blocks[files] = merged(files)[group]
                config[group] = self._blocks[files]
        except (*UNCOMPOSABLE, ConfigError):
            return None
        return config

    def _is_checked(self, layer: Layer) -> bool:
        """Return whether a file is the primary config, of which what it sets of Hydra itself is valid."""
        return layer.path.stem == self._name and (bool(self._composed) or fits_hydra(layer.path))

    def _parts(self, words: Words) -> tuple[Words, dict[str, tuple[Layer, ...]]]:
        """Return the overrides beside options, and the files in the block of each option.

        There are none if one of the options changes more than the block of its group, or depends on others.
        """
        files = {word: path for word in words if (path := self._file_of(word)) is not None}
        others = _without(words, files)
        before = self.layers(others) if files else ()
        blocks: dict[str, tuple[Layer, ...]] = {}
        for word, path in files.items():
            group = path.parent.name
            old = _inside(before, group)
            block: tuple[Layer, ...] = (Layer(path, group),)
            if not all(is_alone(layer.path) for layer in (*block, *old)):
                alone = self.layers(_without(words, files.keys() - {word})) if files.keys() > {word} else ()
                block = _inside(alone, group) if _outside(alone, group) == _outside(before, group) else ()
            if old and block:
                blocks[word] = block
        packages = {block[0].package for block in blocks.values()}
        found = {*before, *(layer for block in blocks.values() for layer in block)}
        is_apart = len(packages) == len(words) - len(others) and not any(refers(layer.path) for layer in found)
        return (others, blocks) if is_apart else (words, {})

    def _file_of(self, word: str) -> Path | None:
        """Return the file of an override that chooses an option for the block of a group; None of another one."""
        if word not in self._files:
            override = self._parsed(word)
            key = override.key_or_group
            is_plain = override.package is None and "/" not in key
            path = self._path(f"{key}/{override.value()}") if is_plain and self._is_choice(word) else None
            self._files[word] = path if path is not None and is_of_group(path) else None
        return self._files[word]

    def _listed(self, words: Words) -> tuple[Layer, ...]:
        try:
            found = self.loader.compute_defaults_list(self._name, list(words), RunMode.RUN).defaults
        except (*UNCOMPOSABLE, ConfigError):
            return ()
        own = [default for default in found if not default.config_path.startswith("hydra/")]
        paths = [(self._path(default.config_path), default.package or "") for default in own]
        layers = [Layer(path, package) for path, package in paths if path is not None]
        return tuple(layers) if len(layers) == len(paths) else ()  # a folder of `hydra.searchpath` is Hydra's to read

    def _path(self, config_path: str) -> Path | None:
        """Return the file of a config; None for one of Hydra's own, or that none of the config folders has."""
        if config_path.startswith("hydra/"):
            return None
        sources = (source for source in self.loader.get_sources() if isinstance(source, ConfigFiles))
        return next((source.file(config_path) for source in sources if source.is_config(config_path)), None)


def _without(words: Words, left_out: Container[str]) -> Words:
    return tuple(word for word in words if word not in left_out)


def _inside(layers: Sequence[Layer], group: str) -> tuple[Layer, ...]:
    return tuple(layer for layer in layers if layer.package == group)


def _outside(layers: Sequence[Layer], group: str) -> tuple[Layer, ...]:
    return tuple(layer for layer in layers if layer.package != group)


def plain(config: DictConfig) -> dict[str, Any]:
    """Return a job's config as plain values with references resolved and missing values (`???`) removed.

    Settings of sweeps and of `tune` are not part of it.
    """
    return of_a_run(resolved(config))


def resolved(config: DictConfig) -> dict[str, Any]:
    """Return the whole config as plain values, like `plain`."""
    return {str(key): value for key, value in without_missing(with_references(config)).items()}


def with_references(config: DictConfig) -> Any:
    """Return a config as plain values with references resolved; `ConfigError` for a resolver that reads the machine."""
    values: Any = OmegaConf.to_container(config, resolve=False)
    if "${" not in repr(values):
        return values
    if faults := list(resolvers.in_values(values)):
        raise ConfigError(faults)
    if (kept := resolvers.with_names(values)) is values:
        return OmegaConf.to_container(config, resolve=True)
    found = OmegaConf.to_container(OmegaConf.create(kept), resolve=True)
    if faults := list(resolvers.in_values(found)):  # of references to an option of a store
        raise ConfigError(faults)
    return found


def _without_hydra(config: DictConfig) -> dict[str, Any]:
    values: Any = OmegaConf.to_container(config, resolve=False)
    return {key: value for key, value in values.items() if key != "hydra"}
