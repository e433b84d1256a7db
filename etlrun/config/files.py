"""Config files: finding them, and the faults of files that cannot be loaded."""

from __future__ import annotations

import codecs
import copy
import io
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.config_repository import ConfigRepository
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from etlrun.config.resolvers import in_file
from etlrun.system.errors import ConfigError, Fault, one_line

_FAST_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNLOADABLE = (OSError, RecursionError, ValueError, yaml.YAMLError, OmegaConfBaseException)
_LARGEST_BYTES, _MOST_VALUES = 1_000_000, 100_000
_MAPPING = "a mapping of keys to values"
_MOST_LOADED = 1_000
_loaded: dict[tuple[str, str, str, bytes], ConfigResult] = {}
"""Loaded files by their provider, folder, path in it, and text."""
_sound: set[bytes] = set()
"""Texts of files that have been loaded."""


def config_files(folder: Path, suffix: str = ".yaml", above: tuple[str, ...] = ()) -> Iterator[Path]:
    """Yield the regular files in `folder`, recursively and sorted; links are followed, and hidden files skipped.

    A link back to one of the folders `above` is not followed.

    Raises:
        ConfigError: A folder cannot be read.
    """
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise ConfigError([unreadable(str(folder), error)]) from error
    inside = (*above, os.path.realpath(folder))
    for path in paths:
        if path.name.startswith("."):
            continue
        if os.path.isdir(path):  # noqa: PTH112 - unlike Path's, false if it is not accessible
            if os.path.realpath(path) not in inside:
                yield from config_files(path, suffix, inside)
        elif path.name.endswith(suffix) and os.path.isfile(path):  # noqa: PTH113 - the same
            yield path


class Readable(ConfigRepository):  # type: ignore[misc]
    """Hydra's repository, with a precise error for files that cannot be loaded, and without hidden options.

    It reads a file once, and parses it again only if its text has changed since another one did. Results are shared:
    callers must not change them.
    """

    def __init__(self, config_search_path: Any) -> None:
        super().__init__(config_search_path)
        self._read: dict[str, ConfigResult | None] = {}

    def load_config(self, config_path: str) -> ConfigResult | None:
        """Load a config as Hydra does; `ConfigError` if the file cannot be loaded."""
        if config_path not in self._read:
            self._read[config_path] = self._load(config_path)
        result = self._read[config_path]
        return None if result is None else replace(result)

    def _load(self, config_path: str) -> ConfigResult | None:
        source = self._find_object_source(config_path, ObjectType.CONFIG)
        if source is not None and source.scheme() == "file":
            return self._of_file(source, config_path)
        if source is not None and source.scheme() == "pkg":  # Hydra's own, of an installed package
            key = (source.provider, source.path, config_path, b"")
            if key not in _loaded:
                _loaded[key] = super().load_config(config_path)
            return replace(_loaded[key])
        return super().load_config(config_path)

    def _of_file(self, source: ConfigSource, config_path: str) -> ConfigResult | None:
        path = Path(source.path) / f"{config_path.removesuffix('.yaml')}.yaml"
        result, raised = None, None
        try:
            text = path.read_bytes()
            key = (source.provider, source.path, config_path, text)
            if key in _loaded:
                return _loaded[key]
            result = None if _unfit(text, str(path)) else super().load_config(config_path)
        except _UNLOADABLE as error:
            raised = error
        if not isinstance(getattr(result, "config", None), DictConfig):
            fault = unloadable(path, str(path))
            if fault is not None:
                raise ConfigError([fault]) from raised
        if raised is not None:
            raise raised
        if result is None:  # the file has changed meanwhile
            return None
        with suppress(OSError):
            if path.read_bytes() == text:  # Hydra has read the file again
                if len(_loaded) >= _MOST_LOADED:
                    _loaded.clear()
                    _sound.clear()
                _loaded[key] = result
                if in_file(text, path.name) is None:  # wherever it is: a folder of Hydra's own may have more
                    _sound.add(text)
        return result

    def get_group_options(self, group_name: str, results_filter: ObjectType | None = ObjectType.CONFIG) -> list[str]:
        """Return the options as Hydra does, without hidden and unprintable ones; `ConfigError` if unreadable."""
        try:
            options = super().get_group_options(group_name, results_filter)
        except OSError as error:
            raise ConfigError([unreadable(str(error.filename), error)]) from error
        return [option for option in options if not option.startswith(".") and option.isprintable()]


