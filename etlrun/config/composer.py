"""Composition of configs: Hydra composes each choice of options once, and plain values are set on copies of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

from hydra.core.config_loader import ConfigLoader
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from etlrun.config import resolvers
from etlrun.config.files import SELF, ConfigFiles, Layer, file_of
from etlrun.config.refusals import UNCOMPOSABLE, refusal
from etlrun.config.values import (
    MISSING,
    OnlyOmegaConf,
    merged,
    of_a_run,
    refers,
    resolved_in,
    with_override,
    with_value,
    without_missing,
)
from etlrun.system.errors import ConfigError

Key = TypeVar("Key")
Words = tuple[str, ...]
Settings = Sequence[tuple[str, Any]]
_KEY = re.compile(r"[a-z_]\w*(\.[a-z_]\w*)*", re.IGNORECASE | re.ASCII)
"""Keys of values that need no parser of OmegaConf's; a subset."""


class Made(dict[Key, Any]):
    """What a function makes of each key, once."""

    def __init__(self, make: Callable[[Key], Any]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: Key) -> Any:
        made = self[key] = self._make(key)
        return made


class Composer:
    """Composes configs of the same folders, and keeps them."""

    def __init__(self, loader: ConfigLoader, config_name: str) -> None:
        self.loader = loader
        self._name = config_name
        self._parsed = Made(OverridesParser.create().parse_override)
        self._is_group = Made(self._has_group)
        self._sets = Made(self._is_value)
        self._chooses = Made(self._is_choice)
        self._option = Made(self._file_of_block)
        self._file = Made(file_of)
        self._derived = Made(self._files_of_block)
        self._layers = Made(self._listed)
        self._of_options = Made(self._merged)
        self._whole = Made(self._with_references)
        self._by_hydra: dict[Words, DictConfig | Exception] = {}

    def with_hydra(self, overrides: Sequence[str]) -> DictConfig:
        """Return a config as Hydra composes it, with Hydra's own in it."""
        words = tuple(overrides)
        if words not in self._by_hydra:
            try:
                if faults := [fault for word in words for fault in resolvers.in_override(word)]:
                    raise ConfigError(faults)  # noqa: TRY301
                self._by_hydra[words] = self.loader.load_configuration(
                    self._name, list(words), run_mode=RunMode.RUN, from_shell=False
                )
            except (*UNCOMPOSABLE, ConfigError) as error:
                self._by_hydra[words] = error
        config = self._by_hydra[words]
        if isinstance(config, Exception):
            raise config.with_traceback(None)
        return config

    def values(self, overrides: Sequence[str], last: Settings = ()) -> dict[str, Any]:
        """Return the config as plain values with references resolved and missing values (`???`) removed.

        The values of `last`, each with its dotted key, are set behind all others, like Hydra's `++`.

        Raises:
            ConfigError: It can't be composed.
        """
        found = of_a_run(self.whole(overrides, last))
        return without_missing(found) if MISSING in repr(found) else found

    def whole(self, overrides: Sequence[str], last: Settings = ()) -> dict[str, Any]:
        """Return the config like `values`, with what is missing in it, and all groups; it must not be changed."""
        words = tuple(overrides)
        try:
            return with_references(self.unresolved(words, last)) if last else self._whole[words]
        except UNCOMPOSABLE as error:
            raise ConfigError([refusal(error)]) from error

    def unresolved(self, overrides: Sequence[str], last: Settings = ()) -> dict[str, Any]:
        """Return the config like `whole`, with its references: values set on options, or as Hydra makes the whole."""
        words = tuple(overrides)
        values = [word for word in words if self._sets[word]]
        others = tuple(word for word in words if word not in values) if values else words
        if words not in self._by_hydra and all(self._chooses[word] for word in others):
            try:
                config = self._with_options(others)
                for word in values:
                    config = with_override(config, self._parsed[word])
                for key, value in last:
                    config = with_value(config, key.split("."), value)
            except OnlyOmegaConf:
                pass
            else:
                return config
        whole = OmegaConf.create(_without_hydra(self.with_hydra(words)))
        for key, value in last:
            OmegaConf.update(whole, key, value, merge=True, force_add=True)
        return _without_hydra(whole)

    def layers(self, overrides: Sequence[str]) -> tuple[Layer, ...]:
        """Return the files of a config in merge order; empty if its defaults lists are invalid."""
        words = tuple(word for word in overrides if not self._sets[word])
        others, blocks = self._apart(words)
        found: tuple[Layer, ...] = self._layers[others]
        for path in blocks.values():
            group = path.parent.name
            place = next(place for place, layer in enumerate(found) if layer.package == group)
            after = (layer for layer in found[place:] if layer.package != group)
            found = (*found[:place], *self._derived[path], *after)
        return found

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

    def _with_references(self, words: Words) -> dict[str, Any]:
        return with_references(self.unresolved(words))

    def _has_group(self, key: str) -> bool:
        return any(source.is_group(key) for source in self.loader.get_sources())

    def _with_options(self, words: Words) -> dict[str, Any]:
        """Return a config of options alone: each is composed once, with those that change more than their own block."""
        others, blocks = self._apart(words)
        config = dict(self._of_options[others])
        for word, path in blocks.items():
            group = path.parent.name
            config[group] = self._of_options[*others, word][group]
        return config

    def _apart(self, words: Words) -> tuple[Words, dict[str, Path]]:
        """Return the overrides beside options that only change the block of their group, and the files of these.

        All overrides are beside them if one option replaces another that does more, or a defaults list has references.
        """
        blocks = {word: path for word in words if (path := self._option[word]) is not None}
        if not blocks:
            return words, {}
        others = tuple(word for word in words if word not in blocks)
        groups = {path.parent.name for path in blocks.values()}
        layers = self._layers[others]
        old = [layer for layer in layers if layer.package in groups]
        has_all = len(groups) == len(words) - len(others) == len({layer.package for layer in old})
        is_apart = has_all and all(self._derived[layer.path] for layer in old) and not any(map(self._refers, layers))
        return (others, blocks) if is_apart else (words, {})

    def _refers(self, layer: Layer) -> bool:
        file = self._file[layer.path]
        return file is None or file.refers

    def _merged(self, words: Words) -> dict[str, Any]:
        """Return the config of options, merged of its files, or as Hydra makes it if one of them configures Hydra."""
        by_key: dict[str, list[dict[str, Any]]] = {}
        is_known = not any(self._parsed[word].is_hydra_override() for word in words)
        for layer in self.layers(words) if is_known else ():
            file = self._file[layer.path]
            if file is None or file.configures_hydra(layer, self._name):
                by_key = {}
                break
            for key in file.keys_in(layer.package):
                by_key.setdefault(key, []).append(file.within(layer.package)[key])
        try:
            if by_key:
                return {key: reduce(merged, values) for key, values in by_key.items()}
        except OnlyOmegaConf:
            pass
        return _without_hydra(self.with_hydra(words))

    def _is_value(self, word: str) -> bool:
        """Return whether an override sets, adds or deletes a value, and so is applied to what options have made."""
        override = self._parsed[word]
        key, is_hydras = override.key_or_group, override.is_hydra_override()
        if is_hydras or override.is_sweep_override() or override.package is not None or "${" in word:
            return False
        is_value = not self._is_group[key] or isinstance(override.value(), dict)
        return is_value and _KEY.fullmatch(key) is not None

    def _is_choice(self, word: str) -> bool:
        """Return whether an override is applied before all values: it chooses an option, or configures Hydra itself."""
        override = self._parsed[word]
        is_option = self._is_group[override.key_or_group] and not override.is_sweep_override()
        return "${" not in word and (override.is_hydra_override() or is_option)

    def _file_of_block(self, word: str) -> Path | None:
        """Return the file of an override that chooses an option for the block of its group alone; None of another."""
        override = self._parsed[word]
        key, value = override.key_or_group, override.value()
        is_change = override.type == OverrideType.CHANGE and override.package is None
        if not (is_change and "/" not in key and isinstance(value, str) and self._chooses[word]):
            return None
        path = self._path(f"{key}/{value}")
        return path if path is not None and self._derived[path] else None

    def _files_of_block(self, path: Path) -> tuple[Layer, ...]:
        """Return the files that make the block of an option: those that it is derived from, and its own.

        Empty if it sets more than that block.
        """
        file, found = self._file[path], list[Layer]()
        self._derived[path] = ()  # of one that is derived from itself
        for name in file.bases if file is not None else ():
            base = None if name == SELF else self._path(f"{path.parent.name}/{name}")
            of_base = (Layer(path, path.parent.name),) if name == SELF else base and self._derived[base]
            if not of_base or not {*of_base}.isdisjoint(found):
                return ()
            found += of_base
        return tuple(found)

    def _listed(self, words: Words) -> tuple[Layer, ...]:
        """Return the files of a config as Hydra lists them."""
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


