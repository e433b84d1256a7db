"""Config folders on one side of a review: of the working tree, or of a git revision."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from etlrun.config import request as requests
from etlrun.config.files import config_files
from etlrun.config.folders import POLICY, config_dir, own_folder
from etlrun.review.git import folder_at, git, top_of, write_configs
from etlrun.system.errors import ConfigError, Fault, fault, of_file, printable


@dataclass(frozen=True, kw_only=True)
class Folders:
    """Config folders of one side.

    Attributes:
        base: Folder of the project's configs.
        own: Folder of the user's own configs, searched after `base`; None for none.
        revision: Git revision of the folders; empty for the working tree.
        shown: Name of each folder in messages.
        given: The user's own folder as it was named, without following links; None for none.
    """

    base: Path
    own: Path | None
    revision: str
    shown: dict[Path, str]
    given: Path | None = None

    @cached_property
    def paths(self) -> dict[str, Path]:
        """The YAML files by their names in messages."""
        folders = [folder for folder in (self.base, self.own) if folder is not None]
        return {self.name(path): path for folder in folders for path in config_files(folder)}

    def file_of(self, option: str) -> str:
        """Return the name of the file of an option to review, such as `dataset=pets`, whether there is one or not."""
        return Path(self.shown[self.own or self.base], f"{option.replace('=', '/')}.yaml").as_posix()

    def is_own(self, option: str) -> bool:
        """Return whether an option is to be reviewed: one of the user's, or, without own configs, of the project's."""
        return self.file_of(option) in self.paths

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The content of each file; empty if it cannot be read."""
        return {name: _content(path) for name, path in self.paths.items()}

    @property
    def policy(self) -> Path | None:
        """The policy's file; None if there is none. One that can't be read is there."""
        path = (self.own or self.base) / POLICY
        return path if os.path.lexists(path) else None

    def name(self, path: Path) -> str:
        """Return the name of a file in messages: the same in each revision, without unprintable characters."""
        if path not in self._names:  # each file is part of many configs
            self._names[path] = self._name(path)
        return self._names[path]

    @cached_property
    def _names(self) -> dict[Path, str]:
        return {}

    def _name(self, path: Path) -> str:
        for folder, shown in self.shown.items():
            if path.is_relative_to(folder):
                path = Path(shown) / path.relative_to(folder)
                break
        return printable(path.as_posix())

    def request(self, overrides: list[str], config_name: str | None = None) -> requests.Request:
        """Return the request for a config of these folders."""
        own = None if self.own is None else str(self.own)
        return requests.Request(overrides=overrides, base_dir=str(self.base), config_dir=own, config_name=config_name)


def without_configs(where: str) -> Fault:
    """Return the fault of a folder of the user's own configs in which nothing is to be reviewed."""
    return Fault(
        where="--config-dir",
        found=f"no experiment and no option of a group {where}",
        expected="a folder of configs, such as experiment/NAME.yaml in it",
        remedy="name the folder that holds the folders of groups",
    )


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def working_tree(own: str | None) -> Folders:
    """Return the folders of the working tree.

    Raises:
        ConfigError: The user's own does not exist, or has links that leave its repository, or, without one, the folder
            in which it is: a review, which others may ask for, shows nothing of what these lead to.
    """
    base, folder = config_dir(), None if own is None else own_folder(own)
    if folder is not None and (faults := [*_leaving(folder)]):
        raise ConfigError(faults)
    shown = {path: _relative(path) for path in (folder, base) if path is not None}
    given = None if own is None else Path(os.path.abspath(own))  # noqa: PTH100 - follows no link
    return Folders(base=base, own=folder, revision="", shown=shown, given=given)


def _leaving(folder: Path) -> Iterator[Fault]:
    top = top_of(folder)
    inside = top.resolve() if top.is_absolute() else folder.parent
    for path in (*config_files(folder), *config_files(folder, ".yml"), folder / POLICY):
        if not (end := Path(os.path.realpath(path))).is_relative_to(inside):
            found = printable(f"a link to {end}, which leaves {inside}")
            yield of_file(_relative(path), found, "a link within that folder", "copy the file to which it leads")


def _relative(path: Path) -> str:
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else str(path)


def is_revision(word: str) -> bool:
    """Return whether `word` names a commit of the repository in the current folder."""
    return (
        bool(word)
        and not word.startswith("-")
        and git(Path.cwd(), "rev-parse", "--verify", f"{word}^{{commit}}") is not None
    )


