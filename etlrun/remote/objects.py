"""Objects that URLs name: where they lie, how large they are, their versions, and why one can't be read."""

import base64
import json
import logging
import os
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import PurePosixPath
from typing import Any, Self, TypeVar
from urllib.parse import unquote, urlsplit

from etlrun.stages.paths import CREDENTIALS, NO_VALUE
from etlrun.system.errors import EtlrunError, WorldError, headline
from etlrun.system.hidden import Variable, hidden, is_review
from etlrun.system.loading import pip_install
from etlrun.system.values import Block, frozen, grouped, sha256_of

_AGAIN = {408, 425, 429}
"""Statuses of HTTP below 500 after which another try may help."""
_SERVERS = 500
T = TypeVar("T")
_GONE, _UNKNOWN = 404, 401
_OF_CREDENTIALS = re.compile("Credential|Profile|Token")
"""Names of errors of libraries of stores that find no credentials, and so ask no server."""
_PAUSES_S = (0.25, 0.5, 1.0, 2.0)
"""Seconds between tries to ask for what is no content."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 10.0
_CREDENTIALS = "credentials for it", "set those that the library of the store reads"
_REASONS = {
    _UNKNOWN: ("401 Unauthorized", *_CREDENTIALS),
    403: ("403 Forbidden", *_CREDENTIALS),
    _GONE: ("no such object", "one that is there", "check the URL"),
}


class UnreachableError(WorldError):
    """An object that can't be read.

    Attributes:
        is_gone: Whether its server says that there is none.
    """

    is_gone = False

    def __init__(self, url: str, found: str, expected: str, remedy: str = "") -> None:
        super().__init__(where=url, found=found, expected=expected, remedy=remedy)

    @classmethod
    def together(cls, errors: Sequence[EtlrunError]) -> Self:
        """Return one error of several."""
        error = cls.__new__(cls)
        EtlrunError.__init__(error, [fault for each in errors for fault in each.faults])
        return error

    @classmethod
    def of(cls, url: str, error: Exception) -> Self:
        """Return the error for what a library of a store has raised."""
        status = status_of(error)
        if status in _REASONS:
            found, expected, remedy = _REASONS[status]
            if lacks_credentials(error):
                found, remedy = reason_of(error), f"{remedy}, or dataset.storage='{{anon: true}}' of a public store"
            reason = cls(url, found, expected, remedy)
            reason.is_gone = status == _GONE
            return reason
        return cls(url, reason_of(error), "a server that answers", "check the URL and the network, and run it again")


class ChangedError(UnreachableError):
    """An object that is not what its server has said of it: what has arrived of it is worthless."""

    def __init__(
        self,
        url: str,
        found: str = "another version than at the start of the run",
        expected: str = "an object that stays",
    ) -> None:
        super().__init__(url, found, expected, "run it again; if that remains, ask who writes the object")


def interrupted(url: str) -> UnreachableError:
    """Return the error of a fetch that was ended."""
    return UnreachableError(url, "an interruption", "the whole object", "run it again, which goes on")


def status_of(error: BaseException) -> int | None:
    """Return the status of HTTP that an error stands for; None if there is none."""
    if isinstance(error, TimeoutError):
        return None
    if lacks_credentials(error):
        return _UNKNOWN
    if isinstance(error, OSError) and error.__cause__ is not None:  # as which fsspec raises answers of servers
        return status_of(error.__cause__)
    if isinstance(error, FileNotFoundError | PermissionError | FileExistsError):
        return _GONE if isinstance(error, FileNotFoundError) else 403 if isinstance(error, PermissionError) else 412
    answer = getattr(error, "response", None)  # of S3
    found = answer["ResponseMetadata"].get("HTTPStatusCode") if isinstance(answer, dict) else None
    found = found or (error.status if hasattr(error, "status") else getattr(error, "code", None))
    return int(found) if isinstance(found, int | str) and str(found).isdigit() else None


def reason_of(error: Exception) -> str:
    """Return why a try has failed, in one line."""
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    if isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception):
        return reason_of(error.__cause__)
    status = None if lacks_credentials(error) else status_of(error)
    if not status and not getattr(error, "message", True):  # of aiohttp, whose class says it: TooManyRedirects
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()
    return hidden(f"{status} {getattr(error, 'message', '')}".strip()) if status else headline(error)


def lacks_credentials(error: BaseException) -> bool:
    """Return whether a library of a store has found no credentials, and so has asked no server."""
    return _OF_CREDENTIALS.search(type(error).__name__) is not None


def is_worth_a_retry(error: Exception) -> bool:
    """Return whether another try may help: not after an answer that will stay the same."""
    status = status_of(error)
    return not isinstance(error, WorldError) and (status is None or status >= _SERVERS or status in _AGAIN)


def pauses_s() -> Iterator[float]:
    """Yield the seconds to wait before each further try: twice as long each time, and differing by chance."""
    pause_s = _FIRST_PAUSE_S
    while True:
        yield pause_s * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def answered(url: str, asked: Callable[[], T]) -> T:
    """Return the answer to a question about `url`, which is asked again for a short time while a server is busy.

    Raises:
        UnreachableError: The server doesn't answer, or refuses.
    """
    for pause_s in (*_PAUSES_S, None):
        try:
            return asked()
        except Exception as error:
            if pause_s is None or status_of(error) is None or not is_worth_a_retry(error):
                raise UnreachableError.of(url, error) from error
            time.sleep(pause_s)
    raise AssertionError  # the last pause is none


Storage = Mapping[str, bool | str | int]
"""How a store is reached."""

_SILENT_S = 30.0
"""Seconds in which a server has to send something."""
_CONNECTIONS = 256
"""The most connections to a store."""
_VERSIONS = ("generation", "ETag", "etag", "md5Hash", "Last-Modified", "LastModified", "mtime", "updated")
"""What fsspec's file systems say of the version of an object, the surest first; a VersionId of S3 is in no listing."""
_MD5, _MAGIC, _LOOKED_UP_AT_ONCE = 32, "*[", 16
S3, GCS, WEB = ("s3", "s3a"), ("gs", "gcs"), ("http", "https")
LISTING = (*S3, *GCS)
"""Schemes of stores whose listings say the versions of objects."""
_OF_ENVIRONMENT = {"trust_env": True}
"""Makes aiohttp take proxies from the environment, and passwords from `~/.netrc`, as botocore and requests do."""
_PACKAGES = {"s3": "s3", "gs": "gcs", "gcs": "gcs", "http": "http", "https": "http"}
"""Extras of etlrun by schemes of URLs, which bring the packages that read them."""


