"""Config files of a git revision."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from etlrun.system.errors import ConfigError, Fault, printable

_LINK, _FOLDER, _SUBMODULE = "120000", "040000", "160000"
"""Git modes of entries that are not regular files."""
_MOST_LINKS = 40
"""Maximum length of a chain of links, as in a file system."""


def git(folder: Path, *words: str, given: bytes = b"") -> bytes | None:
    """Return the output of git in `folder`; None if it fails or is not installed."""
    command = ["git", "-C", str(folder), *words]
    try:
        answer = subprocess.run(command, input=given, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return answer.stdout if answer.returncode == 0 else None


def write_configs(top: Path, revision: str, folder: str, scratch: Path) -> None:
    """Write the YAML files of a folder of a revision below `scratch`.

    Links are followed within the revision, and replaced by their targets. Submodules are skipped.

    Raises:
        ConfigError: A link leaves the repository, or git cannot read a file.
    """
    (scratch / folder).mkdir(parents=True, exist_ok=True)
    inside = "" if folder == "." else folder
    found = dict(_Tree.of(top, revision).configs(inside, inside))
    answer = git(top, "cat-file", "--batch", given="".join(f"{key}\n" for key in found.values()).encode())
    if answer is None:
        fault = Fault(where=revision, found="files that git can't read", expected="a complete revision")
        raise ConfigError([fault])
    place = 0
    for name in found:
        start = answer.index(b"\n", place) + 1
        place = start + int(answer[place:start].split()[-1])
        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
        (scratch / name).write_bytes(answer[start:place])
        place += 1


@dataclass(frozen=True)
class _Tree:
    """All entries of a revision: mode and blob key, by path in the repository."""

    top: Path
    revision: str
    entries: Mapping[str, tuple[str, str]]

    @classmethod
    def of(cls, top: Path, revision: str) -> _Tree:
        listed = os.fsdecode(git(top, "ls-tree", "-r", "-t", "-z", "--full-tree", revision) or b"")
        lines = [line.partition("\t") for line in listed.split("\0") if line]
        entries = {name: (about.split()[0], about.split()[2]) for about, _, name in lines}
        return cls(top, revision, {"": (_FOLDER, ""), **entries})

    def configs(self, folder: str, name: str, above: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
        """Yield the YAML files in `folder`, named `name` in messages, with their blob keys.

        As in the working tree, a link back to one of the folders `above` is not followed.
        """
        start = f"{folder}/" if folder else ""
        for path in self.entries:
            inner = path.removeprefix(start)
            parts = inner.split("/")
            if not path.startswith(start) or any(not part or part.startswith(".") for part in parts):
                continue
            target = self._followed(path)
            mode, key = self.entries.get(target, ("", "")) if target is not None else ("", "")
            here = f"{name}/{inner}" if name else inner
            inside = (*above, *(f"{start}{'/'.join(parts[:count])}".rstrip("/") for count in range(len(parts))))
            if mode == _FOLDER and target is not None and target != path and target not in inside:
                yield from self.configs(target, here, inside)
            elif mode not in {"", _FOLDER, _SUBMODULE} and here.endswith((".yaml", ".yml")):
                yield here, key

    def _followed(self, path: str) -> str | None:
        """Return `path` with links resolved; None for a dangling link."""
        done: list[str] = []
        left, links = path.split("/"), 0
        while left:
            part = left.pop(0)
            here = "/".join([*done, part])
            if part in {"", "."}:
                continue
            if part == "..":
                if not done:
                    raise ConfigError([self._leaves(path)])
                done.pop()
            elif here not in self.entries or links > _MOST_LINKS:
                return None
            elif self.entries[here][0] == _LINK:
                links += 1
                target = self._text(here)
                if target.startswith("/"):
                    raise ConfigError([self._leaves(path)])
                left = [*target.split("/"), *left]
            else:
                done.append(part)
        return "/".join(done)

    def _text(self, link: str) -> str:
        """Return the target of a link."""
        return os.fsdecode(git(self.top, "cat-file", "blob", self.entries[link][1]) or b"")

    def _leaves(self, link: str) -> Fault:
        return Fault(
            where=f"{self.revision}:{printable(link)}",
            found=f"a link to {printable(self._text(link))}, which leaves the repository",
            expected="a link within the revision",
            remedy="commit the target files, and link to these",
        )
