"""Config files: finding and parsing them, as sources of Hydra's, and the faults of files that cannot be loaded."""

import codecs
import copy
import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import hydra.conf
import yaml
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from etlrun.config.folders import FAST_LOADER, POLICY
from etlrun.system.errors import ConfigError, Fault, counted, of_file, one_line
from etlrun.system.hidden import FORM, Variable
from etlrun.system.values import Block


@lru_cache(maxsize=1_000)  # the files of a folder, for each fault of each of its configs
def node_of(text: bytes) -> yaml.Node | None:
    """Return the nodes of a file; None if it is no YAML, or is empty."""
    for loader in (FAST_LOADER, yaml.SafeLoader):  # Hydra uses the second one, which accepts slightly more
        with suppress(yaml.YAMLError, RecursionError):
            return yaml.compose(text, Loader=loader)
    return None


def count_of(text: bytes) -> int:
    """Return the number of keys and values after expanding aliases: a few lines can expand to billions."""
    counts: dict[int, int] = {}

    def count(node: Any) -> int:
        if id(node) not in counts:
            counts[id(node)] = 1  # of an alias inside of its anchor
            inner = chain(*node.value) if isinstance(node, yaml.MappingNode) else node.value
            counts[id(node)] = 1 + (0 if isinstance(node, yaml.ScalarNode) else sum(map(count, inner)))
        return counts[id(node)]

    with suppress(RecursionError):  # reported when the file is loaded
        return count(node_of(text)) if b"*" in text and node_of(text) is not None else 0
    return 0


_LARGEST_BYTES, MOST_VALUES = 1_000_000, 100_000
_MAPPING = "a mapping of keys to values"
SELF = "_self_"
"""Place of a file itself in its defaults list."""
_NAME = re.compile(r"[\w-]+", re.ASCII)


@dataclass(frozen=True)
class Layer:
    """File that a config is composed of.

    Attributes:
        path: Path of the file.
        package: Dotted path of its package; empty for the root.
    """

    path: Path
    package: str


def config_files(folder: Path, suffix: str = ".yaml", above: tuple[str, ...] = ()) -> Iterator[Path]:
    """Yield the regular files in `folder`, recursively and sorted, without hidden ones and the file of a policy.

    Links are followed, but not back to one of the folders `above`.

    Raises:
        ConfigError: A folder cannot be read.
    """
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise ConfigError([unreadable(str(folder), error)]) from error
    inside = (*above, os.path.realpath(folder))
    for path in paths:
        if path.name.startswith(".") or (path.name == POLICY and not above):
            continue
        if os.path.isdir(path):  # noqa: PTH112 - unlike Path's, false if it is not accessible
            if os.path.realpath(path) not in inside:
                yield from config_files(path, suffix, inside)
        elif path.name.endswith(suffix) and os.path.isfile(path):  # noqa: PTH113 - the same
            yield path