@frozen
class Object:
    """An object at the time when it was looked up.

    Attributes:
        url: Its URL.
        bytes: Its size.
        version: What its server says of its version; empty if it says nothing.
        md5: MD5 of its content in hex digits; empty if its server does not say it.
        crc32c: CRC32C of its content in hex digits; empty if its server does not say it.
    """

    url: str
    bytes: int
    version: str
    md5: str = ""
    crc32c: str = ""

    @property
    def name(self) -> str:
        """Its name, the last part of its path."""
        path = unquote(urlsplit(self.url).path) if scheme_of(self.url) in WEB else self.url
        return PurePosixPath(path).name

    @property
    def key(self) -> str:
        """First 20 hex digits of a SHA-256 over its URL, its size and its version."""
        return sha256_of(json.dumps([self.url, self.bytes, self.version]), 20)


def file_system(url: str, storage: Storage) -> Any:
    """Return fsspec's file system of a URL; raise `UnreachableError` if there is none, or its package is missing.

    Args:
        url: Any URL of it.
        storage: `anon`, `endpoint_url`, `profile`, `project` and `requester_pays`, where they matter. Credentials are
            those that the library of the store finds by itself. `at_once` is of no matter here.
    """
    import fsspec

    scheme = scheme_of(url)
    if not url.startswith(scheme):  # libraries of stores take it for the name of a bucket
        raise UnreachableError(url, "a scheme in capitals", f"{scheme}://", "write it in small letters")
    if scheme in S3 and "?versionId=" in url:  # which s3fs leaves out
        found, remedy = "a version of an object", "copy that version to an object of its own"
        raise UnreachableError(url, found, "an object, whose newest version is read", remedy)
    opened = _opened(storage)
    try:
        if scheme in GCS and storage.get("endpoint_url"):
            from gcsfs.core import GCSFileSystem  # what fsspec takes waits a minute for a service of Google's alone

            return GCSFileSystem(**_options(scheme, opened))
        return fsspec.filesystem(scheme, **_options(scheme, opened))
    except (ImportError, OSError, TypeError, ValueError) as error:
        extra = _PACKAGES.get(scheme)
        remedy = pip_install(extra) if extra else "install the package that it names, or copy the data"
        found = headline(error).rstrip(".")
        raise UnreachableError(url, found, "a scheme that fsspec reads here", remedy) from error


