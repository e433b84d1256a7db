"""Ejected programs as modules, and what they come to."""

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import tensorflow as tf

from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.eject.program import ejected, versions
from etlrun.planning.plan import Plan
from etlrun.stages import STAGES
from tests.configs import CONF
from tests.runs import small

EPOCHS = 2
MEASURES = ("loss", "accuracy", "val_loss", "val_accuracy")
CHECKS: dict[str, list[str]] = {
    "ruff format": ["--diff", "--config"],
    "ruff check": ["--quiet", "--ignore", "E501,D301,INP001", "--config"],  # a value may be long, or have a backslash
    "mypy": ["--no-incremental", "--no-error-summary", "--config-file"],
}
"""The project's own checks of code, and their arguments."""


def loaded(text: str, folder: Path) -> ModuleType:
    """A program as a module, which is what `import` makes of it, with its seed for shuffling, which its `main` sets."""
    path = folder / f"program_{abs(hash(text))}.py"
    path.write_text(text, encoding="utf-8")
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if hasattr(module, "SEED"):
        tf.random.set_seed(module.SEED + 1)
    return module


def program_of(plan: Plan, folder: Path, overrides: Sequence[str] = ()) -> ModuleType:
    """The program of a plan, as a module."""
    return loaded(ejected(plan, overrides, versions()), folder)


def of_words(words: list[str], folder: Path) -> tuple[Plan, ModuleType]:
    """The plan of these overrides, and its program."""
    plan = resolve(Request(overrides=words), STAGES).plan
    return plan, program_of(plan, folder, words)


def of_tiny(data_dir: Path, folder: Path, *overrides: str) -> tuple[Plan, ModuleType]:
    return of_words(small(data_dir, f"trainer.epochs={EPOCHS}", *overrides), folder)


def losses_in(history: dict[str, list[float]]) -> list[list[float]]:
    """As `tests.runs.losses_of` has those of a run."""
    return [list(epoch) for epoch in zip(*(history[name] for name in MEASURES), strict=True)]


def found_by(check: str, folder: Path) -> str:
    """What one of `CHECKS` finds in the programs of a folder."""
    command = [sys.executable, "-m", *check.split(), *CHECKS[check], str(CONF.parent / "pyproject.toml")]
    paths = sorted(path.name for path in folder.glob("*.py"))
    answer = subprocess.run([*command, *paths], cwd=folder, capture_output=True, text=True, check=False)
    return answer.stdout + (answer.stderr if answer.returncode else "")
