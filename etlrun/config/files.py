"""Config files: which ones count, and what is wrong with one that can't be loaded."""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Iterator
from pathlib import Path

import yaml
from hydra._internal.config_repository import ConfigRepository
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from etlrun.errors import ConfigError, Fault, one_line

_FAST_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNLOADABLE = (OSError, RecursionError, ValueError, yaml.YAMLError, OmegaConfBaseException)
_LARGEST_BYTES, _MOST_VALUES = 1_000_000, 100_000
_MAPPING = "a mapping of keys to values"


def config_files(folder: Path, suffix: str = ".yaml", above: tuple[str, ...] = ()) -> Iterator[Path]:
    """The regular files in `folder`, at any depth, by name; links are followed, and what begins with a dot is nobody's.

    A folder that a link leads back to, which is one of those `above`, is not entered again.

    Raises:
        ConfigError: A folder can't be read.
    """
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise ConfigError([unreadable(str(folder), error)]) from error
    inside = (*above, os.path.realpath(folder))
    for path in paths:
        if path.name.startswith("."):
            continue
        if os.path.isdir(path):  # noqa: PTH112 - other than Path's it is false of what can't be looked at
            if os.path.realpath(path) not in inside:
                yield from config_files(path, suffix, inside)
        elif path.name.endswith(suffix) and os.path.isfile(path):  # noqa: PTH113 - the same
            yield path


class Readable(ConfigRepository):  # type: ignore[misc]
    """Hydra's, which tells of a file that can't be loaded where it is and what is wrong, and lists only what counts."""

    def load_config(self, config_path: str) -> ConfigResult | None:
        """As Hydra's; `ConfigError` where the file can't be loaded."""
        source = self._find_object_source(config_path, ObjectType.CONFIG)
        if source is None or source.scheme() != "file":
            return super().load_config(config_path)
        path = Path(source.path) / f"{config_path.removesuffix('.yaml')}.yaml"
        result, raised = None, None
        try:
            result = None if _unfit(path.read_bytes(), str(path)) else super().load_config(config_path)
        except _UNLOADABLE as error:
            raised = error
        if not isinstance(getattr(result, "config", None), DictConfig):
            fault = unloadable(path, str(path))
            if fault is not None:
                raise ConfigError([fault]) from raised
        if raised is not None:
            raise raised
        return result

    def get_group_options(self, group_name: str, results_filter: ObjectType | None = ObjectType.CONFIG) -> list[str]:
        """As Hydra's, without what editors and systems leave, and what nobody can type; `ConfigError` if unreadable."""
        try:
            options = super().get_group_options(group_name, results_filter)
        except OSError as error:
            raise ConfigError([unreadable(str(error.filename), error)]) from error
        return [option for option in options if not option.startswith(".") and option.isprintable()]


def unreadable(file: str, error: OSError) -> Fault:
    """The fault of a file or a folder that the system does not let one read; `file` is what a message calls it."""
    return Fault(where=file, found=str(error.strerror or error), expected="a file or a folder that can be read")


def unloadable(path: Path, file: str) -> Fault | None:
    """The fault of a config file that can't be loaded, with its line; None where it can."""
    text, line, found, expected = b"", 1, "", "YAML"
    try:
        text = path.read_bytes()
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
        line, found = _line_of(_told_by_libyaml(text) or error)
    except (yaml.YAMLError, RecursionError, ValueError, OmegaConfBaseException) as error:
        too_deep = "maximum recursion depth" in str(error)
        found = "blocks in more blocks than can be read" if too_deep else one_line(error)
        expected = "YAML" if isinstance(error, yaml.YAMLError) else "values that a config can have"
    else:
        if not isinstance(config, DictConfig):
            found, expected = "a list", _MAPPING
    return Fault(where=f"{file}:{line}", found=found, expected=expected) if found else None


def _told_by_libyaml(text: bytes) -> yaml.MarkedYAMLError | None:
    """The error of the parser that says better what is wrong; it must not be given what is too deep."""
    try:
        yaml.compose(text, Loader=_FAST_LOADER)
    except yaml.MarkedYAMLError as error:
        return error
    return None


def _line_of(error: yaml.MarkedYAMLError) -> tuple[int, str]:
    """Where the error is, from 1, and what was found there."""
    mark = error.problem_mark or error.context_mark
    return mark.line + 1 if mark else 1, str(error.problem or error.context).removeprefix("but ").removeprefix("found ")


def _unfit(text: bytes, file: str) -> Fault | None:
    """The fault of a file that Hydra would load, but not in any useful time, or not as it is meant."""
    if len(text) > _LARGEST_BYTES:
        expected = f"at most {_LARGEST_BYTES:,}, since Hydra takes many seconds to load as much"
        return Fault(where=file, found=f"{len(text):,} bytes", expected=expected)
    if (count := _values_of(text)) > _MOST_VALUES:
        expected = f"at most {_MOST_VALUES:,}"
        return Fault(where=file, found=f"{count:,} values, once its aliases are written out", expected=expected)
    if text.startswith(codecs.BOM_UTF8) and b"@package" in text[:512]:
        return Fault(
            where=f"{file}:1",
            found="a byte order mark, behind which Hydra does not see `# @package`",
            expected="UTF-8 without one",
            remedy="save the file without the mark",
        )
    return None


def _values_of(text: bytes) -> int:
    """How many keys and values a text of YAML with aliases stands for: few lines can stand for billions."""
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
    except yaml.YAMLError:  # which whoever loads it tells of
        return 0
    return inside[0][1]
