"""Failures of servers: why an object can't be read, and whether another try may help."""

from __future__ import annotations

from typing import Self

from etlrun.system.errors import WorldError, headline

_AGAIN = {408, 425, 429}
"""Statuses of HTTP below 500 after which another try may help."""
_SERVERS = 500
_REASONS = {
    401: ("401 Unauthorized", "credentials that may read it", "set those that the library of the store reads"),
    403: ("403 Forbidden", "credentials that may read it", "set those that the library of the store reads"),
    404: ("no such object", "one that is there", "check the URL"),
}


class UnreachableError(WorldError):
    """An object that can't be read."""

    def __init__(self, url: str, found: str, expected: str, remedy: str = "") -> None:
        super().__init__(where=url, found=found, expected=expected, remedy=remedy)

    @classmethod
    def of(cls, url: str, error: Exception) -> Self:
        """Return the error for what a library of a store has raised."""
        status = status_of(error)
        if status in _REASONS:
            return cls(url, *_REASONS[status])
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


def has_changed(error: Exception) -> bool:
    """Return whether a server says that it has no such version, or no such bytes, of an object."""
    precondition, ranges = 412, 416
    return status_of(error) in (precondition, ranges)


def status_of(error: BaseException) -> int | None:
    """Return the status of HTTP that an error stands for; None if there is none."""
    if isinstance(error, TimeoutError):
        return None
    if isinstance(error, OSError) and error.__cause__ is not None:  # as which fsspec raises answers of servers
        return status_of(error.__cause__)
    if isinstance(error, FileNotFoundError | PermissionError | FileExistsError):
        return 404 if isinstance(error, FileNotFoundError) else 403 if isinstance(error, PermissionError) else 412
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
    status = status_of(error)
    return f"{status} {getattr(error, 'message', '')}".strip() if status else headline(error)


def is_worth_a_retry(error: Exception) -> bool:
    """Return whether another try may help: not after an answer that will stay the same."""
    status = status_of(error)
    return not isinstance(error, WorldError) and (status is None or status >= _SERVERS or status in _AGAIN)
