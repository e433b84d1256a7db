"""A package with a model, a loss, metrics and a callback: those of docs/extending.md."""

import sys
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

import pytest

from etlrun.stages import STAGES
from etlrun.stages.installed import Registry, with_installed
from etlrun.stages.plugins import PLUGINS
from etlrun.system.errors import Fault
from tests.pastes import fenced

ENTRIES = {
    "etlrun.models": {"tower": "tower:Tower"},
    "etlrun.losses": {"quantile": "grown:quantile"},
    "etlrun.metrics": {"off": "grown:off", "log_cosh": "grown:log_cosh"},
    "etlrun.callbacks": {"plateau": "grown:plateau"},
}


def write_grove(folder: Path, edit: tuple[str, str] = ("", "")) -> Path:
    """Write the package into a folder of libraries; `edit` replaces a text in its modules."""
    info = folder / "grove-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    for module, mark in (("tower", "class Tower"), ("grown", "def quantile")):
        text = fenced("extending.md", mark)
        (folder / f"{module}.py").write_text(text.replace(*edit) if edit[0] else text)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: grove\nVersion: 1.0\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {of}\n" for name, of in named.items()) for group, named in ENTRIES.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups))
    return folder


def load_grove(folder: Path, monkeypatch: pytest.MonkeyPatch, edit: tuple[str, str] = ("", "")) -> Registry:
    """Install the package in this process until the end of a test; the registry with its model."""
    registry, faults = load(write_grove(folder, edit), monkeypatch, "tower", "grown")
    assert not faults
    return registry


def load(folder: Path, monkeypatch: pytest.MonkeyPatch, *modules: str) -> tuple[Registry, tuple[Fault, ...]]:
    """Load what a folder of libraries has, as etlrun does when it is imported."""
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # of another text of the same length and second
    for module in modules:
        monkeypatch.delitem(sys.modules, module, raising=False)
    before = {*PLUGINS}
    entries: list[EntryPoint] = [of for one in distributions(path=[str(folder)]) for of in one.entry_points]
    found = with_installed(STAGES, entries)
    for key in [key for key in PLUGINS if key not in before]:
        monkeypatch.setitem(PLUGINS, key, PLUGINS.pop(key))  # until the end of the test
    return found
