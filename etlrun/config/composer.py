"""Composition of configs: Hydra composes each choice of options once, and plain values are set on copies of it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, reduce
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_loader import ConfigLoader
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException

from etlrun.config import files
from etlrun.config.files import SELF, ConfigFiles, Layer, config_files, file_of
from etlrun.planning.hints import OF_EXPERIMENT, of_reference
from etlrun.planning.spec import GROUPS
from etlrun.stages import STAGES
from etlrun.system.errors import ConfigError, Fault, Overrides, did_you_mean, likeliest, one_line, refuse
from etlrun.system.values import Block, Composed

NOT_OF_A_RUN = {"hydra", "sweep", "tune"}
"""Config keys that are not part of a plan."""
MISSING = "???"
"""Placeholder for a mandatory value in a config."""


class OnlyOmegaConf(Exception):  # noqa: N818 - no error
    """Values that can't be merged, or whose result depends on others: OmegaConf has to tell."""


def merged(old: Any, new: Any, *, adds: bool = True) -> Any:
    """Return a value with another one merged into it, sharing blocks; `OnlyOmegaConf` for lists and references."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = dict(old)
        for key, value in new.items():
            if not (key in old or adds):
                raise OnlyOmegaConf
            if key not in old or value != MISSING:
                found[key] = merged(old[key], value, adds=adds) if key in old else value
        return found
    kinds = {type(old), type(new)}
    if dict in kinds and (list in kinds or refers(old)):
        raise OnlyOmegaConf
    return new


def with_override(config: Block, override: Override) -> Block:
    """Return a config with a value set or added as Hydra does it; `OnlyOmegaConf` if it deletes or refuses."""
    keys, value = override.key_or_group.split("."), override.value()
    old = _selected(config, keys)
    is_free = override.is_force_add() or isinstance(value, dict | list) or old in (None, MISSING)
    if override.is_delete() or (override.is_add() and not is_free):
        raise OnlyOmegaConf
    return with_value(config, keys, value, adds=override.is_add() or override.is_force_add())


def with_value(block: Block, keys: Sequence[str], value: Any, *, adds: bool = True) -> Block:
    """Return a block with a nested value; what it leaves as it is is shared. `OnlyOmegaConf` as for `merged`."""
    block_of_it = _selected(block, keys[:-1])
    if not _is_plain(value) or not (isinstance(block_of_it, dict) or (block_of_it is None and adds)):
        raise OnlyOmegaConf
    for key in reversed(keys):
        value = {key: value}
    made: Block = merged(block, value, adds=adds)
    return made


def of_a_run(values: Composed) -> Block:
    """Return values without those that are not part of a plan."""
    return {key: value for key, value in values.items() if key not in NOT_OF_A_RUN}


def without_missing(value: Block) -> Block:
    """Return a value without what is missing in it (`???`)."""
    return {
        key: without_missing(item) if isinstance(item, dict) else item for key, item in value.items() if item != MISSING
    }


def refers(value: Any) -> bool:
    """Return whether a value has references."""
    return "${" in repr(value)


def _selected(block: Any, keys: Sequence[str]) -> Any:
    """Return a nested value; None if there is none."""
    for key in keys:
        if not isinstance(block, dict):
            raise OnlyOmegaConf
        if key not in block:
            return None
        block = block[key]
    if isinstance(block, str) and refers(block):
        raise OnlyOmegaConf
    return block


def _is_plain(value: Any) -> bool:
    """Return whether OmegaConf keeps a value as it is."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(of) for key, of in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, str):
        return "${" not in value and value != MISSING
    return value is None or isinstance(value, bool | int | float)


UNCOMPOSABLE = (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError, RecursionError, AttributeError)
"""Exceptions that Hydra and OmegaConf raise for invalid files, for cycles, and for null in place of a mapping."""
_WHERE = "config"
_NO_KEY = re.compile(r"Interpolation key '([^']+)' not found full_key: (\S+)")
_AT_KEY = re.compile(r"(.*?) full_key: ([^\s=]+)(?: |$)")
_SAID = {
    "Cannot merge DictConfig with ListConfig": ("a mapping", "a list"),
    "Recursive interpolation detected": ("a reference that leads back to it", "a reference to another key"),
}
"""What is found and expected at a key, for what OmegaConf says."""
_TWICE = re.compile(r"(\S+) appears more than once in the final defaults list")
_NO_OPTION = re.compile(r"Could not find '[^']*?([^'/]+)' Available options in '[^']+': (.*)")
_NO_GROUP = re.compile(r"Could not override '([^'@]+)(?:(@experiment\.)|'\. No match in the defaults list)")


