"""Files that are no TFRecords: what they are, by their first bytes, and what to do with them."""

from __future__ import annotations

import shlex
from pathlib import Path

from etlrun.sources.framing import HEAD, is_head
from etlrun.system.errors import Fault

_GZIP, _MXNET = b"\x1f\x8b", b"\x0a\x23\xd7\xce"
"""First bytes of a file compressed with gzip (RFC 1952), and of a record of MXNet's RecordIO."""
_ZLIB_METHOD, _ZLIB_CHECK = 0x78, 31
"""First byte of what `TFRecordWriter` writes as ZLIB, and a divisor of the first two as one number (RFC 1950)."""
_UNZIPPED = "import sys, zlib; sys.stdout.buffer.write(zlib.decompress(sys.stdin.buffer.read()))"
_SHOWN = 8
POINTER, POINTED = b"version http", ("a pointer of Git LFS", "fetch the file itself, as by: git lfs pull")
"""What begins a file in the place of one that Git LFS keeps elsewhere, what it is, and what to do."""


def foreign(path: str) -> Fault | None:
    """Return the fault of a file that doesn't begin with a record, or is compressed; None if it does, or is empty.

    Raises:
        OSError: The file can't be read.
    """
    with Path(path).open("rb") as file:
        head = file.read(HEAD)
    if not head or is_head(head):
        return None
    found, remedy = _kind(path, head)
    return Fault(path, found, "TFRecords without compression", remedy)


def _kind(path: str, head: bytes) -> tuple[str, str]:
    """Return what a file is, and what to do with it."""
    if head.startswith(_GZIP):
        return "a file compressed with gzip", _decompressed("gunzip", path)
    if head[0] == _ZLIB_METHOD and int.from_bytes(head[:2], "big") % _ZLIB_CHECK == 0:
        return "a file compressed with ZLIB", _decompressed(f'python -c "{_UNZIPPED}"', path)
    if head.startswith(POINTER):
        return POINTED
    if head.startswith(_MXNET):
        remedy = "write its images into a folder for each class, as with mxnet.recordio.unpack, and use that folder"
        return "a RecordIO file of MXNet", remedy
    remedy = "choose TFRecord files, or prepare a folder, a list or an archive of images: python -m etlrun prepare"
    return f"no TFRecord file: it begins with {head[:_SHOWN]!r}", remedy


def _decompressed(command: str, path: str) -> str:
    """Return the command that decompresses a file into another one."""
    stem = Path(path).name.removesuffix(".gz")
    is_free = path.endswith(".gz") and ".tfrec" in stem
    target = Path(path).with_name(stem if is_free else f"{stem.partition('.')[0]}-decompressed.tfrecord")
    return f"decompress it, and use that file: {command} < {shlex.quote(path)} > {shlex.quote(str(target))}"