def _opened(storage: Storage) -> dict[str, bool | str | int]:
    """Return how a store is reached, with the values of the variables of the environment that it names."""
    found = {name: _read(name, of) if (of := Variable.of(value)) else value for name, value in storage.items()}
    return {name: value for name, value in found.items() if value is not None}


def _read(name: str, variable: Variable) -> str | None:
    """Return the value of a variable for an option of a store; None if the option is to be left out."""
    where, text = f"dataset.storage.{name}", variable.text
    if is_review():
        expected, remedy = "a store that a review may open", "start a run, or a command that reads data"
        raise UnreachableError(where, f"{text}, which a review does not read", expected, remedy)
    value = variable.read()
    if value is None or not value.isprintable():
        found = f"no value of the environment variable {variable.name}"
        expected, remedy = f"one, which {text} names", f"export {variable.name}=VALUE"
        remedy += "" if name in CREDENTIALS else ", or write a default into the config"
        raise UnreachableError(where, found, expected, remedy)
    if name == "endpoint_url" and value != NO_VALUE and not value.lower().startswith(("http://", "https://")):
        found, expected = f"another value of the environment variable {variable.name}", "a URL with http:// or https://"
        raise UnreachableError(where, found, expected, "write the scheme before the host")
    return None if value == NO_VALUE else value


def _options(scheme: str, storage: Storage) -> Block:
    options: Block = {name: value for name, value in storage.items() if name != "at_once"}
    if scheme in S3:
        options["config_kwargs"] = {
            "connect_timeout": _SILENT_S,
            "read_timeout": _SILENT_S,
            "max_pool_connections": _CONNECTIONS,
        }
        return options
    if scheme in (*GCS, *WEB):
        from aiohttp import ClientTimeout

        timeout = ClientTimeout(total=None, sock_connect=_SILENT_S, sock_read=_SILENT_S)
        if scheme not in GCS:
            return {"client_kwargs": {"timeout": timeout, **_OF_ENVIRONMENT}}
        options |= {"requests_timeout": timeout, "session_kwargs": _OF_ENVIRONMENT}
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # errors are raised, too, and tracebacks hide them
        if options.pop("anon", False):
            options["token"] = "anon"  # noqa: S105 - gcsfs's word for none
    return options


def looked_up(url: str, storage: Storage) -> Object:
    """Return the object of a URL as it is now; raise `UnreachableError` if there is none, or no server answers."""
    files = file_system(url, storage)

    def asked() -> Any:
        files.invalidate_cache()
        return files.info(url)

    found = answered(url, asked)
    if found.get("type") == "directory":
        raise UnreachableError(
            url, "a folder", "a file, or a pattern of files", f"name the files in it, as {url.rstrip('/')}/*"
        )
    if found.get("size") is None:
        expected = "a server that says how large it is, so that no part of it can be missing"
        raise UnreachableError(url, "no size of the file", expected, "copy the file here, or to another server")
    of = _object(url, found)
    if not of.version:
        expected = "a server that says the version of a file (ETag or Last-Modified), so that no copy of it is stale"
        raise UnreachableError(url, "no version of the file", expected, "copy the file here, or to another server")
    return of


def all_looked_up(urls: Iterable[str], storage: Storage) -> list[Object]:
    """Return the objects of URLs as they are now, as `looked_up` does; the error names all that can't be reached."""

    def found(url: str) -> Object | UnreachableError:
        try:
            return looked_up(url, storage)
        except UnreachableError as error:
            return error

    with ThreadPoolExecutor(_LOOKED_UP_AT_ONCE) as pool:
        each = list(pool.map(found, urls))
    if errors := [of for of in each if isinstance(of, UnreachableError)]:
        raise UnreachableError.together(errors)
    return [of for of in each if isinstance(of, Object)]