class Copying(Readable):
    """`Readable` for Hydra's own composition, which changes the configs that it loads."""

    def load_config(self, config_path: str) -> ConfigResult | None:
        """Load a config that the caller may change; `ConfigError` if the file cannot be loaded."""
        result = super().load_config(config_path)
        is_copy = result is None or result.path.startswith("structured:")  # as Hydra's store returns it
        return result if is_copy else copy.deepcopy(result)

    def __deepcopy__(self, memo: object) -> Copying:
        """Return a copy that shares the sources, which Hydra replaces and never changes."""
        return copy.copy(self)


def unreadable(file: str, error: OSError) -> Fault:
    """Return the fault of an unreadable file or folder, named `file` in messages."""
    return Fault(where=file, found=str(error.strerror or error), expected="a readable file or folder")


def unloadable(path: Path, file: str) -> Fault | None:
    """Return the fault of a config file that cannot be loaded, with its line; None if it can."""
    text, line, found, expected = b"", 1, "", "YAML"
    try:
        text = path.read_bytes()
        if text in _sound:
            return None
        if fault := _unfit(text, file):
            return fault
        config = OmegaConf.load(io.StringIO(text.decode()))
    except OSError as error:
        if error.errno is not None:
            return unreadable(file, error)
        found, expected = "a single value", _MAPPING
    except UnicodeDecodeError as error:
        line, found = text[: error.start].count(b"\n") + 1, f"the byte 0x{text[error.start]:02x}, which is not UTF-8"
    except yaml.MarkedYAMLError as error:
        line, found = _line_of(_libyaml_error(text) or error)
    except (yaml.YAMLError, RecursionError, ValueError, OmegaConfBaseException) as error:
        too_deep = "maximum recursion depth" in str(error)
        found = "blocks that are nested too deeply" if too_deep else one_line(error)
        expected = "YAML" if isinstance(error, yaml.YAMLError) else "values that a config can hold"
    else:
        if not isinstance(config, DictConfig):
            found, expected = "a list", _MAPPING
    return Fault(where=f"{file}:{line}", found=found, expected=expected) if found else None


def _libyaml_error(text: bytes) -> yaml.MarkedYAMLError | None:
    """Return the error of libyaml, which is more precise; it must not parse deeply nested text."""
    try:
        yaml.compose(text, Loader=_FAST_LOADER)
    except yaml.MarkedYAMLError as error:
        return error
    return None


def _line_of(error: yaml.MarkedYAMLError) -> tuple[int, str]:
    """Return the line of an error, from 1, and what was found there."""
    mark = error.problem_mark or error.context_mark
    problem = str(error.problem or error.context)
    missing = problem.partition(" find expected ")[2].replace("node content", "value")
    problem = f"no {missing} {error.context or ''}".rstrip() if missing else problem
    return mark.line + 1 if mark else 1, problem.removeprefix("but ").removeprefix("found ")


def _unfit(text: bytes, file: str) -> Fault | None:
    """Return the fault of a file that Hydra would load too slowly, or misread."""
    if len(text) > _LARGEST_BYTES:
        expected = f"at most {_LARGEST_BYTES:,}, since Hydra takes many seconds to load larger files"
        return Fault(where=file, found=f"{len(text):,} bytes", expected=expected)
    if (count := _values_of(text)) > _MOST_VALUES:
        expected = f"at most {_MOST_VALUES:,}"
        return Fault(where=file, found=f"{count:,} values after expanding aliases", expected=expected)
    if text.startswith(codecs.BOM_UTF8) and b"@package" in text[:512]:
        return Fault(
            where=f"{file}:1",
            found="a byte order mark, which hides `# @package` from Hydra",
            expected="UTF-8 without a byte order mark",
            remedy="save the file without it",
        )
    return in_file(text, file)


def _values_of(text: bytes) -> int:
    """Return the number of keys and values after expanding aliases: a few lines can expand to billions."""
    if b"*" not in text:
        return 0
    of_anchors: dict[str | None, int] = {}
    inside: list[tuple[str | None, int]] = [(None, 0)]
    try:
        for event in yaml.parse(text, Loader=_FAST_LOADER):
            if isinstance(event, yaml.CollectionStartEvent):
                inside.append((event.anchor, 1))
                continue
            if isinstance(event, yaml.CollectionEndEvent):
                anchor, count = inside.pop()
            elif isinstance(event, yaml.NodeEvent):
                anchor = event.anchor
                count = of_anchors.get(anchor, 1) if isinstance(event, yaml.AliasEvent) else 1
            else:
                continue
            of_anchors[anchor] = count
            inside[-1] = (inside[-1][0], inside[-1][1] + count)
    except yaml.YAMLError:  # reported when the file is loaded
        return 0
    return inside[0][1]
