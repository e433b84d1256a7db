"""Config and plan of a run, as they are frozen in its folder: what plans and diffs read of it, without its summary."""

from pathlib import Path

import yaml

from etlrun.system.errors import WorldError, headline
from etlrun.system.values import Block

CONFIG, PLAN = "config.yaml", "plan.json"


def read_config(folder: Path) -> Block:
    """Read the composed config of a run; `OSError` if there is none."""
    config: Block = yaml.safe_load((folder / CONFIG).read_bytes())
    return config


def known_config(folder: Path, remedy: str) -> Block:
    """Read the composed config of a run that is named; `WorldError` with that `remedy` if there is none."""
    try:
        config = read_config(folder)
        if isinstance(config, dict) and config:
            return config
        found = "no config"
    except (OSError, ValueError, yaml.YAMLError) as error:
        found = headline(error)
    raise WorldError(folder / CONFIG, found, "the config that the run was started with", remedy)
