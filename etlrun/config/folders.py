"""Folders of configs, etlrun's and a person's own, which are found without importing Hydra."""

import os
from pathlib import Path
from typing import Any

import yaml

from etlrun.system.errors import ConfigError, Fault, likeliest, of_file
from etlrun.system.values import grouped

FAST_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
POLICY = "etlrun-policy.yaml"
"""File in a config folder that is no config: what changes need."""


def config_dir() -> Path:
    """Return the folder of the configs: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


_PROJECT, _KEY = "pyproject.toml", "tool.etlrun.configs"


def found_folder() -> str | None:
    """Return the folder of the user's own configs without `--config-dir`; None for none, and for etlrun's own.

    It is `configs` of `[tool.etlrun]` in the nearest pyproject.toml that has it, from the current folder up, and else
    `./conf`, if a folder in it has the name of a group.

    Raises:
        ConfigError: `configs` is no folder, or its file can't be read.
    """
    here, packaged = Path.cwd(), config_dir()
    found = next(filter(None, (_named_in(folder / _PROJECT) for folder in (here, *here.parents))), None)
    if found is None:
        found, groups = here / "conf", (group.name for group in packaged.iterdir() if group.is_dir())
        if not any(os.path.isdir(found / group) for group in groups):  # noqa: PTH112 - false if it is not accessible
            return None
    if found.resolve() == packaged.resolve():
        return None
    return str(found.relative_to(here) if found.is_relative_to(here) else found)


def _named_in(file: Path) -> Path | None:
    """Return the folder of configs that a pyproject.toml names; None if it names none."""
    try:
        text = file.read_bytes() if os.path.isfile(file) else b""  # noqa: PTH113 - false if it is not accessible
        if b"etlrun" not in text:
            return None
        import tomllib

        project: Any = tomllib.loads(text.decode())
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or str(error)
        remedy = "correct it, or pass --config-dir DIR"
        raise ConfigError([of_file(str(file), found, "TOML, which may name the folder of configs", remedy)]) from error
    for name in _KEY.split("."):
        if not isinstance(project, dict) or name not in project:
            wrong = likeliest(name, project, 0.7) if name == "configs" else None
            if wrong:
                remedy = f"did you mean `{name}`?"
                raise ConfigError(
                    [of_file(str(file), "an unknown key", f"the key {name}", remedy, key=f"tool.etlrun.{wrong}")]
                )
            return None
        project = project[name]
    folder = file.parent / project if isinstance(project, str) and project else None
    if folder is None or not folder.is_dir():
        found = f"no folder {folder}" if folder else repr(project)
        expected = "the path of a folder of configs, relative to this file"
        raise ConfigError([of_file(str(file), found, expected, 'name one, such as configs = "conf"', key=_KEY)])
    return folder


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