def refusal(error: Exception) -> Fault:
    """Return the fault of a config that Hydra or OmegaConf rejected."""
    found = "a cycle in the defaults lists" if isinstance(error, RecursionError) else one_line(error)
    if isinstance(error, InterpolationKeyError) and (named := _NO_KEY.match(found)):
        key, where = named.groups()
        found, known = f"${{{key}}}, which the config does not have", "a reference to a key of the config, such as "
        return Fault(where, found, f"{known}${{trainer.epochs}}", of_reference(key, STAGES))
    found, remedy, overrides = found.split(" Config search path:")[0], "", Overrides()
    if at_key := _AT_KEY.match(found):
        return Fault(at_key[2], *_SAID.get(at_key[1], (at_key[1], "a value that OmegaConf can read")))
    if twice := _TWICE.fullmatch(found):
        return Fault(twice[1], "several choices of it", "one", f"leave out the + of +{twice[1]}, or one of them")
    if option := _NO_OPTION.search(found):
        remedy, close = did_you_mean(option[1], option[2].split()), likeliest(option[1], option[2].split())
        group = re.search(r"Could not find '(.*)/", found)
        overrides = ((f"{group[1]}={close}",),) if group and close else ()
    elif group := _NO_GROUP.search(found):
        remedy = OF_EXPERIMENT if group[2] else did_you_mean(group[1], GROUPS)
    return Fault(_WHERE, found, "a config that Hydra can compose", remedy, overrides=overrides)


def in_folder(fault: Fault, folder: str | None, words: Iterable[str]) -> Fault:
    """Return `in_file` of a fault for the files of a folder of own configs; the fault itself without one."""
    if fault.where != _WHERE or folder is None:
        return fault
    try:
        texts = {str(path): path.read_text(encoding="utf-8", errors="replace") for path in config_files(Path(folder))}
    except (OSError, ConfigError):  # a fault of another kind
        return fault
    return in_file(fault, texts, list(words))


def in_file(fault: Fault, texts: Mapping[str, str], words: Sequence[str]) -> Fault:
    """Return a fault without a key with the file and the line that contain its name, if there is one.

    Of files, whose texts are given by their names, those that `words` choose, as by `experiment=own`, come first.
    """
    if fault.where != _WHERE:
        return fault
    teller = re.match(r"In '([^']+)': ", fault.found)
    found = fault.found[teller.end() if teller else 0 :]
    asked = re.search(r"'([^'@]+)", found)
    if asked and any(re.split("[=@]", word.lstrip("+~"))[0] == asked[1] for word in words):
        return fault  # of the command line
    first = [f"{word.replace('=', '/')}.yaml" for word in words] + ([f"{teller[1]}.yaml"] if teller else [])
    pattern = ".*".join(rf"\b{re.escape(part)}\b" for part in asked[1].split("/")) if asked else "(?!)"
    for file in sorted(texts, key=lambda file: not any(file.endswith(f"/{name}") for name in first)):
        for number, line in enumerate(texts[file].splitlines(), 1):
            if re.search(pattern, line.partition("#")[0]):
                return replace(fault, where="", file=file, line=number, found=found)
    return fault


Words = tuple[str, ...]
Settings = Sequence[tuple[str, Any]]
_ABSOLUTE = re.compile(r"\$\{([A-Za-z_]\w*)[.}]")
"""A reference from the root of a config, with the group that it names."""
_KEY = re.compile(r"[a-z_]\w*(\.[a-z_]\w*)*", re.IGNORECASE | re.ASCII)
"""Keys of values that need no parser of OmegaConf's; a subset."""