class ConfigFiles(ConfigSource):  # type: ignore[misc]
    """A folder of configs for Hydra, with a precise error for files that cannot be loaded, and without hidden options.

    A file is parsed again only if its text has changed.
    """

    @staticmethod
    def scheme() -> str:
        """Return the scheme of such folders in Hydra's search path."""
        return "etlrun"

    def file(self, config_path: str) -> Path:
        """Return the path of a config's file."""
        return Path(self.path, f"{config_path.removesuffix('.yaml')}.yaml")

    def load_config(self, config_path: str) -> ConfigResult:
        """Load a config that the caller may change; `ConfigError` if the file cannot be loaded."""
        path = self.file(config_path)
        config = copy.deepcopy(loaded(path))
        head = path.read_bytes()[:2_048].decode(errors="replace")[:512]
        return ConfigResult(self.provider, self.full_path(), config, self._get_header_dict(head))

    def available(self) -> bool:
        """Return whether the folder exists."""
        return self.is_group("")

    def is_group(self, config_path: str) -> bool:
        """Return whether this folder has such a group."""
        return os.path.isdir(os.path.join(self.path, config_path))  # noqa: PTH112, PTH118 - false if not accessible

    def is_config(self, config_path: str) -> bool:
        """Return whether this folder has such a config, which is neither hidden nor beside the folder."""
        is_seen = not re.search(r"(^|/)\.", os.path.normpath(config_path))
        return is_seen and os.path.isfile(self.file(config_path))  # noqa: PTH113 - the same

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Return the printable names in a group, sorted, without hidden ones; `ConfigError` if it is unreadable."""
        found: list[str] = []
        try:
            for name in os.listdir(Path(self.path, config_path)):  # noqa: PTH208 - of names
                self._list_add_result(found, f"{config_path}/{name}", name, results_filter)
        except OSError as error:
            raise ConfigError([unreadable(str(error.filename), error)]) from error
        return sorted({name for name in found if not name.startswith(".") and name.isprintable()})


class ConfigFolders(SearchPathPlugin):  # type: ignore[misc]
    """The folders in which Hydra looks for configs while a composer is made: as `ConfigFiles`, with the user's own."""

    own: ClassVar[list[Path] | None] = None
    """The user's own folder, if there is one; None if no composer is made."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Replace Hydra's sources of files, which parse them for each config, and add the user's own folder."""
        folders = {"hydra": Path(hydra.conf.__file__).parent}
        for element in search_path.get_path() if self.own is not None else ():
            if element.provider in {"hydra", "main"}:
                element.path = f"{ConfigFiles.scheme()}://{folders.get(element.provider, element.path)}"
        for folder in self.own or ():
            search_path.append("command-line", f"{ConfigFiles.scheme()}://{folder}")


@dataclass(frozen=True)
class ConfigFile:
    """Content of a config file.

    Attributes:
        path: Path of the file.
        values: Plain values with their references, without the defaults list.
        bases: Its defaults list, of itself (`_self_`) and of options of its group alone; empty for another list, and
            for a file that may name its package itself.
        refers: Whether the defaults list has references.
    """

    path: Path
    values: Block
    bases: tuple[str, ...]
    refers: bool

    def configures_hydra(self, layer: Layer, config_name: str) -> bool:
        """Return whether it sets values of Hydra itself, unless it is the primary config, and they are valid."""
        is_hydras = layer.package.startswith("hydra") if layer.package else "hydra" in self.values
        return is_hydras and not (self.path.stem == config_name and _fits_hydra(self.path.read_bytes()))

    def within(self, package: str) -> Block:
        """Return its values in the blocks of a package, without those of Hydra itself."""
        values = self.values
        for key in reversed(package.split(".") if package else []):
            values = {key: values}
        return {key: value for key, value in values.items() if key != _HYDRA}


def file_of(path: Path) -> ConfigFile | None:
    """Return the content of a config file; None if it can't be loaded."""
    try:
        values: Any = OmegaConf.to_container(loaded(path), resolve=False)
    except ConfigError:
        return None
    defaults = values.pop("defaults", [SELF])
    are_names = isinstance(defaults, list) and all(isinstance(of, str) and _NAME.fullmatch(of) for of in defaults)
    is_plain = are_names and SELF in defaults and b"@package" not in path.read_bytes()
    return ConfigFile(path, values, tuple(defaults) if is_plain else (), "${" in repr(defaults))


def defaults_in(path: Path) -> str | None:
    """Return what decides which files a config file is composed of; None if it can't be loaded, or its name decides."""
    try:
        defaults = str(loaded(path).get("defaults"))
    except ConfigError:
        return None
    head = b"\n".join(re.findall(rb"^#.*@.*$", path.read_bytes()[:2_048], re.MULTILINE))
    return None if "${" in defaults or b"_name_" in head else f"{defaults}{head!r}"


@lru_cache(maxsize=1_000)
def _fits_hydra(text: bytes) -> bool:
    block: Any = _parsed(text)
    try:
        OmegaConf.merge(ConfigStore.instance().load("hydra/config.yaml").node, block.get("hydra") or {})
    except OmegaConfBaseException:
        return False
    return True


def unreadable(file: str, error: OSError) -> Fault:
    """Return the fault of an unreadable file or folder, named `file` in messages."""
    return of_file(file, str(error.strerror or error), "a readable file or folder")


