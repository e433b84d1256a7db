"""Check of each image: its content by hash, and whether it can be decoded for training."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PIL import Image

from etlrun.datasets.prepare.identical import digest_of
from etlrun.datasets.prepare.source import LISTED, DamagedError, Entry, Source, first
from etlrun.datasets.prepare.threads import in_order
from etlrun.sources import usable
from etlrun.sources.pixels import pillow_as_header_reader
from etlrun.sources.usable import CONVERT, Problem
from etlrun.system.errors import EtlrunError, Fault, counted, fault, one_line, unreadable_path
from etlrun.system.machine import rounded

LARGEST_BYTES = 1_000_000_000
"""Size of an encoded image; protocol buffers hold at most 2 GiB."""
FORMATS = ("JPEG", "PNG", "BMP")
_FRAMES = {"GIF": "GIF", "WEBP": "WebP"}
"""Formats that TFDS decodes to a stack of frames, even of a single one, which its feature `Image` refuses."""
_OF_FRAMES = "whose first frame is not taken: TFDS decodes it to a stack of frames, even a single one"
_CHUNK = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What is known of an image.

    Attributes:
        digest: XXH3 of its bytes, 128 bits in hexadecimal; empty if they were not read.
        reason: Why it can't be used; empty if it can.
        is_convertible: Whether it can if it is converted.
        warning: What libjpeg warns of, such as missing data; empty if nothing.
        unreadable: Fault of a file that can't be read at all.
    """

    digest: str
    reason: str = ""
    is_convertible: bool = False
    warning: str = ""
    unreadable: Fault | None = None


def check(source: Source, done: Callable[[int], None]) -> list[Verdict]:
    """Return the verdict on each entry of a source; `done` is told how many further ones are known.

    Raises:
        EtlrunError: Files that can't be read.
    """
    found: list[Verdict] = []
    chunks = (source.entries[start : start + _CHUNK] for start in range(0, len(source.entries), _CHUNK))
    with pillow_as_header_reader():
        for verdicts in in_order(lambda entries: [verdict(source, entry) for entry in entries], chunks):
            found += verdicts
            done(len(verdicts))
    if unreadable := [of.unreadable for of in found if of.unreadable]:
        raise EtlrunError(first(unreadable, source.where, "files that can't be read"))
    return found


def verdict(source: Source, entry: Entry) -> Verdict:
    """Read one image, hash and decode it."""
    if entry.refused:
        return Verdict(digest="", reason=entry.refused)
    if entry.size > LARGEST_BYTES:
        return Verdict(digest="", reason=f"a file of {rounded(entry.size)}, more than {rounded(LARGEST_BYTES)}")
    try:
        data = source.prepared(entry)
    except DamagedError as error:
        return Verdict(digest="", reason=f"a damaged archive: {one_line(error)}")
    except OSError as error:
        where = str(error.filename or entry.path)
        return Verdict(digest="", unreadable=unreadable_path(where, error, "an image file"))
    digest, found = digest_of(data).hex(), problem(data)
    if found is None:
        return Verdict(digest=digest, warning=usable.warning_of(data))
    return Verdict(digest=digest, reason=found.reason, is_convertible=found.expected == CONVERT)


def problem(data: bytes) -> Problem | None:
    """Return why an encoded image can't be used for training; None if it can."""
    if not data:
        return Problem("an empty file", "an image")
    with contextlib.suppress(OSError, ValueError, SyntaxError):  # of a header that TensorFlow may accept
        kind = Image.open(io.BytesIO(data), formats=(*FORMATS, *_FRAMES)).format
        if kind in _FRAMES:
            return Problem(f"a {_FRAMES[kind]}, {_OF_FRAMES}", CONVERT)
    return usable.problem(data)


def faults_of(source: Source, verdicts: Sequence[Verdict]) -> list[Fault]:
    """Return the faults of the first images that can't be used, and one with the number of all; none if all can."""
    broken = [(entry, of) for entry, of in zip(source.entries, verdicts, strict=True) if of.reason]
    expected = f"an image: {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
    convert = "add --convert, which makes JPEGs or PNGs of such images" if source.convert is None else ""
    faults = [
        fault(source.name_of(entry), of.reason, expected, convert if of.is_convertible else "")
        for entry, of in broken[:LISTED]
    ]
    if broken:
        listed = f", of which {LISTED} are listed" if broken[LISTED:] else ""
        faults.append(
            fault(
                source.where,
                f"{counted(len(broken), 'broken image')} of {len(verdicts):,}{listed}",
                "images that can be decoded",
                "repair or remove them, or add --on-corrupt skip to leave them out",
            )
        )
    return faults
