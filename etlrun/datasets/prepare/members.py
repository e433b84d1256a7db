"""Members of an archive: what they may be, and which of them are images of which class."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from etlrun.datasets.prepare.source import Entry, fault, first
from etlrun.sources.layout import LEFT_BY_SYSTEMS, OTHER_IMAGES, SPLITS, SUFFIXES, Layout, laid_out
from etlrun.system.errors import EtlrunError, Fault, printable
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


@dataclass(frozen=True, kw_only=True)
class Found:
    """What an archive has.

    Attributes:
        images: The images, each with its member.
        layout: Splits and classes of the images, by their paths below the folder that holds all of them.
        ignored: Names of other files.
        outside: Names of images in no folder of a class.
        loose: Links to a folder, a file that isn't there, or in a circle.
    """

    images: list[tuple[Entry, Member]]
    layout: Layout
    ignored: list[str]
    outside: list[str]
    loose: list[str]


def images_of(archive: Path, members: Iterable[Member], size: int, suffixes: tuple[str, ...] = SUFFIXES) -> Found:
    """Return the images among the members of an archive of `size` bytes, by their suffixes, and what else it has.

    A single folder above those of the classes or splits is left out.

    Raises:
        EtlrunError: Paths or links out of the archive, devices, encrypted files, or too much of anything.
    """
    faults: list[Fault] = []
    files, loose = _safe(archive, members, size, faults)
    if faults:
        raise EtlrunError(first(faults, archive, "members that are refused"))
    files = {name: member for name, member in files.items() if not _is_hidden(name)}
    images = [name for name in sorted(files) if name.lower().endswith(suffixes)]
    top = _top(images)
    below = {name[len(top) :]: name for name in sorted(files) if name.startswith(top)}
    shown = [path for path, name in below.items() if name.lower().endswith((*suffixes, *OTHER_IMAGES))]
    folders = {parent: None for path in shown for parent in _above(path)}
    taken = [path for path in shown if path.lower().endswith(suffixes)]
    layout = laid_out(archive, taken, folders, [path for path in below if not path.lower().endswith(suffixes)])
    return Found(
        images=_entries(layout, {path: files[name] for path, name in below.items()}),
        layout=layout,
        ignored=sorted({*files} - {*images}),
        outside=sorted({*images} - {below[path] for path in taken} | {below[path] for path in layout.outside}),
        loose=sorted(link for link in loose if not _is_hidden(link)),
    )


def _entries(layout: Layout, members: Mapping[str, Member]) -> list[tuple[Entry, Member]]:
    """Return an entry for each image of a class, whose paths are the keys of `members`, by the names of these."""
    found = []
    for split, images in layout.splits.items():
        for image in images:
            member = members[image.path]
            entry = Entry(path=member.name, label=image.label, split=split, size=member.size)
            found.append((entry, member))
    return sorted(found, key=lambda pair: pair[0].path)


def _top(images: Iterable[str]) -> str:
    """Return the path, with a slash at its end, of the folders above those of classes or splits."""
    folders, top = [name.split("/")[:-1] for name in images], ""
    while max(map(len, folders), default=0) > 1:
        tops = {parts[0] for parts in folders if parts}
        if len(tops) > 1 or next(iter(tops)).lower() in SPLITS:
            break
        top += f"{tops.pop()}/"
        folders = [parts[1:] for parts in folders if parts]
    return top


def _above(path: str) -> Iterator[str]:
    """Yield the folders around a file, the outermost first."""
    parts = path.split("/")
    yield from ("/".join(parts[:end]) for end in range(1, len(parts)))


def _safe(
    archive: Path, members: Iterable[Member], size: int, faults: list[Fault]
) -> tuple[dict[str, Member], list[str]]:
    """Return the files by name, and the links that end at none.

    Of two files with the same name it is the last, as with programs that unpack it.
    """
    found: dict[str, Member] = {}
    links: dict[str, str] = {}
    total, most = 0, max(LARGEST_RATIO * size, SMALL_BYTES)
    for count, member in enumerate(members, 1):
        total += member.size
        if count > MOST_MEMBERS or total > most:
            what = (
                f"more than {MOST_MEMBERS:,} members" if count > MOST_MEMBERS else f"{rounded(total)} and more unpacked"
            )
            expected = f"at most {MOST_MEMBERS:,} members, and {rounded(most)} for an archive of {rounded(size)}"
            remedy = "unpack it yourself if you trust it, and prepare the folder"
            raise EtlrunError([fault(archive, what, expected, remedy)])
        name, target = posixpath.normpath(member.name), ""
        if member.kind == "link":
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), member.link))
            links[name] = target
        elif member.kind == "file":
            found[name] = replace(member, name=name)
        elif member.kind != "folder":
            faults.append(fault(f"{archive}, {member.name}", f"a member that is {member.kind}", "files", _PACK))
        if _leaves(name) or _leaves(target):
            what = f"a link to {printable(member.link)}" if target else "a path"
            faults.append(fault(f"{archive}, {member.name}", f"{what} out of the archive", "paths within it", _PACK))
    ends = dict(_ends(links, found))
    found |= {name: replace(found[end], name=name) for name, end in ends.items()}
    return found, [name for name in links if name not in found]


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
