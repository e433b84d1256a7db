"""Members of an archive: what they may be, and which of them are images of which class."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from etlrun.datasets.prepare.source import Entry, fault, first
from etlrun.sources.listing import LEFT_BY_SYSTEMS, SPLITS, SUFFIXES, WHOLE
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
        ignored: Names of other files.
        loose: Links to a folder, a file that isn't there, or in a circle.
    """

    images: list[tuple[Entry, Member]]
    ignored: list[str]
    loose: list[str]


def images_of(archive: Path, members: Iterable[Member], size: int) -> Found:
    """Return the images among the members of an archive of `size` bytes, and what else it has.

    A single folder above those of the classes or splits is left out.

    Raises:
        EtlrunError: Paths or links out of the archive, devices, encrypted files, or too much of anything.
    """
    faults: list[Fault] = []
    files, loose = _safe(archive, members, size, faults)
    if faults:
        raise EtlrunError(first(faults, archive, "members that are refused"))
    files = {name: member for name, member in files.items() if not _is_hidden(name)}
    paths = {name: tuple(name.split("/")) for name in files if name.lower().endswith(SUFFIXES)}
    while _has_one_top(paths.values()):
        paths = {name: parts[1:] for name, parts in paths.items()}
    divided = sorted({parts[0] for parts in paths.values() if parts[1:] and parts[0].lower() in SPLITS})
    others = sorted({parts[0] for parts in paths.values() if parts[1:]} - {*divided})
    if divided and others:
        found = f"the splits {', '.join(divided)} beside {', '.join(map(printable, others))}"
        expected = "either folders of splits, each with a folder for each class, or folders of classes"
        raise EtlrunError([fault(archive, found, expected, "move the other folders into a split")])
    of = archive.stat()
    stamp, depth, images = f"{of.st_size} {of.st_mtime_ns}", 2 if divided else 1, []
    for name, parts in sorted(paths.items()):
        if len(parts) > depth:
            label, split, member = parts[depth - 1], parts[0] if divided else WHOLE, files[name]
            images.append((Entry(path=name, label=label, split=split, size=member.size, stamp=stamp), member))
    taken = {entry.path for entry, _ in images}
    ignored = sorted(name for name in files if name not in taken)
    return Found(images=images, ignored=ignored, loose=sorted(link for link in loose if not _is_hidden(link)))


def _has_one_top(paths: Iterable[tuple[str, ...]]) -> bool:
    """Return whether all paths are in one folder that is neither a class nor a split."""
    tops, shortest = set(), 3
    for parts in paths:
        tops.add(parts[0])
        shortest = min(shortest, len(parts))
    return len(tops) == 1 and shortest > 2 and tops.pop().lower() not in SPLITS  # noqa: PLR2004 - top, class and file


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