def version_of(found: Mapping[str, Any]) -> str:
    """Return what a store says of the version of an object; empty if it says nothing."""
    return next((str(found[name]) for name in _VERSIONS if found.get(name)), "")


def _object(url: str, found: Mapping[str, Any]) -> Object:
    tag = str(found.get("ETag") or "").strip('"').lower()
    is_md5 = scheme_of(url) in S3 and len(tag) == _MD5  # of several parts it is another, with a hyphen
    md5 = tag if is_md5 else _hex(found.get("md5Hash") or found.get("Content-MD5"))
    crc32c = _hex(found.get("crc32c"))
    return Object(url=url, bytes=int(found["size"]), version=version_of(found), md5=md5, crc32c=crc32c)


def _hex(encoded: str | None) -> str:
    return base64.b64decode(encoded).hex() if encoded else ""


@cache
def _listed(pattern: str, storage: tuple[tuple[str, bool | str | int], ...]) -> tuple[Object, ...] | UnreachableError:
    try:
        if not any(letter in (urlsplit(pattern).path if scheme_of(pattern) in WEB else pattern) for letter in _MAGIC):
            return (looked_up(pattern, dict(storage)),)
        found = found_now(pattern, dict(storage))
        unknown = [url for url, of in found.items() if of is None]
        known = {of.url: of for of in all_looked_up(unknown, dict(storage))}
        return tuple(of or known[url] for url, of in sorted(found.items()))
    except UnreachableError as error:
        return error


look_up_again = _listed.cache_clear
"""Ask for objects again from now on, as a command, a plan or a prediction of its own does."""


def found_now(pattern: str, storage: Storage) -> dict[str, Object | None]:
    """Return the objects of a pattern by their URLs; None for those of which a listing does not say the version.

    Links of a page to itself in another order, such as `?C=M;O=A`, name no objects.
    """
    files, scheme = file_system(pattern, storage), scheme_of(pattern)
    if any("**" in part and part != "**" for part in pattern.split("/")):
        expected = "** between slashes, which is all folders below"
        remedy = "write * in the name, or ** as a folder, such as **/*.jpg"
        raise UnreachableError(pattern, "** in a name", expected, remedy)

    def asked() -> Any:
        files.invalidate_cache()
        return files.glob(pattern, detail=True)

    found: dict[str, Object | None] = {}
    for path, said in answered(pattern, asked).items():
        url = path if "://" in path else f"{scheme}://{path}"
        is_of_page = scheme in WEB and urlsplit(url).query and not urlsplit(pattern).query
        if said.get("type") != "directory" and not is_of_page:
            found[url] = _object(url, said) if scheme in LISTING and version_of(said) else None
    return found


def scheme_of(url: str) -> str:
    """Return the scheme of a URL in small letters."""
    return urlsplit(url).scheme.lower()


def list_objects(pattern: str, storage: Storage) -> tuple[Object, ...]:
    """Return the objects that a URL or a pattern of them names, sorted, as they were when it was first asked for them.

    Raises:
        UnreachableError: The server doesn't answer, or refuses; a URL without a pattern names no object.
    """
    found = _listed(pattern, tuple(sorted(storage.items())))
    if isinstance(found, UnreachableError):
        raise found
    return found


def changed(objects: Sequence[Object], storage: Storage) -> Iterator[UnreachableError]:
    """Yield the error of each object that has another version now, or is gone; not of those that can't be reached.

    Of a store that lists versions, all objects of a folder are looked up at once.
    """
    for folder, those in grouped((of.url.rpartition("/")[0], of) for of in objects).items():
        now: dict[str, Object | None] = {}
        prefix = os.path.commonprefix([of.url for of in those])  # noqa: RUF071 - of names, not of folders
        if len(those) > 1 and scheme_of(folder) in LISTING and not any(letter in prefix for letter in _MAGIC):
            with suppress(UnreachableError):
                now = found_now(f"{prefix}*", storage)

        def found(of: Object) -> UnreachableError | None:
            try:
                same = (now.get(of.url) or looked_up(of.url, storage)) == of  # noqa: B023 - called in this turn
            except UnreachableError as error:
                return error if error.is_gone else None
            return None if same else ChangedError(of.url)

        with ThreadPoolExecutor(_LOOKED_UP_AT_ONCE) as pool:
            yield from filter(None, pool.map(found, those))