def unloadable(path: Path, file: str) -> Fault | None:
    """Return the fault of a config file that cannot be loaded, with its line; None if it can."""
    try:
        loaded(path, file)
    except ConfigError as error:
        return error.faults[0]
    return None


def loaded(path: Path, file: str = "") -> DictConfig:
    """Return the content of a config file, not to be changed; `ConfigError`, with `file`, if it cannot be loaded."""
    file = file or str(path)
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError([unreadable(file, error)]) from error
    if fault := _unfit(text, file):
        raise ConfigError([fault])
    content = _parsed(text)
    if not isinstance(content, DictConfig):
        line, found, expected = content
        raise ConfigError([of_file(file, found, expected, line=line)])
    if fault := in_file(text, file):
        raise ConfigError([fault])
    return content


@lru_cache(maxsize=1_000)
def _parsed(text: bytes) -> DictConfig | tuple[int, str, str]:
    """Return the content of a file; if it cannot be loaded, the line, what was found there, and what was expected."""
    try:
        config = OmegaConf.load(io.StringIO(text.decode()))
    except OSError:
        return 1, "a single value", _MAPPING
    except UnicodeDecodeError as error:
        found = f"the byte 0x{text[error.start]:02x}, which is not UTF-8"
        return text[: error.start].count(b"\n") + 1, found, "YAML"
    except yaml.MarkedYAMLError as error:
        return *_place_of(error, text), "YAML"
    except (yaml.YAMLError, RecursionError, ValueError, OmegaConfBaseException) as error:
        too_deep = "maximum recursion depth" in str(error)
        found = "blocks that are nested too deeply" if too_deep else one_line(error)
        return 1, found, "YAML" if isinstance(error, yaml.YAMLError) else "values that a config can hold"
    return config if isinstance(config, DictConfig) else (1, "a list", _MAPPING)


def _place_of(error: yaml.MarkedYAMLError, text: bytes) -> tuple[int, str]:
    """Return the line of an error, from 1 to the last one, and what was found there, if it can as libyaml tells it."""
    try:
        yaml.compose(text, Loader=FAST_LOADER)  # not of deeply nested text, which has no such error
    except yaml.MarkedYAMLError as precise:
        error = precise
    mark = error.problem_mark or error.context_mark
    problem = str(error.problem or error.context)
    missing = problem.partition(" find expected ")[2].replace("node content", "value")
    problem = f"no {missing} {error.context or ''}".rstrip() if missing else problem
    line = min(mark.line + 1, max(len(text.splitlines()), 1)) if mark else 1
    return line, problem.removeprefix("but ").removeprefix("found ")


@lru_cache(maxsize=1_000)
def _unfit(text: bytes, file: str) -> Fault | None:
    """Return the fault of a file that Hydra would load too slowly, or misread."""
    if marker := re.search(rb"^<{7} ", text, re.MULTILINE):
        line = text.count(b"\n", 0, marker.start()) + 1
        return of_file(file, "a conflict marker of git", "YAML", "resolve the conflict", line=line)
    if len(text) > _LARGEST_BYTES:
        expected = f"at most {_LARGEST_BYTES:,}, since Hydra takes many seconds to load larger files"
        return of_file(file, f"{len(text):,} bytes", expected)
    if (count := count_of(text)) > MOST_VALUES:
        return of_file(file, f"{counted(count, 'value')} after expanding aliases", f"at most {MOST_VALUES:,}")
    if text.startswith(codecs.BOM_UTF8) and b"@package" in text[:512]:
        found, expected = "a byte order mark, which hides `# @package` from Hydra", "UTF-8 without a byte order mark"
        return of_file(file, found, expected, "save the file without it", line=1)
    return None


_OF_THE_CONFIG = frozenset({"oc.select", "oc.dict.keys", "oc.dict.values", "oc.deprecated"})
"""Resolvers that read only other values of the config; `oc.create` and `oc.decode` can call others in their text."""
_INNERMOST = re.compile(r"\$\{([^${}]*)\}")
_LEFT = re.compile(r"\$\{\s*([^:\s${}\[\]'\"]*)\s*:")
_HYDRA = "hydra"
_STORE = ("dataset", "storage")
"""Keys of the block whose values may name variables."""


