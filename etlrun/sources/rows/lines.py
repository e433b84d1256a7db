"""Text files: how they are opened, and what is wrong with those that are none in UTF-8."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import shlex
from pathlib import Path
from typing import IO

from etlrun.sources.framing import POINTED, POINTER
from etlrun.system.errors import Fault, WorldError, printable

_CHUNK = 8_000_000
_BEGIN = 512
_OTHERS = (
    (b"PAR1", "a Parquet file", "name it with .parquet"),
    (b"ARROW1", "a file of Arrow", "name it with .arrow"),
    (
        rb"\x1f\x8b|BZh\d1AY|\xfd7zXZ|\x28\xb5\x2f\xfd",
        "a compressed file",
        "decompress it, or add .gz for gzip",
    ),
    (rb"PK\x03\x04|\xd0\xcf\x11\xe0", "an archive or a workbook", "unpack it, or save the sheet as csv"),
    (rb"%PDF-|SQLite format 3", "a document or a database", "export its table as csv"),
    (POINTER, *POINTED),
    (
        rb"(?i)(\xef\xbb\xbf)?\s*<(!doctype|html|\?xml)",
        "a page of HTML or XML",
        "download the file itself",
    ),
)
"""Patterns of what begins files of other formats, what these are, and what to do."""
_SHOWN = 40
OR_REPLACE = "; or set dataset.errors=replace"
"""End of the remedy of what is not UTF-8."""


def ending(path: str) -> str:
    """Return a path in lower case without the number of a shard, which ends with the format of the file."""
    return re.sub(r"-\d+-of-\d+$", "", path.lower())


def is_gzip(path: str) -> bool:
    """Return whether the name of a file is that of one which is compressed."""
    return ending(path).endswith(".gz")


def opened(path: str) -> IO[bytes]:
    """Open a file, decompressed if its name ends in `.gz`."""
    return gzip.open(path, "rb") if is_gzip(path) else Path(path).open("rb")  # type: ignore[return-value]


def at_line(path: str, line: int) -> str:
    """Return where a line is, counted from 1."""
    return f"{path}, line {line:,}"


def shown(value: object) -> str:
    """Return a value on one short line."""
    text = printable(str(value))
    return f"{text[:_SHOWN]}…" if len(text) > _SHOWN else text


def as_by(command: str, path: str) -> str:
    """Return the end of a remedy: what prints what a command makes of the text of a file."""
    file = shlex.quote(path)
    return f"as by: gunzip -c {file} | {command}" if is_gzip(path) else f"as by: {command} {file}"


def format_fault(path: str) -> Fault | None:
    """Return the fault of a file that is no text in UTF-8 by its first bytes, or is not compressed as its name says."""
    with Path(path).open("rb") as file:
        begins = file.read(_BEGIN)
    is_plain = is_gzip(path) and bool(begins)
    if is_plain and begins.startswith(b"\x1f\x8b"):
        with opened(path) as file:
            begins, is_plain = file.read(_BEGIN), False
    for pattern, found, remedy in _OTHERS:
        if re.match(pattern, begins):
            return Fault(path, found, "lines of text", remedy)
    if is_plain:
        remedy = "leave .gz out of its name, or compress it"
        return Fault(path, "a file that is not compressed", "bytes of gzip", remedy)
    encoding = json.detect_encoding(begins) if any(begins[:4]) else "utf-8"
    if encoding.startswith("utf-8"):
        return None
    name = re.sub("-([LB]E)$", r"\1", encoding.upper())  # as iconv has it
    remedy = f"convert it, {as_by(f'iconv -f {name} -t UTF-8', path)}"
    return Fault(path, f"text in {name[:6]}", "text in UTF-8", remedy)


def first_lines(path: str, *marks: bytes) -> dict[bytes, int]:
    """Return the first line, from 1, that has each of these bytes, if one has."""
    found, line = dict[bytes, int](), 1
    with opened(path) as file:
        while chunk := file.read(_CHUNK):
            for mark in marks:
                if mark not in found and (place := chunk.find(mark)) >= 0:
                    found[mark] = line + chunk.count(b"\n", 0, place)
            line += chunk.count(b"\n")
    return found


def encoding_fault(path: str, otherwise: str = OR_REPLACE) -> Fault | None:
    """Return the fault of the first line that is not UTF-8; None if all are. Its remedy ends with `otherwise`."""
    remedy = f"convert it, {as_by('iconv -f LATIN1 -t UTF-8', path)}{otherwise}"
    with opened(path) as file:
        decoder, line = codecs.getincrementaldecoder("utf-8")(), 1
        while (chunk := file.read(_CHUNK)) or decoder.getstate()[0]:
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                line += chunk[: max(error.start, 0)].count(b"\n")
                return Fault(
                    at_line(path, line), f"the byte 0x{error.object[error.start]:02x}", "text in UTF-8", remedy
                )
            line += chunk.count(b"\n")
    return None


def broken(path: str, fault: Fault | None, error: Exception) -> WorldError:
    """Return the error of a file that Arrow can't read: with the line that was found, or with Arrow's own words."""
    if fault is not None:
        return WorldError(fault.where, fault.found, fault.expected, fault.remedy)
    return WorldError(path, " ".join(str(error).split()), "a table that Arrow can read", "write the file again")
