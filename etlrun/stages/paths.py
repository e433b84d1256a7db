"""Paths in configs: of files and folders on this machine, patterns of them, and URLs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated
from urllib.parse import urlsplit

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

_SECRET = re.compile(r"(?i)signature|token|secret|credential|password|api_?key|\bsig=")
_STORAGE = ("anon", "endpoint_url", "profile", "project", "requester_pays")
STORAGE_EXPECTED = f"null, or a mapping from {', '.join(_STORAGE[:-1])} or {_STORAGE[-1]}"
Storage = dict[str, bool | str]
"""How a store is reached, without credentials, which a config would tell its readers."""
_BY_LIBRARY = "let the library of the store find credentials, as in the environment"


def unknown_options(storage: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield what is found, expected and to do for options of a store that there are not; values are not shown."""
    if others := [name for name in storage if name not in _STORAGE]:
        yield ", ".join(others), STORAGE_EXPECTED, _BY_LIBRARY


def with_secrets(patterns: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield what is found, expected and to do for each URL that may hold a credential, which is not shown."""
    for pattern in filter(is_remote, patterns):
        if (shown := without_secrets(pattern)) != pattern:
            expected = "a URL without credentials, which summaries and pages would tell"
            yield shown, expected, _BY_LIBRARY


def without_secrets(url: str) -> str:
    """Return a URL without what may be a credential in it: a user, a password, the values of a query."""
    parts = urlsplit(url)
    query = "..." if _SECRET.search(parts.query) else parts.query
    host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"...@{host[2]}" if host[1] else host[2], query=query).geturl()
