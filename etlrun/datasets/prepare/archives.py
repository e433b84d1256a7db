"""Images in archives, and what these may hold: zip and tar are read in place, compressed tar is unpacked first."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import posixpath
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from etlrun.datasets.prepare.source import DamagedArchiveError, ImageEntry, ImageSource, first
from etlrun.sources.listing import LEFT_BY_SYSTEMS, OTHER_IMAGES, SPLITS, SUFFIXES, laid_out
from etlrun.system.errors import EtlrunError, Fault, fault, one_line, printable
from etlrun.system.machine import rounded

MOST_MEMBERS = 5_000_000
"""Members of an archive: each takes memory."""
LARGEST_RATIO, SMALL_BYTES = 100, 1_000_000_000
"""Unpacked size in sizes of the archive, from `SMALL_BYTES` on; images hardly shrink in an archive."""
_PACK = "pack the archive again, without it"
_MOST_LINKS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A member of an archive.

    Attributes:
        name: Path in the archive.
        kind: `file`, `folder`, `link`, or what else it is.
        link: Target of a link, relative to the folder of the link.
        size: Size in bytes, unpacked.
        place: Where the archive's reader finds its data.
    """

    name: str
    kind: str
    link: str
    size: int
    place: Any


def top_of(images: Iterable[str]) -> str:
    """Return the path, with a slash at its end, of the folders above those of classes or splits."""
    folders, top = [name.split("/")[:-1] for name in images], ""
    while max(map(len, folders), default=0) > 1:
        tops = {parts[0] for parts in folders if parts}
        if len(tops) > 1 or next(iter(tops)).lower() in SPLITS:
            break
        top += f"{tops.pop()}/"
        folders = [parts[1:] for parts in folders if parts]
    return top


def above(path: str) -> Iterator[str]:
    """Yield the folders around a file, the outermost first."""
    parts = path.split("/")
    yield from ("/".join(parts[:end]) for end in range(1, len(parts)))


def files_of(archive: Path, members: Iterable[Member], size: int) -> tuple[dict[str, Member], list[str]]:
    """Return the files of an archive of `size` bytes by name, and the links that end at none, without hidden ones.

    Of two files with the same name it is the last, as with programs that unpack it.

    Raises:
        EtlrunError: Paths or links out of the archive, devices, encrypted files, or too much of anything.
    """
    faults: list[Fault] = []
    found: dict[str, Member] = {}
    links: dict[str, str] = {}
    total, most = 0, max(LARGEST_RATIO * size, SMALL_BYTES)
    for count, member in enumerate(members, 1):
        total += member.size
        if count > MOST_MEMBERS or total > most:
            what = (
                f"more than {MOST_MEMBERS:,} members" if count > MOST_MEMBERS else f"{rounded(total)} and more unpacked"
            )
            raise EtlrunError(
                [
                    fault(
                        archive,
                        what,
                        f"at most {MOST_MEMBERS:,} members, and {rounded(most)} for an archive of {rounded(size)}",
                        "unpack it yourself if you trust it, and prepare the folder",
                    )
                ]
            )
        name, target = posixpath.normpath(member.name), ""
        if member.kind == "link":
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), member.link))
            links[name] = target
        elif member.kind == "file":
            found[name] = member
        elif member.kind != "folder":
            faults.append(fault(f"{archive}, {member.name}", f"a member that is {member.kind}", "files", _PACK))
        if _leaves(name) or _leaves(target):
            what = f"a link to {printable(member.link)}" if target else "a path"
            faults.append(fault(f"{archive}, {member.name}", f"{what} out of the archive", "paths within it", _PACK))
    ends = dict(_ends(links, found))
    if faults:
        raise EtlrunError(first(faults, archive, "members that are refused"))
    found |= {name: found[end] for name, end in ends.items()}
    loose = [name for name in links if name not in found and not _is_hidden(name)]
    return {name: member for name, member in found.items() if not _is_hidden(name)}, loose


def _leaves(path: str) -> bool:
    return path.startswith(("/", "../")) or path == ".."