class Composer:
    """Composes configs of the same folders, and keeps them."""

    def __init__(self, loader: ConfigLoader, config_name: str) -> None:
        self.loader = loader
        self._name = config_name
        self._parsed = cache(OverridesParser.create().parse_override)
        self._is_group = cache(lambda key: any(source.is_group(key) for source in loader.get_sources()))
        self._sets = cache(self._is_value)
        self._chooses = cache(self._is_choice)
        self._option = cache(self._file_of_block)
        self._file = cache(file_of)
        self._derived = cache(self._files_of_block)
        self._layers = cache(self._listed)
        self._alike: dict[tuple[Any, ...], tuple[Path, tuple[Layer, ...]]] = {}
        self._of_options = cache(self._merged)
        self._whole = cache(lambda words: with_references(self.unresolved(words)))
        self._by_hydra: dict[Words, DictConfig | Exception] = {}

    def with_hydra(self, overrides: Sequence[str]) -> DictConfig:
        """Return a config as Hydra composes it, with Hydra's own in it."""
        words = tuple(overrides)
        if words not in self._by_hydra:
            try:
                refuse(fault for word in words for fault in files.in_override(word))
                self._by_hydra[words] = self.loader.load_configuration(
                    self._name, list(words), run_mode=RunMode.RUN, from_shell=False
                )
            except (*UNCOMPOSABLE, ConfigError) as error:
                self._by_hydra[words] = error
        config = self._by_hydra[words]
        if isinstance(config, Exception):
            raise config.with_traceback(None)
        return config

    def values(self, overrides: Sequence[str], last: Settings = ()) -> Block:
        """Return the config as plain values with references resolved and missing values (`???`) removed.

        The values of `last`, each with its dotted key, are set behind all others, like Hydra's `++`.

        Raises:
            ConfigError: It can't be composed.
        """
        found = of_a_run(self.whole(overrides, last))
        return without_missing(found) if MISSING in repr(found) else found  # jobs share blocks that are the same

    def whole(self, overrides: Sequence[str], last: Settings = ()) -> Block:
        """Return the config like `values`, with what is missing in it, and all groups; it must not be changed."""
        try:
            return with_references(self.unresolved(overrides, last)) if last else self._whole(tuple(overrides))
        except UNCOMPOSABLE as error:
            raise ConfigError([refusal(error)]) from error

    def unresolved(self, overrides: Sequence[str], last: Settings = ()) -> Block:
        """Return the config like `whole`, with its references: values set on options, or as Hydra makes the whole."""
        words = tuple(overrides)
        others = tuple(word for word in words if not self._sets(word))
        if words not in self._by_hydra and all(self._chooses(word) for word in others):
            with suppress(OnlyOmegaConf):
                others, blocks = self._apart(others)
                config = dict(self._of_options(others))
                for word, path in blocks.items():
                    config[path.parent.name] = self._of_options((*others, word))[path.parent.name]
                for word in filter(self._sets, words):
                    config = with_override(config, self._parsed(word))
                for key, value in last:
                    config = with_value(config, key.split("."), value)
                return config
        whole = OmegaConf.create(_without_hydra(self.with_hydra(words)))
        for key, value in last:
            OmegaConf.update(whole, key, value, merge=True, force_add=True)
        return _without_hydra(whole)

    def layers(self, overrides: Sequence[str]) -> tuple[Layer, ...]:
        """Return the files of a config in merge order; empty if its defaults lists are invalid."""
        others, blocks = self._apart(tuple(word for word in overrides if not self._sets(word)))
        found: tuple[Layer, ...] = self._layers(others)
        for path in blocks.values():
            group = path.parent.name
            place = next(place for place, layer in enumerate(found) if layer.package == group)
            after = (layer for layer in found[place:] if layer.package != group)
            found = (*found[:place], *self._derived(path), *after)
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

    def _apart(self, words: Words) -> tuple[Words, dict[str, Path]]:
        """Return the overrides beside options that only change the block of their group, and the files of these."""
        blocks = {word: path for word in words if (path := self._option(word)) is not None}
        if not blocks:
            return words, {}
        others = tuple(word for word in words if word not in blocks)
        groups = {path.parent.name for path in blocks.values()}
        layers = self._layers(others)
        old = [layer for layer in layers if layer.package in groups]
        # All are beside them if one option replaces another that does more, or a defaults list has references.
        has_all = len(groups) == len(words) - len(others) == len({layer.package for layer in old})
        is_apart = has_all and all(self._derived(layer.path) for layer in old)
        files = [self._file(layer.path) for layer in layers]
        return (words, {}) if not is_apart or any(file is None or file.refers for file in files) else (others, blocks)

    def _merged(self, words: Words) -> Block:
        """Return the config of options, merged of its files, or as Hydra makes it if one of them configures Hydra."""
        by_key: dict[str, list[Block]] = {}
        is_known = not any(self._parsed(word).is_hydra_override() for word in words)
        for layer in self.layers(words) if is_known else ():
            file = self._file(layer.path)
            if file is None or file.configures_hydra(layer, self._name):
                by_key = {}
                break
            for key, value in file.within(layer.package).items():
                by_key.setdefault(key, []).append(value)
        with suppress(OnlyOmegaConf):
            if by_key:
                return {key: reduce(merged, values) for key, values in by_key.items()}
        return _without_hydra(self.with_hydra(words))

    def _is_value(self, word: str) -> bool:
        """Return whether an override sets, adds or deletes a value, and so is applied to what options have made."""
        override = self._parsed(word)
        key, is_hydras = override.key_or_group, override.is_hydra_override()
        if is_hydras or override.is_sweep_override() or override.package is not None or "${" in word:
            return False
        is_value = not self._is_group(key) or isinstance(override.value(), dict)
        return is_value and _KEY.fullmatch(key) is not None

    def _is_choice(self, word: str) -> bool:
        """Return whether an override is applied before all values: it chooses an option, or configures Hydra itself."""
        override = self._parsed(word)
        is_option = self._is_group(override.key_or_group) and not override.is_sweep_override()
        return "${" not in word and (override.is_hydra_override() or is_option)

    def _file_of_block(self, word: str) -> Path | None:
        """Return the file of an override that chooses an option for the block of its group alone; None of another."""
        path = self._path_of_option(word)
        return path if path is not None and self._derived(path) else None

    def _path_of_option(self, word: str) -> Path | None:
        """Return the file of an override that chooses an option; None of another."""
        override = self._parsed(word)
        key, value = override.key_or_group, override.value()
        is_change = override.type == OverrideType.CHANGE and override.package is None
        if not (is_change and "/" not in key and isinstance(value, str) and self._chooses(word)):
            return None
        return self._path(f"{key}/{value}")

    def _files_of_block(self, path: Path, *above: Path) -> tuple[Layer, ...]:
        """Return the files that make the block of an option, below those `above`; none if it sets more than that."""
        file, found = self._file(path), list[Layer]()
        for name in file.bases if file is not None and path not in above else ():
            base = None if name == SELF else self._path(f"{path.parent.name}/{name}")
            of_base = (Layer(path, path.parent.name),) if name == SELF else base and self._derived(base, path, *above)
            if not of_base or not {*of_base}.isdisjoint(found):
                return ()
            found += of_base
        return tuple(found)

    def _listed(self, words: Words) -> tuple[Layer, ...]:
        """Return the files of a config; Hydra lists them once for options of a group with the same defaults list."""
        *others, word = words or ("",)
        path = self._path_of_option(word) if word else None
        if path is None or (defaults := files.defaults_in(path)) is None:
            return self._listed_by_hydra(words)
        key = (*others, path.parent, defaults)
        if key not in self._alike:
            self._alike[key] = path, self._listed_by_hydra(words)
        first, layers = self._alike[key]
        paths = [layer.path for layer in layers]
        is_apart = paths.count(first) == 1 and path not in paths  # neither has the other in its list
        found = [self._file(of) for of in paths]
        if path != first and (not is_apart or any(file is None or file.refers for file in found)):
            return self._listed_by_hydra(words)
        return tuple(replace(layer, path=path) if layer.path == first else layer for layer in layers)

    def _listed_by_hydra(self, words: Words) -> tuple[Layer, ...]:
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


