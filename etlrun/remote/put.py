"""Objects that are written: whole files of this machine, each of which its store publishes at once."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

from etlrun.remote import fetch
from etlrun.remote.failures import UnreachableError, is_worth_a_retry, lacks_credentials, pauses_s, reason_of, status_of
from etlrun.remote.objects import GCS, S3, Object, Storage, file_system, looked_up
from etlrun.system.errors import WorldError
from etlrun.system.progress import progress

_SCHEMES = (*S3, *GCS)
"""Schemes of stores that publish an object whole, and never one in the place of another, if they are asked to."""
_AT_ONCE, _NONE, _RACED, _MB = 8, 404, 412, 1_000_000
_CREDENTIALS = ("credentials that may list and write there", "set those that the library of the store reads")
_REASONS = {
    401: ("401 Unauthorized", *_CREDENTIALS),
    403: ("403 Forbidden", *_CREDENTIALS),
    _NONE: ("no such bucket", "one that is there", "create it, or check the URL"),
}


class TakenError(UnreachableError):
    """Another object at the place of one that is to be written."""

    def __init__(self, url: str) -> None:
        expected = "no object there, so that nothing is overwritten"
        super().__init__(url, "another object", expected, "choose another place, or remove it")


def there(url: str, storage: Storage) -> list[str]:
    """Return the URLs of the object, and of those in the folder, that `url` names.

    Raises:
        UnreachableError: Objects of that scheme can't be written, or the store does not answer, or refuses.
    """
    scheme = urlsplit(url).scheme
    if scheme not in _SCHEMES:
        raise UnreachableError(
            url, f"the scheme {scheme}", "s3:// or gs://, whose objects appear whole", "write here, and copy it there"
        )
    files = file_system(url, storage)
    try:
        files.invalidate_cache()
        return [f"{scheme}://{path}" for path in files.find(url)]
    except Exception as error:
        raise _unwritable(url, error) from error


def put(path: Path, url: str, storage: Storage, stop: Event | None = None, *, replaces: bool = False) -> Object:
    """Publish a file as the object of a URL, and return it; the same content there is left as it is.

    Raises:
        TakenError: Another object is there, unless the file `replaces` it.
        UnreachableError: The store refuses, or does not answer for `fetch.LONGEST_S`, or until `stop` is set.
    """
    one, stop = _Put(path, url, storage, replaces), stop or Event()
    pauses, since_s = pauses_s(), time.monotonic()
    while True:
        try:
            return one.sent()
        except UnreachableError:
            raise
        except Exception as error:
            is_raced = status_of(error) == _RACED  # by another process, or by a try whose answer was lost
            if not is_raced and not is_worth_a_retry(error):
                raise _unwritable(url, error) from error
            if time.monotonic() - since_s > fetch.LONGEST_S:
                raise UnreachableError(
                    url,
                    f"no success in {fetch.LONGEST_S:.0f} s of tries, at last: {reason_of(error)}",
                    "a store that takes it",
                    "run it again",
                ) from error
            if stop.wait(next(pauses)):
                raise UnreachableError(url, "an interruption", "the whole object", "run it again") from error


@dataclass
class _Put:
    """A file that is to be the object of a URL."""

    path: Path
    url: str
    storage: Storage
    replaces: bool
    was_sent: bool = field(default=False, init=False)

    def sent(self) -> Object:
        """Send the file, unless its content is there; raises what the library of the store raises."""
        found = _object_at(self.url, self.storage)
        if found is not None and self._is_content_of(found):
            return found
        if found is not None and not self.replaces:
            raise TakenError(self.url)
        mode, self.was_sent = "overwrite" if self.replaces else "create", True
        file_system(self.url, self.storage).put_file(str(self.path), self.url, mode=mode)
        found = _object_at(self.url, self.storage)
        if found is None or not self._is_content_of(found):
            raise ConnectionError("an object of another size than what was sent")
        return found

    def _is_content_of(self, of: Object) -> bool:
        """Return whether an object has the content of the file: its MD5, or its size once that was sent.

        Stores compare checksums of what is sent. Of an object in several parts, or encrypted with a key of its user's,
        S3 says no MD5.
        """
        if of.bytes != self.path.stat().st_size or self.was_sent:
            return of.bytes == self.path.stat().st_size
        with self.path.open("rb") as file:
            return of.md5 == hashlib.file_digest(file, "md5").hexdigest()


def remove(url: str, storage: Storage) -> None:
    """Remove the object of a URL; raise `UnreachableError` if that can't be."""
    try:
        file_system(url, storage).rm_file(url)
    except Exception as error:
        raise _unwritable(url, error) from error


def _object_at(url: str, storage: Storage) -> Object | None:
    """Return the object of a URL; None if there is none. Raises what the library of the store raises."""
    try:
        return looked_up(url, storage)
    except UnreachableError as error:
        if error.is_gone or error.__cause__ is None:  # the latter of a folder
            return None
        raise error.__cause__ from error


def put_all(files: Sequence[tuple[Path, str]], storage: Storage) -> None:
    """Publish files as the objects of URLs: all but the last at once, and the last one when these are there.

    If one can't be published, or the command is interrupted, the others are removed.

    Raises:
        UnreachableError: As of `put`.
    """
    begun, stop = list[str](), Event()

    def run(path: Path, url: str, tell: Callable[[int], None]) -> None:
        begun.append(url)
        try:
            put(path, url, storage, stop)
        except TakenError:
            begun.remove(url)
            raise
        tell(max(1, path.stat().st_size // _MB))

    *others, last = files
    try:
        with progress() as begin, ThreadPoolExecutor(_AT_ONCE) as pool:
            advance = begin("Uploading (MB)", sum(max(1, path.stat().st_size // _MB) for path, _ in files))
            try:
                for done in [pool.submit(run, *of, advance) for of in others]:
                    done.result()
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise
            run(*last, advance)
    except BaseException:
        for url in begun:
            with suppress(UnreachableError):  # the first error counts
                remove(url, storage)
        raise


def _unwritable(url: str, error: Exception) -> WorldError:
    reasons = _REASONS.get(status_of(error) or 0)
    if lacks_credentials(error):
        reasons = (reason_of(error), *_CREDENTIALS)
    return UnreachableError(url, *reasons) if reasons else UnreachableError.of(url, error)
