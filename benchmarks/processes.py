"""Runs in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any


def summary_of(words: Sequence[str], folder: Path, more: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """The summary of a run of `words` in `folder`, with `more` in its environment."""
    command = [sys.executable, "-m", "etlrun", *words, f"hydra.run.dir={folder}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, **more})
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr}")
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return summary