def resolved(config: DictConfig) -> Block:
    """Return the whole config as plain values with references resolved and missing values (`???`) removed."""
    values: Any = OmegaConf.to_container(config, resolve=False)
    return {str(key): value for key, value in without_missing(with_references(values)).items()}


def with_references(values: Block) -> Block:
    """Return plain values with references resolved; `ConfigError` for a resolver that reads the machine."""
    if not refers(values):
        return values
    refuse(files.in_values(values))
    kept = files.with_names(values)
    found: Any = OmegaConf.to_container(OmegaConf.create(_with_referred(kept)), resolve=True)
    refuse(files.in_values(found) if kept is not values else ())  # of references to an option of a store
    return {**kept, **found}


def _with_referred(values: Block) -> Block:
    """Return the groups that have references, and those that these name; all of them where that takes OmegaConf."""
    names = {name for name, block in values.items() if refers(block)}
    while True:
        text = repr([values[name] for name in names])
        found = _ABSOLUTE.findall(text)
        if len(found) != text.count("${") or not {*found} <= values.keys():
            return values
        if names.issuperset(found):
            return {name: block for name, block in values.items() if name in names}
        names.update(found)


def _without_hydra(config: DictConfig) -> Block:
    values: Any = OmegaConf.to_container(config, resolve=False)
    return {key: value for key, value in values.items() if key != "hydra"}
