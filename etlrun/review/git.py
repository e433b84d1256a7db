"""Config files of a git revision."""

from __future__ import annotations

import os
import posixpath
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from glob import has_magic
from itertools import takewhile
from pathlib import Path, PurePosixPath

from etlrun.system.errors import ConfigError, Fault, fault, printable

_LINK, _SUBMODULE = "120000", "160000"
"""Git modes of entries that are not regular files."""
_MOST_LINKS = 40
_DEEPEST = 100
"""Parts of a path, which links that lead to each other make longer without end."""


def git(folder: Path, *words: str, given: bytes = b"", index: Path | None = None) -> bytes | None:
    """Return the output of git in `folder`, with another `index` if given; None if it fails or is not installed."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    env = None if index is None else {**os.environ, "GIT_INDEX_FILE": str(index)}
    try:
        answer = subprocess.run(command, input=given, capture_output=True, check=False, env=env)
    except FileNotFoundError:
        return None
    return answer.stdout if answer.returncode == 0 else None


def top_of(folder: Path) -> Path:
    """Return the top folder of the repository that `folder` is in."""
    return Path(os.fsdecode((git(folder, "rev-parse", "--show-toplevel") or b"").rstrip(b"\n")))


def differing(top: Path, *between: str) -> dict[str, bool]:
    """Return what differs in the working tree or a second revision from one, with whether that has it.

    Beside files these are submodules, and links which lead to what differs.
    """
    return dict.fromkeys(differing_paths(top, _links(top, between[0]), *between), True) | _changed(top, *between)


def differing_paths(top: Path, paths: Iterable[str], *between: str) -> set[str]:
    """Return which of these files, folders and patterns below `top` differ, by themselves or where links lead."""
    links, differs = _links(top, between[0]), _changed(top, *between)
    ordered = sorted(links)
    met = {str(of) for name in differs for of in (PurePosixPath(name), *PurePosixPath(name).parents)}
    found = set()
    for path in paths if differs else ():
        led = _led(path, links, ordered)
        words = [f":(glob){of}" for of in led if has_magic(of)]
        inside = (
            str(above) in differs for of in led for above in PurePosixPath(of).parents
        )  # of a submodule or a link
        if (
            not met.isdisjoint(led)
            or any(inside)
            or (words and git(top, "diff", "--name-only", *between, "--", *words))
        ):
            found.add(path)
    return found


def _changed(top: Path, *between: str) -> dict[str, bool]:
    words = "--no-renames", "--no-ext-diff", "--ignore-submodules=untracked", "--name-status", "-z"
    fields = iter(os.fsdecode(git(top, "diff", *words, *between) or b"").split("\0")[:-1])
    return {name: state != "A" for state, name in zip(fields, fields, strict=True)}


def _links(top: Path, revision: str) -> dict[str, str]:
    """Return the links of a revision which stay in the repository, each with the path to which it leads."""
    names = {name: key for name, (mode, key) in _entries(top, revision).items() if mode == _LINK}
    ends = zip(names, _blobs(top, revision, names.values()), strict=True)
    paths = {name: posixpath.normpath(PurePosixPath(name).parent / os.fsdecode(end)) for name, end in ends}
    return {name: path for name, path in paths.items() if not path.startswith(("/", "..", ".git/"))}


def _led(path: str, links: Mapping[str, str], ordered: list[str]) -> list[str]:
    """Return a path or pattern, and all to which links above it and inside of it lead."""
    found, known = [path], {path}
    for of in found:  # which grows
        parts = [part for part in of.split("/") if part != "."][:_DEEPEST]
        fixed = [*takewhile(lambda part: not has_magic(part), parts)]
        prefix = "".join(f"{part}/" for part in fixed)
        inside = ordered[bisect_left(ordered, prefix) : bisect_left(ordered, f"{prefix}{chr(sys.maxunicode)}")]
        for link in (*("/".join(fixed[:n]) for n in range(1, len(fixed) + 1)), *inside):
            pairs = [*takewhile(lambda pair: pair[1] != "**", zip(link.split("/"), parts, strict=False))]
            if link in links and all(fnmatch(name, part) for name, part in pairs):
                rest = [part for part in parts[len(pairs) :] if "**" not in parts]
                new = posixpath.normpath("/".join([links[link], *rest]))
                found += [] if new in known else [new]
                known.add(new)
    return found


def asked(top: Path, path: str, *between: str) -> str:
    """Return what differs in a file of requirements or of locked versions; empty for other files."""
    if not path.endswith(("pyproject.toml", ".lock", "requirements.txt", "constraints.txt")):
        return ""
    around = f"--unified={1 * path.endswith('.lock')}"  # whose versions stand below the names
    text = os.fsdecode(git(top, "diff", around, "--no-ext-diff", *between, "--", path) or b"")
    return "\n".join(line for line in text.splitlines() if not line.startswith("@@"))  # which have a line above, too


def check_out(top: Path, revision: str, differs: Mapping[str, bool], folder: Path) -> None:
    """Make a folder of the files of a revision, with links to what it shares with the working tree or git doesn't have.

    It is no worktree that git knows of, so that none is left behind by whatever ends this process. `differs` are the
    files in which both differ; an empty `folder` is there.

    Raises:
        ConfigError: Git can't read the revision.
    """
    homes = {PurePosixPath(), *(above for name in differs for above in PurePosixPath(name).parents)}
    for home in sorted(homes):
        (folder / home).mkdir(exist_ok=True)
        if (top / home).is_dir() and not (top / home).is_symlink():
            for entry in os.scandir(top / home):
                inner = home / entry.name
                if inner not in homes and str(inner) not in differs and entry.name not in {".git", "__pycache__"}:
                    (folder / inner).symlink_to(entry.path)
    index = folder.with_suffix(".index")
    names = "".join(f"{name}\0" for name, is_there in differs.items() if is_there)
    words = "checkout-index", "--force", "-z", "--stdin", f"--prefix={folder}/"
    if None in (
        git(top, "read-tree", revision, index=index),
        git(top, *words, given=os.fsencode(names), index=index),
    ):
        raise ConfigError([_unreadable(revision)])


def _unreadable(revision: str) -> Fault:
    return Fault(where=revision, found="files that git can't read", expected="a complete revision")


def folder_at(top: Path, revision: str, name: str) -> str | None:
    """Return the folder of a revision to which a path leads, links of that revision followed; None if there is none."""
    for _ in range(_MOST_LINKS):
        if git(top, "ls-tree", "--name-only", "--full-tree", revision, "--", f"{name}/"):
            return name
        path = PurePosixPath(name)
        link = next((above for above in (path, *path.parents[:-1]) if _is_link(top, revision, above)), None)
        target = None if link is None else git(top, "cat-file", "blob", f"{revision}:{link}")
        if link is None or target is None:
            return None
        name = posixpath.normpath(link.parent / os.fsdecode(target) / path.relative_to(link))
        if name.startswith(("/", "..")):
            return None
    return None


def _is_link(top: Path, revision: str, path: PurePosixPath) -> bool:
    entry = git(top, "ls-tree", "--full-tree", revision, "--", str(path)) or b""
    return entry.startswith(_LINK.encode())


def write_configs(top: Path, revision: str, folder: str, scratch: Path) -> None:
    """Write the YAML files of a folder of a revision below `scratch`, with its links and the files to which they lead.

    Submodules are skipped.

    Raises:
        ConfigError: A link leaves the repository, or git cannot read a file.
    """
    entries = _entries(top, revision)
    links = {name: key for name, (mode, key) in entries.items() if mode == _LINK}
    for name, target in zip(links, _blobs(top, revision, links.values()), strict=True):
        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
        if not (scratch / name).is_symlink():  # as one that another folder has led to
            (scratch / name).symlink_to(os.fsdecode(target))
    homes = [folder]
    for home in homes:  # which grows
        for link in [name for name in links if _is_in(name, home)]:
            end = Path(os.path.realpath(scratch / link))
            if not end.is_relative_to(scratch.resolve()):
                found = f"a link to {printable(os.fsdecode((scratch / link).readlink()))}, which leaves the repository"
                remedy = "commit the target files, and link to these"
                raise ConfigError([fault(f"{revision}:{link}", found, "a link within the revision", remedy)])
            name = end.relative_to(scratch.resolve()).as_posix()
            homes += [] if name in homes else [name]
    files = {
        name: key
        for name, (mode, key) in entries.items()
        if mode not in {_LINK, _SUBMODULE} and (name in homes or name.endswith((".yaml", ".yml")))
        if any(_is_in(name, home) for home in homes)
    }
    (scratch / folder).mkdir(parents=True, exist_ok=True)
    for name, content in zip(files, _blobs(top, revision, files.values()), strict=True):
        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
        (scratch / name).write_bytes(content)


def _entries(top: Path, revision: str) -> dict[str, tuple[str, str]]:
    """Return the mode and the object of all files, links and submodules of a revision."""
    listed = os.fsdecode(git(top, "ls-tree", "-r", "-z", "--full-tree", revision) or b"")
    lines = [line.partition("\t") for line in listed.split("\0") if line]
    return {name: (about.split()[0], about.split()[2]) for about, _, name in lines}


def _is_in(name: str, folder: str) -> bool:
    return folder in {".", name} or name.startswith(f"{folder}/")


def _blobs(top: Path, revision: str, keys: Iterable[str]) -> Iterator[bytes]:
    """Yield the contents of objects, as they were committed; `ConfigError` if git cannot read one."""
    answer = git(top, "cat-file", "--batch", given="".join(f"{key}\n" for key in keys).encode())
    if answer is None:
        raise ConfigError([_unreadable(revision)])
    place = 0
    while place < len(answer):
        start = answer.index(b"\n", place) + 1
        end = start + int(answer[place:start].split()[-1])
        yield answer[start:end]
        place = end + 1