def _ends(word: str) -> str:
    """Return both revisions of a range `A..B` or `A...B` as a shell takes them; empty if it is none."""
    first, dots, last = (of or "HEAD" for of in re.split(r"(\.{2,3})|$", word, maxsplit=1)[:3])
    if not dots.startswith("..") or not (is_revision(first) and is_revision(last)):
        return ""
    return f"{first} {last}" if dots == ".." else f"$(git merge-base {first} {last}) {last}"


def _is_cut_off(word: str) -> bool:
    """Return whether `word` names an ancestor of a commit that this clone has, and the clone is a shallow one."""
    above = re.split(r"[~^]", word, maxsplit=1)[0]
    is_shallow = (git(Path.cwd(), "rev-parse", "--is-shallow-repository") or b"").strip() == b"true"
    return is_shallow and above != word and is_revision(above)


def no_side(word: str) -> Fault:
    """Return the fault of a word that names nothing to compare; it says why git knows no revision at all."""
    here, found = Path.cwd(), "neither overrides, nor a file, a folder or a git revision of that name"
    remedy = 'quote overrides as one argument: "experiment=parallel load.prefetch=1"'
    if Path(word).is_dir():
        found = "a folder that is neither of a run nor of a sweep"
        remedy = "name a run in it; etlrun runs ls lists them"
    elif shutil.which("git") is None:
        found, remedy = f"{found}, since git is not installed", f"install git; {remedy}"
    elif git(here, "rev-parse", "--git-dir") is None:
        found = f"{found}, since git reads no repository here"
        remedy = f"run it in a repository (`git status` says why this is none); {remedy}"
    elif git(here, "rev-parse", "--verify", "HEAD") is None:
        found, remedy = f"{found}, since the repository has no commit", f"commit the configs first; {remedy}"
    elif both := _ends(word):
        found, remedy = "a range of revisions", f"give both revisions: {both}"
    elif _is_cut_off(word):
        found = f"{found}, since the clone is shallow"
        remedy = "fetch more commits, such as with git fetch --deepen 1"
    expected = "overrides in one argument, a config file, the folder of a run or of a sweep, or a git revision"
    return fault(word, found, expected, remedy)


@contextmanager
def at_revision(revision: str, now: Folders) -> Iterator[Folders]:
    """Check out the folders of `revision` to a temporary folder; `ConfigError` if the revision has none.

    If this repository does not contain the project's configs, those of the installation are used.
    """
    top = top_of(Path.cwd())
    tracked = {folder: _tracked(top, revision, folder) for folder in now.shown}
    if now.own is not None and now.given is not None:  # a link now may have been a folder, and the reverse
        tracked[now.own] = _tracked(top, revision, now.given) or tracked[now.own]
    names = [name for name in tracked.values() if name]
    if not names and not _ever_tracked(top, now.own):
        found = "no configs" if now.own is None else f"no folder {now.shown[now.own]}"
        is_here = now.own is not None and now.own.is_relative_to(top.resolve())
        remedy = f"set --config-dir to {'another' if is_here else 'the'} config folder of this repository"
        remedy = f"{'commit it first, or ' * is_here}{remedy}"
        raise ConfigError([fault(revision, f"{found} in that revision", "a revision that holds configs", remedy)])
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            write_configs(top, revision, name, Path(scratch))
        place = {folder: Path(scratch).resolve() / name for folder, name in tracked.items() if name}
        base, own = place.get(now.base, now.base), None
        if now.own is not None:
            own = place.get(
                now.own, Path(scratch).resolve() / "none"
            )  # an empty folder: the revision has no own configs
            own.mkdir(exist_ok=True)
        shown = {base: now.shown[now.base]} | ({own: now.shown[now.own]} if own is not None and now.own else {})
        yield Folders(base=base, own=own, revision=revision, shown=shown)


def _ever_tracked(top: Path, folder: Path | None) -> bool:
    """Return whether any revision has files in `folder`."""
    if folder is None or not folder.is_relative_to(top.resolve()):
        return False
    return bool(git(top, "rev-list", "-n", "1", "--all", "HEAD", "--", folder.relative_to(top.resolve()).as_posix()))


def _tracked(top: Path, revision: str, folder: Path) -> str | None:
    """Return the path of `folder` in the repository; None if the revision has no files there."""
    above = next((above for above in (folder, *folder.parents) if above.resolve() == top.resolve()), None)
    return None if above is None else folder_at(top, revision, folder.relative_to(above).as_posix())
