"""Paths in configs: of files and folders on this machine, patterns of them, and URLs."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from etlrun.stages.base import Expected, Text
from etlrun.system.hidden import Variable


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
Patterns = Text | Annotated[tuple[Text, ...], Field(min_length=1)]
Files = Patterns | Annotated[dict[Annotated[str, Field(pattern=r"^\w+$")], Patterns], Field(min_length=1)]
FILES_EXPECTED = "a pattern of files or URLs, a list of patterns, or a mapping from names of splits to one of these"

_SECRET = re.compile(r"(?i)signature|token|secret|credential|password|api_?key|\bsig=")
_STORAGE = ("anon", "at_once", "endpoint_url", "key", "profile", "project", "requester_pays", "secret", "token")
CREDENTIALS = ("key", "secret", "token")
"""Options of a store of which a config names the variable alone."""
_FLAGS = ("anon", "requester_pays")
STORAGE_EXPECTED = f"null, or a mapping from {', '.join(_STORAGE[:-1])} or {_STORAGE[-1]}"
Storage = dict[str, bool | int | str]
"""How a store is reached. Texts may name variables of the environment, and credentials must, since configs are read."""
AT_ONCE, _MOST_AT_ONCE = 8, 256
"""Objects that are fetched at once, unless `storage` says it, and the most of them."""
Keep = Annotated[
    Literal["all"] | Annotated[str, Field(pattern=r"^\d+(\.\d+)? ?[kMGT]B$")], Expected("all, or a size such as 20GB")
]
"""How much of what is fetched stays on this machine."""
UNITS = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
"""Bytes by the first letter of a unit."""
NO_VALUE = "null"
"""The default of a variable without which an option of a store is left out."""
_BY_LIBRARY = "let the library of the store find credentials, as in the environment"


def unfit_storage(storage: Mapping[str, bool | int | str]) -> Iterator[tuple[str, str, str]]:
    """Yield what is found, expected and to do for options of a store; values of unknown ones are not shown."""
    if others := [name for name in storage if name not in _STORAGE]:
        yield ", ".join(others), STORAGE_EXPECTED, _BY_LIBRARY
    for name in (name for name in CREDENTIALS if name in storage):
        variable = Variable.of(storage[name])
        if variable is None or variable.default is not None:
            expected = "the name of a variable, without a default, so that a config holds no credential"
            yield f"a value of {name}", expected, f"write {name}: ${{oc.env:NAME}} in a config file"
    for name in (name for name in _FLAGS if not isinstance(storage.get(name, True), bool)):
        yield f"{name}: {storage[name]}", "true or false", f"set {name}: true, or leave it out"
    endpoint, variable = str(storage.get("endpoint_url", "https://")), Variable.of(storage.get("endpoint_url"))
    if variable is not None:
        endpoint = variable.default if variable.default not in (None, NO_VALUE) else "https://"
    for found, expected, remedy in with_secrets([endpoint]):
        yield f"endpoint_url: {found}", expected, remedy
    if endpoint.partition(":")[0].lower() not in ("http", "https"):
        shown = without_secrets(endpoint)
        yield f"endpoint_url: {shown}", "a URL with http:// or https://", "write the scheme before the host"
    at_once = storage.get("at_once", 1)
    if isinstance(at_once, bool | str) or not 1 <= at_once <= _MOST_AT_ONCE:
        yield f"at_once: {at_once}", f"an integer from 1 to {_MOST_AT_ONCE}", "set at_once: 8"


def with_secrets(patterns: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield what is found, expected and to do for each URL that is none, or may hold a credential that is not shown."""
    for pattern in filter(is_remote, patterns):
        if (shown := without_secrets(pattern)).endswith("://..."):
            yield shown, "a URL such as s3://bucket/data or https://host/data", "check the name of its host"
        elif shown != pattern:
            yield shown, "a URL without credentials, which summaries and pages would tell", _BY_LIBRARY


def without_secrets(url: str) -> str:
    """Return a URL without what may be a credential in it: a user, a password, the values of a query; all of no URL."""
    try:
        parts = urlsplit(url)
    except ValueError:  # whose text may hold a password
        return f"{url.partition('://')[0]}://..."
    host = parts.netloc.rpartition("@")
    if not host[1] and not _SECRET.search(parts.query):
        return url
    query = "..." if _SECRET.search(parts.query) else parts.query
    return parts._replace(netloc=f"...@{host[2]}" if host[1] else host[2], query=query).geturl()
