"""Archives of images, which Python's libraries unpack into a folder beside the dataset."""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import IO, cast

from etlrun.sources.listing import LEFT_BY_SYSTEMS, SPLITS
from etlrun.system.errors import EtlrunError, WorldError, fault, one_line
from etlrun.system.machine import free_disk_bytes, rounded

_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)


def is_archive(path: Path) -> bool:
    """Return whether a file begins like a zip or tar archive, compressed or not."""
    try:
        return zipfile.is_zipfile(path) or tarfile.is_tarfile(path)
    except (EOFError, zlib.error):  # of one that is cut within its first header
        return True


def unpack(path: Path, folder: Path) -> Path:
    """Unpack an archive into an empty folder; return the folder of classes or splits in it, below single folders.

    Nothing is written outside of it, see `zipfile.ZipFile.extract` and `tarfile.data_filter`, nor if it does not fit.

    Raises:
        EtlrunError: The archive is damaged, encrypted or too large, or has paths, links or devices out of the folder.
    """
    try:
        with zipfile.ZipFile(path) if zipfile.is_zipfile(path) else tarfile.open(path) as file:
            if isinstance(file, zipfile.ZipFile):
                members = file.infolist()
                _require(path, folder, sum(member.file_size for member in members))
                for member in members:
                    if member.flag_bits & 1:
                        raise zipfile.BadZipFile(f"an encrypted member, {member.filename}")
                    file.extract(member, folder)
            else:
                _unpack_tar(path, folder, file)
    except _DAMAGED as error:
        expected = "a complete zip or tar archive, whose members are files and folders within it"
        raise EtlrunError([fault(path, one_line(error), expected, "pack it again, or unpack it yourself")]) from error
    while True:
        names = [of for of in folder.iterdir() if not of.name.startswith(".")]
        inside = [of for of in names if of.name.lower() not in LEFT_BY_SYSTEMS]
        if len(inside) != 1 or inside[0].name.lower() in SPLITS or not any(of.is_dir() for of in inside[0].glob("*")):
            return folder
        folder = inside[0]


def _unpack_tar(path: Path, folder: Path, file: tarfile.TarFile) -> None:
    unpacked = 0
    for member in file:
        unpacked += member.size
        _require(path, folder, member.size, unpacked)
        file.extract(member, folder, filter="data")
    end = cast("IO[bytes]", file.fileobj)
    end.seek(file.offset)
    if end.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):  # what is damaged is an end for `tarfile`
        raise tarfile.ReadError(f"neither a member nor the end of the archive at byte {file.offset:,}")


def _require(path: Path, folder: Path, needed: int, unpacked: int = 0) -> None:
    """Raise `WorldError` unless there is space for these bytes, of `unpacked` ones in all."""
    if needed > free_disk_bytes(folder):
        found, expected = f"{rounded(max(needed, unpacked))} or more, unpacked", "less than the free disk space"
        raise WorldError(str(path), found, expected, "free disk space, or choose another --data-dir")
