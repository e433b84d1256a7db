"""Files of a git revision, and what differs from them in the working tree or in another revision."""

from __future__ import annotations

import os
import posixpath
import subprocess
import sys
import tempfile
import weakref
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from glob import has_magic
from itertools import takewhile
from pathlib import Path, PurePosixPath

from etlrun.system.errors import ConfigError, Fault, fault, printable

_LINK, _SUBMODULE = "120000", "160000"
"""Git modes of entries that are not regular files."""
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


def names_in(folder: Path, *words: str) -> list[str]:
    """Return what a command of git lists, separated by zero bytes; nothing if it fails."""
    return [os.fsdecode(name) for name in (git(folder, *words) or b"").split(b"\0") if name]


def top_of(folder: Path) -> Path:
    """Return the top folder of the repository that `folder` is in."""
    return Path(os.fsdecode((git(folder, "rev-parse", "--show-toplevel") or b"").rstrip(b"\n")))


class Scratch:
    """A temporary folder, which goes with this object, and with this process, also when that is killed.

    Attributes:
        path: The folder.
        remove: Removes it at once.
        held_by: Descriptor that keeps it while a process has it open.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="etlrun-")).resolve()
        words = ["/bin/sh", "-c", 'read -r _; rm -rf -- "$0"', str(self.path)]
        remover = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
        assert remover.stdin is not None  # noqa: S101 - for mypy
        self.remove, self.held_by = weakref.finalize(self, remover.communicate), remover.stdin.fileno()


@dataclass(frozen=True)
class Tree:
    """The files, links and submodules of a revision.

    Attributes:
        top: Top folder of the repository.
        revision: The revision.
    """

    top: Path
    revision: str

    @cached_property
    def entries(self) -> dict[str, tuple[str, str]]:
        """The mode and the object of each, by path."""
        words = "ls-tree", "-r", "-z", "--full-tree", self.revision
        lines = [line.partition("\t") for line in names_in(self.top, *words)]
        return {name: (about.split()[0], about.split()[2]) for about, _, name in lines}

    @cached_property
    def ends(self) -> dict[str, str]:
        """The texts of the links, by path; `ConfigError` if git cannot read one."""
        names = [name for name, (mode, _) in self.entries.items() if mode == _LINK]
        return {name: os.fsdecode(end) for name, end in self._contents(names)}

    @cached_property
    def links(self) -> dict[str, str]:
        """The links which stay in the repository, each with the path to which it leads."""
        paths = {name: posixpath.normpath(PurePosixPath(name).parent / end) for name, end in self.ends.items()}
        return {name: path for name, path in paths.items() if not path.startswith(("/", "..", ".git/"))}

    def write_links(self, scratch: Path) -> None:
        """Write the links of the revision below `scratch`."""
        for name, target in self.ends.items():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).symlink_to(target)

    def write_configs(self, folder: str, scratch: Path) -> None:
        """Write a folder's YAML files below `scratch`, and what links lead to; `ConfigError` if one leaves the tree."""
        homes = [folder]
        for home in homes:  # which grows
            for link in [name for name in self.ends if _is_in(name, home)]:
                end = Path(os.path.realpath(scratch / link))
                if not end.is_relative_to(scratch.resolve()):
                    found = f"a link to {printable(self.ends[link])}, which leaves the repository"
                    expected, remedy = "a link within the revision", "commit the target files, and link to these"
                    raise ConfigError([fault(f"{self.revision}:{link}", found, expected, remedy)])
                name = end.relative_to(scratch.resolve()).as_posix()
                homes += [] if name in homes else [name]
        files = [
            name
            for name, (mode, _) in self.entries.items()
            if mode not in {_LINK, _SUBMODULE} and (name in homes or name.endswith((".yaml", ".yml")))
            if any(_is_in(name, home) for home in homes)
        ]
        (scratch / folder).mkdir(parents=True, exist_ok=True)
        for name, content in self._contents(files):
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).write_bytes(content)

    def _contents(self, names: list[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the files or links of these names, as they were committed."""
        objects = "".join(f"{self.entries[of][1]}\n" for of in names).encode()
        if (answer := git(self.top, "cat-file", "--batch", given=objects)) is None:
            raise ConfigError([_unreadable(self.revision)])
        end = 0
        for name in names:
            start = answer.index(b"\n", end) + 1
            size = int(answer[end:start].split()[-1])
            yield name, answer[start : start + size]
            end = start + size + 1


def _is_in(name: str, folder: str) -> bool:
    return folder in {".", name} or name.startswith(f"{folder}/")


def _unreadable(revision: str) -> Fault:
    return Fault(revision, "files that git can't read", "a complete revision")


class Changes:
    """What differs from a revision in the working tree, or in a second one.

    Attributes:
        top: Top folder of the repository.
    """

    def __init__(self, *between: str) -> None:
        self.top, self._between = top_of(Path.cwd()).resolve(), between
        self._tree = Tree(self.top, between[0])

    @cached_property
    def names(self) -> dict[str, bool]:
        """What differs, with whether the first revision has it: files, submodules, and links which lead to these."""
        return dict.fromkeys(self._among(self._tree.links), True) | self._differing

    def files(self, paths: Iterable[str]) -> set[str]:
        """Return which of these differ: files, folders and patterns, below the current folder or absolute."""
        below = {path: os.path.relpath(os.path.abspath(Path(path).expanduser()), self.top) for path in paths}  # noqa: PTH100
        found = self._among(below.values())
        return {path for path, name in below.items() if name in found}

    def asked(self, path: str) -> str:
        """Return what differs in a file of requirements or of locked versions; empty for other files."""
        if not path.endswith(("pyproject.toml", ".lock", "requirements.txt", "constraints.txt")):
            return ""
        around = f"--unified={1 * path.endswith('.lock')}"  # whose versions stand below the names
        text = os.fsdecode(git(self.top, "diff", around, "--no-ext-diff", *self._between, "--", path) or b"")
        return "\n".join(line for line in text.splitlines() if not line.startswith("@@"))  # which have a line above

    def check_out(self, folder: Path) -> None:
        """Make a folder of the first revision's files, with links to what else is here; `ConfigError` if git can't.

        It is no worktree that git knows of, so that none is left behind by whatever ends this process.
        """
        homes = {PurePosixPath(), *(above for name in self.names for above in PurePosixPath(name).parents)}
        for home in sorted(homes):
            (folder / home).mkdir(exist_ok=True)
            if (self.top / home).is_dir() and not (self.top / home).is_symlink():
                for entry in os.scandir(self.top / home):
                    inner = home / entry.name
                    if not (inner in homes or str(inner) in self.names or entry.name in {".git", "__pycache__"}):
                        (folder / inner).symlink_to(entry.path)
        revision, index = self._between[0], folder.with_suffix(".index")
        names = os.fsencode("".join(f"{name}\0" for name, is_there in self.names.items() if is_there))
        words = "checkout-index", "--force", "-z", "--stdin", f"--prefix={folder}/"
        answers = git(self.top, "read-tree", revision, index=index), git(self.top, *words, given=names, index=index)
        if None in answers:
            raise ConfigError([_unreadable(revision)])

    @cached_property
    def _differing(self) -> dict[str, bool]:
        words = "--no-renames", "--no-ext-diff", "--ignore-submodules=untracked", "--name-status", "-z"
        fields = iter(names_in(self.top, "diff", *words, *self._between))
        return {name: state != "A" for state, name in zip(fields, fields, strict=True)}

    def _among(self, paths: Iterable[str]) -> set[str]:
        """Return which of these files, folders and patterns below `top` differ, by themselves or where links lead."""
        differs, ordered = self._differing, sorted(self._tree.links)
        met = {str(of) for name in differs for of in (PurePosixPath(name), *PurePosixPath(name).parents)}
        found = set()
        for path in paths if differs else ():
            led = _led(path, self._tree.links, ordered)
            above = {str(above) for of in led for above in PurePosixPath(of).parents}  # of a submodule or a link
            words = [f":(glob){of}" for of in led if has_magic(of)]
            is_met = not (met.isdisjoint(led) and above.isdisjoint(differs))
            if is_met or (words and git(self.top, "diff", "--name-only", *self._between, "--", *words)):
                found.add(path)
        return found


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
