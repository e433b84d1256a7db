"""The folders of configs on one side of a review: those of the working tree, or of a git revision."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from etlrun import compose
from etlrun.errors import ConfigError, Fault


@dataclass(frozen=True, kw_only=True)
class Folders:
    """Where configs are.

    Attributes:
        base: The project's.
        own: A person's, searched after them; None for none.
        revision: Whose they are; empty for the working tree.
        shown: What a message calls each of them.
    """

    base: Path
    own: Path | None
    revision: str
    shown: dict[Path, str]

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The content of each YAML file, by the name that a message calls it."""
        folders = [folder for folder in (self.base, self.own) if folder is not None]
        return {self.name(path): path.read_bytes() for folder in folders for path in sorted(folder.rglob("*.yaml"))}

    def name(self, path: Path) -> str:
        """What a message calls a file; the same in each revision."""
        for folder, shown in self.shown.items():
            if path.is_relative_to(folder):
                return (Path(shown) / path.relative_to(folder)).as_posix()
        return str(path)

    def request(self, overrides: list[str], config_name: str | None = None) -> compose.Request:
        """For a config of these folders."""
        own = None if self.own is None else str(self.own)
        return compose.Request(overrides=overrides, base_dir=str(self.base), config_dir=own, config_name=config_name)


def working_tree(own: str | None) -> Folders:
    """The folders as they are now; `ConfigError` where a person's own is not there."""
    base, folder = compose.config_dir(), None if own is None else compose.own_folder(own)
    shown = {path: _relative(path) for path in (folder, base) if path is not None}
    return Folders(base=base, own=folder, revision="", shown=shown)


def _relative(path: Path) -> str:
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else str(path)


def is_revision(word: str) -> bool:
    """Whether git knows `word` as a commit of the repository here."""
    return (
        bool(word)
        and not word.startswith("-")
        and _git(Path.cwd(), "rev-parse", "--verify", f"{word}^{{commit}}") is not None
    )


@contextmanager
def at_revision(revision: str, now: Folders) -> Iterator[Folders]:
    """The folders as they were in `revision`; the working tree is not touched. `ConfigError` where there were none.

    The project's configs are those of this installation, where they are not kept in this repository.
    """
    top = Path((_git(Path.cwd(), "rev-parse", "--show-toplevel") or b"").decode().strip())
    tracked = {folder: _tracked(top, revision, folder) for folder in now.shown}
    names = [name for name in tracked.values() if name]
    if not names and not _ever_tracked(top, now.own):
        fault = Fault(
            where=revision,
            found=f"no folder {' or '.join(now.shown.values())} in that revision",
            expected="a revision that holds configs",
            remedy="give --config-dir the folder in which this repository keeps its configs",
        )
        raise ConfigError([fault])
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            _write_files(top, revision, name, Path(scratch))
        place = {folder: Path(scratch).resolve() / name if name else None for folder, name in tracked.items()}
        base = place[now.base] or now.base
        own = place[now.own] if now.own is not None else None
        shown = {base: now.shown[now.base], **({own: now.shown[now.own]} if own is not None and now.own else {})}
        yield Folders(base=base, own=own, revision=revision, shown=shown)


def _write_files(top: Path, revision: str, folder: str, scratch: Path) -> None:
    """Write the YAML files of a folder of a revision, as they were committed, below `scratch`."""
    (scratch / folder).mkdir(parents=True, exist_ok=True)
    listed = _git(top, "ls-tree", "-r", "-z", "--name-only", "--full-tree", revision, "--", folder) or b""
    names = [name for name in os.fsdecode(listed).split("\0") if name.endswith((".yaml", ".yml"))]
    asked = "".join(f"{revision}:{name}\n" for name in names)
    answer = _git(top, "cat-file", "--batch", "--follow-symlinks", given=os.fsencode(asked)) or b""
    place = 0
    for name in names:
        start = answer.index(b"\n", place) + 1
        place = start + int(answer[place:start].split()[-1])
        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
        (scratch / name).write_bytes(answer[start:place])
        place += 1


def _ever_tracked(top: Path, folder: Path | None) -> bool:
    """Whether some revision has files in `folder`: in one without it, it was not there yet, or not any more."""
    if folder is None or not folder.is_relative_to(top.resolve()):
        return False
    return bool(_git(top, "rev-list", "-n", "1", "--all", "HEAD", "--", folder.relative_to(top.resolve()).as_posix()))


def _tracked(top: Path, revision: str, folder: Path) -> str | None:
    """The path of `folder` in the repository; None where the revision has no files there."""
    if not folder.is_relative_to(top.resolve()):
        return None
    name = folder.relative_to(top.resolve()).as_posix()
    return name if _git(top, "ls-tree", "--name-only", "--full-tree", revision, "--", f"{name}/") else None


def _git(folder: Path, *words: str, given: bytes = b"") -> bytes | None:
    """What git says in `folder`; None where it fails or is not there."""
    command = ["git", "-C", str(folder), *words]
    try:
        answer = subprocess.run(command, input=given, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return answer.stdout if answer.returncode == 0 else None
