"""Versions of installed packages."""

from __future__ import annotations

from contextlib import suppress
from importlib import metadata

_OTHER_NAMES = {"tensorflow": ("tensorflow-cpu",)}
"""Packages with the same content under another name."""


def version_of(package: str) -> str:
    """Return the version of an installed package, under any of its names.

    Raises:
        PackageNotFoundError: It is not installed under a name that is known.
    """
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        for name in _OTHER_NAMES.get(package, ()):
            with suppress(metadata.PackageNotFoundError):
                return metadata.version(name)
        raise
