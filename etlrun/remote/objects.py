"""Objects that URLs name: where they lie, how large they are, and their versions."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from etlrun.remote.failures import UnreachableError
from etlrun.system.errors import headline

Storage = Mapping[str, bool | str | int]
"""How a store is reached."""

_SILENT_S = 30.0
"""Seconds in which a server has to send something."""
_VERSIONS = ("generation", "ETag", "etag", "md5Hash", "Last-Modified", "LastModified", "mtime", "updated")
"""What fsspec's file systems say of the version of an object, the surest first; a VersionId of S3 is in no listing."""
_MD5 = 32
_PACKAGES = {"s3": "s3", "gs": "gcs", "gcs": "gcs", "http": "http", "https": "http"}
"""Extras of etlrun by schemes of URLs, which bring the packages that read them."""


@dataclass(frozen=True, kw_only=True)
class Object:
    """An object at the time when it was looked up.

    Attributes:
        url: Its URL.
        bytes: Its size.
        version: What its server says of its version; empty if it says nothing.
        md5: MD5 of its content in hex digits; empty if its server does not say it.
    """

    url: str
    bytes: int
    version: str
    md5: str = ""

    @property
    def name(self) -> str:
        """Its name, the last part of its path."""
        return PurePosixPath(unquote(urlsplit(self.url).path)).name

    @property
    def key(self) -> str:
        """First 20 hex digits of a SHA-256 over its URL, its size and its version."""
        return hashlib.sha256(json.dumps([self.url, self.bytes, self.version]).encode()).hexdigest()[:20]


def file_system(url: str, storage: Storage) -> Any:
    """Return fsspec's file system of a URL; raise `UnreachableError` if there is none, or its package is missing.

    Args:
        url: Any URL of it.
        storage: `anon`, `endpoint_url`, `profile`, `project` and `requester_pays`, where they matter. Credentials are
            those that the library of the store finds by itself. `at_once` is of no matter here.
    """
    import fsspec

    scheme = urlsplit(url).scheme.lower()
    try:
        return fsspec.filesystem(scheme, **_options(scheme, storage))
    except (ImportError, ValueError) as error:
        extra = _PACKAGES.get(scheme)
        remedy = f"pip install 'etlrun[{extra}]'" if extra else "install the package that it names, or copy the data"
        found = headline(error).rstrip(".")
        raise UnreachableError(url, found, "a scheme that fsspec reads here", remedy) from error


def _options(scheme: str, storage: Storage) -> dict[str, Any]:
    options: dict[str, Any] = {name: value for name, value in storage.items() if name != "at_once"}
    if scheme in ("http", "https"):
        from aiohttp import ClientTimeout

        return {"client_kwargs": {"timeout": ClientTimeout(total=None, sock_connect=_SILENT_S, sock_read=_SILENT_S)}}
    if scheme in ("gs", "gcs") and options.pop("anon", False):
        options["token"] = "anon"  # noqa: S105 - gcsfs's word for none
    if scheme in ("s3", "s3a"):
        options["config_kwargs"] = {"connect_timeout": _SILENT_S, "read_timeout": _SILENT_S}
    return options


def looked_up(url: str, storage: Storage) -> Object:
    """Return the object of a URL as it is now; raise `UnreachableError` if there is none, or no server answers."""
    files = file_system(url, storage)
    try:
        files.invalidate_cache()
        found = files.info(url)
    except Exception as error:
        raise UnreachableError.of(url, error) from error
    if found.get("type") == "directory":
        remedy = f"name the files in it, as {url.rstrip('/')}/*"
        raise UnreachableError(url, "a folder", "a file, or a pattern of files", remedy)
    if found.get("size") is None:
        expected = "a server that says how large it is, so that no part of it can be missing"
        raise UnreachableError(url, "no size of the file", expected, "copy the file here, or to another server")
    of = _object(url, found)
    if not of.version:
        expected = "a server that says the version of a file (ETag or Last-Modified), so that no copy of it is stale"
        raise UnreachableError(url, "no version of the file", expected, "copy the file here, or to another server")
    return of


def version_of(found: Mapping[str, Any]) -> str:
    """Return what a store says of the version of an object; empty if it says nothing."""
    return next((str(found[name]) for name in _VERSIONS if found.get(name)), "")


def _object(url: str, found: Mapping[str, Any]) -> Object:
    tag = str(found.get("ETag") or "").strip('"')
    is_md5 = urlsplit(url).scheme == "s3" and len(tag) == _MD5  # of several parts it is another, with a hyphen
    return Object(
        url=url, bytes=int(found["size"]), version=version_of(found), md5=tag.lower() if is_md5 else _md5(found)
    )


def _md5(found: Mapping[str, Any]) -> str:
    encoded = found.get("md5Hash") or found.get("Content-MD5")
    return base64.b64decode(encoded).hex() if encoded else ""


@cache
def _listed(pattern: str, storage: tuple[tuple[str, bool | str | int], ...]) -> tuple[Object, ...]:
    files = file_system(pattern, dict(storage))
    if not any(letter in urlsplit(pattern).path for letter in "*["):
        return (looked_up(pattern, dict(storage)),)
    try:
        paths = files.glob(pattern)
    except Exception as error:
        raise UnreachableError.of(pattern, error) from error
    scheme = urlsplit(pattern).scheme
    urls = [path if "://" in path else f"{scheme}://{path}" for path in sorted(paths)]
    return tuple(looked_up(url, dict(storage)) for url in urls)


def listed(pattern: str, storage: Storage) -> tuple[Object, ...]:
    """Return the objects that a URL or a pattern of them names, sorted, as they were when this process first asked.

    Raises:
        UnreachableError: The server doesn't answer, or refuses; a URL without a pattern names no object.
    """
    return _listed(pattern, tuple(sorted(storage.items())))
