"""Folder of the configs, which is found without importing Hydra."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from etlrun.system.errors import ConfigError, Fault
from etlrun.system.values import Block, Composed, grouped

FAST_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
POLICY = "etlrun-policy.yaml"
"""File in a config folder that is no config: what changes need."""


def config_dir() -> Path:
    """Return the folder of the configs: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def own_folder(path: str) -> Path:
    """Return the folder of the user's own configs; `ConfigError` if it does not exist."""
    folder = Path(path).resolve()
    if not folder.is_dir():
        remedy = "pass the path of an existing folder"
        raise ConfigError([Fault("--config-dir", f"no folder {folder}", "a folder of configs", remedy)])
    return folder


def file_of(option: str, *folders: Path) -> Path:
    """Return the file that an option such as `cache.disk` has in the first folder with one; a step has none."""
    paths = [folder / f"{option.replace('.', '/', 1)}.yaml" for folder in folders]
    return next((path for path in paths if path.is_file()), paths[0])


def options_of(*folders: Path) -> dict[str, list[str]]:
    """Return the options of each group in the config folders, sorted; a folder that can't be read has none."""
    paths = (path for folder in folders for path in folder.glob("*/*.yaml") if not path.name.startswith("."))
    found = grouped((path.parent.name, path.stem) for path in paths)
    return {group: sorted({*options}) for group, options in sorted(found.items())}


def chosen_in(*contents: Composed) -> dict[str, str]:
    """Return the option that the defaults lists of these contents of files choose for each group."""
    entries = [entry for content in contents for entry in _defaults(content) if isinstance(entry, Mapping)]
    return {str(key).removeprefix("override ").lstrip("/"): option for each in entries for key, option in each.items()}


def values_of(name: str, *folders: Path, deepest: int = 5) -> Block:
    """Return the values of a config such as `cache/disk`, and of those that it is derived from in its group."""
    content, values = content_of(name, *folders), Block()
    for entry in _defaults(content) if deepest else ():
        if isinstance(entry, str) and entry != "_self_":
            values |= values_of(f"{name.partition('/')[0]}/{entry}", *folders, deepest=deepest - 1)
    return values | {key: value for key, value in content.items() if key != "defaults"}


def content_of(name: str, *folders: Path) -> Block:
    """Return what stands in the first file of a config; nothing if none can be read."""
    for folder in folders:
        try:
            text = (folder / f"{name}.yaml").read_bytes()
            content = yaml.load(text, FAST_LOADER)  # noqa: S506 - a safe one
        except (OSError, ValueError, yaml.YAMLError):
            continue
        return content if isinstance(content, dict) else {}
    return {}


def _defaults(content: Composed) -> list[Any]:
    defaults = content.get("defaults")
    return defaults if isinstance(defaults, list) else []
