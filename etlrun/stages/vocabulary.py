"""Files of words: vocabularies, with a value in each line."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from pathlib import Path

from etlrun.stages.column_step import UnfitColumnError

_WRITE = "write it again"
_MARK = b"\xef\xbb\xbf"
"""UTF-8's byte order mark."""


def vocabulary_of(path: str) -> tuple[str, ...]:
    """Return the values of a file of UTF-8, one in each line, in Unicode's NFC, as the texts of tables are.

    A byte order mark before the first line is none of it, and lines may end as on Windows.

    Raises:
        UnfitColumnError: It can't be read; a line is empty, is not UTF-8, has blanks around it, or is there twice.
    """
    lines = dict[str, int]()
    for number, line in _lines(path):
        if not line.strip():
            raise _unfit(f"{path}, line {number:,}: no value", "a value in each line", "remove the line")
        if line != line.strip():
            remedy = "remove the blanks, or list the values in `values`"
            raise _unfit(f"{path}, line {number:,}: {line!r}", "a value without blanks around it", remedy)
        if (before := lines.setdefault(line, number)) != number:
            raise _unfit(f"{line!r} in lines {before:,} and {number:,} of {path}", "each value in one line", _WRITE)
    if not lines:
        raise _unfit(f"no line of {path}", "each value in one line", _WRITE)
    return tuple(lines)


def _lines(path: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each line, from 1, and its text."""
    try:
        data = Path(path).expanduser().read_bytes().removeprefix(_MARK)
    except OSError as error:
        remedy = "correct the path; relative ones start in the folder of the command"
        expected = "a text file with a value in each line"
        raise _unfit(f"{path}: {error.strerror}", expected, remedy) from error
    lines = data.split(b"\n")
    for number, line in enumerate(lines[:-1] if not lines[-1] else lines, 1):
        try:
            yield number, unicodedata.normalize("NFC", line.removesuffix(b"\r").decode())
        except UnicodeDecodeError as error:
            raise _unfit(f"{path}, line {number:,}: {line!r}", "text in UTF-8", "write it in UTF-8") from error


def _unfit(found: str, expected: str, remedy: str) -> UnfitColumnError:
    return UnfitColumnError(found=found, expected=expected, remedy=remedy)
