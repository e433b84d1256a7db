"""Failures of servers: why an object can't be read, and whether another try may help."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Self, TypeVar

from etlrun.system.errors import EtlrunError, WorldError, headline
from etlrun.system.hidden import hidden

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
_REASONS = {
    _UNKNOWN: ("401 Unauthorized", "credentials that may read it", "set those that the library of the store reads"),
    403: ("403 Forbidden", "credentials that may read it", "set those that the library of the store reads"),
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
