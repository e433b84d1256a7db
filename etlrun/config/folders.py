"""Folder of the configs, which is found without importing Hydra."""

from __future__ import annotations

from pathlib import Path

COSTS = "etlrun-costs.json"
"""File in a config folder that keeps measured costs."""
POLICY = "etlrun-policy.yaml"
"""File in a config folder that is no config: what changes need."""


def config_dir() -> Path:
    """Return the folder of the configs: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def options_of(*folders: Path) -> dict[str, list[str]]:
    """Return the options of each group in the config folders, sorted; a folder that can't be read has none."""
    found: dict[str, set[str]] = {}
    for folder in folders:
        for path in sorted(folder.glob("*/*.yaml")):
            if not path.name.startswith("."):
                found.setdefault(path.parent.name, set()).add(path.stem)
    return {group: sorted(options) for group, options in sorted(found.items())}