def machine_resolvers(text: str) -> list[str]:
    """Return the names of the resolvers in a value that may read the machine, each once; escapes make no difference."""
    names = []
    while (match := _INNERMOST.search(text)) is not None:
        name, colon, _ = match[1].partition(":")
        names += [name.strip()] if colon else []
        text = f"{text[: match.start()]}_{text[match.end() :]}"
    return [name for name in dict.fromkeys([*names, *_LEFT.findall(text)]) if name not in _OF_THE_CONFIG]


def _fault(where: str, names: list[str], remedy: str) -> Fault:
    found = f"the resolver{'s' * (len(names) > 1)} {', '.join(names)}"
    return Fault(where, found, "a value that is the same on every machine", f"write the value{remedy}")


def with_names(values: Block) -> Block:
    """Return a composed config in which resolving leaves variables of options of a store as they are."""
    group, block = _STORE
    store = (values.get(group) or {}).get(block) if isinstance(values.get(group), dict) else None
    if not isinstance(store, dict) or not any(map(Variable.of, store.values())):
        return values
    kept = {name: f"\\{value}" if Variable.of(value) else value for name, value in store.items()}
    return {**values, group: {**values[group], block: kept}}


def _is_of_store(keys: Sequence[str], value: str) -> bool:
    return tuple(keys[:-1]) == _STORE and Variable.of(value) is not None


def in_values(value: Any, key: str = "") -> Iterator[Fault]:
    """Yield the faults of a composed config, by dotted key; its references are not resolved yet."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from in_values(item, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list):
        for item in value:
            yield from in_values(item, key)
    elif isinstance(value, str) and (names := machine_resolvers(value)) and not _is_of_store(key.split("."), value):
        yield _fault(key, names, f', or give it on the command line: {key}="$NAME"')


def in_override(word: str) -> Iterator[Fault]:
    """Yield the fault of an override, unless it is one of Hydra's own, whose folders may be named after the machine."""
    given, _, value = word.partition("=")
    key = given.lstrip("+")
    if key.startswith((f"{_HYDRA}.", f"{_HYDRA}/")) or not (names := machine_resolvers(value)):
        return
    if tuple(key.split(".")[:2]) == _STORE and not machine_resolvers(FORM.sub("", value)):
        expected = "a value, since Hydra writes those of overrides into folders"
        remedy = "write it into a config file, where the text stays as it is, and choose that file"
        yield Fault(key, f"the resolver {', '.join(names)}", expected, remedy)
    else:
        yield _fault(key, names, f', or let the shell put it in: {given}="$NAME"')


@lru_cache(maxsize=1_000)
def in_file(text: bytes, file: str) -> Fault | None:
    """Return the fault of the first such value of a config file that can be loaded; None if there is none.

    Hydra's own config may read the machine, but for where further configs are.
    """
    if b"${" not in text and b"\\" not in text:  # with which YAML writes any letter
        return None
    is_hydras = _HYDRA in Path(file).parent.parts
    for key, line, value in _scalars(node_of(text), ()):
        names = machine_resolvers(value)
        is_others = key[:1] == ("defaults",) or key[:2] == (_HYDRA, "searchpath")
        is_free = not is_others and (is_hydras or key[:1] == (_HYDRA,) or _is_of_store((*_STORE[:1], *key[-2:]), value))
        if names and not is_free:
            remedy = "" if file.endswith(POLICY) else ", or ??? and give it on the command line"
            return replace(_fault(".".join(key), names, remedy), file=file, line=line)
    return None


def _scalars(node: yaml.Node | None, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int, str]]:
    """Yield the scalars that are no keys: their keys from outside in, their line, from 1, and their text."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _scalars(value, (*keys, str(key.value)))
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _scalars(item, keys)
    elif isinstance(node, yaml.ScalarNode):
        yield keys, node.start_mark.line + 1, node.value
