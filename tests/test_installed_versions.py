"""Versions of installed packages, some of which have several names."""

import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from etlrun.system.loading import version_of


def install(folder: Path, name: str, version: str) -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_tensorflow_has_a_version_under_each_of_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(PackageNotFoundError, match=r"^No package metadata was found for tensorflow$"):
        version_of("tensorflow")
    install(tmp_path, "tensorflow-cpu", "2.21.0")
    assert version_of("tensorflow") == "2.21.0"
    install(tmp_path, "tensorflow", "2.20.0")
    assert version_of("tensorflow") == "2.20.0"
    with pytest.raises(PackageNotFoundError):
        version_of("keras")