def _ends(links: Mapping[str, str], files: Mapping[str, Member]) -> Iterator[tuple[str, str]]:
    """Yield each link that ends at a file, with the file; not a link into a circle, to a folder or to nowhere."""
    for name, target in links.items():
        end = target
        for _ in range(_MOST_LINKS):
            end = links.get(end, end)
        if end in files and end not in links:
            yield name, end


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") or part.lower() in LEFT_BY_SYSTEMS for part in name.split("/"))


LARGEST_HEADER_BYTES = 1_000_000
"""Size of a header, which holds the path of a member and its attributes."""
_OPENERS: Mapping[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
    b"\x5d\x00\x00": lzma.open,
}
"""Readers of compressed files, by the first bytes of these."""


class LargeHeaderError(tarfile.TarError):
    """A header of more than `LARGEST_HEADER_BYTES`."""


class _Limited:
    """A file that is not read in parts larger than a header."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if size > LARGEST_HEADER_BYTES:
            raise LargeHeaderError(f"a header of {size:,} bytes")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


@contextmanager
def open_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """Open an archive; `tarfile.TarError` if it is none, or has a header that is too large."""
    with _opener(path)(path) as file, tarfile.open(fileobj=cast("IO[bytes]", _Limited(file)), mode="r:") as tar:
        yield tar


def is_tar(path: Path) -> bool:
    """Return whether a file begins like a tar archive, compressed or not."""
    try:
        with open_tar(path):
            return True
    except LargeHeaderError:
        return True
    except (tarfile.TarError, OSError, EOFError, lzma.LZMAError):
        return False


def _opener(path: Path) -> Callable[[Path], Any]:
    with path.open("rb") as file:
        head = file.read(max(map(len, _OPENERS)))
    return next((opener for mark, opener in _OPENERS.items() if head.startswith(mark)), _plain)


def _plain(path: Path) -> IO[bytes]:
    return path.open("rb")


_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)
_LONGEST_PATH = 4096


class Archive(ImageSource):
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
            ImageEntry(path=below[image.path], label=image.label, split=split, size=files[below[image.path]].size)
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

    def read(self, entry: ImageEntry) -> bytes:
        try:
            return self._zip.read(self._members[entry.path].place)
        except _DAMAGED as error:
            raise DamagedArchiveError(one_line(error)) from error

    def close(self) -> None:
        self._zip.close()


class Tar(Archive):
    """Images in a tar archive, compressed or not."""

    def __init__(self, path: Path, suffixes: tuple[str, ...] = SUFFIXES) -> None:
        self._path, self._unpacked = path, Path()
        self._is_plain = not (_opener(path) is not _plain)
        super().__init__(path, self._listed(), suffixes)
        wanted = {member.place: member.size for member in self._members.values()}
        self.unpacked_bytes = 0 if self._is_plain else sum(wanted.values())

    def _listed(self) -> Iterator[Member]:
        with open_tar(self._path) as tar:
            for info in tar:
                place = info.offset_data
                yield Member(name=info.name, kind=_kind(info), link=_link(info), size=info.size, place=place)
            file = cast("IO[bytes]", tar.fileobj)
            file.seek(tar.offset)
            if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                raise tarfile.ReadError(f"neither a member nor the end of the archive at byte {tar.offset:,}")

    def unpack(self, folder: Path) -> None:
        """Unpack the images, each to a file that is named by its place, whatever its name."""
        if self._is_plain:
            return
        self._unpacked = folder
        try:
            with open_tar(self._path) as tar:
                for info in tar:
                    data = (
                        tar.extractfile(info)
                        if info.offset_data in {member.place for member in self._members.values()} and info.isreg()
                        else None
                    )
                    if data is not None:
                        with data, (folder / str(info.offset_data)).open("wb") as file:
                            shutil.copyfileobj(data, file)
        except _DAMAGED as error:
            raise EtlrunError([damaged(self._path, error)]) from error

    def read(self, entry: ImageEntry) -> bytes:
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
