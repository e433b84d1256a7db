"""Names of copies in messages: those of the URLs that they were fetched from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from etlrun.remote.copies import Copies
from etlrun.remote.objects import Object
from etlrun.system.errors import EtlrunError, Fault

_urls: dict[str, str] = {}


def copied(objects: Sequence[Object], copies: Copies) -> list[str]:
    """Return the paths of copies of objects as `Copies.all` does; from now on they are named by the URLs."""
    name_copies(objects, copies)
    return copies.all(objects)


def name_copies(objects: Iterable[Object], copies: Copies) -> None:
    """Name copies of objects, which may be fetched later, by the URLs from now on."""
    _urls.update({copies.path(of): of.url for of in objects})


def name_of(path: str) -> str:
    """Return the URL of a copy; other paths as they are."""
    return _urls.get(path, path)


@contextmanager
def named_by_url() -> Iterator[None]:
    """Let the faults of an `EtlrunError` in the block name URLs instead of the paths of their copies."""
    try:
        yield
    except EtlrunError as error:
        error.faults = tuple(map(_of_urls, error.faults))
        error.args = ("\n".join(map(str, error.faults)),)
        raise


def _of_urls(of: Fault) -> Fault:
    where, found, expected, remedy = map(_with_urls, (of.where, of.found, of.expected, of.remedy))
    return dataclasses.replace(of, where=where, found=found, expected=expected, remedy=remedy)


def _with_urls(text: str) -> str:
    for path, url in _urls.items():
        text = text.replace(path, url)
    return text
