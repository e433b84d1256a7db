"""Migration of config files: deprecated keys get their new names, and all other text stays as it is."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from etlrun.config.files import MOST_VALUES, config_files, unloadable, unreadable
from etlrun.config.libyaml import FAST_LOADER, count_of
from etlrun.planning.schema import schema
from etlrun.planning.spec import GROUPS
from etlrun.record.config import CONFIG
from etlrun.record.summary import SUMMARY
from etlrun.stages import STAGES
from etlrun.system.deprecated import DEPRECATIONS, name_of
from etlrun.system.errors import ConfigError, Fault, of_file
from etlrun.system.files import replacing
from etlrun.system.respelled import OldKey, old_keys, package_of, respelled

_ROOT = frozenset({*GROUPS, "defaults", "hydra", "sweep", "tune"})
"""Keys of a whole config, and of an experiment."""
_HYDRA = "hydra"


@dataclass(frozen=True, kw_only=True)
class Migration:
    """A config file with deprecated keys.

    Attributes:
        path: The file.
        text: Its text with their new names.
        keys: The keys that are replaced.
        faults: Why the file can't be rewritten; it stays as it is then.
        left: Why the file is left as it is, which is no fault: it is a template, or of another program; else empty.
    """

    path: Path
    text: bytes
    keys: tuple[OldKey, ...]
    faults: tuple[Fault, ...] = ()
    left: str = ""

    @property
    def is_to_write(self) -> bool:
        """Whether the file is to be rewritten."""
        return not self.faults and not self.left

    @property
    def name(self) -> str:
        """Name of the file in messages."""
        return name_of(self.path)

    def write(self) -> None:
        """Replace the file atomically; a link stays one, and permissions are kept."""
        path = self.path.resolve()
        if not os.access(path, os.W_OK):  # replacing it needs no more than a folder that can be written to
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), self.name)
        try:
            with replacing(path) as temporary:
                temporary.write_bytes(self.text)
                shutil.copymode(path, temporary)
        except OSError as error:
            error.filename = self.name  # a full disk names none
            raise


def files_of(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files that are named, and those of folders, each once, without frozen configs of runs in a folder.

    Raises:
        ConfigError: There is no such file or folder, or it can't be read.
    """
    if others := [path for path in paths if not path.is_dir() and not path.is_file()]:
        found = {True: "neither a file nor a folder", False: "no such file or folder"}
        expected = "a config file, or a folder of them"
        raise ConfigError([of_file(str(path), found[path.exists()], expected) for path in others])
    seen = set()
    for path in paths:
        named = path / CONFIG if _is_run(path) else path
        for file in config_files(path) if named.is_dir() else [named]:
            is_frozen = file != named and file.name == CONFIG and _is_run(file.parent)
            if not is_frozen and file.resolve() not in seen:
                seen.add(file.resolve())
                yield file.absolute()


def _is_run(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (CONFIG, SUMMARY))


def migration(path: Path) -> Migration | None:
    """Return what is to be rewritten in a file; None if there is nothing."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError([unreadable(name_of(path), error)]) from error
    if not any(re.search(rf"\b{of.names[0]}\b".encode(), text) for of in DEPRECATIONS):
        return None
    try:
        keys_at_top = _top(text)
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError):
        if re.search(rb"{{|{%", text) is None and (fault := unloadable(path, name_of(path))) is not None:
            return Migration(path=path, text=text, keys=(), faults=(fault,))
        return Migration(path=path, text=text, keys=(), left="it is a template, and no YAML that can be read")
    if count_of(text) > MOST_VALUES:
        return Migration(path=path, text=text, keys=(), left=f"its aliases expand to more than {MOST_VALUES:,} values")
    package = _package(path, text.decode(), keys_at_top)
    keys = old_keys(text, package)
    if not keys:
        return None
    faults = tuple(fault for key in keys if (fault := key.fault(name_of(path))) is not None)
    known = _known(package)
    foreign = None if known is None else next((key for key in keys_at_top if key not in known), None)
    left = "" if foreign is None else f"`{foreign}` is no key of a config"
    return Migration(path=path, text=respelled(text, package), keys=keys, faults=faults, left=left)


def _top(text: bytes) -> list[str]:
    """Return the outermost keys of a file."""
    nodes = [*yaml.compose_all(text.decode(), Loader=FAST_LOADER)]
    return [str(key.value) for node in nodes if isinstance(node, yaml.MappingNode) for key, _ in node.value]


def _package(path: Path, text: str, keys: Sequence[str]) -> str:
    """Return the package of a file: that of its header, none for a whole config, or that of its folder."""
    is_headed = re.search(r"^\s*#\s*@package", text[:512], re.MULTILINE) is not None
    if not is_headed and keys and _ROOT.issuperset(keys):
        return ""
    group = path.parent.name
    is_hydras = path.parent.parent.name == _HYDRA
    return package_of(f"{_HYDRA}/{group}" if is_hydras else group if group in GROUPS else "", text)


def _known(package: str) -> frozenset[str] | None:
    """Return the keys that a file of a package may have at its top; None if its header names a block of a group."""
    if not package:
        return _ROOT
    if package not in GROUPS:
        return None
    return frozenset(schema(STAGES)["definitions"][package]["properties"]) | {of.names[0] for of in DEPRECATIONS}
