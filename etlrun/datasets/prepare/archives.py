"""Images in archives: zip and tar are read in place, compressed tar is unpacked first."""

from __future__ import annotations

import lzma
import os
import posixpath
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, cast

from etlrun.datasets.prepare.members import Member, above, files_of, top_of
from etlrun.datasets.prepare.source import DamagedError, Entry, Source
from etlrun.datasets.prepare.tars import LARGEST_HEADER_BYTES, LargeHeaderError, is_compressed, open_tar
from etlrun.sources.layout import OTHER_IMAGES, SUFFIXES, laid_out
from etlrun.system.errors import EtlrunError, Fault, fault, one_line

_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)
_LONGEST_PATH = 4096


class Archive(Source):
    """Images in an archive, by the member that holds each."""

    def __init__(self, path: Path, members: Iterable[Member], suffixes: tuple[str, ...]) -> None:
        """Find the images by their suffixes; raise `EtlrunError` with all faults of the archive."""
        try:
            files, loose = files_of(path, members, path.stat().st_size)
        except _DAMAGED as error:
            raise EtlrunError([damaged(path, error)]) from error
        except OSError as error:
            if error.errno is not None:
                raise
            raise EtlrunError([damaged(path, error)]) from error  # gzip's own
        images = [name for name in sorted(files) if name.lower().endswith(suffixes)]
        top = top_of(images)  # a single folder above those of the classes or splits is left out
        below = {name[len(top) :]: name for name in sorted(files) if name.startswith(top)}
        shown = [inner for inner in below if inner.lower().endswith((*suffixes, *OTHER_IMAGES))]
        taken = [inner for inner in shown if inner.lower().endswith(suffixes)]
        folders = {parent: None for inner in shown for parent in above(inner)}
        layout = laid_out(path, taken, folders, [inner for inner in below if not inner.lower().endswith(suffixes)])
        if layout.faults:
            raise EtlrunError(layout.faults)
        entries = [
            Entry(path=below[image.path], label=image.label, split=split, size=files[below[image.path]].size)
            for split, of in layout.splits.items()
            for image in of
        ]
        super().__init__(
            path, sorted(entries, key=lambda entry: entry.path), layout.classes, sorted({*files} - {*images})
        )
        self._members = {entry.path: files[entry.path] for entry in entries}
        self.loose, self.notes = sorted(loose), layout.notes
        self.outside = sorted({*images} - {below[inner] for inner in taken} | {below[of] for of in layout.outside})


class Zip(Archive):
    """Images in a zip archive."""

    def __init__(self, path: Path, suffixes: tuple[str, ...] = SUFFIXES) -> None:
        try:
            self._zip = zipfile.ZipFile(path)
        except _DAMAGED as error:
            raise EtlrunError([damaged(path, error)]) from error
        try:
            super().__init__(path, self._listed(), suffixes)
        except BaseException:
            self.close()
            raise

    def _listed(self) -> Iterator[Member]:
        for info in self._zip.infolist():
            kind = "folder" if info.is_dir() else "link" if stat.S_ISLNK(info.external_attr >> 16) else "file"
            kind = "an encrypted file" if info.flag_bits & 1 else kind
            link = self._zip.open(info).read(_LONGEST_PATH).decode(errors="replace") if kind == "link" else ""
            yield Member(name=info.filename, kind=kind, link=link, size=info.file_size, place=info)

    def read(self, entry: Entry) -> bytes:
        try:
            return self._zip.read(self._members[entry.path].place)
        except _DAMAGED as error:
            raise DamagedError(one_line(error)) from error

    def close(self) -> None:
        self._zip.close()


class Tar(Archive):
    """Images in a tar archive, compressed or not."""

    def __init__(self, path: Path, suffixes: tuple[str, ...] = SUFFIXES) -> None:
        self._path, self._unpacked = path, Path()
        self._is_plain = not is_compressed(path)
        super().__init__(path, self._listed(), suffixes)
        wanted = {member.place: member.size for member in self._members.values()}
        self.unpacked_bytes = 0 if self._is_plain else sum(wanted.values())

    def _listed(self) -> Iterator[Member]:
        with open_tar(self._path) as tar:
            for info in tar:
                place = info.offset_data
                yield Member(name=info.name, kind=_kind(info), link=_link(info), size=info.size, place=place)
            _check_end(tar)

    def unpack(self, folder: Path) -> None:
        """Unpack the images, each to a file that is named by its place, whatever its name."""
        if self._is_plain:
            return
        self._unpacked = folder
        try:
            self._extract(folder, {member.place for member in self._members.values()})
        except _DAMAGED as error:
            raise EtlrunError([damaged(self._path, error)]) from error

    def _extract(self, folder: Path, wanted: set[int]) -> None:
        with open_tar(self._path) as tar:
            for info in tar:
                data = tar.extractfile(info) if info.offset_data in wanted and info.isreg() else None
                if data is not None:
                    with data, (folder / str(info.offset_data)).open("wb") as file:
                        shutil.copyfileobj(data, file)

    def read(self, entry: Entry) -> bytes:
        member = self._members[entry.path]
        if not self._is_plain:
            return (self._unpacked / str(member.place)).read_bytes()
        with self._path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), member.size, member.place)


def damaged(path: Path, error: Exception) -> Fault:
    """Return the fault of an archive that can't be read."""
    if isinstance(error, LargeHeaderError):
        return fault(
            path,
            one_line(error),
            f"headers of at most {LARGEST_HEADER_BYTES:,} bytes: names and attributes of members",
            "unpack it yourself if you trust it, and prepare the folder",
        )
    return fault(path, one_line(error), "a complete zip or tar archive", "download or pack it again")


def _check_end(tar: tarfile.TarFile) -> None:
    """Raise `tarfile.ReadError` unless zeros follow the last member: `tarfile` ends at any other block, too."""
    file = cast("IO[bytes]", tar.fileobj)
    file.seek(tar.offset)
    if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError(f"neither a member nor the end of the archive at byte {tar.offset:,}")


def _kind(info: tarfile.TarInfo) -> str:
    if info.issym() or info.islnk():
        return "link"
    if info.issparse():
        return "a sparse file"
    return "file" if info.isreg() else "folder" if info.isdir() else "a device"


def _link(info: tarfile.TarInfo) -> str:
    """Return the target of a link, relative to its own folder; that of a hard link is relative to the archive."""
    if info.islnk() and not info.linkname.startswith("/"):
        return posixpath.relpath(info.linkname, posixpath.dirname(info.name) or ".")
    return info.linkname