def plain(config: DictConfig) -> dict[str, Any]:
    """Return a job's config as plain values with references resolved and missing values (`???`) removed.

    Settings of sweeps and of `tune` are not part of it.
    """
    return of_a_run(resolved(config))


def resolved(config: DictConfig) -> dict[str, Any]:
    """Return the whole config as plain values, like `plain`."""
    values: Any = OmegaConf.to_container(config, resolve=False)
    return {str(key): value for key, value in without_missing(with_references(values)).items()}


def with_references(values: dict[str, Any]) -> dict[str, Any]:
    """Return plain values with references resolved; `ConfigError` for a resolver that reads the machine."""
    try:
        return {key: resolved_in(values, block) if refers(block) else block for key, block in values.items()}
    except OnlyOmegaConf:
        pass
    if faults := list(resolvers.in_values(values)):
        raise ConfigError(faults)
    kept = resolvers.with_names(values)
    found: Any = OmegaConf.to_container(OmegaConf.create(kept), resolve=True)
    if kept is not values and (faults := list(resolvers.in_values(found))):  # of references to an option of a store
        raise ConfigError(faults)
    return dict(found)


def _without_hydra(config: DictConfig) -> dict[str, Any]:
    values: Any = OmegaConf.to_container(config, resolve=False)
    return {key: value for key, value in values.items() if key != "hydra"}
