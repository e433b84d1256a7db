"""Paths in configs: of files and folders on this machine, and patterns of them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from etlrun.stages.base import Expected


def is_remote(path: str) -> bool:
    """Return whether `path` is a URL, for which the local file system would create a folder named like its scheme."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path) is not None


def of_this_machine(path: str) -> str:
    """Return `path`; raise `ValueError` if it is remote."""
    if is_remote(path):
        raise ValueError
    return path


OptionalPath = Annotated[
    Annotated[str, Field(min_length=1), AfterValidator(of_this_machine)] | None,
    Expected("a path on this machine, or null"),
]
Pattern = Annotated[str, Field(min_length=1), AfterValidator(of_this_machine)]
Files = Pattern | Annotated[dict[Annotated[str, Field(pattern=r"^\w+$")], Pattern], Field(min_length=1)]
FILES_EXPECTED = "a pattern of files on this machine, or a mapping from names of splits to patterns"
