"""Members of an archive: what they may be."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etlrun.datasets.prepare.source import first
from etlrun.sources.layout import LEFT_BY_SYSTEMS, SPLITS
from etlrun.system.errors import EtlrunError, Fault, fault, printable
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
