"""Folder of the configs, which is found without importing Hydra."""

from pathlib import Path

import yaml

from etlrun.system.errors import ConfigError, Fault
from etlrun.system.values import grouped

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


def options_of(folder: Path) -> dict[str, list[str]]:
    """Return the options of each group in a config folder, sorted."""
    found = grouped((path.parent.name, path.stem) for path in sorted(folder.glob("*/[!.]*.yaml")))
    return dict(sorted(found.items()))
