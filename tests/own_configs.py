"""Configs of one's own in a folder, and the faults with which they are refused."""

from pathlib import Path

import pytest

from etlrun.cli.parsers import call
from etlrun.system.errors import ConfigError
from tests.repository import OTHER, SMALL, TRANSFORM

SOUND = {"experiment/small.yaml": SMALL, "experiment/other.yaml": OTHER, "transform/small_48.yaml": TRANSFORM}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def faults(*words: str) -> list[str]:
    """With which configs of one's own are refused."""
    with pytest.raises(ConfigError) as caught:
        call("check", ["--config-dir", "mine", *words])
    return [str(fault) for fault in caught.value.faults]
